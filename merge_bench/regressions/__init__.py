"""Whether merges became slower: levels and shifts in the results of many nights, and the gates that fail a command."""

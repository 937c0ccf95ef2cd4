"""Whether merges or commands became slower: levels and shifts in the results of many nights, and gates."""

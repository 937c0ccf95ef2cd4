"""The report of results for looking at, keeping and sending: HTML in one file, Markdown, pictures."""

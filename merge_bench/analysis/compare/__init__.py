"""The `compare` command: which runs are compared, on what they ran, how much better one is, and what that proves."""

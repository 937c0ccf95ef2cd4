"""The `compare` command: chooses the runs, checks what they ran on, and judges their differences."""

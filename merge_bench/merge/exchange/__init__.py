"""What carries the frames between workers; one file each."""

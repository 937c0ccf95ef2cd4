"""What is merged; one file each."""

"""Results of other programs, brought in as campaigns."""

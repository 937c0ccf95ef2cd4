"""What `python -m benchmarks.width` is made of: how large a run is made, and the figures from its records."""

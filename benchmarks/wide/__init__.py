"""What `python -m benchmarks.width` is made of: how large a run is made, and what its records say."""

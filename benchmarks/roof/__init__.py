"""What `python -m benchmarks.roofline` is made of: memory limits, bytes that a merge moves, phases against both."""

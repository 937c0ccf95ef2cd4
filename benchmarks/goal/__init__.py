"""The goals of `benchmarks/goals.py`: their bounds, and how each is measured."""

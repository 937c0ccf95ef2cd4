"""The goals of `benchmarks/goals.py`: what is to be reached, how each is measured, and how the answer is shown."""

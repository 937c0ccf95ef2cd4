"""The steps of `benchmarks/gpu.py`: what is done on a machine with GPUs, in which order, and what is made of it."""

"""The programs that `benchmarks/peers.py` compares: one file each, each a process of its own, and what they share."""

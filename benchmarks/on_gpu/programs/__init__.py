"""Programs that measure one thing on one GPU and print a JSON line for each figure; `library.py` runs them.

Each runs in a process of its own, so that a crash costs only its own figures.
"""

"""Proves that a merge's result is correct."""

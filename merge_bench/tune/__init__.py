"""Finds a faster config by measurement."""

"""Measure, explain and tune distributed dataframe merges over UCX."""

from __future__ import annotations

__version__ = "0.1.0"

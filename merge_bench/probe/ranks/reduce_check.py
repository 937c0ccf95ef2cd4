"""The numbers that reduce-scatter adds, and the check of their sums.

They are small integers, so that every order of additions gives the same float32. They repeat after `VALUES` elements,
and so do their sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

VALUES, STEP = 61, 7  # one more than the largest contribution, and how contributions differ between ranks
EXACT = 1 << 24  # integers up to here are exact in float32
MOST_RANKS = EXACT // VALUES
Vector = np.ndarray[Any, Any]


def contribute(vector: Vector, rank: int) -> None:
    """Fill the vector of a rank; an element depends only on its index and the rank."""
    rows, rest = _periods(vector)
    rows[:] = _contributions(0, rank)
    rest[:] = _contributions(0, rank)[: rest.size]


def count_wrong(block: Vector, first: int, ranks: int) -> int:
    """Number of wrong elements in a block that begins at index `first` of the sum over all ranks."""
    expected = np.sum([_contributions(first, rank) for rank in range(ranks)], axis=0)
    rows, rest = _periods(block)
    return int(np.count_nonzero(rows != expected) + np.count_nonzero(rest != expected[: rest.size]))


def _contributions(first: int, rank: int) -> Vector:
    """A rank's elements from index `first` on, until they repeat."""
    return ((first + STEP * rank + np.arange(VALUES)) % VALUES).astype(np.float32)


def _periods(vector: Vector) -> tuple[Vector, Vector]:
    """Views of a vector: whole periods, one a row, and the elements after them."""
    whole = vector.size // VALUES * VALUES
    return vector[:whole].reshape(-1, VALUES), vector[whole:]

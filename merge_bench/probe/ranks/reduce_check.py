"""The numbers that reduce-scatter adds, and the proof that it added them right.

They are small integers: every order of adding gives the same float32.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

VALUES, STEP = 61, 7  # one more than the largest contribution, and how contributions differ between ranks
EXACT = 1 << 24  # integers up to here are exact in float32
MOST_RANKS = EXACT // VALUES


def contribute(vector: np.ndarray[Any, Any], rank: int) -> None:
    """Fill a rank's vector; an element depends on its place and the rank only."""
    _fill(vector, rank)


def count_wrong(block: np.ndarray[Any, Any], first: int, ranks: int) -> int:
    """How many elements of a block that begins at place `first` are not the sum of all ranks' contributions."""
    return int(_compare(block, first, ranks))


@numba.njit(nogil=True, cache=True)
def _fill(vector, rank):  # type: ignore[no-untyped-def] # pragma: no cover
    for place in range(vector.size):
        vector[place] = (place + STEP * rank) % VALUES


@numba.njit(nogil=True, cache=True)
def _compare(block, first, ranks):  # type: ignore[no-untyped-def] # pragma: no cover
    wrong = 0
    for index in range(block.size):
        expected = 0
        for rank in range(ranks):
            expected += (first + index + STEP * rank) % VALUES
        if block[index] != np.float32(expected):
            wrong += 1
    return wrong

"""The numbers that reduce-scatter adds, and the check of their sums.

They are small integers, so that every order of additions gives the same float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from merge_bench.merge.jit import compiled

VALUES, STEP = 61, 7  # one more than the largest contribution, and how contributions differ between ranks
EXACT = 1 << 24  # integers up to here are exact in float32
MOST_RANKS = EXACT // VALUES


@compiled
def contribute(vector: np.ndarray[Any, Any], rank: int) -> None:  # pragma: no cover
    """Fill the vector of a rank; an element depends only on its index and the rank."""
    for place in range(vector.size):
        vector[place] = (place + STEP * rank) % VALUES


@compiled
def count_wrong(block: np.ndarray[Any, Any], first: int, ranks: int) -> int:  # pragma: no cover
    """Number of wrong elements in a block that begins at index `first` of the sum over all ranks."""
    wrong = 0
    for index in range(block.size):
        expected = 0
        for rank in range(ranks):
            expected += (first + index + STEP * rank) % VALUES
        if block[index] != np.float32(expected):
            wrong += 1
    return wrong

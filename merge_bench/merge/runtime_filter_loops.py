"""Compiled loops of the runtime filter."""

from __future__ import annotations

from typing import Any

import numpy as np

from merge_bench.merge.jit import compiled, inlined, load_word

BIT = np.uint64(1)
LOW = np.uint64(63)


@compiled
def ends(values: Any) -> tuple[Any, Any]:
    """The least and the greatest value as int64; of no values the greatest and the least number of 64 bits."""
    least, greatest = np.int64(2**63 - 1), np.int64(-(2**63))
    for i in range(values.size):
        least = min(least, np.int64(values[i]))
        greatest = max(greatest, np.int64(values[i]))
    return least, greatest


@compiled
def mark_within(values: Any, least: Any, greatest: Any, marks: Any) -> None:
    """Remove the marks of rows whose value is not one of least…greatest."""
    for i in range(values.size):
        value = np.int64(values[i])
        marks[i] &= np.uint8((value >= least) & (value <= greatest))


@inlined
def _bits(x: Any) -> Any:
    """Two bits of a word, by the upper 12 bits of a hash."""
    return (BIT << (x >> np.uint64(58))) | (BIT << ((x >> np.uint64(52)) & LOW))


@compiled
def enter(hashes: Any, words: Any) -> None:
    """Enter rows into a Bloom filter whose bits of a key are in one word.

    The word is that of Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007), section 3:
    one access for a key. Its number, a power of two, is in the lower bits of the hash.
    """
    last = np.uint64(words.size - 1)
    for i in range(hashes.size):
        words[hashes[i] & last] |= _bits(hashes[i])


@compiled
def mark_known(hashes: Any, words: Any, marks: Any) -> None:
    """Mark the rows that may have been entered, with 1; others with 0."""
    last = np.uint64(words.size - 1)
    for i in range(hashes.size):
        bits = _bits(hashes[i])
        marks[i] = np.uint8((words[hashes[i] & last] & bits) == bits)


@compiled
def marked(marks: Any, rows: Any) -> None:
    """The numbers of the marked rows; `rows` has room for one more."""
    count, whole = np.uint64(0), marks.size // 8 * 8
    for start in range(0, whole, 8):
        if load_word(marks, np.uint64(start)) != 0:  # often none of eight is marked
            for i in range(start, start + 8):
                rows[count] = i
                count += np.uint64(marks[i])
    for i in range(whole, marks.size):
        rows[count] = i
        count += np.uint64(marks[i])

"""Two ways of writing rows into parcels. The parcels are the same; the processor decides which way is faster.

``plain`` writes each value to its place at once. The processor first fetches the cache line of that place from memory,
and has to keep one line for each bucket and column in its cache. ``lines`` collects a cache line for each bucket and
column, and writes full lines past the caches (`partition_loops.scatter_lines`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from merge_bench.merge.buffer_pool import ALIGN, aligned
from merge_bench.merge.frame import Array, Bytes
from merge_bench.merge.parcel_layout import Counts

PLAIN, LINES = "plain", "lines"
PAIRED_STREAMS = 512
"""Most buckets to which plain stores write two columns at once: with more, two lines for each do not fit the cache."""

Pieces: TypeAlias = Iterable[tuple[Array, Array]]
"""The values of successive rows, and the bucket of each of these rows; one that is no bucket leaves its row out."""


class Writer(Protocol):
    """Writes columns into parcels.

    `positions`: where each bucket's first value goes, in values from the start of `whole`. `pairs`: whether two columns
    of 8 bytes are to be written at once. `most_streams`: with more buckets, the partition loses more time than the join
    of smaller buckets gains.
    """

    most_streams: ClassVar[int]
    pairs: bool

    def column(self, dtype: Any, pieces: Pieces, positions: Counts, whole: Bytes) -> None:
        """Write the values of one column."""

    def pair(self, first: Array, second: Array, ids: Array, positions: Counts, whole: Bytes, gaps: Counts) -> None:
        """Write two columns of one width; `gaps`: how many values after the first column's the second's go."""


class PlainStores:
    """Writes each value where it belongs, at once."""

    most_streams: ClassVar[int] = 512

    def __init__(self, buckets: int) -> None:
        self.pairs = buckets <= PAIRED_STREAMS

    def column(self, dtype: Any, pieces: Pieces, positions: Counts, whole: Bytes) -> None:
        """Write the values of one column."""
        from merge_bench.merge import partition_loops

        at, out = positions.astype(np.uint64), whole.view(dtype)
        for values, ids in pieces:
            partition_loops.scatter(values, ids, at, out)

    def pair(self, first: Array, second: Array, ids: Array, positions: Counts, whole: Bytes, gaps: Counts) -> None:
        """Write two columns of one width."""
        from merge_bench.merge import partition_loops

        at, out = positions.astype(np.uint64), whole.view(first.dtype)
        partition_loops.scatter_pair(first, second, ids, at, out, gaps.astype(np.uint64))


class WholeLines:
    """Collects a cache line for each bucket and column, and writes whole lines past the caches."""

    most_streams: ClassVar[int] = 2048
    pairs = True

    def __init__(self, buckets: int) -> None:
        self._first, self._second = (aligned(buckets * ALIGN) for _ in range(2))

    def column(self, dtype: Any, pieces: Pieces, positions: Counts, whole: Bytes) -> None:
        """Write the values of one column."""
        from merge_bench.merge import partition_loops

        at, out, lines = positions.astype(np.uint64), whole.view(dtype), self._first.view(dtype)
        starts = at.copy()
        for values, ids in pieces:
            partition_loops.scatter_lines(values, ids, at, starts, lines, out)
        partition_loops.write_begun_lines(at, starts, lines, out)

    def pair(self, first: Array, second: Array, ids: Array, positions: Counts, whole: Bytes, gaps: Counts) -> None:
        """Write two columns of one width."""
        from merge_bench.merge import partition_loops

        at, out = positions.astype(np.uint64), whole.view(first.dtype)
        lines, seconds = self._first.view(first.dtype), self._second.view(first.dtype)
        away = gaps.astype(np.uint64)
        partition_loops.scatter_pair_lines(first, second, ids, at, at.copy(), lines, seconds, out, away)


WAYS: dict[str, type[PlainStores] | type[WholeLines]] = {PLAIN: PlainStores, LINES: WholeLines}


def most_streams(ways: Iterable[str]) -> int:
    """Most buckets of all workers together, if these are the ways of the workers: all split by the same buckets."""
    return min(WAYS[way].most_streams for way in ways)


def writer(way: str, buckets: int) -> Writer:
    """A writer for so many buckets; for use by one thread."""
    return WAYS[way](buckets)

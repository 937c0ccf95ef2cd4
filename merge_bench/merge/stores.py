"""Two ways of writing rows into parcels. The parcels are the same; the processor decides which way is faster.

``plain`` writes each value to its place at once. The processor first fetches the cache line of that place from memory,
and has to keep one line for each bucket and column in its cache. ``lines`` collects rows for each bucket until they
fill two cache lines of each column, and writes full lines past the caches (`partition_loops.scatter_lines`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol, TypeAlias

import numpy as np

from merge_bench.merge.buffer_pool import aligned
from merge_bench.merge.frame import Array
from merge_bench.merge.parcel_layout import Counts

PLAIN, LINES = "plain", "lines"
PAIRED_STREAMS = 512
"""Most buckets to which plain stores write two columns at once: with more, two lines for each do not fit the cache."""
MOST_COLUMNS = 5
"""Columns that whole lines are written of at once: more gain little, and with eight a value takes longer."""
COLLECTED_BYTES = 768 << 10
"""Most memory of collected rows, which have to stay in the L2 cache; two columns of 2048 buckets need 512 KiB."""

Pieces: TypeAlias = Iterable[tuple[tuple[Array, ...], Array]]
"""Values of successive rows, an array per column, all of one type, and each row's bucket, or none to leave it out."""


class Writer(Protocol):
    """Writes columns of one type into parcels.

    `most_columns`: how many of them to write at once. `most_streams`: with more buckets, the partition loses more time
    than the join of smaller buckets gains.
    """

    most_columns: int
    most_streams: ClassVar[int]

    def write(self, pieces: Pieces, positions: Counts, out: Array) -> None:
        """Write some columns to `out`; `positions`: shape (columns, buckets), where each bucket's first values go."""


class PlainStores:
    """Writes each value where it belongs, at once."""

    most_streams: ClassVar[int] = 512

    def __init__(self, buckets: int) -> None:
        self.most_columns = 2 if buckets <= PAIRED_STREAMS else 1

    def write(self, pieces: Pieces, positions: Counts, out: Array) -> None:
        """Write some columns."""
        from merge_bench.merge import partition_loops

        at, gaps = _first_and_gaps(positions)
        for values, ids in pieces:
            partition_loops.scatter(values, ids, at, out, gaps)


class WholeLines:
    """Collects cache lines for each bucket and column, and writes whole lines past the caches."""

    most_streams: ClassVar[int] = 2048

    def __init__(self, buckets: int) -> None:
        from merge_bench.merge.partition_loops import COLLECTED

        self.most_columns = max(1, min(MOST_COLUMNS, COLLECTED_BYTES // (buckets * COLLECTED)))
        self._rows = aligned(self.most_columns * buckets * COLLECTED)

    def write(self, pieces: Pieces, positions: Counts, out: Array) -> None:
        """Write some columns."""
        from merge_bench.merge import partition_loops

        at, gaps = _first_and_gaps(positions)
        starts, rows = at.copy(), self._rows.view(out.dtype)
        for values, ids in pieces:
            partition_loops.scatter_lines(values, ids, at, starts, rows, out, gaps)
        partition_loops.write_begun_lines(len(positions), at, starts, rows, out, gaps)


def _first_and_gaps(positions: Counts) -> tuple[Array, Array]:
    """The positions of the first column, and for each bucket how far after them each column's are."""
    return positions[0].astype(np.uint64), (positions - positions[0]).T.astype(np.uint64).ravel()


WAYS: dict[str, type[PlainStores] | type[WholeLines]] = {PLAIN: PlainStores, LINES: WholeLines}


def most_streams(ways: Iterable[str]) -> int:
    """Most buckets of all workers together, if these are the ways of the workers: all split by the same buckets."""
    return min(WAYS[way].most_streams for way in ways)


def writer(way: str, buckets: int) -> Writer:
    """A writer for so many buckets; for use by one thread."""
    return WAYS[way](buckets)

"""This package's own hash join, for all keys but floats; Polars joins the rest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from merge_bench.merge.engines import Description
from merge_bench.merge.engines.base import JoinShape, Side
from merge_bench.merge.engines.hash_join import EXCHANGED, MOST_ROWS, BucketJoin, FewRightRowsJoin
from merge_bench.merge.engines.polars import PolarsEngine
from merge_bench.merge.frame import Bytes, Frame, arrow_schema
from merge_bench.merge.memory import ALIGN, BufferPool
from merge_bench.merge.partition import RowReader

ENGINE = Description(
    name="native",
    help="this package's own compiled hash join",
    attribute="NativeEngine",
    packages=("polars",),
    place=1,
    in_parts=True,
    reuses_sent=True,
)


def needs_no_library(shape: JoinShape) -> bool:
    """Whether the join needs no library: every key has one type on both sides, and none is a float.

    Such keys are equal if their bytes are. Floats are not: both zeros are one value, and a NaN equals nothing.
    """
    keys = zip(*([shape.fields(side)[at] for at in shape.key_positions(side)] for side in Side), strict=True)
    return all(left.type == right.type and not left.floating for left, right in keys)


class NativeEngine(PolarsEngine):
    """A compiled hash join bucket by bucket; its result is written to memory that is used again."""

    name = ENGINE.name
    join_rows = 96_000  # with 52,000 left rows or fewer a table has 65,536 chains, half as many as with more

    def __init__(self, shape: JoinShape) -> None:
        super().__init__(shape)
        few_right = self._in_place and shape.sent is Side.RIGHT and shape.how in EXCHANGED
        kind = FewRightRowsJoin if few_right else BucketJoin
        # One for each thread: neither a join nor a pool of buffers may be used by two threads at once.
        self._joins = [(kind(shape), BufferPool()) for _ in range(shape.threads)] if needs_no_library(shape) else []
        self._buffer_pools += [out for _, out in self._joins]

    def lend(self, rooms: Sequence[Bytes]) -> None:
        """Write the result into this memory first, each thread into its share of every run of bytes."""
        for number, (_, out) in enumerate(self._joins):
            shares = [room.size // len(self._joins) // ALIGN * ALIGN for room in rooms]
            out.lend([room[number * size :][:size] for room, size in zip(rooms, shares, strict=True)])

    def join_groups(self, groups: Iterable[tuple[int, int]], left: RowReader, right: RowReader) -> Iterable[Any]:
        if not self._joins:
            return super().join_groups(groups, left, right)
        all_groups = list(groups)

        def join_share(thread: int) -> list[Any]:
            return list(self._join_on_thread(thread, all_groups[thread :: len(self._joins)], left, right))

        run = map if self._pool is None else self._pool.map
        pieces = list(itertools.chain.from_iterable(run(join_share, range(len(self._joins)))))
        if not pieces and not self._results:
            pieces = [Frame.from_arrow(arrow_schema(self.shape.output).empty_table())]
        return pieces

    def _join_on_thread(
        self, thread: int, groups: Sequence[tuple[int, int]], left: RowReader, right: RowReader
    ) -> Iterable[Any]:
        join, out = self._joins[thread]
        for first, last in groups:
            chunks = left.rows_as_frames(first, last), right.rows_as_frames(first, last)
            entered, _ = chunks if self.shape.how.pairs else reversed(chunks)
            if sum(chunk.rows for chunk in entered) > MOST_ROWS:
                yield self.join_by_library(left.rows_as_table(first, last), right.rows_as_table(first, last))
                continue
            yield from join.join(*chunks, out)

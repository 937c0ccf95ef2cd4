"""The project's own join for all keys but floats; what it cannot join goes to Polars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from merge_bench.merge.arena import ALIGN, Arena
from merge_bench.merge.engines import Description
from merge_bench.merge.engines.base import JoinShape, Side
from merge_bench.merge.engines.buckets import MOST_ROWS, BucketJoin
from merge_bench.merge.engines.polars import PolarsEngine
from merge_bench.merge.frame import Bytes, Frame
from merge_bench.merge.parcel import Parcel
from merge_bench.merge.partition import BucketReader, bucket_groups

ENGINE = Description(
    name="native",
    help="this package's own compiled hash join",
    attribute="NativeEngine",
    packages=("polars",),
    place=1,
    in_parts=True,
    reuses_sent=True,
)


def joins_itself(shape: JoinShape) -> bool:
    """Whether the join needs no library: every key is of one type on both sides, and none is a float.

    Bytes tell whether such keys are equal; of floats they do not, as both zeros are one value and a NaN is none.
    """
    sides = [{field.name: field for field in shape.fields(side)} for side in Side]
    keys = [[fields[key] for fields in sides] for key in shape.keys]
    return all(left.type == right.type and not left.floating for left, right in keys)


class NativeEngine(PolarsEngine):
    """A compiled hash join of one bucket after the other, its result in memory that is used again."""

    name = ENGINE.name

    def __init__(self, shape: JoinShape) -> None:
        super().__init__(shape)
        # Of each thread its own: neither a join nor an arena may be used by two at once.
        self._joins = (
            [(BucketJoin(shape.left, shape.right, shape.keys), Arena()) for _ in range(shape.threads)]
            if joins_itself(shape)
            else []
        )
        self._arenas += [out for _, out in self._joins]

    def lend(self, rooms: Sequence[Bytes]) -> None:
        """Write the result there first, each thread into its share of every run of bytes."""
        for number, (_, out) in enumerate(self._joins):
            shares = [room.size // len(self._joins) // ALIGN * ALIGN for room in rooms]
            out.lend([room[number * size :][:size] for room, size in zip(rooms, shares, strict=True)])

    def join_buckets(self, first: int, last: int, left: Sequence[Parcel], right: Sequence[Parcel]) -> None:
        """Join buckets first…last-1 of these parcels, the groups of buckets dealt out to the threads."""
        if not self._joins:
            super().join_buckets(first, last, left, right)
            return
        readers = BucketReader(self.shape.left, left), BucketReader(self.shape.right, right)
        groups = list(bucket_groups(*readers, last, self.join_rows, first=first))

        def some(thread: int) -> list[Any]:
            return list(self._joined(thread, groups[thread :: len(self._joins)], *readers))

        run = map if self._pool is None else self._pool.map
        for pieces in run(some, range(len(self._joins))):
            self._results += pieces
        if not self._results:
            schema = pa.schema([(field.name, field.type) for field in self._joins[0][0].fields])
            self._results.append(Frame.from_arrow(schema.empty_table()))

    def result_rows(self) -> int:
        """Rows of the result so far."""
        return sum(piece.rows if isinstance(piece, Frame) else len(piece) for piece in self._results)

    def _joined(
        self, thread: int, groups: Sequence[tuple[int, int]], left: BucketReader, right: BucketReader
    ) -> Iterable[Any]:
        join, out = self._joins[thread]
        for first, last in groups:
            chunks = left.chunks(first, last)
            if sum(chunk.rows for chunk in chunks) > MOST_ROWS:
                yield self.join_tables(left.table(first, last), right.table(first, last), self.shape.keys)
                continue
            yield from join.join(chunks, right.chunks(first, last), out)

    def to_arrow(self, piece: Any) -> pa.Table:
        """One joined piece as an Arrow table."""
        return piece.to_arrow() if isinstance(piece, Frame) else super().to_arrow(piece)

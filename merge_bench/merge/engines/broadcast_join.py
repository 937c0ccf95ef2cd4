"""The hash join of a few right rows with blocks of a left chunk that stays where it lies, for the engine `native`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from merge_bench.merge.buffer_pool import BufferPool
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.engines.hash_join import BucketJoin
from merge_bench.merge.frame import Frame
from merge_bench.merge.how import How

EXCHANGED = {How.INNER: How.INNER, How.LEFT: How.RIGHT}
"""Joins that look right rows up in a table of the left ones, and what they are with the sides exchanged."""


class FewRightRowsJoin(BucketJoin):
    """A `BucketJoin` of `EXCHANGED` that looks left rows up in a table of the right ones."""

    def __init__(self, shape: JoinShape) -> None:
        exchanged = replace(shape, left=shape.right, right=shape.left, how=EXCHANGED[shape.how])
        super().__init__(exchanged)
        names = [field.name for field in exchanged.output]
        self._fields, self._places = shape.output, [names.index(field.name) for field in shape.output]

    def join(self, left: Sequence[Frame], right: Sequence[Frame], out: BufferPool) -> Iterator[Frame]:
        """The result of a block, a piece at a time, in memory of `out`."""
        for piece in super().join(right, left, out):
            columns = tuple(piece.columns[at] for at in self._places)
            yield Frame(self._fields, columns, piece.rows)

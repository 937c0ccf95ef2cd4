"""The hash join of a few right rows with blocks of a left chunk that stays where it lies, for the engine `native`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from merge_bench.merge.buffer_pool import BufferPool
from merge_bench.merge.engines.base import JoinShape, Side
from merge_bench.merge.engines.hash_join import BucketJoin
from merge_bench.merge.frame import Frame
from merge_bench.merge.how import How

_EXCHANGED = {How.INNER: How.INNER, How.LEFT: How.RIGHT, How.SEMI: How.SEMI, How.ANTI: How.SEMI}
"""The join with the sides exchanged; semi and anti joins only need one without pairs."""


class FewRightRowsJoin(BucketJoin):
    """A `BucketJoin` that looks left rows up in a table of the right ones, which all blocks of left rows share.

    `shape`: of a join that keeps no right rows without a match.
    """

    def __init__(self, shape: JoinShape) -> None:
        exchanged = replace(shape, left=shape.right, right=shape.left, how=_EXCHANGED[shape.how])
        super().__init__(exchanged)
        self._shape = shape
        self._kept = None if shape.how is How.INNER else int(shape.how is How.SEMI)  # the mark of rows to add
        names = [field.name for field in exchanged.output]
        self._places = [names.index(field.name) for field in shape.output if shape.how.pairs]

    def join(self, left: Sequence[Frame], right: Sequence[Frame], out: BufferPool) -> Iterator[Frame]:
        """The result of a block, a piece at a time, in memory of `out`."""
        marks = None if self._kept is None else self._cleared(Side.LEFT, sum(chunk.rows for chunk in left))
        for piece in self._join_pairs(right, left, out, None, marks):
            columns = tuple(piece.columns[at] for at in self._places)
            yield Frame(self._shape.output, columns, piece.rows)
        if marks is not None and self._kept is not None:
            yield from self._alone(Side.LEFT, left, marks, self._kept, out)

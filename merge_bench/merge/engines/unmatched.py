"""Rows of a result that only one side has: its columns, and nulls in the other side's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from merge_bench.merge.buffer_pool import BufferPool
from merge_bench.merge.engines.base import JoinShape, Side
from merge_bench.merge.frame import Array, Column, Field, Frame, storage_dtype
from merge_bench.merge.hashing import BLOCK, RowHasher, is_plain

Rows = Sequence[tuple[Frame, Array]]
"""Chunks of one side, each with the numbers of some of its rows."""


def rows_without_key(chunk: Frame, keys: Sequence[str]) -> npt.NDArray[np.int32]:
    """The numbers of the rows with a null or NaN among their keys."""
    columns = [chunk.column(key) for key in keys]
    if all(is_plain(*column) for column in columns):
        return np.zeros(0, np.int32)
    hasher, found = RowHasher(), []
    for start in range(0, chunk.rows, BLOCK):
        _, missing = hasher.block(columns, start, min(BLOCK, chunk.rows - start))
        found.append(np.flatnonzero(missing) + start)
    return np.concatenate(found).astype(np.int32) if found else np.zeros(0, np.int32)


def without_match(shape: JoinShape, side: Side, rows: Rows, out: BufferPool) -> Frame:
    """Rows of the result for rows of `side` that have no match, in memory of `out`.

    Where only left columns are in the result, these are its rows.
    """
    from merge_bench.merge.engines.hash_join import take_rows

    count = sum(some.size for _, some in rows)
    names = [field.name for field in shape.fields(side)]

    def column(field: Field) -> Column:
        if field.name in names:
            at = names.index(field.name)
            return take_rows([(chunk.columns[at], some) for chunk, some in rows], out)
        return nulls(field, count, out)

    output = shape.output
    return Frame(output, tuple(column(field) for field in output), count)


def nulls(field: Field, count: int, out: BufferPool) -> Column:
    """A column of nulls."""
    valid = out.take(count)
    valid[:] = 0
    if field.variable:
        offsets = out.take((count + 1) * 8).view(np.int64)
        offsets[:] = 0
        return Column(out.take(0), offsets, valid)
    values = out.take(count * field.width)
    values[:] = 0
    return Column(values.view(storage_dtype(field.width)), None, valid)

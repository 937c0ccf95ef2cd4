"""Estimates of the memory that rows of real tables take, before they are read.

Widths of fixed-width columns are known; the mean length of strings and binaries comes from one row group of each side.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow.compute as pc

from merge_bench.merge.engines.base import How
from merge_bench.merge.frame import Field
from merge_bench.merge.workload.tables import TableSide, TableSpec, read_side

OFFSET_BYTES = 8


def row_bytes(side: TableSide, names: Collection[str] | None = None) -> float:
    """Mean bytes of a row of one side as its frames hold it: values, 64-bit offsets, a validity byte where nullable.

    `names`: of the columns to count; None: all.
    """
    fields = [field for field in side.fields if names is None or field.name in names]
    return _row_bytes(fields, mean_lengths(side))


def output_bytes(spec: TableSpec, rows: int, how: How = How.INNER) -> int:
    """Estimated bytes of `rows` rows of the result of a merge of this kind, all columns once.

    The estimate assumes that rows are like those of the sampled row groups. If the most frequent keys have the longest
    strings, the result is larger.
    """
    lengths = {**mean_lengths(spec.right), **mean_lengths(spec.left)}
    return round(rows * _row_bytes(how.output(spec.left.fields, spec.right.fields, spec.keys), lengths))


def mean_lengths(side: TableSide) -> dict[str, float]:
    """Mean bytes of a value of each variable-width column (by the name it travels under), from one row group."""
    variable = [column for column in side.columns if column.field.variable]
    group = next((chunk[0] for chunk in side.chunks if chunk), None)
    if not variable or group is None:
        return {column.field.name: 0.0 for column in variable}
    file, index = group
    table = read_side(side, file, [index], variable)
    totals = [pc.sum(pc.binary_length(values)).as_py() or 0 for values in table.columns]
    return {c.field.name: total / table.num_rows for c, total in zip(variable, totals, strict=True)}


def _row_bytes(fields: Sequence[Field], lengths: dict[str, float]) -> float:
    widths = (OFFSET_BYTES + lengths[field.name] if field.variable else field.width for field in fields)
    return sum(widths, 0.0) + sum(field.nullable for field in fields)

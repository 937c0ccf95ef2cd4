"""The columns of a join: as a dataframe library sees them, and with some rows of a chunk.

A user's names do not reach a library: columns are numbered, because a name can be one that the library uses itself, or
cannot have. Dates, times and durations are integers of the same bits, because libraries round, refuse or misread some
of them. A library may need the same for other types (`Storage`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merge_bench.merge.engines.base import JoinKind, JoinShape, Side
from merge_bench.merge.engines.hash_join_loops import gather_byte_strings, gather_offsets, gather_values
from merge_bench.merge.frame import (
    BLOCK,
    Array,
    Bytes,
    Column,
    Field,
    Frame,
    arrow_schema,
    as_integer_type,
    reinterpret_column,
    storage_dtype,
)
from merge_bench.merge.memory import BufferPool
from merge_bench.merge.partition_loops import RowHasher, can_hash_key_directly

FEW_BYTES = 4096  # of strings: so few are copied, to have others after them

Storage: TypeAlias = Callable[[pa.DataType], pa.DataType]
"""The type under which a library is given the values of another type: of the same width, or ``large_binary``."""


@dataclass(frozen=True)
class LibraryColumnMapping:
    """The fields of both sides of a join and of its result, under the users' names and under a library's names.

    Key number i is ``k{i}`` on both sides, column number i of the left table ``l{i}``, of the right one ``r{i}``.
    """

    sides: dict[Side, tuple[Field, ...]]  # the fields of each side as a library sees them
    output: tuple[Field, ...]  # those of the result as a library sees them, in the order of `JoinKind.output_fields`
    named: tuple[Field, ...]  # those of the result under the users' names and types
    keys: tuple[str, ...]  # names of the keys, as a library sees them

    @staticmethod
    def for_join(
        left: Sequence[Field],
        right: Sequence[Field],
        keys: Sequence[str],
        how: JoinKind,
        storage_type: Storage = as_integer_type,
    ) -> LibraryColumnMapping:
        """Make the mapping for a join of tables with these fields and keys.

        `storage_type` gives the types that the library needs.
        """
        numbers = dict(zip(keys, library_key_names(len(keys)), strict=True))
        sides = {
            side: tuple(
                replace(field, name=numbers.get(field.name, f"{side.value[0]}{at}"), type=storage_type(field.type))
                for at, field in enumerate(fields)
            )
            for side, fields in zip(Side, (left, right), strict=True)
        }
        ours, theirs = sides.values()
        names = tuple(numbers.values())
        return LibraryColumnMapping(
            sides, how.output_fields(ours, theirs, names), how.output_fields(left, right, keys), names
        )

    def table_to_library(self, side: Side, table: pa.Table) -> pa.Table:
        """Convert rows of one side to the names and types of the library; only ``large_binary`` columns are copied."""
        return _make_table_with_fields(table.columns, self.sides[side])

    def result_to_library(self, table: pa.Table) -> pa.Table:
        """Convert rows of the result from the users' names and types to those of the library."""
        return _make_table_with_fields((table.column(field.name) for field in self.named), self.output)

    def result_from_library(self, table: pa.Table) -> pa.Table:
        """Convert a library's result to the users' names and types, in the order of the output fields."""
        columns = (table.column(field.name).cast(field.type) for field in self.output)
        return _make_table_with_fields(columns, self.named)


def library_key_names(count: int) -> tuple[str, ...]:
    """Return the names of the first `count` key columns as a library gets them: ``k0``, ``k1``…."""
    return tuple(f"k{number}" for number in range(count))


def _make_table_with_fields(columns: Iterable[pa.ChunkedArray], fields: Sequence[Field]) -> pa.Table:
    """Make a table of these columns with the names and types of `fields`, without changing their bytes."""
    arrays = [_reinterpret_as_type(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(fields))


def _reinterpret_as_type(column: pa.ChunkedArray, arrow_type: pa.DataType) -> pa.ChunkedArray:
    """Convert a column to another type that has the same bytes."""
    held_type = column.type
    if held_type == arrow_type:
        return column
    if pa.types.is_large_binary(held_type) and not pa.types.is_large_string(arrow_type):
        return reinterpret_column(column.cast(pa.binary(arrow_type.bit_width // 8)), arrow_type)
    if pa.types.is_large_binary(arrow_type) and not pa.types.is_large_string(held_type):
        return reinterpret_column(column, pa.binary(held_type.bit_width // 8)).cast(arrow_type)
    return reinterpret_column(column, arrow_type)


def text_as_binary_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return ``large_binary`` for text, else the `as_integer_type`.

    pandas cannot hash text that is not UTF-8.
    """
    return pa.large_binary() if pa.types.is_large_string(arrow_type) else as_integer_type(arrow_type)


def decimal_as_binary_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return ``large_binary`` for decimals, else what `as_integer_type` does.

    Dask turns decimals into Python objects, and fails if one is missing.
    """
    return pa.large_binary() if pa.types.is_decimal(arrow_type) else as_integer_type(arrow_type)


Rows = Sequence[tuple[Frame, Array]]
"""Chunks of one side, each with the numbers of some of its rows."""


def null_key_row_numbers(chunk: Frame, keys: Sequence[str]) -> npt.NDArray[np.int32]:
    """Return the numbers of the rows of a chunk that have a null or NaN in a key column."""
    columns = [chunk.column(key) for key in keys]
    if all(can_hash_key_directly(*column) for column in columns):
        return np.zeros(0, np.int32)
    hasher, parts = RowHasher(), []
    for start in range(0, chunk.rows, BLOCK):
        _, missing = hasher.hash_rows(columns, start, min(BLOCK, chunk.rows - start))
        parts.append(np.flatnonzero(missing) + start)
    return np.concatenate(parts).astype(np.int32) if parts else np.zeros(0, np.int32)


def make_unmatched_result(shape: JoinShape, side: Side, rows: Rows, out: BufferPool) -> Frame:
    """Make the result rows of rows of one side that have no match, with nulls for the other side's columns.

    `rows`: chunks, each with row numbers. `out`: gives the memory.
    """
    count = sum(numbers.size for _, numbers in rows)
    names = [field.name for field in shape.fields(side)]

    def output_column(field: Field) -> Column:
        if field.name in names:
            at = names.index(field.name)
            return gather_column_rows([(chunk.columns[at], numbers) for chunk, numbers in rows], out)
        return make_null_column(field, count, out)

    output = shape.output_fields
    return Frame(output, tuple(output_column(field) for field in output), count)


def make_null_column(field: Field, count: int, out: BufferPool) -> Column:
    """Make a column of `count` nulls; `out` gives the memory."""
    valid = out.take_bytes(count)
    valid[:] = 0
    if field.has_variable_width:
        offsets = out.take_bytes((count + 1) * 8).view(np.int64)
        offsets[:] = 0
        return Column(out.take_bytes(0), offsets, valid)
    values = out.take_bytes(count * field.width)
    values[:] = 0
    return Column(values.view(storage_dtype(field.width)), None, valid)


def _add_slack(values: Bytes) -> Bytes:
    """Return the bytes of a few strings with 32 more, within which `gather_byte_strings` copies slowly."""
    return values if values.size > FEW_BYTES else np.append(values, np.zeros(32, np.uint8))


def gather_column_rows(columns_and_rows: Sequence[tuple[Column, Array]], out: BufferPool) -> Column:
    """Make one column of rows from several columns; each comes with its row numbers.

    The rows follow one after the other, in memory from `out`.
    """
    edges = [0, *itertools.accumulate(rows.size for _, rows in columns_and_rows)]
    spans = list(itertools.pairwise(edges))
    (kind, _), count = columns_and_rows[0], edges[-1]
    valid = None
    if kind.valid is not None:
        valid = out.take_bytes(count)
        for (column, rows), (first, last) in zip(columns_and_rows, spans, strict=True):
            gather_values(column.valid, rows, valid[first:last])
    if kind.offsets is not None:
        offsets = out.take_bytes((count + 1) * 8).view(np.int64)
        offsets[0] = 0
        for (column, rows), (first, last) in zip(columns_and_rows, spans, strict=True):
            gather_offsets(column.offsets, rows, offsets[first : last + 1])
        data = out.take_bytes(int(offsets[count]))
        for (column, rows), (first, _) in zip(columns_and_rows, spans, strict=True):
            gather_byte_strings(_add_slack(column.values), column.offsets, rows, offsets[first:], data)
        return Column(data, offsets, valid)
    values = out.take_bytes(count * kind.values.itemsize).view(kind.values.dtype)
    for (column, rows), (first, last) in zip(columns_and_rows, spans, strict=True):
        gather_values(column.values, rows, values[first:last])
    return Column(values, None, valid)

"""The columns of a join as a dataframe library sees them, for every library that is used here.

A user's names do not reach a library: columns are numbered, because a name can be one that the library uses itself, or
cannot have. Dates, times and durations are integers of the same bits, because libraries round, refuse or misread some
of them. A library may need the same for other types (`Storage`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from merge_bench.merge.engines.base import How, Side
from merge_bench.merge.frame import Field, arrow_schema, integer_type, view_as

Storage: TypeAlias = Callable[[pa.DataType], pa.DataType]
"""The type under which a library is given the values of another type: of the same width, or ``large_binary``."""


@dataclass(frozen=True)
class LibraryColumns:
    """Both sides of a join and its result under the users' names, and under those that a library sees.

    Key number i is ``k{i}`` on both sides, column number i of the left table ``l{i}``, of the right one ``r{i}``.

    Attributes
    ----------
    sides
        The fields of each side as a library sees them.
    output
        The fields of the result as a library sees them, in the order of `How.output`.
    named
        The fields of the result under the users' names and types.
    keys
        Names of the keys, as a library sees them.
    """

    sides: dict[Side, tuple[Field, ...]]
    output: tuple[Field, ...]
    named: tuple[Field, ...]
    keys: tuple[str, ...]

    @staticmethod
    def of(
        left: Sequence[Field], right: Sequence[Field], keys: Sequence[str], how: How, storage: Storage = integer_type
    ) -> LibraryColumns:
        """The columns of a join of tables with these fields and keys, for a library that needs `storage`."""
        numbers = dict(zip(keys, library_key_names(len(keys)), strict=True))
        sides = {
            side: tuple(
                replace(field, name=numbers.get(field.name, f"{side.value[0]}{at}"), type=storage(field.type))
                for at, field in enumerate(fields)
            )
            for side, fields in zip(Side, (left, right), strict=True)
        }
        ours, theirs = sides.values()
        names = tuple(numbers.values())
        return LibraryColumns(sides, how.output(ours, theirs, names), how.output(left, right, keys), names)

    def to_library(self, side: Side, table: pa.Table) -> pa.Table:
        """Rows of one side under the names and types of the library; only what becomes ``large_binary`` is copied."""
        return _table_of_fields(table.columns, self.sides[side])

    def result_to_library(self, table: pa.Table) -> pa.Table:
        """Rows of the result under the names and types of the library, from those of the users."""
        return _table_of_fields((table.column(field.name) for field in self.named), self.output)

    def from_library(self, table: pa.Table) -> pa.Table:
        """A library's result under the users' names and types, in the order of `How.output`."""
        columns = (table.column(field.name).cast(field.type) for field in self.output)
        return _table_of_fields(columns, self.named)


def library_key_names(count: int) -> tuple[str, ...]:
    """The names under which a library sees the first `count` keys."""
    return tuple(f"k{number}" for number in range(count))


def _table_of_fields(columns: Iterable[pa.ChunkedArray], fields: Sequence[Field]) -> pa.Table:
    """A table of these columns under the names and types of `fields`, with the same bytes."""
    arrays = [_reinterpret(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(fields))


def _reinterpret(column: pa.ChunkedArray, arrow_type: pa.DataType) -> pa.ChunkedArray:
    held_type = column.type
    if held_type == arrow_type:
        return column
    if pa.types.is_large_binary(held_type) and not pa.types.is_large_string(arrow_type):
        return view_as(column.cast(pa.binary(arrow_type.bit_width // 8)), arrow_type)
    if pa.types.is_large_binary(arrow_type) and not pa.types.is_large_string(held_type):
        return view_as(column, pa.binary(held_type.bit_width // 8)).cast(arrow_type)
    return view_as(column, arrow_type)


def text_as_bytes(arrow_type: pa.DataType) -> pa.DataType:
    """The type of `integer_type`, but bytes for text, because pandas cannot hash text that is not UTF-8."""
    return pa.large_binary() if pa.types.is_large_string(arrow_type) else integer_type(arrow_type)


def decimals_as_bytes(arrow_type: pa.DataType) -> pa.DataType:
    """The type of `integer_type`, but bytes for decimals: Dask makes objects of them, and fails if one is missing."""
    return pa.large_binary() if pa.types.is_decimal(arrow_type) else integer_type(arrow_type)

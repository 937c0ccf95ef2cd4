"""SQL that brings what DuckDB reads from Parquet files to the types of a merge, exactly or with an error.

In SQL dates, times, timestamps and durations are integers and text is bytes, so that neither units nor the limits of
DuckDB's own types can change a value: its 64-bit timestamps know infinity, its text is UTF-8 only.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from merge_bench.merge.frame import integer_type

types = pa.types

_INTEGERS = {
    pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT", pa.uint16(): "USMALLINT", pa.uint32(): "UINTEGER", pa.uint64(): "UBIGINT",
}  # fmt: skip
_FLOATS = {pa.float32(): "FLOAT", pa.float64(): "DOUBLE"}
_TEXTS = ("VARCHAR", "JSON")
_RAW = {"INT32": "INTEGER", "INT64": "BIGINT", "BYTE_ARRAY": "BLOB", "FIXED_LEN_BYTE_ARRAY": "BLOB"}
_DAY = 86_400  # seconds
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Stored:
    """A column as a group of files holds it.

    `kind`: DuckDB's name of the type; ``INT96`` for Parquet's old timestamps, which are read in two parts. `unit`: of
    integers that are times, None elsewhere. `physical`: Parquet's name of the type that the values have in the file.
    """

    name: str
    kind: str
    unit: str | None = None
    physical: str = ""

    @property
    def strippable(self) -> bool:
        """Whether DuckDB refuses some values of this type, which the physical type under it has."""
        return self.physical in _RAW and self.kind.startswith((*_TEXTS, "TIME", "INTERVAL", "ENUM", "GEOMETRY"))

    def stripped(self) -> Stored:
        """The same column without its logical type."""
        return replace(self, kind=_RAW[self.physical]) if self.strippable else self


class NotExact(Exception):
    """No SQL gives a column's values under the wanted type."""


def sql_type(target: pa.DataType) -> str:
    """DuckDB's type of a canonical type's values in SQL."""
    target = integer_type(target)
    if types.is_decimal128(target):
        return f"DECIMAL({target.precision},{target.scale})"
    if types.is_large_string(target) or types.is_large_binary(target):
        return "BLOB"
    return "BOOLEAN" if types.is_boolean(target) else {**_INTEGERS, **_FLOATS}[target]


def sql_value(column: str, found: Stored | None, target: pa.DataType) -> str:
    """SQL for the values of a column under its canonical type; None: these files do not have it, so it is null.

    Raises
    ------
    NotExact
        If the types do not go together.
    """
    wanted = sql_type(target)
    if found is None or found.kind.strip('"') == "NULL":
        return f"NULL::{wanted}"
    kind = found.kind
    if types.is_temporal(target):
        return _temporal(column, found, target)
    if wanted == "BLOB":
        if kind in _TEXTS or kind.startswith("ENUM"):
            return f"encode({column}::VARCHAR)"
        if kind in ("BLOB", "UUID"):
            return f"{column}::BLOB"
    whole = kind in _INTEGERS.values()
    if kind == wanted or (whole and (wanted in _INTEGERS.values() or types.is_decimal128(target))):
        return f"{column}::{wanted}"
    if kind.startswith("DECIMAL") and types.is_decimal128(target):
        return f"{column}::{wanted}"
    if kind == "FLOAT" and wanted == "DOUBLE":
        return f"{column}::DOUBLE"
    if whole and wanted in _FLOATS.values():
        same = f"{column}::{wanted}::HUGEINT = {column}"
        return f"CASE WHEN {column} IS NULL OR {same} THEN {column}::{wanted} ELSE error('no such {wanted}') END"
    raise NotExact


def _temporal(column: str, found: Stored, target: pa.DataType) -> str:
    """Integers in the target's unit since 1970, or since midnight."""
    wanted = sql_type(target)
    if types.is_date32(target):
        if found.kind != "DATE":
            raise NotExact
        return f"({column} - DATE '1970-01-01')::{wanted}"
    ticks, unit = _ticks(column, found)
    have, want = _PER_SECOND[unit], _PER_SECOND[target.unit]
    if want >= have:
        return f"({ticks} * {want // have})::{wanted}" if want > have else f"({ticks})::{wanted}"
    factor = have // want
    whole = f"CASE WHEN {ticks} % {factor} = 0 THEN ({ticks}) // {factor}"
    return f"({whole} WHEN {ticks} IS NOT NULL THEN error('finer than its type') END)::{wanted}"


def _ticks(column: str, found: Stored) -> tuple[str, str]:
    """64-bit integers of a time or a duration, and their unit."""
    kind = found.kind
    if kind == "INT96":  # what is below a microsecond is cut off, as the engines' reader does
        days = f"({column}.date - DATE '1970-01-01')"
        return f"({days} * {_DAY * 10**6} + epoch_ns({column}.time) // 1000)", "us"
    if kind in ("INTEGER", "BIGINT") and found.unit:
        return f"{column}::BIGINT", found.unit
    if kind.startswith("TIMESTAMP"):
        unit = "ns" if kind.endswith("NS") else "us"
        # DuckDB takes the two outermost integers for infinity, which has no number.
        ends = f"CASE WHEN {column} > '-infinity' THEN {2**63 - 1} ELSE {-(2**63) + 1} END"
        if found.unit == "ms":
            ends = "error('beyond microseconds')"
        return f"coalesce(epoch_{unit}({column}), CASE WHEN {column} IS NOT NULL THEN {ends} END)", unit
    if kind == "TIME_NS":
        return f"epoch_ns({column})", "ns"
    if kind.startswith("TIME"):
        return f"epoch_us({column}::TIME)", "us"
    raise NotExact


def duration_units(arrow_schema: bytes) -> dict[str, str]:
    """The units of durations, which Parquet stores as plain integers: from the schema that Arrow keeps in a file."""
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(arrow_schema)))
    return {field.name: field.type.unit for field in schema if types.is_duration(field.type)}


def top_columns(elements: Sequence[Mapping[str, Any]]) -> list[Stored]:
    """The columns among the elements of a Parquet schema, of which the first is the root; nested ones as a whole."""
    columns, position = [], 1
    while position < len(elements):
        each = elements[position]
        columns.append(_stored(each))
        position = _next(elements, position)
    return columns


def _next(elements: Sequence[Mapping[str, Any]], start: int) -> int:
    """Where the element after this one and what is nested in it begins."""
    position = start + 1
    for _ in range(elements[start]["children"] or 0):
        position = _next(elements, position)
    return position


def _stored(element: Mapping[str, Any]) -> Stored:
    pattern = r"(MILLIS|MICROS|NANOS)=(?!<null>)|TIME(?:STAMP)?_(MILLIS|MICROS)"
    found = re.search(pattern, f"{element['logical']} {element['converted']}")
    unit = {"MILLIS": "ms", "MICROS": "us", "NANOS": "ns"}[found[1] or found[2]] if found else None
    physical = element["type"] or ""
    return Stored(element["name"], "INT96" if physical == "INT96" else element["kind"] or "", unit, physical)

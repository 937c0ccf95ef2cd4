"""Columns of every carried type with their awkward values, and frames turned back into Arrow, for the tests here."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from merge_bench.merge.frame import Frame
from merge_bench.merge.workload.tables import TableSpec, load_chunk, plan_tables
from tests.merge.in_process import engines_of, run_once

NAN = float("nan")

# A few values of each type, null first; as keys, some of them meet on both sides.
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [None, -128, -1, 0, 1, 127]),
    "int16": (pa.int16(), [None, -(2**15), -1, 0, 1, 2**15 - 1]),
    "int32": (pa.int32(), [None, -(2**31), -1, 0, 1, 2**31 - 1]),
    "int64": (pa.int64(), [None, -(2**63), -1, 0, 1, 2**63 - 1]),
    "uint8": (pa.uint8(), [None, 0, 1, 255]),
    "uint16": (pa.uint16(), [None, 0, 1, 2**16 - 1]),
    "uint32": (pa.uint32(), [None, 0, 1, 2**32 - 1]),
    "uint64": (pa.uint64(), [None, 0, 1, 2**63, 2**64 - 1]),
    "float": (pa.float32(), [None, NAN, 0.0, -0.0, 1.5, -float("inf")]),
    "double": (pa.float64(), [None, NAN, 0.0, -0.0, 0.1, float("inf")]),
    "bool": (pa.bool_(), [None, True, False]),
    "string": (pa.string(), [None, "", "a", "ab", "zwölf Zeichen", "日本語", "🎈", "a\0b"]),
    "large_string": (pa.large_string(), [None, "", "x" * 40, "x" * 39 + "y"]),
    "string_view": (pa.string_view(), [None, "", "short", "longer than twelve bytes"]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), [None, "", "north", "süd"]),
    "binary": (pa.binary(), [None, b"", b"\xff\x00", b"\xff"]),
    "decimal64": (pa.decimal64(9, 2), [None, Decimal("-1.50"), Decimal("0.00"), Decimal("9999999.99")]),
    "decimal128": (pa.decimal128(38, 4), [None, Decimal("-1.5"), Decimal("9" * 34 + ".9999"), Decimal("0.0001")]),
    "date32": (pa.date32(), [None, dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]),
    "date64": (pa.date64(), [None, dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "time32": (pa.time32("ms"), [None, 0, 1, 86_399_999]),
    "time64_us": (pa.time64("us"), [None, 0, 1, 86_399_999_999]),
    "time64_ns": (pa.time64("ns"), [None, 0, 1, 86_399_999_999_999]),
    "timestamp_ms": (pa.timestamp("ms"), [None, -1, 0, 253_402_300_799_999]),
    "timestamp_us": (pa.timestamp("us"), [None, -1, 0, 1_700_000_000_000_001]),
    "timestamp_ns": (pa.timestamp("ns"), [None, -1, 0, 1_700_000_000_000_000_001]),
    "timestamp_zone": (pa.timestamp("us", "Europe/Berlin"), [None, -1, 0, 1_700_000_000_000_001]),
    "duration_s": (pa.duration("s"), [None, -1, 0, 86_400]),
    "duration_ns": (pa.duration("ns"), [None, -1, 0, 2**62]),
}


def column(kind: str, rows: int, seed: int, *, nulls: bool = True) -> pa.Array:
    """`rows` values of a kind, drawn with repetition."""
    arrow_type, values = VALUES[kind]
    if not nulls:
        values = values[1:]
    drawn = [values[i] for i in np.random.default_rng(seed).integers(0, len(values), rows)]
    if pa.types.is_dictionary(arrow_type):
        return pa.array(drawn, arrow_type.value_type).dictionary_encode().cast(arrow_type)
    return pa.array(drawn, arrow_type)


def two_tables(folder: Path, key: str, rows: int = 60) -> tuple[Path, Path]:
    """Two files with key columns `k` and `q` of one kind, duplicates on both sides, and payload of every kind."""
    left = {"k": column(key, rows, 1), "row": pa.array(range(rows))}
    right = {"q": column(key, rows // 2, 2), "row": pa.array(range(rows // 2))}
    for number, kind in enumerate(VALUES):
        left[f"l_{kind}"] = column(kind, rows, 100 + number, nulls=number % 3 != 0)
        right[f"r_{kind}"] = column(kind, rows // 2, 200 + number, nulls=number % 3 != 1)
    return write(folder / "left.parquet", pa.table(left), 7), write(folder / "right.parquet", pa.table(right), 7)


def write(path: Path, table: pa.Table, row_group_size: int | None = None, **options: Any) -> Path:
    """Write a Parquet file and return its path."""
    pq.write_table(table, path, row_group_size=row_group_size, **options)
    return path


def plan(left: Path, right: Path, on: str | Sequence[str], right_on: Any = None, **options: Any) -> TableSpec:
    """`plan_tables` with two workers and Polars, unless the options say otherwise."""
    left_on = [on] if isinstance(on, str) else list(on)
    other = left_on if right_on is None else [right_on] if isinstance(right_on, str) else list(right_on)
    return plan_tables(str(left), str(right), left_on, other, **{"workers": 2, "engine": "polars", **options})


def to_arrow(frame: Frame) -> pa.Table:
    """The rows of a frame as Arrow again, built value by value from its flat arrays."""
    columns = {}
    for field, values in zip(frame.fields, frame.columns, strict=True):
        mask = None if values.valid is None else values.valid == 0
        if field.has_variable_width:
            assert values.offsets is not None
            edges = values.offsets.tolist()
            data = values.values.tobytes()
            items = [data[a:b] for a, b in itertools.pairwise(edges)]
            raw = pa.array(items, pa.large_binary(), mask=mask)
            columns[field.name] = raw.cast(field.type)
        elif pa.types.is_boolean(field.type):
            columns[field.name] = pa.array(values.values.astype(bool), mask=mask)
        else:
            validity = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
            buffers = [validity, pa.py_buffer(np.ascontiguousarray(values.values))]
            columns[field.name] = pa.Array.from_buffers(field.type, frame.rows, buffers)
    return pa.table(columns)


def run_engine(name: str, spec: TableSpec) -> list[pa.Table]:
    """The result of merging in this process, with as many engines as the plan has workers."""
    lefts, rights = zip(*(load_chunk(spec, rank) for rank in range(len(spec.left.chunks))), strict=True)
    engines = engines_of(name, lefts, rights, spec.keys)
    run_once(engines)
    return [piece for engine in engines for piece in engine.result_tables()]

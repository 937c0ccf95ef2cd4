"""Frames of every carried type with nulls, for tests of what moves rows; and rows compared without their order."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from merge_bench.merge.frame import Frame

KINDS: dict[str, pa.DataType] = {
    str(kind): kind
    for kind in (
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.decimal128(38, 6),
        pa.date32(),
        pa.time32("ms"),
        pa.time64("ns"),
        pa.timestamp("us"),
        pa.timestamp("ns", "UTC"),
        pa.duration("ms"),
        pa.large_string(),
        pa.large_binary(),
    )
}


def raw_column(kind: pa.DataType, rows: int, rng: np.random.Generator, *, nulls: bool, distinct: int) -> pa.Array:
    """Random bits of a kind, so that every value that can be stored occurs; few distinct ones, so that rows repeat."""
    chosen = rng.integers(0, distinct, rows)
    mask = rng.random(rows) < 0.2 if nulls else None
    if pa.types.is_boolean(kind):
        return pa.array(chosen % 2 == 1, mask=mask)
    if pa.types.is_large_string(kind):
        words = ["", "a", "ab", "ü" * 5, "word\0", "日本語", "x" * 33]
        return pa.array([f"{words[c % 7]}{c if c > 6 else ''}" for c in chosen], kind, mask=mask)
    if pa.types.is_large_binary(kind):
        return pa.array([rng.bytes(1) * (c % 19) + bytes([c % 256]) for c in chosen], kind, mask=mask)
    width = kind.bit_width // 8
    pool = rng.integers(0, 256, (distinct, width), dtype=np.uint8)
    if pa.types.is_decimal(kind):
        pool[:, 12:] = np.where(pool[:, 11:12] >= 128, 255, 0)  # small enough for the precision
    values = np.ascontiguousarray(pool[chosen])
    if pa.types.is_floating(kind):
        floats = values.view(np.float32 if width == 4 else np.float64).reshape(-1)
        floats[chosen == 0] = np.nan
        floats[chosen == 1] = -0.0
        floats[chosen == 2] = 0.0
    if pa.types.is_time(kind):
        integers = values.view(np.int32 if width == 4 else np.int64).reshape(-1)
        integers %= 86_400_000 if width == 4 else 86_400_000_000_000
    validity = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(values.tobytes())])


def random_table(rows: int, kinds: list[str], seed: int, *, nulls: bool = True, distinct: int = 40) -> pa.Table:
    """Columns c0, c1, … of these kinds."""
    rng = np.random.default_rng(seed)
    columns = [raw_column(KINDS[kind], rows, rng, nulls=nulls, distinct=distinct) for kind in kinds]
    return pa.table({f"c{number}": column for number, column in enumerate(columns)})


def bits(table: pa.Table) -> list[tuple[Any, ...]]:
    """Each row as its exact bits: NaN and -0.0 included, null as None."""
    columns = []
    for chunked in table.columns:
        kind = chunked.type
        whole = pa.concat_arrays(chunked.chunks) if chunked.num_chunks else pa.array([], kind)
        if pa.types.is_boolean(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            if pa.types.is_large_string(kind):
                whole = whole.cast(pa.large_binary())
            columns.append(whole.to_pylist())
            continue
        width = kind.bit_width // 8
        buffer = whole.buffers()[1]
        data = b"" if buffer is None else buffer.to_pybytes()[whole.offset * width :]
        valid = whole.is_valid().to_pylist()
        columns.append([data[n * width : (n + 1) * width] if ok else None for n, ok in enumerate(valid)])
    return list(zip(*columns, strict=True))


def multiset(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows without their order."""
    return Counter(bits(table))


def as_value(table: pa.Table, names: list[str]) -> list[tuple[Any, ...] | None]:
    """Each row's key as SQL compares it: both zeros alike; None where any part is null or NaN."""
    columns: list[list[Any]] = []
    for name in names:
        chunked = table[name]
        if pa.types.is_floating(chunked.type):
            columns.append([None if v is None or v != v else v + 0.0 for v in chunked.to_pylist()])
        else:
            columns.append([row[0] for row in bits(table.select([name]))])
    return [None if None in row else row for row in zip(*columns, strict=True)]


def frame(table: pa.Table, nullable: bool | None = None) -> Frame:
    """The table flattened; with `nullable`, every column carries validity."""
    flat = Frame.from_arrow(table)
    return flat if nullable is None else flat.with_nullable_fields(dict.fromkeys(table.column_names, nullable))


kinds = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5)
seeds = st.integers(0, 2**32 - 1)

"""Random tables, laid out in folders as programs write them: names, leftovers, partitions, types of parts.

Each is made by the program's own library where it is installed, else as that program names and stores its files.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import os
import random
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

KEYS: dict[str, list[pa.DataType]] = {
    "whole": [pa.int64(), pa.int32(), pa.int16(), pa.uint32(), pa.int8()],
    "text": [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    "bytes": [pa.binary(), pa.string()],
    "day": [pa.date32()],
    "instant": [pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us")],
    "decimal": [pa.decimal128(9, 2), pa.decimal128(20, 2), pa.decimal128(30, 4)],
    "float": [pa.float64(), pa.float32()],
}
"""Types of keys that can be compared; values are drawn from some 20 in each."""
PAYLOAD: list[pa.DataType] = [
    pa.int8(),
    pa.uint64(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.dictionary(pa.int8(), pa.string()),
    pa.date32(),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us"),
    pa.timestamp("ns"),
    pa.duration("us"),
    pa.decimal128(12, 3),
    pa.binary(4),
    pa.uuid(),
    pa.null(),
    *[pa.timestamp("us")] * 4,
]
PARTITIONS = pa.schema([("year", pa.int32()), ("region", pa.string()), ("at", pa.string())])


@dataclass(frozen=True)
class Layout:
    """A table on disk. `given`: its path, as a person names it; `refused`: it must not be read."""

    program: str
    given: str
    folder: Path
    key: str
    refused: bool = False


def make_table(rng: random.Random, folder: Path, key: str) -> Layout:
    """One table with a column `k` of the kind `key` and some payload, as a program chosen at random lays it out."""
    folder.mkdir(parents=True)
    program = rng.choice(list(PROGRAMS))
    kind = rng.choice(KEYS[key]) if program != "impala" else KEYS[key][0]
    columns = {f"{'pqrs'[n]}{rng.randrange(3)}": rng.choice(PAYLOAD) for n in range(rng.randint(0, 3))}
    whole = rng.random() < 0.5
    parts = [
        _part(rng, kind, columns, rng.choice([0, 1, 5, 20, 60]) if rng.random() < 0.9 else 0, whole=whole)
        for _ in range(rng.choice([1, 1, 2, 3, 4]))
    ]
    refused = PROGRAMS[program](rng, folder, parts)
    given = str(folder)
    if not refused:
        refused = _leftovers(rng, folder)
        given = rng.choice([given] * 6 + [given + "/", f"file://{given}", f"{given}/*", f"{given}/**"])
    return Layout(program, given, folder, key, refused)


def _part(
    rng: random.Random, kind: pa.DataType, columns: Mapping[str, pa.DataType], rows: int, *, whole: bool
) -> pa.Table:
    """The rows of one file, whose types may differ from other parts' in ways that harm nothing.

    `whole`: no key is null, so that a reader may believe that every key matches.
    """
    table = {"k": values(rng, kind, rows, few=True, absent=0.0 if whole else None)}
    for name, column in columns.items():
        drawn = rng.random()
        if drawn < 0.08:
            continue
        if drawn < 0.16:
            column = pa.null()
        elif drawn < 0.3:
            column = {pa.int64(): pa.float64(), pa.int32(): pa.int64(), pa.int8(): pa.int32()}.get(column, column)
            column = pa.dictionary(pa.int32(), pa.string()) if pa.types.is_string(column) else column
        table[name] = values(rng, column, rows)
    return pa.table(table)


def values(
    rng: random.Random, kind: pa.DataType, rows: int, *, few: bool = False, absent: float | None = None
) -> pa.Array:
    """Random values; `few`: of 20, so that many are equal; `absent`: the share of nulls, by default a random one."""
    types = pa.types
    if types.is_null(kind):
        return pa.nulls(rows)
    if types.is_dictionary(kind):
        return values(rng, kind.value_type, rows, few=few, absent=absent).dictionary_encode().cast(kind)
    if isinstance(kind, pa.BaseExtensionType):
        storage = [None if rng.random() < 0.2 else uuid.UUID(int=rng.getrandbits(128)).bytes for _ in range(rows)]
        return pa.ExtensionArray.from_storage(kind, pa.array(storage, kind.storage_type))
    share = rng.choice([0.0, 0.1, 0.3]) if absent is None else absent
    return pa.array([None if rng.random() < share else _value(rng, kind, few) for _ in range(rows)], kind)


def _value(rng: random.Random, kind: pa.DataType, few: bool) -> Any:
    types = pa.types
    number = rng.randrange(20) if few else rng.choice([0, 1, rng.randrange(100), rng.randrange(-(2**31), 2**31)])
    if types.is_boolean(kind):
        return number % 2 == 0
    if types.is_integer(kind):
        low, high = (0, 2**kind.bit_width - 1) if str(kind).startswith("u") else (-(2 ** (kind.bit_width - 1)), 0)
        return abs(number) % 100 if few or rng.random() < 0.7 else rng.choice([low, high, 1])
    if types.is_floating(kind):
        return rng.choice([float(number % 1000), 0.0, -0.0, float("nan"), rng.choice([1, -1]) * float("inf"), 0.1])
    if types.is_string(kind) or types.is_large_string(kind):
        return f"süd {number}" if number % 5 else ""
    if types.is_fixed_size_binary(kind):
        return rng.randbytes(kind.byte_width)
    if types.is_binary(kind):
        return f"süd {number}".encode() if few or number % 3 else rng.randbytes(3)
    if types.is_decimal(kind):
        return decimal.Decimal(number % 1000) / 4 if not few else decimal.Decimal(number)
    if types.is_date(kind):
        return dt.date(1970, 1, 1) + dt.timedelta(days=number % 3_000_000 - (0 if few else 700_000))
    if types.is_time(kind):
        return abs(number) * (1 if kind.bit_width == 32 else 7) % 86_400_000
    if types.is_timestamp(kind) and not few and kind.unit != "ns" and number % 4 == 0:
        return rng.choice([dt.datetime(9999, 12, 31), dt.datetime(1, 1, 1)])
    return number * (1 if kind.unit == "ms" else 1000)


def _leftovers(rng: random.Random, folder: Path) -> bool:
    """What programs leave beside the data; True if it makes the table unreadable."""
    shown = (path for path in folder.rglob("*") if path.is_file() and not re.search("/[._]", str(path)))
    good = min(shown)
    for _ in range(rng.choice([0, 1, 1, 2])):
        what = rng.randrange(8)
        if what == 0:
            (folder / "_SUCCESS").touch()
        elif what == 1:
            (good.parent / f".{good.name}.crc").write_bytes(b"crc\0")
        elif what == 2:
            (folder / rng.choice(["._part-0.parquet", ".part-9.parquet"])).write_bytes(good.read_bytes())
        elif what == 3:
            staged = folder / rng.choice(["_temporary/0", "_impala_insert_staging/a", ".staging"])
            staged.mkdir(parents=True, exist_ok=True)
            (staged / "part-0.parquet").write_bytes(good.read_bytes())
        elif what == 4:
            pq.write_metadata(pq.read_schema(good), folder / rng.choice(["_metadata", "_common_metadata"]))
        elif what == 5:
            (folder / rng.choice(["README", "notes.txt", "part.crc"])).write_text("no rows")
        elif what == 6 and not good.is_symlink():
            (folder.parent / "blobs").mkdir(exist_ok=True)
            blob = folder.parent / "blobs" / uuid.UUID(int=rng.getrandbits(128)).hex
            good.rename(blob)
            good.symlink_to(os.path.relpath(blob, good.parent))
        elif what == 7 and rng.random() < 0.4:
            return _unreadable(rng, folder, good)
    return False


def _unreadable(rng: random.Random, folder: Path, good: Path) -> bool:
    name = folder / "part-8.parquet"
    what = rng.randrange(6)
    if what == 0:
        name.symlink_to("gone")
    elif what == 1:
        os.mkfifo(name)
    elif what == 2:
        name.touch()
    elif what == 3:
        name.write_text("version https://git-lfs.github.com/spec/v1\n")
    elif what == 4:
        name.write_bytes(good.read_bytes()[:-20])
    else:
        (folder / "rows.csv").write_text("k\n1\n")
    return True


# Programs: each writes the parts, and says whether the table must be refused


def _partitioned(rng: random.Random, folder: Path) -> Path:
    """A folder for a part: one of Hive partitions where the number of letters in the table's name says so."""
    levels: dict[str, list[Any]] = {"year": [2023, 2024], "region": ["eu", "us east", "__HIVE_DEFAULT_PARTITION__"]}
    path = folder
    for level in sorted(levels)[: len(folder.name) % 3]:
        path = path / f"{level}={str(rng.choice(levels[level])).replace(' ', '%20')}"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _spark(rng: random.Random, folder: Path, parts: list[pa.Table]) -> bool:
    int96, job = rng.random() < 0.5, uuid.UUID(int=rng.getrandbits(128))
    inside = folder / "2026-01.parquet" if rng.random() < 0.2 else folder
    inside.mkdir(exist_ok=True)
    for number, part in enumerate(parts):
        path = _partitioned(rng, inside) / f"part-{number:05}-{job}-c000.snappy.parquet"
        write(rng, part, path, use_deprecated_int96_timestamps=int96)
        (path.parent / f".{path.name}.crc").write_bytes(b"crc\0")
    (folder / "_SUCCESS").touch()
    return False


def _dask(rng: random.Random, folder: Path, parts: list[pa.Table]) -> bool:
    for number, part in enumerate(parts):
        write(rng, part, folder / f"part.{number}.parquet")
    pq.write_metadata(parts[0].schema, folder / "_common_metadata")
    return False


def _pandas(rng: random.Random, folder: Path, parts: list[pa.Table]) -> bool:
    for number, part in enumerate(parts):
        frame = part.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
        if rng.random() < 0.3:
            frame.index = pd.Index(np.arange(len(frame)) * 2, name=rng.choice([None, "row"]))
        frame.to_parquet(folder / f"{number}.parquet", index=rng.choice([None, False]), **_indexes(rng))
    return False


def _polars(rng: random.Random, folder: Path, parts: list[pa.Table]) -> bool:
    for number, part in enumerate(parts):
        plain = part.drop([f.name for f in part.schema if isinstance(f.type, pa.BaseExtensionType)])
        frame = pl.from_arrow(plain)
        assert isinstance(frame, pl.DataFrame)
        path = _partitioned(rng, folder) / f"{number:08x}.parquet"
        frame.write_parquet(path, statistics=rng.random() < 0.85, row_group_size=16)
    return False


def _duckdb(rng: random.Random, folder: Path, parts: list[pa.Table]) -> bool:
    plain = (pa.duration("us"), pa.null())
    with duckdb.connect() as connection:
        for number, part in enumerate(parts):
            part = part.drop([f.name for f in part.schema if f.type in plain])
            part = part.set_column(0, "k", part["k"])
            connection.register("part", part)
            path = _partitioned(rng, folder) / f"data_{number}.parquet"
            bloom, version = rng.choice(["true", "false"]), rng.choice(["V1", "V2"])
            connection.execute(
                f"COPY part TO '{path}' (FORMAT parquet, WRITE_BLOOM_FILTER {bloom}, PARQUET_VERSION {version})"
            )
    return False


def _arrow(rng: random.Random, folder: Path, parts: list[pa.Table]) -> bool:
    for number, part in enumerate(parts):
        at = pa.array([rng.choice(["a", "b/c", None]) for _ in range(part.num_rows)], pa.string())
        ds.write_dataset(
            part.append_column("at", at),
            folder,
            format="parquet",
            basename_template=f"part{number}-{{i}}.parquet",
            partitioning=ds.partitioning(pa.schema([("at", pa.string())]), flavor="hive"),
            existing_data_behavior="overwrite_or_ignore",
            file_options=ds.ParquetFileFormat().make_write_options(write_statistics=rng.random() < 0.85),
        )
    if not any(folder.rglob("*.parquet")):
        write(rng, parts[0], folder / "part0-0.parquet")
    return False


def _impala(rng: random.Random, folder: Path, parts: list[pa.Table]) -> bool:
    for number, part in enumerate(parts):
        columns = [c.cast(pa.binary()) if pa.types.is_string(c.type) else c for c in part.columns]
        name = f"{rng.getrandbits(64):016x}-{rng.getrandbits(32):08x}_{number}_data.0.{rng.choice(['parq', 'parquet'])}"
        table = pa.Table.from_arrays(columns, names=part.column_names)
        write(rng, table, _partitioned(rng, folder) / name, use_deprecated_int96_timestamps=True, store_schema=False)
    return False


def _hive(rng: random.Random, folder: Path, parts: list[pa.Table]) -> bool:
    for number, part in enumerate(parts):
        write(rng, part, _partitioned(rng, folder) / f"{number:06}_0", compression="gzip", store_schema=False)
    return False


def _table_format(rng: random.Random, folder: Path, parts: list[pa.Table]) -> bool:
    """Delta, Hudi and Iceberg: removed rows lie beside those that count."""
    what = rng.randrange(3)
    data = folder / "data" if what == 2 else folder
    data.mkdir(exist_ok=True)
    for number, part in enumerate(parts):
        write(rng, part, data / f"part-{number:05}-{rng.getrandbits(32):x}.parquet")
    log = (
        folder
        / ("_delta_log/00000000000000000000.json", ".hoodie/hoodie.properties", "metadata/v1.metadata.json")[what]
    )
    log.parent.mkdir()
    log.write_text(json.dumps({"protocol": {"minReaderVersion": 1}}))
    return True


PROGRAMS: dict[str, Callable[[random.Random, Path, list[pa.Table]], bool]] = {
    "spark": _spark,
    "dask": _dask,
    "pandas": _pandas,
    "polars": _polars,
    "duckdb": _duckdb,
    "arrow": _arrow,
    "impala": _impala,
    "hive": _hive,
    "delta, hudi, iceberg": _table_format,
}


def write(rng: random.Random, table: pa.Table, path: Path, **options: Any) -> None:
    """Write a part in row groups of some rows."""
    pq.write_table(table, path, row_group_size=16, **_indexes(rng), **options)


def _indexes(rng: random.Random) -> dict[str, Any]:
    """What a reader may pass rows over by: statistics mostly, at times an index of pages and a Bloom filter of keys."""
    return {
        "write_statistics": rng.random() < 0.85,
        "write_page_index": rng.random() < 0.3,
        "bloom_filter_options": {"k": {"ndv": 32}} if rng.random() < 0.3 else None,
    }

"""Files, row groups and columns of a table, from Parquet footers."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from merge_bench.errors import UsageError, first_line
from merge_bench.merge.frame import canonical_type


@dataclass(frozen=True)
class RowGroup:
    """One row group of one file: the unit that is assigned to a worker."""

    file: str
    index: int
    rows: int


@dataclass(frozen=True)
class FooterColumn:
    """What the footers of all files contain about one column.

    `type`: canonical. `nullable`: False only if statistics of every row group show that there is no null. `largest`:
    the largest value of an unsigned integer column (0 without values), None if a row group has no statistics.
    """

    name: str
    type: pa.DataType
    nullable: bool
    largest: int | None


@dataclass(frozen=True)
class Footers:
    """One table: its files, its columns in the order of the first file, and its row groups (those that have rows)."""

    files: tuple[str, ...]
    columns: tuple[FooterColumn, ...]
    row_groups: tuple[RowGroup, ...]


def find_files(path: str) -> list[str]:
    """The absolute paths of a file, of a folder's `*.parquet`, or of a pattern's matches, sorted.

    Raises
    ------
    UsageError
        If there is no such file.
    """
    found: Iterable[Path]
    given = Path(path).expanduser()
    if given.is_dir():
        found, problem = given.glob("*.parquet"), f"folder {path} has no *.parquet file"
    elif given.exists() or not glob.has_magic(path):
        found, problem = iter([given]), f"no such file: {path}"
    else:
        found, problem = map(Path, glob.iglob(str(given), recursive=True)), f"no file matches {path}"
    files = sorted(str(each.absolute()) for each in found if each.is_file())
    if not files:
        raise UsageError(problem)
    return files


def read_footers(path: str) -> Footers:
    """Read the footers of a table given as a file, a folder or a pattern.

    Raises
    ------
    UsageError
        For a missing or unreadable file, for files that differ in their columns, for an unsupported column type.
    """
    files = find_files(path)
    columns: dict[str, pa.DataType] = {}
    nullable: dict[str, bool] = {}
    largest: dict[str, int | None] = {}
    row_groups = []
    for file in files:
        metadata, schema = open_footer(file)
        found = _canonical_columns(schema, file)
        if file == files[0]:
            columns, nullable, largest = found, dict.fromkeys(found, False), dict.fromkeys(found, 0)
        else:
            _same_columns(columns, files[0], found, file)
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            if group.num_rows == 0:
                continue
            row_groups.append(RowGroup(file, index, group.num_rows))
            for position, field in enumerate(schema):
                statistics = group.column(position).statistics
                nullable[field.name] |= field.nullable and _may_hold_null(statistics)
                if pa.types.is_unsigned_integer(columns[field.name]):
                    largest[field.name] = _larger(largest[field.name], statistics, group.num_rows)
    summaries = tuple(FooterColumn(name, t, nullable[name], largest[name]) for name, t in columns.items())
    return Footers(tuple(files), summaries, tuple(row_groups))


def open_footer(file: str) -> tuple[pq.FileMetaData, pa.Schema]:
    """The footer and Arrow schema of one file.

    Raises
    ------
    UsageError
        Naming the file, if it cannot be read or is not Parquet.
    """
    try:
        with pq.ParquetFile(file) as opened:
            return opened.metadata, opened.schema_arrow
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or first_line(error)}") from None
    except pa.ArrowException as error:
        raise UsageError(f"{file} is not a readable Parquet file: {first_line(error)}") from None


def _canonical_columns(schema: pa.Schema, file: str) -> dict[str, pa.DataType]:
    columns: dict[str, pa.DataType] = {}
    for field in schema:
        if field.name in columns:
            raise UsageError(f"{file} has two columns called {field.name!r}")
        columns[field.name] = canonical_type(field.type, field.name)
    if not columns:
        raise UsageError(f"{file} has no columns")
    return columns


def _same_columns(expected: dict[str, pa.DataType], first_file: str, found: dict[str, pa.DataType], file: str) -> None:
    rule = "all files of one table must have the same columns"
    for name in [*expected, *found]:
        if name not in found or name not in expected:
            holder, other = (first_file, file) if name in expected else (file, first_file)
            raise UsageError(f"column {name!r} is in {holder} but not in {other}; {rule}")
        if found[name] != expected[name]:
            raise UsageError(f"column {name!r} is {expected[name]} in {first_file} but {found[name]} in {file}; {rule}")


def _may_hold_null(statistics: pq.Statistics | None) -> bool:
    return statistics is None or not statistics.has_null_count or statistics.null_count > 0


def _larger(so_far: int | None, statistics: pq.Statistics | None, rows: int) -> int | None:
    if so_far is None or statistics is None:
        return None
    if not statistics.has_min_max:
        only_nulls = statistics.has_null_count and statistics.null_count == rows
        return so_far if only_nulls else None
    return max(so_far, int(statistics.max))

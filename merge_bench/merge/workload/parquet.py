"""Row groups and columns of a table, from the footers of its Parquet files; and reading rows of one of them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from merge_bench.errors import Caution, RunFailed, UsageError, first_line
from merge_bench.merge.frame import canonical_type
from merge_bench.merge.workload import schema
from merge_bench.merge.workload.files import LeftOut, TableFile, find_files

Constants = Mapping[str, int | str | None]
PARTS_DIFFER, INT96 = "parts-differ", "int96-times"
_OPTIONS: dict[str, Any] = {
    "coerce_int96_timestamp_unit": "us",  # nanoseconds would wrap before 1677 and after 2262
    "page_checksum_verification": True,
}


@dataclass(frozen=True)
class RowGroup:
    """One row group of one file: the unit that is assigned to a worker."""

    file: str
    index: int
    rows: int


@dataclass(frozen=True)
class FooterColumn:
    """What the footers of all files contain about one column.

    `type`: canonical; null if no file has a value. `stored`: the type in the files; `type` where they differ.
    `nullable`: False only if statistics of every row group show that there is no null. `largest`: the largest value of
    an unsigned integer column (0 without values), None if a row group has no statistics.
    """

    name: str
    type: pa.DataType
    stored: pa.DataType
    nullable: bool
    largest: int | None


@dataclass(frozen=True)
class Footers:
    """One table: its files, its columns in the order in which they first occur, and its row groups that have rows.

    `names`: those of all columns, also of those that were not asked for.
    `constants`: file → the columns that it does not hold, with the value that all of its rows have there: that of a
    Hive partition, or None. `fingerprint`: equal for equal footers, whatever files are called.
    """

    files: tuple[str, ...]
    names: tuple[str, ...]
    columns: tuple[FooterColumn, ...]
    row_groups: tuple[RowGroup, ...]
    constants: Mapping[str, Constants]
    left_out: tuple[LeftOut, ...]
    fingerprint: str
    cautions: tuple[Caution, ...]


@dataclass
class _FileFooter:
    """One file: its footer, and its columns by name (types as stored and canonical, positions among the leaves)."""

    file: TableFile
    metadata: pq.FileMetaData
    fields: dict[str, pa.Field]
    leaves: dict[str, int]
    digest: bytes
    types: dict[str, pa.DataType] = field(default_factory=dict)


def read_footers(path: str, wanted: Collection[str] | None = None) -> Footers:
    """Read the footers of a table given as a file, a folder or a pattern.

    `wanted`: the only columns to be read, where they exist; None: all.

    Raises
    ------
    UsageError
        For a missing or unreadable file, for columns whose types in several files cannot be unified, for an unsupported
        column type.
    RunFailed
        For a damaged file.
    """
    table = find_files(path)
    parts = [_read_footer(file) for file in table.files]
    partitions = _partition_columns(parts, wanted)
    for part in parts:
        for name in part.fields:
            if wanted is None or name in wanted:
                part.types[name] = _canonical_type(part, name)
        if not part.types and not partitions:
            raise UsageError(f"{part.file.path} has no columns" + (" that --columns names" if wanted else ""))
    types = _unified_types(parts)
    for name in partitions.keys() & types.keys():
        raise UsageError(
            f"{name!r} is a column of the files of {path} and a partition in the names of its folders; leave it out"
            " with --columns"
        )
    constants: dict[str, Constants] = {}
    for part in parts:
        values = dict(part.file.partitions)
        constants[part.file.path] = {name: None for name in types if name not in part.types} | {
            name: _partition_value(values.get(name), kind) for name, kind in partitions.items()
        }
    columns = [_summarize_column(name, kind, parts) for name, kind in types.items()]
    for name, kind in partitions.items():
        nullable = any(row[name] is None for row in constants.values())
        columns.append(FooterColumn(name, kind, kind, nullable, 0))
    names = [*(name for part in parts for name in part.fields), *(n for p in parts for n, _ in p.file.partitions)]
    return Footers(
        tuple(part.file.path for part in parts),
        tuple(dict.fromkeys(names)),
        tuple(columns),
        tuple(group for part in parts for group in _filled_row_groups(part)),
        constants,
        table.left_out,
        _fingerprint(parts),
        tuple(_cautions(path, parts, types)),
    )


def read_rows(file: str, row_groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """These columns, as far as the file has them, of the rows in these row groups of a file.

    Raises
    ------
    RunFailed
        Naming the file, if it cannot be read.
    """
    try:
        with pq.ParquetFile(file, **_OPTIONS) as opened:
            names, wanted = opened.schema_arrow.names, frozenset(columns)
            found = None if wanted.issuperset(names) else [name for name in names if name in wanted]
            return opened.read_row_groups(row_groups, columns=found)
    except (OSError, pa.ArrowException, ValueError, IndexError) as error:
        raise RunFailed(f"{file} cannot be read: {first_line(error)}") from None


def _read_footer(file: TableFile) -> _FileFooter:
    path = file.path
    try:
        with pq.ParquetFile(path, **_OPTIONS) as opened:
            metadata, fields = opened.metadata, opened.schema_arrow
        with open(path, "rb") as raw:
            size = raw.seek(0, 2)
            raw.seek(max(0, size - metadata.serialized_size - 8))
            digest = hashlib.blake2b(raw.read() + size.to_bytes(8, "big"), digest_size=16).digest()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or first_line(error)}") from None
    except pa.ArrowException as error:
        raise UsageError(f"{path} is not a readable Parquet file: {first_line(error)}") from None
    part, leaf = _FileFooter(file, metadata, {}, {}, digest), 0
    for column in fields:
        if column.name in part.fields:
            raise UsageError(f"{path} has two columns called {column.name!r}")
        part.fields[column.name], part.leaves[column.name] = column, leaf
        leaf += _leaf_count(column.type)
    return part


def _leaf_count(arrow_type: pa.DataType) -> int:
    """The number of columns of a Parquet file in which a column of this type is stored."""
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _leaf_count(arrow_type.storage_type)
    return sum(_leaf_count(arrow_type.field(i).type) for i in range(arrow_type.num_fields)) or 1


def _canonical_type(part: _FileFooter, name: str) -> pa.DataType:
    stored = part.fields[name].type
    try:
        return stored if pa.types.is_null(stored) else canonical_type(stored, name)
    except UsageError as error:
        raise UsageError(f"{part.file.path}: {error}; name the columns to keep with --columns") from None


def _unified_types(parts: Sequence[_FileFooter]) -> dict[str, pa.DataType]:
    """For each column the type that holds its values of all files."""
    types: dict[str, pa.DataType] = {}
    first: dict[str, str] = {}
    for part in parts:
        for name, kind in part.types.items():
            common = schema.unified_type(types.get(name, kind), kind)
            if common is None:
                raise UsageError(
                    f"column {name!r} is {types[name]} in {first[name]} but {kind} in {part.file.path}, and no type"
                    " holds the values of both; write the files again with one type, or leave the column out with"
                    " --columns"
                )
            if common != types.get(name):
                types[name], first[name] = common, part.file.path
    return types


def _summarize_column(name: str, kind: pa.DataType, parts: Sequence[_FileFooter]) -> FooterColumn:
    """What all footers say of a column. Integers that the floating type of other files cannot hold are refused."""
    nullable, stored = False, set()
    largest: int | None = 0
    for part in parts:
        if name not in part.types:
            nullable |= part.metadata.num_rows > 0
            continue
        stored.add(part.fields[name].type)
        for group in map(part.metadata.row_group, range(part.metadata.num_row_groups)):
            if group.num_rows == 0:
                continue
            statistics = group.column(part.leaves[name]).statistics
            nullable |= part.fields[name].nullable and _may_hold_null(statistics)
            if pa.types.is_null(part.types[name]):
                nullable = True
            elif pa.types.is_unsigned_integer(kind):
                largest = _larger_maximum(largest, statistics, group.num_rows)
            if pa.types.is_integer(part.types[name]) and pa.types.is_floating(kind):
                _check_integers_fit(name, kind, part, statistics)
    return FooterColumn(name, kind, stored.pop() if len(stored) == 1 else kind, nullable, largest)


def _check_integers_fit(name: str, kind: pa.DataType, part: _FileFooter, statistics: pq.Statistics | None) -> None:
    if statistics is None or not statistics.has_min_max:
        return  # the values are checked when they are read
    extreme = max(int(statistics.min), int(statistics.max), key=abs)
    if abs(extreme) > 2**53:  # smaller floats are found only beside integers that they hold
        raise UsageError(
            f"column {name!r} is {kind} in other files of its table, which does not hold {extreme} of {part.file.path};"
            " write the files again with one type, or leave the column out with --columns"
        )


def _partition_columns(parts: Sequence[_FileFooter], wanted: Collection[str] | None) -> dict[str, pa.DataType]:
    """The type of each Hive partition: int32 if all values are such, else strings; null without values."""
    values: dict[str, list[str | None]] = {}
    for part in parts:
        for name, value in part.file.partitions:
            if wanted is None or name in wanted:
                values.setdefault(name, []).append(value)
    return {name: _partition_type(each) for name, each in values.items()}


def _partition_type(values: Iterable[str | None]) -> pa.DataType:
    texts = pa.array(list(values), pa.string())
    if texts.null_count == len(texts):
        return pa.null()
    try:
        return texts.cast(pa.int32()).type
    except pa.ArrowInvalid:
        return pa.large_string()


def _partition_value(value: str | None, kind: pa.DataType) -> int | str | None:
    parsed: int | str | None = None if value is None else pa.scalar(value).cast(kind).as_py()
    return parsed


def _filled_row_groups(part: _FileFooter) -> list[RowGroup]:
    rows = [part.metadata.row_group(index).num_rows for index in range(part.metadata.num_row_groups)]
    return [RowGroup(part.file.path, index, count) for index, count in enumerate(rows) if count > 0]


def _fingerprint(parts: Sequence[_FileFooter]) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for digest in sorted(part.digest + repr(part.file.partitions).encode() for part in parts):
        whole.update(digest)
    return whole.hexdigest()


def _cautions(path: str, parts: Sequence[_FileFooter], types: dict[str, pa.DataType]) -> Iterable[Caution]:
    differing, int96 = [], []
    for name, kind in types.items():
        holding = [part for part in parts if name in part.types]
        if any(part.metadata.schema.column(part.leaves[name]).physical_type == "INT96" for part in holding):
            int96.append(repr(name))
        kinds = dict.fromkeys(str(part.types[name]) for part in holding)
        where = f"is missing in {len(parts) - len(holding)} of {len(parts)} files"
        if len(kinds) > 1:
            differing.append(f"column {name!r} is {' and '.join(kinds)}, and is read as {kind}")
        if len(holding) < len(parts):
            differing.append(f"column {name!r} {where}, and is null there")
    if differing:
        yield Caution(PARTS_DIFFER, f"the files of {path} differ: {'; '.join(differing)}")
    if int96:
        yield Caution(
            INT96,
            f"column {', '.join(int96)} of {path} has INT96 times, which are read in microseconds: nanoseconds are cut"
            " off",
        )


def _may_hold_null(statistics: pq.Statistics | None) -> bool:
    return statistics is None or not statistics.has_null_count or statistics.null_count > 0


def _larger_maximum(so_far: int | None, statistics: pq.Statistics | None, rows: int) -> int | None:
    if so_far is None or statistics is None:
        return None
    if not statistics.has_min_max:
        only_nulls = statistics.has_null_count and statistics.null_count == rows
        return so_far if only_nulls else None
    return max(so_far, int(statistics.max))

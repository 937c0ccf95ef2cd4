"""A table in Parquet files: which files it consists of, their row groups and columns, and rows of one of them.

A table is named by a file, a folder or a pattern. The rules are those of `pyarrow.dataset`: folders are searched whole,
names that begin with a dot or an underscore are left out, and folders called ``name=value`` (Hive partitions) give each
of their files a value of a column. A file counts by its content, not by its name. A table is read whole or refused:
what is left out is reported.
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from merge_bench.errors import RunFailed, UsageError, WarningMessage, first_message_line
from merge_bench.merge.frame import canonical_type

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MAGIC = b"PAR1"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
HIDDEN, NO_DATA = "hidden", "no data"
MOST_NAMES = 5
"""Names of files left out for one reason that are kept."""
_NO_DATA = re.compile(r".*\.(crc|md|txt|log|html?|ya?ml)|readme|license|success", re.IGNORECASE)
_LFS = b"version https://git-lfs"
_LOGS = {"Delta": "_delta_log", "Hudi": ".hoodie"}
_LIBRARIES = {"Delta": "the package deltalake", "Hudi": "Spark", "Iceberg": "the package pyiceberg"}
Constants = Mapping[str, int | str | None]
PARTS_DIFFER, INT96 = "parts-differ", "int96-times"
_OPTIONS: dict[str, Any] = {
    "coerce_int96_timestamp_unit": "us",  # nanoseconds would wrap before 1677 and after 2262
    "page_checksum_verification": True,
}
Partitions = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class TableFile:
    """One Parquet file of a table: its absolute path, and the names and values of the Hive partitions that it is in."""

    path: str
    partitions: Partitions = ()


@dataclass(frozen=True)
class SkippedFiles:
    """The files and folders that are not read as parts of a table, for one `reason`; `names`: of the first of them."""

    reason: str
    count: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {self.count - len(self.names)} more" if self.count > len(self.names) else ""
        return f"{', '.join(self.names)}{more} ({self.reason})"


@dataclass(frozen=True)
class TableFiles:
    """The files of a table, sorted, and those in its folders that are not read."""

    files: tuple[TableFile, ...]
    left_out: tuple[SkippedFiles, ...] = ()


def find_table_files(table: str) -> TableFiles:
    """Find the files of a table given as a path, a pattern (``*``, ``?``, ``[…]``, ``**``) or a ``file://`` address.

    Raises `UsageError` if there is none, if one of them cannot be read or is not a Parquet file, or if they belong to a
    table format with a log of its own, and `RunFailed` if a file is damaged.
    """
    base, pattern = _split_at_pattern(table)
    search = _FileSearch(table, base)
    search.add_files(base, pattern)
    if not search.files and not search.left_out:
        raise UsageError(f"no file matches {table}" if pattern else f"folder {table} has no Parquet file")
    if not os.path.isfile(base):
        search.refuse_table_formats({os.path.dirname(file) for file in search.files})
    if not search.files:
        raise UsageError(f"{table} has no Parquet file; left out: {'; '.join(map(str, search.skipped_files()))}")
    files = (TableFile(file, _hive_partitions(file, base)) for file in sorted(search.files))
    return TableFiles(tuple(files), search.skipped_files())


def _split_at_pattern(path: str) -> tuple[str, tuple[str, ...]]:
    """Split a table's path: the longest part that exists, made absolute, and the parts of the pattern after it."""
    local = path
    if "://" in path:
        address = urlsplit(path)
        if address.scheme.lower() != "file" or address.netloc not in ("", "localhost"):
            raise UsageError(f"{path} is not on a file system of this host; copy its files here, or mount them")
        local = unquote(path.partition("://")[2].removeprefix(address.netloc))
    try:
        parts = Path(local).expanduser().absolute().parts
    except RuntimeError as error:
        raise UsageError(f"{path}: {error}") from None
    for length in range(len(parts), 0, -1):
        base = os.path.join(*parts[:length])
        try:
            os.lstat(base)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise _unreadable_error(path, error) from None
        pattern = parts[length:]
        if pattern and not glob.has_magic(pattern[0]):
            break
        return base, pattern
    if any(map(glob.has_magic, pattern)):
        raise UsageError(f"no file matches {path}: there is no {os.path.join(base, pattern[0])}")
    raise UsageError(f"no such file: {path}")


class _FileSearch:
    """A search for a table's files in folders; the results are `files` and `left_out`, each path with a reason."""

    def __init__(self, table: str, base: str) -> None:
        self.table, self.base = table, base
        self.files: set[str] = set()
        self.left_out: dict[str, str] = {}

    def add_files(
        self, path: str, pattern: tuple[str, ...], enclosing_folders: frozenset[tuple[int, int]] = frozenset()
    ) -> None:
        """Add a file, or of a folder all files that match `pattern` (its parts; an empty one matches everything).

        `enclosing_folders`: device and inode of the folders that `path` is in.
        """
        try:
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                here = (status.st_dev, status.st_ino)
                if here in enclosing_folders:
                    raise UsageError(f"{path} is a link to a folder that it lies in; remove it")
                with os.scandir(path) as entries:
                    names = sorted(entry.name for entry in entries)
                self._add_matching_names(path, names, pattern, enclosing_folders | {here})
            elif not pattern:
                self._add_file(path, status)
        except (OSError, ValueError) as error:
            raise _unreadable_error(path, error) from None

    def skipped_files(self) -> tuple[SkippedFiles, ...]:
        """Return the files and folders that are not read, by reason."""
        groups = []
        for reason in (HIDDEN, NO_DATA):
            names = sorted(os.path.relpath(path, self.base) for path, why in self.left_out.items() if why == reason)
            if names:
                groups.append(SkippedFiles(reason, len(names), tuple(names[:MOST_NAMES])))
        return tuple(groups)

    def refuse_table_formats(self, folders: Collection[str]) -> None:
        """Raise `UsageError` if folders belong to a table of Delta, Hudi or Iceberg."""
        inside = {Path(folder) for folder in folders}
        around = inside | {parent for folder in inside for parent in folder.parents}
        for folder in sorted(around):
            logs = [(name, folder / log) for name, log in _LOGS.items() if (folder / log).is_dir()]
            if folder in inside or folder / "data" in around:
                logs += [("Iceberg", log) for log in (folder / "metadata").glob("*.metadata.json")]
            for name, log in logs:
                raise UsageError(
                    f"{self.table} belongs to a table of {name}, whose log {log} says which files and rows count; write"
                    f" its present rows to a folder of Parquet files with {_LIBRARIES[name]}, and merge that folder"
                )

    def _add_matching_names(
        self, folder: str, names: Iterable[str], pattern: tuple[str, ...], enclosing_folders: frozenset[tuple[int, int]]
    ) -> None:
        """Add the files of a folder whose names match the pattern, and search its matching folders."""
        if not pattern:
            self.refuse_table_formats([folder])  # before its other files are looked at
        head, rest = (pattern[0], pattern[1:]) if pattern else ("*", ())
        deep = head == "**"
        if deep:
            self._add_matching_names(folder, names, rest, enclosing_folders)
        for name in names:
            path = os.path.join(folder, name)
            if (deep and not (rest and os.path.isdir(path))) or not fnmatch.fnmatchcase(name, head):
                continue
            if name[0] in "._" and head[0] != name[0]:
                self.left_out[path] = HIDDEN
            else:
                self.add_files(path, pattern if deep else rest, enclosing_folders)

    def _add_file(self, path: str, status: os.stat_result) -> None:
        """Add a file to the files of the table, or to the files that are not read."""
        if not stat.S_ISREG(status.st_mode):
            why = "is a pipe, a socket or a device, not a file"
            raise UsageError(f"{path} {why}; remove it, or name the table's files")
        problem = _parquet_problem(path, status.st_size)
        if problem is None:
            if path.encode(errors="replace").decode() != path:
                raise UsageError(f"{path} has a name that is not UTF-8, which pyarrow cannot open; rename it")
            self.files.add(path)
        elif path != self.base and _NO_DATA.fullmatch(os.path.basename(path)):
            self.left_out[path] = NO_DATA
        else:
            raise UsageError(f"{path} is not a readable Parquet file: {problem}")


def _parquet_problem(path: str, size: int) -> str | None:
    """Return the reason why a file is not a Parquet file; None if it is one."""
    if size == 0:
        return "it is empty"
    with open(path, "rb") as file:
        head = file.read(len(_LFS))
        file.seek(-min(size, len(MAGIC)), os.SEEK_END)
        tail = file.read()
    if tail == b"PARE":
        return "its footer is encrypted"
    if head == _LFS:
        return "it is a pointer of Git LFS; run: git lfs pull"
    if tail != MAGIC:
        return "its end is missing" if head.startswith(MAGIC) else "it has other content"
    if not head.startswith(MAGIC):
        raise RunFailed(f"{path} is damaged: it ends like a Parquet file, but does not begin like one")
    return None


def _hive_partitions(file: str, base: str) -> Partitions:
    """Return the Hive partitions (name, value) in the folder names between `base` and a file, outermost first."""
    values: dict[str, str | None] = {}
    for folder in Path(file).relative_to(base).parts[:-1]:
        name, equals, value = folder.partition("=")
        if not name or not equals:
            continue
        try:
            name, value = (unquote(text, errors="strict") for text in (name, value))
        except UnicodeDecodeError:
            raise UsageError(f"{file} has a partition {folder!r} in its path, which is not UTF-8; rename it") from None
        if name in values:
            raise UsageError(f"{file} has two partitions called {name!r} in its path")
        values[name] = None if value == NULL_PARTITION else value
    return tuple(values.items())


def _unreadable_error(path: str, error: OSError | ValueError) -> UsageError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    link = ", which is a link," if os.path.islink(path) else ""
    return UsageError(f"{path}{link} cannot be read: {reason}")


@dataclass(frozen=True)
class RowGroup:
    """One row group of one file: the unit that is assigned to a worker."""

    file: str
    index: int
    rows: int


@dataclass(frozen=True)
class FooterColumn:
    """The description of one column, from the footers of all files of a table.

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
class TableFooters:
    """The content of a table's footers: its files, its columns as they first occur, and row groups that have rows.

    `names`: of all columns, including those that are not read. `constants`: for each file the columns that it does not
    contain, with the value of all of its rows: that of a Hive partition, or None. `fingerprint`: equal for equal
    footers, whatever files are called.
    """

    files: tuple[str, ...]
    names: tuple[str, ...]
    columns: tuple[FooterColumn, ...]
    row_groups: tuple[RowGroup, ...]
    constants: Mapping[str, Constants]
    left_out: tuple[SkippedFiles, ...]
    fingerprint: str
    cautions: tuple[WarningMessage, ...]


@dataclass
class _FileFooter:
    """One file's footer, with its columns by name: types as stored and canonical, positions among leaf columns."""

    file: TableFile
    metadata: pq.FileMetaData
    fields: dict[str, pa.Field]
    leaves: dict[str, int]
    digest: bytes
    row_groups: list[RowGroup]  # that have rows
    types: dict[str, pa.DataType] = field(default_factory=dict)


def read_footers(path: str, wanted_columns: Collection[str] | None = None) -> TableFooters:
    """Read the footers of a table given as a file, a folder or a pattern.

    `wanted_columns`: read only these columns, where they exist; None: all.

    Raises `UsageError` for a missing or unreadable file, for columns whose types in several files cannot be unified,
    for an unsupported column type, and `RunFailed` for a damaged file.
    """
    import pyarrow as pa

    table = find_table_files(path)
    parts = [_read_footer(file) for file in table.files]
    partitions = _partition_columns(parts, wanted_columns)
    for part in parts:
        for name in part.fields:
            if wanted_columns is None or name in wanted_columns:
                part.types[name] = _canonical_type(part, name)
        if not part.types and not partitions:
            raise UsageError(f"{part.file.path} has no columns" + (" that --columns names" if wanted_columns else ""))
    types = _unified_types(parts)
    for name in partitions.keys() & types.keys():
        raise UsageError(
            f"{name!r} is a column of the files of {path} and a partition in the names of its folders; leave it out"
            " with --columns"
        )
    constants: dict[str, Constants] = {}
    for part in parts:
        values = dict(part.file.partitions)
        row: dict[str, int | str | None] = {name: None for name in types if name not in part.types}
        for name, kind in partitions.items():
            value = values.get(name)
            row[name] = None if value is None else pa.scalar(value).cast(kind).as_py()
        constants[part.file.path] = row
    columns = [_summarize_column(name, kind, parts) for name, kind in types.items()]
    for name, kind in partitions.items():
        nullable = any(row[name] is None for row in constants.values())
        columns.append(FooterColumn(name, kind, kind, nullable, 0))
    names = [*(name for part in parts for name in part.fields), *(n for p in parts for n, _ in p.file.partitions)]
    return TableFooters(
        tuple(part.file.path for part in parts),
        tuple(dict.fromkeys(names)),
        tuple(columns),
        tuple(group for part in parts for group in part.row_groups),
        constants,
        table.left_out,
        _fingerprint(parts),
        tuple(_footer_warnings(path, parts, types)),
    )


def read_rows(file: str, row_groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Read these columns of some row groups of a file; columns that the file does not have are left out.

    Raises `RunFailed`, naming the file, if it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file, **_OPTIONS) as opened:
            names, wanted = opened.schema_arrow.names, frozenset(columns)
            stored = None if wanted.issuperset(names) else [name for name in names if name in wanted]
            return opened.read_row_groups(row_groups, columns=stored)
    except (OSError, pa.ArrowException, ValueError, IndexError) as error:
        raise RunFailed(f"{file} cannot be read: {first_message_line(error)}") from None


def _read_footer(file: TableFile) -> _FileFooter:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = file.path
    try:
        with pq.ParquetFile(path, **_OPTIONS) as opened:
            metadata, fields = opened.metadata, opened.schema_arrow
        with open(path, "rb") as raw:
            size = raw.seek(0, 2)
            raw.seek(max(0, size - metadata.serialized_size - 8))
            digest = hashlib.blake2b(raw.read() + size.to_bytes(8, "big"), digest_size=16).digest()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or first_message_line(error)}") from None
    except pa.ArrowException as error:
        raise UsageError(f"{path} is not a readable Parquet file: {first_message_line(error)}") from None
    rows = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    groups = [RowGroup(path, index, count) for index, count in enumerate(rows) if count > 0]
    part, leaf = _FileFooter(file, metadata, {}, {}, digest, groups), 0
    for column in fields:
        if column.name in part.fields:
            raise UsageError(f"{path} has two columns called {column.name!r}")
        part.fields[column.name], part.leaves[column.name] = column, leaf
        leaf += _leaf_count(column.type)
    return part


def _leaf_count(arrow_type: pa.DataType) -> int:
    """Return the number of leaf columns in which Parquet stores a column of this type."""
    import pyarrow as pa

    if isinstance(arrow_type, pa.BaseExtensionType):
        return _leaf_count(arrow_type.storage_type)
    return sum(_leaf_count(arrow_type.field(i).type) for i in range(arrow_type.num_fields)) or 1


def _canonical_type(footer: _FileFooter, column_name: str) -> pa.DataType:
    import pyarrow as pa

    stored = footer.fields[column_name].type
    try:
        return stored if pa.types.is_null(stored) else canonical_type(stored, column_name)
    except UsageError as error:
        raise UsageError(f"{footer.file.path}: {error}; name the columns to keep with --columns") from None


def promoted_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type to which Arrow promotes both types; None if there is none in 128 bits."""
    import pyarrow as pa

    schemas = [pa.schema([("column", kind)]) for kind in (left, right)]
    try:
        common = pa.unify_schemas(schemas, promote_options="permissive").field("column").type
    except pa.ArrowException:
        return None
    return None if pa.types.is_decimal256(common) else common


def unified_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type that holds a column's values of two files with these canonical types; None if there is none.

    It is the `promoted_type`, except for decimals and floats, which would be rounded. A cast of integers to the
    floating type of others, or of uint64 to int64, has to be checked value by value.
    """
    import pyarrow as pa

    if any(pa.types.is_decimal(a) and pa.types.is_floating(b) for a, b in ((left, right), (right, left))):
        return None
    return left if left == right else promoted_type(left, right)


def _unified_types(footers: Sequence[_FileFooter]) -> dict[str, pa.DataType]:
    """Return for each column the type that holds its values of all files; raises `UsageError` if there is none."""
    types: dict[str, pa.DataType] = {}
    first: dict[str, str] = {}
    for part in footers:
        for name, kind in part.types.items():
            common = unified_type(types.get(name, kind), kind)
            if common is None:
                raise UsageError(
                    f"column {name!r} is {types[name]} in {first[name]} but {kind} in {part.file.path}, and no type"
                    " holds the values of both; write the files again with one type, or leave the column out with"
                    " --columns"
                )
            if common != types.get(name):
                types[name], first[name] = common, part.file.path
    return types


def _summarize_column(name: str, column_type: pa.DataType, footers: Sequence[_FileFooter]) -> FooterColumn:
    """Combine the descriptions of a column in all footers; raises an error for integers that a float cannot hold."""
    import pyarrow as pa

    nullable, stored = False, set()
    largest: int | None = 0
    for part in footers:
        if name not in part.types:
            nullable |= part.metadata.num_rows > 0
            continue
        stored.add(part.fields[name].type)
        for group in part.row_groups:
            statistics = part.metadata.row_group(group.index).column(part.leaves[name]).statistics
            unknown = statistics is None or not statistics.has_null_count
            nullable |= part.fields[name].nullable and (unknown or statistics.null_count > 0)
            if pa.types.is_null(part.types[name]):
                nullable = True
            elif pa.types.is_unsigned_integer(column_type):
                largest = _update_maximum(largest, statistics, group.rows)
            if pa.types.is_integer(part.types[name]) and pa.types.is_floating(column_type):
                _check_integers_fit(name, column_type, part, statistics)
    return FooterColumn(name, column_type, stored.pop() if len(stored) == 1 else column_type, nullable, largest)


def _check_integers_fit(
    name: str, column_type: pa.DataType, footer: _FileFooter, statistics: pq.Statistics | None
) -> None:
    """Raise `UsageError` if a file's integers do not fit the floating type of the column."""
    if statistics is None or not statistics.has_min_max:
        return  # the values are checked when they are read
    extreme = max(int(statistics.min), int(statistics.max), key=abs)
    if abs(extreme) > 2**53:  # smaller floats are found only beside integers that they hold
        raise UsageError(
            f"column {name!r} is {column_type} in other files of its table, which does not hold {extreme} of"
            f" {footer.file.path}; write the files again with one type, or leave the column out with --columns"
        )


def _partition_columns(
    footers: Sequence[_FileFooter], wanted_columns: Collection[str] | None
) -> dict[str, pa.DataType]:
    """Return the type of each Hive partition: int32 if all values are such, else strings; null without values."""
    import pyarrow as pa

    values: dict[str, list[str | None]] = {}
    for part in footers:
        for name, value in part.file.partitions:
            if wanted_columns is None or name in wanted_columns:
                values.setdefault(name, []).append(value)
    types = {}
    for name, of_files in values.items():
        texts = pa.array(of_files, pa.string())
        try:
            types[name] = pa.null() if texts.null_count == len(texts) else texts.cast(pa.int32()).type
        except pa.ArrowInvalid:
            types[name] = pa.large_string()
    return types


def _fingerprint(footers: Sequence[_FileFooter]) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for digest in sorted(part.digest + repr(part.file.partitions).encode() for part in footers):
        whole.update(digest)
    return whole.hexdigest()


def _footer_warnings(
    path: str, footers: Sequence[_FileFooter], types: dict[str, pa.DataType]
) -> Iterable[WarningMessage]:
    """Yield warnings about a table, from the footers of its files."""
    differing, int96 = [], []
    for name, kind in types.items():
        holding = [part for part in footers if name in part.types]
        if any(part.metadata.schema.column(part.leaves[name]).physical_type == "INT96" for part in holding):
            int96.append(repr(name))
        kinds = dict.fromkeys(str(part.types[name]) for part in holding)
        if len(kinds) > 1:
            differing.append(f"column {name!r} is {' and '.join(kinds)}, and is read as {kind}")
        if missing := len(footers) - len(holding):
            differing.append(f"column {name!r} is missing in {missing} of {len(footers)} files, and is null there")
    if differing:
        yield WarningMessage(PARTS_DIFFER, f"the files of {path} differ: {'; '.join(differing)}")
    if int96:
        columns = f"column {', '.join(int96)} of {path}"
        yield WarningMessage(
            INT96, f"{columns} has INT96 times, which are read in microseconds: nanoseconds are cut off"
        )


def _update_maximum(maximum: int | None, statistics: pq.Statistics | None, rows: int) -> int | None:
    """Return the larger of a maximum and that of a row group's statistics; None if one of them is unknown."""
    if maximum is None or statistics is None:
        return None
    if not statistics.has_min_max:
        only_nulls = statistics.has_null_count and statistics.null_count == rows
        return maximum if only_nulls else None
    return max(maximum, int(statistics.max))

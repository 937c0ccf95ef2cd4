"""One table as DuckDB finds and reads it, by the table's path alone.

Of the plan only the path, the names and types of columns and the keys are used; its list of files is compared with what
was found here, and never read. DuckDB sees each file as a link with a plain name in a temporary folder, so that no name
can be taken for a pattern, for SQL or for a partition.

In SQL dates, times, timestamps and durations are integers and text is bytes, so that neither units nor the limits of
DuckDB's own types can change a value: its 64-bit timestamps know infinity, its text is UTF-8 only. DuckDB refuses text
that is not UTF-8, and times that its own types do not hold; then it reads a copy of the file without the logical types
of these columns, and so the bytes and integers that lie in the file.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa

from merge_bench.errors import RunFailed, UsageError, first_message_line
from merge_bench.merge.frame import as_integer_type
from merge_bench.merge.verification.find_files import find_table_files
from merge_bench.merge.workload.tables import TableColumn, TableSide

types = pa.types

_SIGNED = {pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT"}
_UNSIGNED = {pa.uint8(): "UTINYINT", pa.uint16(): "USMALLINT", pa.uint32(): "UINTEGER", pa.uint64(): "UBIGINT"}
_INTEGERS = _SIGNED | _UNSIGNED
_FLOATS = {pa.float32(): "FLOAT", pa.float64(): "DOUBLE"}
_TEXTS = ("VARCHAR", "JSON")
_RAW = {"INT32": "INTEGER", "INT64": "BIGINT", "BYTE_ARRAY": "BLOB", "FIXED_LEN_BYTE_ARRAY": "BLOB"}
_DAY = 86_400  # seconds
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class StoredColumn:
    """The type with which a group of files stores a column.

    `kind`: DuckDB's name of the type; ``INT96`` for Parquet's old timestamps, which are read in two parts. `unit`: of
    integers that are times, None otherwise. `physical`: Parquet's name of the type that the values have in the file.
    """

    name: str
    kind: str
    unit: str | None = None
    physical: str = ""

    @property
    def can_read_without_type(self) -> bool:
        """Whether DuckDB refuses some values of this type, but can read them without the logical type."""
        return self.physical in _RAW and self.kind.startswith((*_TEXTS, "TIME", "INTERVAL", "ENUM", "GEOMETRY"))


class InexactConversion(Exception):
    """The error that no SQL expression converts a column's values exactly to the wanted type."""


def duckdb_type_name(arrow_type: pa.DataType) -> str:
    """Return the name of DuckDB's type for values of a canonical Arrow type."""
    arrow_type = as_integer_type(arrow_type)
    if types.is_decimal128(arrow_type):
        return f"DECIMAL({arrow_type.precision},{arrow_type.scale})"
    if types.is_large_string(arrow_type) or types.is_large_binary(arrow_type):
        return "BLOB"
    return "BOOLEAN" if types.is_boolean(arrow_type) else {**_INTEGERS, **_FLOATS}[arrow_type]


def column_value_sql(column: str, stored_column: StoredColumn | None, target_type: pa.DataType) -> str:
    """Return SQL for the values of a column under its canonical type; null if `stored_column` is None.

    Raises `InexactConversion` if the stored type cannot be converted exactly.
    """
    wanted = duckdb_type_name(target_type)
    if stored_column is None or stored_column.kind.strip('"') == "NULL":
        return f"NULL::{wanted}"
    kind = stored_column.kind
    if types.is_temporal(target_type):
        return _temporal_sql(column, stored_column, target_type)
    if wanted == "BLOB":
        if kind in _TEXTS or kind.startswith("ENUM"):
            return f"encode({column}::VARCHAR)"
        if kind in ("BLOB", "UUID"):
            return f"{column}::BLOB"
    whole = kind in _INTEGERS.values()
    if kind == wanted or (whole and (wanted in _INTEGERS.values() or types.is_decimal128(target_type))):
        return f"{column}::{wanted}"
    if kind.startswith("DECIMAL") and types.is_decimal128(target_type):
        return f"{column}::{wanted}"
    if kind == "FLOAT" and wanted == "DOUBLE":
        return f"{column}::DOUBLE"
    if whole and wanted in _FLOATS.values():
        same = f"{column}::{wanted}::HUGEINT = {column}"
        return f"CASE WHEN {column} IS NULL OR {same} THEN {column}::{wanted} ELSE error('no such {wanted}') END"
    raise InexactConversion


def _temporal_sql(column: str, stored_column: StoredColumn, target_type: pa.DataType) -> str:
    """Return SQL for a date, time or duration as an integer in the unit of `target_type`, since 1970 or midnight."""
    wanted = duckdb_type_name(target_type)
    if types.is_date32(target_type):
        if stored_column.kind != "DATE":
            raise InexactConversion
        return f"({column} - DATE '1970-01-01')::{wanted}"
    ticks, unit = _time_as_integer_sql(column, stored_column)
    have, want = _PER_SECOND[unit], _PER_SECOND[target_type.unit]
    if want >= have:
        return f"({ticks} * {want // have})::{wanted}" if want > have else f"({ticks})::{wanted}"
    factor = have // want
    whole = f"CASE WHEN {ticks} % {factor} = 0 THEN ({ticks}) // {factor}"
    return f"({whole} WHEN {ticks} IS NOT NULL THEN error('finer than its type') END)::{wanted}"


def _time_as_integer_sql(column: str, stored_column: StoredColumn) -> tuple[str, str]:
    """Return SQL for a stored time or duration as a 64-bit integer, and the unit of that integer, as ``ms``."""
    kind = stored_column.kind
    if kind == "INT96":  # what is below a microsecond is cut off, as the engines' reader does
        days = f"({column}.date - DATE '1970-01-01')"
        return f"({days} * {_DAY * 10**6} + epoch_ns({column}.time) // 1000)", "us"
    if kind in ("INTEGER", "BIGINT") and stored_column.unit:
        return f"{column}::BIGINT", stored_column.unit
    if kind.startswith("TIMESTAMP"):
        unit = "ns" if kind.endswith("NS") else "us"
        # DuckDB takes the two outermost integers for infinity, which has no number.
        ends = f"CASE WHEN {column} > '-infinity' THEN {2**63 - 1} ELSE {-(2**63) + 1} END"
        if stored_column.unit == "ms":
            ends = "error('beyond microseconds')"
        return f"coalesce(epoch_{unit}({column}), CASE WHEN {column} IS NOT NULL THEN {ends} END)", unit
    if kind == "TIME_NS":
        return f"epoch_ns({column})", "ns"
    if kind.startswith("TIME"):
        return f"epoch_us({column}::TIME)", "us"
    raise InexactConversion


def read_duration_units(encoded_schema: bytes) -> dict[str, str]:
    """Return the unit of each duration column from the Arrow schema that a Parquet file contains, base64-encoded.

    Parquet itself stores durations as plain integers.
    """
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded_schema)))
    return {field.name: field.type.unit for field in schema if types.is_duration(field.type)}


def find_top_level_columns(schema_elements: Sequence[Mapping[str, Any]]) -> list[StoredColumn]:
    """Return the top-level columns of a Parquet schema, given its elements, root first.

    A nested column counts as one.
    """
    pattern = re.compile(r"(MILLIS|MICROS|NANOS)=(?!<null>)|TIME(?:STAMP)?_(MILLIS|MICROS)")
    columns, position = [], 1
    while position < len(schema_elements):
        element = schema_elements[position]
        match = pattern.search(f"{element['logical']} {element['converted']}")
        unit = {"MILLIS": "ms", "MICROS": "us", "NANOS": "ns"}[match[1] or match[2]] if match else None
        physical = element["type"] or ""
        kind = "INT96" if physical == "INT96" else element["kind"] or ""
        columns.append(StoredColumn(element["name"], kind, unit, physical))
        nested = 1
        while nested:  # elements of this column that are still to come
            nested += (schema_elements[position]["children"] or 0) - 1
            position += 1
    return columns


MOST_NAMES = 3  # of files, in a message
_INTEGER_TEXT = re.compile(r"-?[0-9]+|0[xX][0-9a-fA-F]{1,8}")  # what Arrow reads as an integer
_SCHEMAS = """
SELECT list(file_name ORDER BY file_name), elements FROM (
    SELECT file_name, list({name: name, type: type, children: num_children, converted: converted_type,
        logical: logical_type, kind: duckdb_type} ORDER BY column_id) AS elements
    FROM parquet_schema(?) GROUP BY file_name)
GROUP BY elements ORDER BY min(file_name)"""
_REFUSED = ("Invalid string encoding", "Invalid TIME value", "Could not convert Timestamp", "beyond microseconds")
UntypedColumns = Mapping[str, frozenset[str]]
"""Columns by file that are read without their logical types; see `copy_without_logical_types`."""


class LogicalTypesRefused(Exception):
    """The error that DuckDB can read values of these columns only without their logical types."""

    def __init__(self, columns: UntypedColumns) -> None:
        super().__init__()
        self.columns = columns


@dataclass(frozen=True)
class FilesWithSameColumns:
    """Files that have the same columns in the same order, as links in `folder`; `numbers`: of the files."""

    folder: str
    numbers: tuple[int, ...]
    columns: tuple[StoredColumn, ...]

    def find_column(self, name: str) -> tuple[int, StoredColumn] | None:
        """Return a column's position and stored type; None if these files do not have it."""
        return next(((place, each) for place, each in enumerate(self.columns) if each.name == name), None)


class LinkedTableFiles:
    """The files of one table of a merge, linked into a new folder, from which DuckDB reads them.

    Raises `UsageError` if a file cannot be read, or if the plan does not have the same files and rows.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, side: TableSide, folder: str, raw: UntypedColumns
    ) -> None:
        self._connection, self._side, self._folder = connection, side, folder
        self._files = find_table_files(side.path)
        self._paths = [file.path for file in self._files]
        os.mkdir(folder)
        for number, path in enumerate(self._paths):
            os.symlink(path, self._link_path(number))
        self.rows = sum(rows for (rows,) in self._query_footers("SELECT num_rows FROM parquet_file_metadata(?)"))
        self._check_planned_files()
        self._groups = self._group_files_by_columns(raw)
        self._partitions = self._partition_columns()

    def create_view(self, name: str, keys: Sequence[str], column_prefix: str, *, keys_only: bool) -> None:
        """Create a view of all rows: key columns k0… and, unless `keys_only`, all columns, numbered after a prefix."""
        by_name = {column.field.name: column for column in self._side.columns}
        wanted = {f"k{number}": by_name[key] for number, key in enumerate(keys)}
        if not keys_only:
            wanted |= {f"{column_prefix}{number}": column for number, column in enumerate(self._side.columns)}
        join = ""
        if self._partitions:
            files = pa.array(map(_link_name, range(len(self._paths))))
            columns = {each.name: values for each, values in self._partitions.values()}
            self._connection.register(f"{name}_partitions", pa.table({"file": files, **columns}))
            join = f" JOIN {name}_partitions AS p ON p.file = parse_filename(t.file)"
        selects = []
        for group in self._groups:
            values = ", ".join(f"{self._value_sql(group, column)} AS {alias}" for alias, column in wanted.items())
            selects.append(f"SELECT {values} FROM {_file_rows_sql(group, '*')}{join}")
        self._connection.execute(f"CREATE TEMP VIEW {name} AS {' UNION ALL '.join(selects)}")

    def raise_read_error(self, keys: Sequence[str]) -> None:
        """Try each column of each file, and raise an error that says why one cannot be read, if there is one."""
        raw: dict[str, frozenset[str]] = {}
        for group in self._groups:
            for number in group.numbers:
                refused = {
                    column.source
                    for column in self._side.columns
                    if self._needs_untyped_read(group, number, column, keys)
                }
                if refused:
                    raw[self._paths[number]] = frozenset(refused)
        if raw:
            raise LogicalTypesRefused(raw)

    def _needs_untyped_read(
        self, group: FilesWithSameColumns, file_number: int, column: TableColumn, keys: Sequence[str]
    ) -> bool:
        """Whether DuckDB can read a file's column only without its logical type.

        Raises an error if it cannot read it at all.
        """
        place = group.find_column(column.source)
        if place is None:
            return False
        source, path = _file_rows_sql(group, _link_name(file_number)), self._paths[file_number]
        read = _query_error_message(f"SELECT max(hash(c{place[0]})) FROM {source}")
        failure = read or _query_error_message(f"SELECT max(hash({self._value_sql(group, column)})) FROM {source}")
        if failure is None:
            return False
        if place[1].can_read_without_type and any(each in failure for each in _REFUSED):
            return True
        if read:
            raise RunFailed(f"{path} is damaged: column {column.source!r} cannot be read: {read}")
        key = column.field.name in keys
        raise UsageError(
            f"{path}: {'key ' * key}column {column.source!r} has a value that does not fit {column.field.type}"
            + ", the common key type" * key
        )

    def _value_sql(self, group: FilesWithSameColumns, column: TableColumn) -> str:
        """Return SQL for the values of a column in the files of a group, under its canonical type."""
        place, partition = group.find_column(column.source), self._partitions.get(column.source)
        name, stored = (f"t.c{place[0]}", place[1]) if place else ("", None)
        if place is None and partition is not None:
            name, stored = f"p.{partition[0].name}", partition[0]
        try:
            return column_value_sql(name, stored, column.field.type)
        except InexactConversion:
            assert stored is not None
        paths = [self._paths[number] for number in group.numbers]
        if stored.can_read_without_type:
            raise LogicalTypesRefused(dict.fromkeys(paths, frozenset([column.source])))
        raise UsageError(
            f"{paths[0]}: the proof cannot read column {column.source!r}, stored as {stored.kind}, exactly as"
            f" {column.field.type}; leave it out, or convert it"
        )

    def _link_path(self, file_number: int) -> str:
        return os.path.join(self._folder, _link_name(file_number))

    def _query_footers(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query over the Parquet footers of all files; returns the rows of its result."""
        links = [_escape_glob_characters(self._link_path(number)) for number in range(len(self._paths))]
        try:
            return self._connection.execute(query, [links]).fetchall()
        except duckdb.Error as error:
            for path, link in zip(self._paths, links, strict=True):
                if why := _query_error_message(query, [[link]]):
                    raise UsageError(f"{path} is not a readable Parquet file: {why}") from None
            raise RunFailed(f"DuckDB could not compute the expected result: {first_message_line(error)}") from None

    def _check_planned_files(self) -> None:
        """Raise `UsageError` if the plan has other files or rows than DuckDB finds."""
        side = self._side
        planned = Counter(group for chunk in side.chunks for group in chunk)
        names = {
            "the plan lacks": set(self._paths) - set(side.files),
            "only the plan has": {*side.files, *(file for file, _ in planned)} - set(self._paths),
            "planned twice:": {file for (file, _), count in planned.items() if count > 1},
        }
        if self.rows == side.rows and not any(names.values()):
            return
        parts = []
        for what, files in names.items():
            more = f" and {len(files) - MOST_NAMES} more" if len(files) > MOST_NAMES else ""
            parts += [f"; {what} {', '.join(sorted(files)[:MOST_NAMES])}{more}"] if files else []
        raise UsageError(
            f"{side.path} cannot be read whole: the plan has {side.rows:,} rows in {len(side.files):,} file(s), DuckDB"
            f" finds {self.rows:,} rows in {len(self._paths):,} file(s){''.join(parts)}"
        )

    def _group_files_by_columns(self, untyped: UntypedColumns) -> list[FilesWithSameColumns]:
        """Group the files that have the same columns in the same order.

        `untyped`: columns, by file, that are read without their logical types.
        """
        units: dict[int, dict[str, str]] = {}
        if any(types.is_duration(column.field.type) for column in self._side.columns):  # Arrow keeps these units
            query = "SELECT file_name, value FROM parquet_kv_metadata(?) WHERE key = 'ARROW:schema'"
            units = {_file_number(link): read_duration_units(value) for link, value in self._query_footers(query)}
        groups: dict[tuple[StoredColumn, ...], list[int]] = {}
        for links, elements in self._query_footers(_SCHEMAS):
            columns = find_top_level_columns(elements)
            for number in map(_file_number, links):
                stripped, unit = untyped.get(self._paths[number], frozenset()), units.get(number, {})
                these = []
                for column in columns:
                    if column.name in stripped and column.can_read_without_type:
                        column = replace(column, kind=_RAW[column.physical])
                    these.append(replace(column, unit=column.unit or unit.get(column.name)))
                groups.setdefault(tuple(these), []).append(number)
        return [
            self._make_file_group(at, columns, numbers, untyped) for at, (columns, numbers) in enumerate(groups.items())
        ]

    def _make_file_group(
        self, group_number: int, columns: tuple[StoredColumn, ...], file_numbers: Sequence[int], untyped: UntypedColumns
    ) -> FilesWithSameColumns:
        """Make a group of files with the same columns, and move their links to a folder of its own."""
        folder = os.path.join(self._folder, f"group{group_number}")
        os.mkdir(folder)
        for number in file_numbers:
            path, link = self._paths[number], os.path.join(folder, _link_name(number))
            if path in untyped:
                copy_without_logical_types(path, link, untyped[path])
            else:
                os.rename(self._link_path(number), link)
        return FilesWithSameColumns(folder, tuple(file_numbers), columns)

    def _partition_columns(self) -> dict[str, tuple[StoredColumn, pa.Array]]:
        """Return each Hive partition as a column with a value for every file: int32 if possible, else text."""
        names = dict.fromkeys(name for file in self._files for name, _ in file.partitions)
        columns = {}
        for number, name in enumerate(names):
            texts = [dict(file.partitions).get(name) for file in self._files]
            numbers = [None if text is None else _parse_partition_integer(text) for text in texts]
            whole = [text is None for text in texts] == [each is None for each in numbers]
            kind = "NULL" if not any(texts) and whole else "INTEGER" if whole else "VARCHAR"
            values = pa.array(numbers, pa.int32()) if whole else pa.array(texts, pa.string())
            columns[name] = StoredColumn(f"p{number}", kind), values
        return columns


def _parse_partition_integer(text: str) -> int | None:
    """Parse a Hive partition's value as a 32-bit integer, as Arrow does; None if it is not one."""
    if not _INTEGER_TEXT.fullmatch(text):
        return None
    number = int(text, 16) if "x" in text.lower() else int(text)
    number -= 2**32 if "x" in text.lower() and number >= 2**31 else 0
    return number if -(2**31) <= number < 2**31 else None


def _file_rows_sql(group: FilesWithSameColumns, name: str) -> str:
    """Return SQL that reads the rows of a group's files that match `name`, with the columns t.c0, t.c1… and t.file."""
    taken = {column.name.lower() for column in group.columns}
    file = next(name for name in map("file{}".format, range(len(taken) + 1)) if name not in taken)
    columns = ", ".join([*(f"c{place}" for place in range(len(group.columns))), "file"])
    path = os.path.join(_escape_glob_characters(group.folder), name).replace("'", "''")
    return (
        f"read_parquet('{path}', hive_partitioning = false, union_by_name = false, int96_as = 'struct',"
        f" filename = '{file}') AS t({columns})"
    )


def _link_name(file_number: int) -> str:
    return f"{file_number:09}"


def _file_number(link: str) -> int:
    return int(os.path.basename(link))


def _escape_glob_characters(path: str) -> str:
    """Escape the special characters of a path, so that DuckDB does not take it for a pattern."""
    return re.sub(r"[\[*?]", r"[\g<0>]", path)


def _query_error_message(query: str, parameters: Sequence[Any] = ()) -> str | None:
    """Run a query in a new database, since some errors end a database.

    Returns the error's message, None if there is none.
    """
    with duckdb.connect() as connection:
        try:
            connection.execute(query, list(parameters)).fetchall()
        except duckdb.Error as error:
            return first_message_line(error)
    return None


# Copies of Parquet files without the logical types of some columns. Only the footer is written anew (Thrift's compact
# protocol): the pages are copied as they are.

_CONVERTED, _LOGICAL, _NAME = 6, 10, 4  # fields of a SchemaElement
_SCHEMA = 2  # of the FileMetaData
_STRUCT, _LIST = 12, 9  # a Parquet file has no sets and maps in its footer
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}  # bytes of a value: both booleans, byte, double


def copy_without_logical_types(source: str, target: str, columns: Collection[str]) -> None:
    """Copy a Parquet file and remove the logical types of some columns, which must not be nested."""
    size = os.path.getsize(source)
    with open(source, "rb") as opened, open(target, "wb") as written:
        opened.seek(size - 8)
        length = int.from_bytes(opened.read(4), "little")
        opened.seek(size - 8 - length)
        footer = opened.read(length)
        opened.seek(0)
        shutil.copyfileobj(opened, written, 1 << 20)
        written.truncate(size - 8 - length)
        written.seek(size - 8 - length)
        changed = _strip_footer_types(footer, {name.encode(errors="surrogateescape") for name in columns})
        written.write(changed + len(changed).to_bytes(4, "little") + b"PAR1")


def _strip_footer_types(footer: bytes, columns: Collection[bytes]) -> bytes:
    """Remove the logical types of columns from the bytes of a Parquet footer; returns the new footer."""
    fields, _ = _read_thrift_fields(footer, 0)
    changed = []
    for number, kind, start, end in fields:
        value = footer[start:end]
        if number == _SCHEMA:
            value = _strip_element_types(footer, start, columns)
        changed.append((number, kind, value))
    return _encode_thrift_struct(changed)


def _strip_element_types(data: bytes, position: int, columns: Collection[bytes]) -> bytes:
    start = position
    count, _, position = _read_thrift_list_header(data, position)
    parts = [data[start:position]]
    for _ in range(count):
        begin = position
        fields, position = _read_thrift_fields(data, begin)
        values = {number: data[first:last] for number, _, first, last in fields}
        name = values[_NAME][_read_varint(values[_NAME], 0)[1] :]
        if name in columns and 5 not in values:  # 5: the number of children
            kept = [(n, kind, data[a:b]) for n, kind, a, b in fields if n not in (_CONVERTED, _LOGICAL)]
            parts.append(_encode_thrift_struct(kept))
        else:
            parts.append(data[begin:position])
    return b"".join(parts)


def _read_thrift_fields(data: bytes, position: int) -> tuple[list[tuple[int, int, int, int]], int]:
    """Read the fields of a Thrift struct: number, type, start and end of each value.

    Also returns where the struct ends.
    """
    fields: list[tuple[int, int, int, int]] = []
    number = 0
    while True:
        header = data[position]
        position += 1
        if header == 0:
            return fields, position
        kind = header & 15
        if header >> 4:
            number += header >> 4
        else:
            zigzag, position = _read_varint(data, position)
            number = (zigzag >> 1) ^ -(zigzag & 1)
        end = _find_thrift_value_end(data, position, kind)
        fields.append((number, kind, position, end))
        position = end


def _find_thrift_value_end(data: bytes, position: int, kind: int) -> int:
    """Return the position where the Thrift value of type `kind` at `position` ends."""
    if kind in _FIXED:
        return position + _FIXED[kind]
    if kind == _STRUCT:
        return _read_thrift_fields(data, position)[1]
    if kind == _LIST:
        count, element, position = _read_thrift_list_header(data, position)
        for _ in range(count):
            position = position + 1 if element in (1, 2) else _find_thrift_value_end(data, position, element)
        return position
    length, position = _read_varint(data, position)  # an integer, or the length of bytes (8)
    return position + length if kind == 8 else position


def _read_thrift_list_header(data: bytes, position: int) -> tuple[int, int, int]:
    """Read the header of a Thrift list: the number of its elements, their type, and the position of the first."""
    header = data[position]
    if header >> 4 < 15:
        return header >> 4, header & 15, position + 1
    count, position = _read_varint(data, position + 1)
    return count, header & 15, position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a variable-length integer; returns it and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def _encode_thrift_struct(fields: list[tuple[int, int, bytes]]) -> bytes:
    """Encode a Thrift struct of these fields (number, type, value), whose numbers ascend by at most 15."""
    parts, last = [], 0
    for number, kind, value in fields:
        parts += [bytes([(number - last) << 4 | kind]), value]
        last = number
    return b"".join([*parts, b"\0"])

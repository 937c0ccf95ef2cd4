"""Merges of real tables: Parquet files whose row groups are divided among the workers.

`plan_tables` reads only footers, before anything is started: it finds the common types of keys, names the result's
columns, and refuses types that an engine cannot merge. Its `TableSpec` is sent to every worker, which reads its own row
groups with `load_chunk`. The spec is the same for all workers (names, types, nullability), so that their frames have
identical fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from merge_bench.config.parsers import NamesParser, quote_name
from merge_bench.errors import UsageError, WarningMessage
from merge_bench.merge.engines import EngineDescription, describe_engine, engine_descriptions
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.frame import Field, Frame, arrow_schema, canonical_type, empty_table, make_field
from merge_bench.merge.workload import Workload, parquet
from merge_bench.units import count_with_noun

if TYPE_CHECKING:
    import pyarrow as pa

WORKLOAD = Workload(name="tables", help="the files of --left and --right", place=2)

BINARY_KEYS = "binary-keys"
FEW_ROW_GROUPS = "few-row-groups"
"""The code of the warning that workers start without rows of a table."""
EMPTY_TABLE = "empty-table"
FILES_LEFT_OUT = "files-left-out"
MOST_COLUMNS = 10  # that a message names
OFFSET_BYTES = 8


def find_key_columns(
    path: str, footers: parquet.TableFooters, key_names: Sequence[str], option: str
) -> list[parquet.FooterColumn]:
    """Find the key columns with these names in a table; `option`: the option that names them, for errors.

    Raises `UsageError` if there is no such column, or one is named twice.
    """
    columns = {column.name: column for column in footers.columns}
    for key in key_names:
        if key not in columns:
            other = "; for keys with other names in one table, use --left-on and --right-on" if option == "--on" else ""
            hint = _comma_in_name_hint(key, key_names, option, footers.names) or _similar_columns_hint(
                key, footers.names
            )
            raise UsageError(f"{path} has no column {_quote_name(key)} to merge on; {hint}{other}")
        if list(key_names).count(key) > 1:
            raise UsageError(f"column {_quote_name(key)} of {path} is used as a key more than once")
    return [columns[key] for key in key_names]


def _quote_name(name: str) -> str:
    """Quote a column's name for a message: in double quotes where an option needs them, else in single ones."""
    shown = quote_name(name)
    return repr(name) if shown == name else shown


def _comma_in_name_hint(key: str, selected_names: Sequence[str], option: str, column_names: Iterable[str]) -> str:
    """Return a hint how to write a column name that an option split at its comma; empty if that is not the problem."""
    for column in column_names:
        parts = [part.strip() for part in column.split(",")]
        places = [at for at in range(len(selected_names)) if list(selected_names[at : at + len(parts)]) == parts]
        if key in parts and quote_name(column) != column and places:
            whole = [*selected_names[: places[0]], column, *selected_names[places[0] + len(parts) :]]
            return f"for its column {quote_name(column)}, write {option} {shlex.quote(NamesParser.format_names(whole))}"
    return ""


def _similar_columns_hint(key: str, column_names: Sequence[str]) -> str:
    """Return a hint for the message that a table has no column `key`: similar names, and the names of its columns."""
    folded, wanted = {name.lower(): name for name in column_names}, key.lower()
    parts = sorted((name for name in folded if wanted in name or (len(name) > 1 and name in wanted)), key=len)
    close = difflib.get_close_matches(wanted, [name for name in folded if len(name) > 1], n=3, cutoff=0.5)
    near = ", ".join(quote_name(folded[name]) for name in list(dict.fromkeys((*parts, *close)))[:3])
    cut = f" and {len(column_names) - MOST_COLUMNS} more" if len(column_names) > MOST_COLUMNS else ""
    listed = f"its columns: {', '.join(map(quote_name, column_names[:MOST_COLUMNS]))}{cut}"
    return f"similar names: {near}; {listed}" if near else listed


def check_selected_columns(selected_names: Sequence[str], *tables: tuple[str, parquet.TableFooters]) -> None:
    """Raise `UsageError` if ``--columns`` names a column that no table has."""
    names = dict.fromkeys(name for _, footers in tables for name in footers.names)
    for name in selected_names:
        if name not in names:
            whole = _comma_in_name_hint(name, selected_names, "--columns", names).removeprefix("for its")
            raise UsageError(
                f"--columns names {_quote_name(name)}, which is a column of neither"
                f" {' nor '.join(t for t, _ in tables)}" + (f"; for{whole}" if whole else "")
            )


def find_common_key_type(left: parquet.FooterColumn, right: parquet.FooterColumn) -> pa.DataType:
    """Return the type under which the values of two key columns are compared.

    Raises `UsageError` if there is none that holds the values of both.
    """
    import pyarrow as pa

    common = common_comparable_type(left.type, right.type)
    stored = [getattr(column.stored, "storage_type", column.stored) for column in (left, right)]
    if left.type != right.type and any(map(pa.types.is_fixed_size_binary, stored)):
        common = None  # text of a UUID never equals its bytes
    if common is None:
        raise UsageError(
            f"keys {left.name!r} ({left.type}) and {right.name!r} ({right.type}) cannot be compared exactly; convert"
            " one column to the type of the other"
        )
    for column, other in ((left, right), (right, left)):
        small = column.largest is not None and column.largest < 2**63
        if column.type == pa.uint64() and common == pa.int64() and not small:
            why = f"its largest value, {column.largest}, is not below 2**63"
            if column.largest is None:
                why = "its Parquet file does not state the largest value; write the file with statistics"
            raise UsageError(
                f"key {column.name!r} (uint64) cannot be compared with {other.name!r} ({other.type}): {why}"
            )
    return common


def common_comparable_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the canonical type that holds every value of both canonical key types exactly; None if there is none.

    Binary values and strings are compared as bytes. For uint64 and a signed integer the type is int64, which holds
    uint64 only below 2**63. A column without values (null) takes the type of the other.
    """
    import pyarrow as pa

    if left == right:
        return left
    if pa.types.is_decimal128(left) or pa.types.is_decimal128(right):
        left, right = _decimal_for_integers(left), _decimal_for_integers(right)
    if {left, right} == {pa.large_string(), pa.large_binary()}:
        return pa.large_binary()
    if pa.types.is_null(left) or pa.types.is_null(right):
        return right if pa.types.is_null(left) else left
    return parquet.promoted_type(left, right) if _comparable_family(left) == _comparable_family(right) else None


def _comparable_family(arrow_type: pa.DataType) -> object:
    """Return the family of a type: types of one family can be compared exactly once they are cast to one type."""
    import pyarrow as pa

    if pa.types.is_timestamp(arrow_type):
        return "timestamp", arrow_type.tz
    families = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal128,
        pa.types.is_time,
        pa.types.is_duration,
    )
    return next((holds for holds in families if holds(arrow_type)), arrow_type)


def _decimal_for_integers(arrow_type: pa.DataType) -> pa.DataType:
    """Return the decimal type of all values of an integer type (Arrow gives a digit too few); other types unchanged."""
    import pyarrow as pa

    if not pa.types.is_integer(arrow_type):
        return arrow_type
    return pa.decimal128(len(str(2 ** (arrow_type.bit_width - pa.types.is_signed_integer(arrow_type)))), 0)


def name_output_columns(
    left: Sequence[str], right: Sequence[str], left_on: Sequence[str], right_on: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the names of the left and the right columns in the result, with suffixes for names that both sides have.

    A key has its left name on both sides. A payload name that occurs on both sides gets `_left` and `_right`, a right
    payload with the name of a key gets `_right`. A suffix is repeated until the name is unique.
    """
    partner = dict(zip(right_on, left_on, strict=True))
    left_payload = [name for name in left if name not in left_on]
    right_payload = [name for name in right if name not in partner]
    doubled = set(left_payload) & set(right_payload)
    taken = {*left_on, *left_payload, *right_payload}

    def add_suffix(names: list[str], suffix: str) -> dict[str, str]:
        new = {}
        for name in names:
            candidate = name + suffix
            while candidate in taken:
                candidate += suffix
            taken.add(candidate)
            new[name] = candidate
        return new

    new_left = add_suffix([n for n in left_payload if n in doubled], "_left")
    new_right = partner | add_suffix([n for n in right_payload if n in doubled or n in left_on], "_right")
    return [new_left.get(name, name) for name in left], [new_right.get(name, name) for name in right]


def refuse_unsupported_types(engine: str, columns: Iterable[tuple[str, pa.DataType]]) -> None:
    """Raise an error for the first column (name, canonical type) that the engine called `engine` cannot merge.

    Raises `UsageError`, naming the column, its type and the engines that support it; or if there is no engine of that
    name.
    """
    description = describe_engine(engine)
    for name, arrow_type in columns:
        if reason := _refusal_reason(description, arrow_type):
            others = [other.name for other in engine_descriptions() if not _refusal_reason(other, arrow_type)]
            raise UsageError(
                f"column {name!r} has type {arrow_type}, which engine {engine} cannot merge ({reason});"
                f" use --engine {', '.join(others[:-1])} or {others[-1]}"
            )


def _refusal_reason(engine: EngineDescription, arrow_type: pa.DataType) -> str | None:
    """Return the reason why an engine does not support a type; None if it does."""
    import pyarrow as pa

    return next((why for kind, why in engine.refuses if getattr(pa.types, f"is_{kind}")(arrow_type)), None)


@dataclass(frozen=True)
class TableColumn:
    """One column of a table of a merge: its name in the files (`source`), and its `field` in frames and in the result.

    `stored`: its type in the files, such as that of UUIDs; None if it is that of `field`, or differs between files.
    """

    source: str
    field: Field
    stored: pa.DataType | None = None


@dataclass(frozen=True)
class TableSide:
    """The plan for one table of a merge: its files, columns, and the row groups of each worker.

    `columns` are in the files' order. `chunks[rank]` has the (file, row group) pairs of that worker and
    `chunk_rows[rank]` their rows together. `constants`, `left_out`, `fingerprint`: see `parquet.TableFooters`.
    """

    path: str
    files: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    chunks: tuple[tuple[tuple[str, int], ...], ...]
    chunk_rows: tuple[int, ...]
    constants: Mapping[str, parquet.Constants] = dataclasses.field(default_factory=dict, hash=False)
    left_out: tuple[parquet.SkippedFiles, ...] = ()
    fingerprint: str = ""

    @property
    def rows(self) -> int:
        return sum(self.chunk_rows)

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(column.field for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "rows": self.rows,
            "files": list(self.files),
            "columns": [
                {"source": c.source, "name": c.field.name, "type": str(c.field.type), "nullable": c.field.nullable}
                for c in self.columns
            ],
            "chunks": [[list(group) for group in chunk] for chunk in self.chunks],
            "chunk_rows": list(self.chunk_rows),
            "left_out": [{**asdict(each), "names": list(each.names)} for each in self.left_out],
            "fingerprint": self.fingerprint or None,
        }


@dataclass(frozen=True)
class TableSpec:
    """The plan of a merge of two tables: plain data, the same on every worker.

    `keys`: names of the keys in both sides' frames, which are those of the left table. `benchmark`, `question`: names
    of both, if the tables are generated.
    """

    left: TableSide
    right: TableSide
    keys: tuple[str, ...]
    warnings: tuple[WarningMessage, ...] = ()
    benchmark: str | None = None
    question: str | None = None

    def side(self, side: Side) -> TableSide:
        return self.left if side is Side.LEFT else self.right

    def to_json(self) -> dict[str, Any]:
        named = {"benchmark": self.benchmark, "question": self.question} if self.benchmark else {}
        return {
            **named,
            "keys": list(self.keys),
            "left": self.left.to_json(),
            "right": self.right.to_json(),
            "warnings": [asdict(warning) for warning in self.warnings],
        }


def plan_tables(
    left: str,
    right: str,
    left_on: Sequence[str],
    right_on: Sequence[str],
    workers: int,
    engine: str,
    columns: Sequence[str] | None = None,
) -> TableSpec:
    """Plan the merge of two Parquet tables on `workers` workers; a path is a file, a folder or a pattern.

    `columns`: names of the columns of both tables that are merged besides the keys; None: all.

    Raises `UsageError` for files that cannot be read, columns that do not exist, keys that cannot be compared, and
    types that no engine or that `engine` does not support, and `RunFailed` for a damaged file.
    """
    if not left_on or len(left_on) != len(right_on):
        raise UsageError(
            f"both tables need the same number of key columns, and at least one: left has {len(left_on)}, right has"
            f" {len(right_on)}"
        )
    paths, key_names = (left, right), (left_on, right_on)
    footers = [
        parquet.read_footers(path, None if columns is None else {*columns, *on})
        for path, on in zip(paths, key_names, strict=True)
    ]
    check_selected_columns(columns or (), *zip(paths, footers, strict=True))
    options = ("--on", "--on") if list(left_on) == list(right_on) else ("--left-on", "--right-on")
    pairs = list(zip(*map(find_key_columns, paths, footers, key_names, options), strict=True))
    key_types = [find_common_key_type(*pair) for pair in pairs]
    left_names, right_names = ([column.name for column in each.columns] for each in footers)
    names = name_output_columns(left_names, right_names, left_on, right_on)
    sides = [
        _plan_table_side(path, each, side_names, dict(zip(on, key_types, strict=True)), workers)
        for path, each, side_names, on in zip(paths, footers, names, key_names, strict=True)
    ]
    cautions = [
        *_table_side_warnings("left", left, footers[0], workers),
        *_table_side_warnings("right", right, footers[1], workers),
        *(caution for pair in pairs for caution in _key_type_warnings(*pair)),
    ]
    spec = TableSpec(sides[0], sides[1], tuple(left_on), tuple(cautions))
    refuse_unsupported_types(engine, ((c.source, c.field.type) for c in spec.left.columns + spec.right.columns))
    return spec


def cast_to_file_types(spec: TableSpec, result: pa.Table) -> pa.Table:
    """Convert rows of a result to the column types of the files, such as UUIDs.

    A key has the files' type only if it is the same in both tables.
    """
    import pyarrow as pa

    stored = {column.field.name: column.stored for column in spec.left.columns}
    for column in spec.right.columns:
        if stored.setdefault(column.field.name, column.stored) != column.stored:
            stored[column.field.name] = None
    for place, name in enumerate(result.column_names):
        kind = stored[name]
        if kind is not None and pa.types.is_null(kind):
            result = result.set_column(place, name, pa.nulls(result.num_rows))
        elif kind is not None and canonical_type(kind, name) == result.schema.field(name).type:  # else a wider key
            if pa.types.is_dictionary(kind):  # all files together can have more values than the indices of one count
                kind = pa.dictionary(pa.int32(), kind.value_type)
            storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
            values = result.column(name).cast(storage)
            result = result.set_column(place, name, values if storage == kind else values.cast(kind))
    return result


def assign_row_groups(row_groups: Sequence[parquet.RowGroup], workers: int) -> list[list[parquet.RowGroup]]:
    """Divide row groups among workers so that rows balance: the largest first, each to the worker with least rows.

    The result depends on the order and sizes of `row_groups` only; each worker's groups are in the order given.
    """
    loads = [0] * workers
    chunks: list[list[int]] = [[] for _ in range(workers)]
    for position in sorted(range(len(row_groups)), key=lambda p: -row_groups[p].rows):
        rank = loads.index(min(loads))
        loads[rank] += row_groups[position].rows
        chunks[rank].append(position)
    return [[row_groups[position] for position in sorted(chunk)] for chunk in chunks]


def load_chunk(spec: TableSpec, rank: int) -> tuple[Frame, Frame]:
    """Read one worker's chunks of the left and the right table, from its own row groups.

    Raises `UsageError` if a file differs from the plan, or if a value does not fit the type in which both sides' keys
    are compared, or that of all files of its table, and `RunFailed` if a file cannot be read.
    """
    return _load_side_rows(spec.left, rank), _load_side_rows(spec.right, rank)


def read_table_rows(side: TableSide, file: str, row_groups: Sequence[int], columns: Sequence[TableColumn]) -> pa.Table:
    """Read these columns of some row groups of a file, with the names and types of their fields.

    Raises what `load_chunk` raises.
    """
    import pyarrow as pa

    constants = side.constants.get(file, {})
    table = parquet.read_rows(file, row_groups, [column.source for column in columns])
    arrays, names = [], frozenset(table.column_names)
    for column in columns:
        if column.source in constants:
            arrays.append(pa.repeat(pa.scalar(constants[column.source], column.field.type), table.num_rows))
        elif column.source not in names:
            raise UsageError(f"{file} no longer has column {column.source!r}, which the merge needs")
        else:
            arrays.append(_canonical_values(column, table, file))
    return pa.Table.from_arrays(arrays, schema=arrow_schema([column.field for column in columns]))


def _canonical_values(column: TableColumn, table: pa.Table, file: str) -> pa.ChunkedArray:
    import pyarrow as pa

    values = table.column(column.source)
    try:
        if isinstance(values.type, pa.BaseExtensionType):
            values = values.cast(values.type.storage_type)
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        return values.cast(column.field.type)
    except pa.ArrowException:
        raise UsageError(
            f"{file}: column {column.source!r} has a value that does not fit {column.field.type}, the common type of"
            " the keys or of the table's files"
        ) from None


def _load_side_rows(side: TableSide, rank: int) -> Frame:
    """Read one worker's rows of one table."""
    import pyarrow as pa

    by_file: dict[str, list[int]] = {}
    for file, index in side.chunks[rank]:
        by_file.setdefault(file, []).append(index)
    tables = [read_table_rows(side, file, indices, side.columns) for file, indices in by_file.items()]
    table = pa.concat_tables([empty_table(side.fields), *tables])
    if table.num_rows != side.chunk_rows[rank]:
        raise UsageError(
            f"worker {rank} read {table.num_rows} rows of {side.path} instead of {side.chunk_rows[rank]}; give every"
            " host the same files, and do not change them during a run"
        )
    frame = Frame.from_arrow(table)
    for planned, loaded in zip(side.fields, frame.fields, strict=True):
        if loaded.nullable and not planned.nullable:
            raise UsageError(
                f"column {planned.name!r} of {side.path} has nulls, although the Parquet statistics showed none;"
                " write the file again, with correct statistics"
            )
    return frame.with_nullable_fields({field.name: field.nullable for field in side.fields})


def _plan_table_side(
    path: str,
    footers: parquet.TableFooters,
    column_names: Sequence[str],
    key_types: dict[str, pa.DataType],
    workers: int,
) -> TableSide:
    """Plan one table of a merge: its columns, named `column_names` in the result, and each worker's row groups."""
    import pyarrow as pa

    columns = []
    for column, name in zip(footers.columns, column_names, strict=True):
        kind = key_types.get(column.name, column.type)
        field = make_field(name, pa.int32() if pa.types.is_null(kind) else kind, nullable=column.nullable)
        stored = None if column.stored == field.type else column.stored
        columns.append(TableColumn(column.name, field, stored))
    chunks = assign_row_groups(footers.row_groups, workers)
    return TableSide(
        path,
        footers.files,
        tuple(columns),
        tuple(tuple((group.file, group.index) for group in chunk) for chunk in chunks),
        tuple(sum(group.rows for group in chunk) for chunk in chunks),
        footers.constants,
        footers.left_out,
        footers.fingerprint,
    )


def _key_type_warnings(left: parquet.FooterColumn, right: parquet.FooterColumn) -> Iterator[WarningMessage]:
    """Yield a warning if one of these keys is text and the other binary, because they are then compared as bytes."""
    import pyarrow as pa

    if {left.type, right.type} == {pa.large_string(), pa.large_binary()}:
        binary, text = (left, right) if left.type == pa.large_binary() else (right, left)
        how = "so they are compared byte by byte, with text as UTF-8"
        yield WarningMessage(BINARY_KEYS, f"key {binary.name!r} is binary and key {text.name!r} is text, {how}")


def _table_side_warnings(side: str, path: str, footers: parquet.TableFooters, workers: int) -> Iterator[WarningMessage]:
    """Yield warnings about one table of a merge: files that are not read, and workers without rows."""
    yield from footers.cautions
    read, out = len(footers.files), sum(each.count for each in footers.left_out)
    if out:
        what = f"{read} of {read + out} files of the {side} table {path}"
        yield WarningMessage(FILES_LEFT_OUT, f"read {what}; left out: {'; '.join(map(str, footers.left_out))}")
    groups = len(footers.row_groups)
    if not sum(group.rows for group in footers.row_groups):
        yield WarningMessage(
            EMPTY_TABLE, f"the {side} table {path} has no rows, so there is nothing to merge", "name a table with rows"
        )
    elif groups < workers:
        yield WarningMessage(
            FEW_ROW_GROUPS,
            f"the {side} table {path} has only {count_with_noun(groups, 'row group')} for {workers} workers, so"
            f" {workers - groups} of them {'starts' if workers - groups == 1 else 'start'} without rows",
            "write the table with smaller row groups, or use fewer workers",
        )


def mean_row_bytes(side: TableSide, column_names: Collection[str] | None = None) -> float:
    """Return the mean bytes of a row of one table in its frames: values, 64-bit offsets, and validity bytes.

    `column_names`: the columns to count; None: all.
    """
    fields = [field for field in side.fields if column_names is None or field.name in column_names]
    return _sum_column_bytes(fields, mean_value_bytes(side))


def estimate_output_bytes(spec: TableSpec, rows: int, how: JoinKind = JoinKind.INNER) -> int:
    """Estimate the bytes of `rows` result rows of a merge of this kind, all columns once.

    The estimate assumes that rows are like those of the sampled row groups. If the most frequent keys have the longest
    strings, the result is larger.
    """
    lengths = {**mean_value_bytes(spec.right), **mean_value_bytes(spec.left)}
    return round(rows * _sum_column_bytes(how.output_fields(spec.left.fields, spec.right.fields, spec.keys), lengths))


def mean_value_bytes(side: TableSide) -> dict[str, float]:
    """Return the mean bytes of a value of each variable-width column (by its field's name), from one row group."""
    import pyarrow.compute as pc

    variable = [column for column in side.columns if column.field.has_variable_width]
    group = next((chunk[0] for chunk in side.chunks if chunk), None)
    if not variable or group is None:
        return {column.field.name: 0.0 for column in variable}
    file, index = group
    table = read_table_rows(side, file, [index], variable)
    totals = [pc.sum(pc.binary_length(values)).as_py() or 0 for values in table.columns]
    return {c.field.name: total / table.num_rows for c, total in zip(variable, totals, strict=True)}


def _sum_column_bytes(fields: Sequence[Field], mean_lengths: dict[str, float]) -> float:
    widths = (OFFSET_BYTES + mean_lengths[field.name] if field.has_variable_width else field.width for field in fields)
    return sum(widths, 0.0) + sum(field.nullable for field in fields)

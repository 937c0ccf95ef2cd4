"""Merges of real tables: Parquet files whose row groups are divided among the workers.

`plan_tables` reads only footers, before anything is started. Its `TableSpec` is sent to every worker, which reads its
own row groups with `load_chunk`. The spec is the same for all workers (names, types, nullability), so that their frames
have identical fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from merge_bench.errors import Caution, UsageError
from merge_bench.merge.engines.base import Side
from merge_bench.merge.frame import Field, Frame, arrow_schema, canonical_type, field_of
from merge_bench.merge.workload import keys, parquet, schema
from merge_bench.merge.workload.files import LeftOut
from merge_bench.units import plural

FEW_ROW_GROUPS = "few-row-groups"
"""The code of the warning that workers start without rows of a table."""
FILES_LEFT_OUT = "files-left-out"
NO_VALUES = pa.int32()
"""The type under which a column travels that has no value in any file."""


@dataclass(frozen=True)
class TableColumn:
    """One column of one side: `source` is its name in the files, `field` describes it in frames and in the result.

    `stored`: its type in the files, such as that of UUIDs; None if it is that of `field`, or differs between files.
    """

    source: str
    field: Field
    stored: pa.DataType | None = None


@dataclass(frozen=True)
class TableSide:
    """The left or the right table.

    `columns` are in the files' order. `chunks[rank]` holds the (file, row group) pairs of that worker and
    `chunk_rows[rank]` their rows together. `constants`, `left_out`, `fingerprint`: as of `parquet.Footers`.
    """

    path: str
    files: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    chunks: tuple[tuple[tuple[str, int], ...], ...]
    chunk_rows: tuple[int, ...]
    constants: Mapping[str, parquet.Constants] = dataclasses.field(default_factory=dict, hash=False)
    left_out: tuple[LeftOut, ...] = ()
    fingerprint: str = ""

    @property
    def rows(self) -> int:
        """Rows of the whole table."""
        return sum(self.chunk_rows)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of every worker's frame."""
        return tuple(column.field for column in self.columns)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of every worker's chunk."""
        return arrow_schema(self.fields)

    def to_json(self) -> dict[str, Any]:
        """Plain lists, strings and numbers."""
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

    `keys`: names of the keys in both sides' frames, which are those of the left table. `benchmark`, `question`: where
    the tables are generated, of what.
    """

    left: TableSide
    right: TableSide
    keys: tuple[str, ...]
    warnings: tuple[Caution, ...] = ()
    benchmark: str | None = None
    question: str | None = None

    def side(self, side: Side) -> TableSide:
        """One of the tables."""
        return self.left if side is Side.LEFT else self.right

    @property
    def workers(self) -> int:
        """The number of workers that share the tables."""
        return len(self.left.chunks)

    @property
    def output(self) -> tuple[Field, ...]:
        """The result's columns in order: the left table's, then the right table's without its keys."""
        return self.left.fields + tuple(f for f in self.right.fields if f.name not in self.keys)

    @property
    def output_schema(self) -> pa.Schema:
        """The result's canonical Arrow schema."""
        return arrow_schema(self.output)

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists, strings and numbers, for the records."""
        named = {"benchmark": self.benchmark, "question": self.question} if self.benchmark else {}
        return {
            **named,
            "keys": list(self.keys),
            "left": self.left.to_json(),
            "right": self.right.to_json(),
            "warnings": [asdict(warning) for warning in self.warnings],
        }


def plan_tables(
    left: str, right: str, left_on: Sequence[str], right_on: Sequence[str], workers: int, engine: str,
    columns: Sequence[str] | None = None,
) -> TableSpec:  # fmt: skip
    """Plan the merge of two Parquet tables on `workers` workers; a path is a file, a folder or a pattern.

    `columns`: names of the columns of both tables that are merged beside the keys; None: all.

    Raises
    ------
    UsageError
        For files that cannot be read, columns that do not exist, keys that cannot be compared, and types that no engine
        or that `engine` does not support.
    RunFailed
        For a damaged file.
    """
    if not left_on or len(left_on) != len(right_on):
        raise UsageError(
            f"both tables need the same number of key columns, and at least one: left has {len(left_on)}, right has"
            f" {len(right_on)}"
        )
    left_footers = parquet.read_footers(left, None if columns is None else {*columns, *left_on})
    right_footers = parquet.read_footers(right, None if columns is None else {*columns, *right_on})
    keys.check_columns(columns or (), (left, left_footers), (right, right_footers))
    options = ("--on", "--on") if list(left_on) == list(right_on) else ("--left-on", "--right-on")
    left_keys = keys.key_columns(left, left_footers, left_on, options[0])
    right_keys = keys.key_columns(right, right_footers, right_on, options[1])
    pairs = list(zip(left_keys, right_keys, strict=True))
    key_types = [keys.key_type(*pair) for pair in pairs]
    left_names, right_names = schema.output_names(
        [c.name for c in left_footers.columns], [c.name for c in right_footers.columns], left_on, right_on
    )
    spec = TableSpec(
        _side(left, left_footers, left_names, dict(zip(left_on, key_types, strict=True)), workers),
        _side(right, right_footers, right_names, dict(zip(right_on, key_types, strict=True)), workers),
        tuple(left_on),
        (
            *_cautions("left", left, left_footers, workers),
            *_cautions("right", right, right_footers, workers),
            *keys.cautions(pairs),
        ),
    )
    schema.refuse_for_engine(engine, ((c.source, c.field.type) for c in spec.left.columns + spec.right.columns))
    return spec


def stored_types(spec: TableSpec, result: pa.Table) -> pa.Table:
    """Rows of a result with the types of the files, such as UUIDs, instead of those under which columns travel.

    A key has that type if it is the same in both tables.
    """
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


def assign(row_groups: Sequence[parquet.RowGroup], workers: int) -> list[list[parquet.RowGroup]]:
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
    """Read one worker's rows of the left and the right table: its own row groups and no others.

    Raises
    ------
    UsageError
        If a file differs from the plan, or if a value does not fit the type in which both sides' keys are compared, or
        that of all files of its table.
    RunFailed
        If a file cannot be read.
    """
    return _load(spec.left, rank), _load(spec.right, rank)


def read_side(side: TableSide, file: str, row_groups: Sequence[int], columns: Sequence[TableColumn]) -> pa.Table:
    """These columns of rows of a file of one side, under their fields' names and types. Errors as `load_chunk`."""
    constants = side.constants.get(file, {})
    table = parquet.read_rows(file, row_groups, [column.source for column in columns])
    arrays, found = [], frozenset(table.column_names)
    for column in columns:
        if column.source in constants:
            arrays.append(pa.repeat(pa.scalar(constants[column.source], column.field.type), table.num_rows))
        elif column.source not in found:
            raise UsageError(f"{file} no longer has column {column.source!r}, which the merge needs")
        else:
            arrays.append(_canonical(column, table, file))
    return pa.Table.from_arrays(arrays, schema=arrow_schema([column.field for column in columns]))


def _canonical(column: TableColumn, table: pa.Table, file: str) -> pa.ChunkedArray:
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


def _load(side: TableSide, rank: int) -> Frame:
    by_file: dict[str, list[int]] = {}
    for file, index in side.chunks[rank]:
        by_file.setdefault(file, []).append(index)
    table = pa.concat_tables(
        [
            side.schema.empty_table(),
            *(read_side(side, file, indices, side.columns) for file, indices in by_file.items()),
        ]
    )
    if table.num_rows != side.chunk_rows[rank]:
        raise UsageError(
            f"worker {rank} read {table.num_rows} rows of {side.path} instead of {side.chunk_rows[rank]}; give every"
            " host the same files, and do not change them during a run"
        )
    frame = Frame.from_arrow(table)
    for planned, found in zip(side.fields, frame.fields, strict=True):
        if found.nullable and not planned.nullable:
            raise UsageError(
                f"column {planned.name!r} of {side.path} has nulls, although the Parquet statistics showed none;"
                " write the file again, with correct statistics"
            )
    return frame.with_nullable({field.name: field.nullable for field in side.fields})


def _side(
    path: str, footers: parquet.Footers, names: Sequence[str], key_types: dict[str, pa.DataType], workers: int
) -> TableSide:
    columns = []
    for column, name in zip(footers.columns, names, strict=True):
        kind = key_types.get(column.name, column.type)
        field = field_of(name, NO_VALUES if pa.types.is_null(kind) else kind, nullable=column.nullable)
        stored = None if column.stored == field.type else column.stored
        columns.append(TableColumn(column.name, field, stored))
    chunks = assign(footers.row_groups, workers)
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


def _cautions(side: str, path: str, footers: parquet.Footers, workers: int) -> Iterator[Caution]:
    yield from footers.cautions
    read, out = len(footers.files), sum(each.count for each in footers.left_out)
    if out:
        yield Caution(
            FILES_LEFT_OUT,
            f"read {read} of {read + out} files of the {side} table {path}; left out:"
            f" {'; '.join(map(str, footers.left_out))}",
        )
    groups = len(footers.row_groups)
    if groups < workers:
        yield Caution(
            FEW_ROW_GROUPS,
            f"the {side} table {path} has only {plural(groups, 'row group')} for {workers} workers, so"
            f" {workers - groups} of them {'starts' if workers - groups == 1 else 'start'} without rows",
            "write the table with smaller row groups, or use fewer workers",
        )

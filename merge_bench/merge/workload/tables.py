"""Merges of real tables: Parquet files whose row groups are divided among the workers.

`plan_tables` reads only footers, before anything is started. Its `TableSpec` is sent to every worker, which reads its
own row groups with `load_chunk`. The spec is the same for all workers (names, types, nullability), so that their frames
have identical fields.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from merge_bench.errors import Caution, UsageError, first_line
from merge_bench.merge.engines.base import Side
from merge_bench.merge.frame import Field, Frame, arrow_schema, field_of
from merge_bench.merge.workload import parquet, schema

FEW_ROW_GROUPS = "few-row-groups"
MOST_COLUMNS = 10  # that a message names
"""The code of the warning that workers start without rows of a table."""


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
    `chunk_rows[rank]` their rows together.
    """

    path: str
    files: tuple[str, ...]
    columns: tuple[TableColumn, ...]
    chunks: tuple[tuple[tuple[str, int], ...], ...]
    chunk_rows: tuple[int, ...]

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
    left: str, right: str, left_on: Sequence[str], right_on: Sequence[str], workers: int, engine: str
) -> TableSpec:
    """Plan the merge of two Parquet tables on `workers` workers; a path is a file, a folder or a pattern.

    Raises
    ------
    UsageError
        For files that cannot be read, columns that do not exist, keys that cannot be compared, and types that no engine
        or that `engine` does not support.
    """
    if not left_on or len(left_on) != len(right_on):
        raise UsageError(
            f"both tables need the same number of key columns, and at least one: left has {len(left_on)}, right has"
            f" {len(right_on)}"
        )
    left_footers, right_footers = parquet.read_footers(left), parquet.read_footers(right)
    same = list(left_on) == list(right_on)
    left_keys = _key_columns(left, left_footers, left_on, same)
    right_keys = _key_columns(right, right_footers, right_on, same)
    key_types = [_key_type(*pair) for pair in zip(left_keys, right_keys, strict=True)]
    left_names, right_names = schema.output_names(
        [c.name for c in left_footers.columns], [c.name for c in right_footers.columns], left_on, right_on
    )
    spec = TableSpec(
        _side(left, left_footers, left_names, dict(zip(left_on, key_types, strict=True)), workers),
        _side(right, right_footers, right_names, dict(zip(right_on, key_types, strict=True)), workers),
        tuple(left_on),
        _few_row_groups("left", left, left_footers, workers) + _few_row_groups("right", right, right_footers, workers),
    )
    schema.refuse_for_engine(engine, ((c.source, c.field.type) for c in spec.left.columns + spec.right.columns))
    return spec


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
        If a file is missing on this host or differs from the plan, or if a key value does not fit the type in which
        both sides' keys are compared.
    """
    return _load(spec.left, rank), _load(spec.right, rank)


def canonical_columns(columns: Sequence[TableColumn], table: pa.Table, file: str) -> list[pa.ChunkedArray]:
    """The values of some columns of rows of a file, under the types of their fields.

    Raises
    ------
    UsageError
        If a column is missing, or a key value does not fit its type.
    """
    found = []
    for column in columns:
        if column.source not in table.column_names:
            raise UsageError(f"{file} no longer has column {column.source!r}, which the merge needs")
        values = table.column(column.source)
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        try:
            found.append(values.cast(column.field.type))
        except pa.ArrowException:
            raise UsageError(
                f"{file}: key column {column.source!r} has a value that does not fit {column.field.type}, the common"
                " key type"
            ) from None
    return found


def _load(side: TableSide, rank: int) -> Frame:
    by_file: dict[str, list[int]] = {}
    for file, index in side.chunks[rank]:
        by_file.setdefault(file, []).append(index)
    table = pa.concat_tables(
        [side.schema.empty_table(), *(_read(side, file, indices) for file, indices in by_file.items())]
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


def _read(side: TableSide, file: str, indices: Sequence[int]) -> pa.Table:
    try:
        with pq.ParquetFile(file) as opened:
            table = opened.read_row_groups(indices)
    except (OSError, pa.ArrowException, ValueError, IndexError) as error:
        raise UsageError(f"{file} cannot be read: {first_line(error)}") from None
    return pa.Table.from_arrays(canonical_columns(side.columns, table, file), schema=side.schema)


def _key_columns(path: str, footers: parquet.Footers, on: Sequence[str], same: bool) -> list[parquet.FooterColumn]:
    """The columns `on` of a table; `same`: the other table's keys have the same names."""
    columns = {column.name: column for column in footers.columns}
    for key in on:
        if key not in columns:
            other = "; for keys with other names in one table, use --left-on and --right-on" if same else ""
            raise UsageError(f"{path} has no column {key!r} to merge on; {_what_it_has(key, list(columns))}{other}")
        if list(on).count(key) > 1:
            raise UsageError(f"column {key!r} of {path} is used as a key more than once")
    return [columns[key] for key in on]


def _what_it_has(key: str, columns: Sequence[str]) -> str:
    """The columns of a table that has no `key`; before them those whose names contain it, or are similar."""
    folded, wanted = {name.lower(): name for name in columns}, key.lower()
    parts = sorted((name for name in folded if wanted in name or (len(name) > 1 and name in wanted)), key=len)
    close = difflib.get_close_matches(wanted, [name for name in folded if len(name) > 1], n=3, cutoff=0.5)
    near = ", ".join(folded[name] for name in list(dict.fromkeys((*parts, *close)))[:3])
    cut = f" and {len(columns) - MOST_COLUMNS} more" if len(columns) > MOST_COLUMNS else ""
    listed = f"its columns: {', '.join(columns[:MOST_COLUMNS])}{cut}"
    return f"similar names: {near}; {listed}" if near else listed


def _key_type(left: parquet.FooterColumn, right: parquet.FooterColumn) -> pa.DataType:
    common = schema.common_type(left.type, right.type)
    if common is None:
        raise UsageError(
            f"keys {left.name!r} ({left.type}) and {right.name!r} ({right.type}) cannot be compared exactly; convert"
            " one column to the type of the other"
        )
    for column, other in ((left, right), (right, left)):
        if schema.needs_small_values(column.type, common) and (column.largest is None or column.largest >= 2**63):
            why = f"its largest value, {column.largest}, is not below 2**63"
            if column.largest is None:
                why = "its Parquet file does not state the largest value; write the file with statistics"
            raise UsageError(
                f"key {column.name!r} (uint64) cannot be compared with {other.name!r} ({other.type}): {why}"
            )
    return common


def _side(
    path: str, footers: parquet.Footers, names: Sequence[str], key_types: dict[str, pa.DataType], workers: int
) -> TableSide:
    columns = tuple(
        TableColumn(column.name, field_of(name, key_types.get(column.name, column.type), nullable=column.nullable))
        for column, name in zip(footers.columns, names, strict=True)
    )
    chunks = assign(footers.row_groups, workers)
    return TableSide(
        path,
        footers.files,
        columns,
        tuple(tuple((group.file, group.index) for group in chunk) for chunk in chunks),
        tuple(sum(group.rows for group in chunk) for chunk in chunks),
    )


def _few_row_groups(side: str, path: str, footers: parquet.Footers, workers: int) -> tuple[Caution, ...]:
    groups = len(footers.row_groups)
    if groups >= workers:
        return ()
    return (
        Caution(
            FEW_ROW_GROUPS,
            f"the {side} table {path} has only {groups} row group{'s' * (groups != 1)} for {workers} workers, so"
            f" {workers - groups} of them start{'s' * (workers - groups == 1)} without rows",
            "write the table with smaller row groups, or use fewer workers",
        ),
    )

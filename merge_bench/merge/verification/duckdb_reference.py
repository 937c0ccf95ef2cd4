"""The expected result of a merge of real tables, computed with DuckDB, which finds the matching rows.

Nothing here uses the hashes with which the workers find matches, nor the files and values that were read for them:
DuckDB finds and reads the tables by itself (`duckdb_files`). In DuckDB, dates, times and timestamps are integers, text
is bytes, and columns have numbered names, so that neither units nor DuckDB's case-insensitive names can change a value.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from merge_bench.errors import RunFailed, WrongResult, first_message_line
from merge_bench.host.machine import available_memory_bytes
from merge_bench.merge.engines.base import JoinKind, Side
from merge_bench.merge.frame import Field, Frame, arrow_schema, as_integer_type, reinterpret_column
from merge_bench.merge.verification.duckdb_files import LinkedTableFiles, LogicalTypesRefused, UntypedColumns
from merge_bench.merge.workload.tables import TableSpec

BATCH_ROWS = 1 << 17
THREADS = 2  # of DuckDB
LEAST_MEMORY = 256 << 20
TRUSTING = "statistics_propagation,filter_pushdown,join_filter_pushdown"
"""Optimizers of DuckDB that conclude from the statistics in the files: those of DOUBLE leave NaN out, and DuckDB 2.0
then takes ``isnan`` for false."""
_QueryResult = TypeVar("_QueryResult")

_COUNTED = {
    JoinKind.INNER: "pairs",
    JoinKind.LEFT: "pairs + {left} - matched_left",
    JoinKind.RIGHT: "pairs + {right} - matched_right",
    JoinKind.OUTER: "pairs + {left} - matched_left + {right} - matched_right",
    JoinKind.SEMI: "matched_left",
    JoinKind.ANTI: "{left} - matched_left",
}


@dataclass(frozen=True)
class ResultRowCounts:
    """The number of `rows` of a result, and how many rows of each table have a null or NaN key (`keyless`)."""

    rows: int
    keyless: Mapping[Side, int]


def count_result_rows(spec: TableSpec, how: JoinKind = JoinKind.INNER) -> ResultRowCounts:
    """Count the rows of a merge result without making it: for each key left rows × right rows, and unmatched rows.

    Raises `UsageError` if a file cannot be read, or a key value does not fit the type in which both sides' keys are
    compared, and `RunFailed` if DuckDB cannot finish.
    """
    keys = ", ".join(_sql_key_names(spec))
    sides = ", ".join(
        f"{name} AS MATERIALIZED (SELECT {keys}, count(*)::HUGEINT AS n FROM {side} WHERE {_all_keys_present_sql(spec)}"
        f" GROUP BY {keys})"
        for name, side in (("l", "left_rows"), ("r", "right_rows"))
    )

    def count_rows_in_duckdb(untyped: UntypedColumns) -> ResultRowCounts:
        with _open_duckdb_views(spec, untyped, keys_only=True) as (connection, (left, right)):
            row = connection.execute(query.format(left=left, right=right)).fetchone()
        assert row is not None
        rows, keyless_left, keyless_right = map(int, row)
        return ResultRowCounts(rows, {Side.LEFT: keyless_left, Side.RIGHT: keyless_right})

    query = (
        f"WITH {sides}, counts AS (SELECT coalesce(sum(l.n * r.n), 0) AS pairs, coalesce(sum(l.n), 0) AS matched_left,"
        f" coalesce(sum(r.n), 0) AS matched_right FROM l JOIN r USING ({keys}))"
        f" SELECT ({_COUNTED[how]})::VARCHAR, ({{left}} - (SELECT coalesce(sum(n), 0) FROM l))::VARCHAR,"
        " ({right} - (SELECT coalesce(sum(n), 0) FROM r))::VARCHAR FROM counts"
    )
    return _retry_with_untyped_columns(count_rows_in_duckdb)


def compute_expected_result(spec: TableSpec, how: JoinKind = JoinKind.INNER) -> tuple[int, int]:
    """Compute the expected result of a merge with DuckDB; returns its number of rows and their checksum.

    The checksum is `partition_loops.frame_checksum` over all columns in the order of `JoinKind.output_fields`. The
    result is processed in batches and is never in memory as a whole. It raises what `count_result_rows` raises.
    """

    def sum_expected_batches(untyped: UntypedColumns) -> tuple[int, int]:
        rows, checksum = 0, 0
        for table in compute_expected_batches(spec, how, untyped):
            rows += table.num_rows
            checksum += _table_checksum(table)
        return rows, checksum % 2**64

    return _retry_with_untyped_columns(sum_expected_batches)


def compute_expected_batches(
    spec: TableSpec, how: JoinKind = JoinKind.INNER, untyped: UntypedColumns = MappingProxyType({})
) -> Iterator[pa.Table]:
    """Compute the expected rows of a merge with DuckDB; yields them in batches, in no order.

    It raises what `count_result_rows` raises, and `LogicalTypesRefused` where some columns must be read without their
    logical types.
    """
    output = _output_fields(spec, how)
    schema = arrow_schema(output)
    with _open_duckdb_views(spec, untyped, keys_only=False) as (connection, _):
        for batch in connection.sql(_merge_sql(spec, how)).to_arrow_reader(BATCH_ROWS):
            arrays = [
                _restore_canonical_type(array, field.type) for array, field in zip(batch.columns, output, strict=True)
            ]
            yield pa.Table.from_arrays(arrays, schema=schema)


def _table_checksum(table: pa.Table) -> int:
    from merge_bench.merge import partition_loops

    return partition_loops.frame_checksum(Frame.from_arrow(table), table.column_names)


def _output_fields(spec: TableSpec, how: JoinKind) -> tuple[Field, ...]:
    return how.output_fields(spec.left.fields, spec.right.fields, spec.keys)


def _merge_sql(spec: TableSpec, how: JoinKind) -> str:
    """Return SQL for the whole merge; rows with a null or NaN key match nothing."""
    keys, whole = _sql_key_names(spec), _all_keys_present_sql(spec)
    places = {field.name: i for i, field in enumerate(spec.right.fields)}
    columns = []
    for i, field in enumerate(spec.left.fields):
        both = how.keeps_unmatched_right and field.name in spec.keys
        columns.append(f"coalesce(l{i}, r{places[field.name]})" if both else f"l{i}")
    if how.has_right_columns:
        columns += [f"r{i}" for name, i in places.items() if name not in spec.keys]
    if how is JoinKind.INNER:
        sides = [f"SELECT * FROM {side} WHERE {whole}" for side in ("left_rows", "right_rows")]
        return f"SELECT {', '.join(columns)} FROM ({sides[0]}) l JOIN ({sides[1]}) r USING ({', '.join(keys)})"
    nulled = ", ".join(f"CASE WHEN {whole} THEN {key} END AS {key}" for key in keys)
    sides = [f"SELECT * REPLACE ({nulled}) FROM {side}" for side in ("left_rows", "right_rows")]
    condition = " AND ".join(f"l.{key} = r.{key}" for key in keys)
    join = "FULL" if how is JoinKind.OUTER else how.value
    return f"SELECT {', '.join(columns)} FROM ({sides[0]}) l {join} JOIN ({sides[1]}) r ON {condition}"


def to_expected_columns(spec: TableSpec, table: pa.Table, how: JoinKind = JoinKind.INNER) -> pa.Table:
    """Convert rows of an engine's result to the columns and types of the expected result.

    Engines return columns in their own order and with their own types for the same values: string views, finer units,
    wider decimals, UTC timestamps without a zone.

    Raises `WrongResult` if a column is missing or has values that its type cannot hold.
    """
    columns, output = [], _output_fields(spec, how)
    for field in output:
        if field.name not in table.column_names:
            raise WrongResult(f"the result has no column {field.name!r}")
        try:
            columns.append(pc.dictionary_decode(table.column(field.name)).cast(field.type))
        except pa.ArrowException as error:
            raise WrongResult(
                f"column {field.name!r} of the result does not fit type {field.type}: {first_message_line(error)}"
            ) from None
    return pa.Table.from_arrays(columns, schema=arrow_schema(output))


def result_checksum(spec: TableSpec, table: pa.Table, how: JoinKind = JoinKind.INNER) -> int:
    """Return the checksum of an engine's result, comparable with that of `compute_expected_result`."""
    pieces = (table.slice(start, BATCH_ROWS) for start in range(0, table.num_rows, BATCH_ROWS))
    return sum(_table_checksum(to_expected_columns(spec, piece, how)) for piece in pieces) % 2**64


def compare_result_rows(spec: TableSpec, tables: list[pa.Table], how: JoinKind = JoinKind.INNER) -> str | None:
    """Compare the workers' results with the expected rows exactly; returns what differs, None if nothing does.

    Returns
    -------
    A sentence about the first difference; None if there is none.
    """
    output = _output_fields(spec, how)
    balance = _retry_with_untyped_columns(
        lambda raw: [_add_signed_count(output, table, 1) for table in compute_expected_batches(spec, how, raw)]
    )
    balance += [_add_signed_count(output, to_expected_columns(spec, table, how), -1) for table in tables]
    if not balance:
        return None
    names = [f"c{i}" for i in range(len(output))]
    # Many keys of several types in one group_by; one thread keeps the order of first appearance.
    totals = pa.concat_tables(balance).group_by(names, use_threads=False).aggregate([("count", "sum")])
    wrong = totals.filter(pc.not_equal(totals["count_sum"], 0))
    if wrong.num_rows == 0:
        return None
    count = wrong["count_sum"][0].as_py()
    row = {field.name: _readable_value(wrong[name], field.type) for name, field in zip(names, output, strict=True)}
    shown = ", ".join(f"{name}={value!r}" for name, value in row.items())
    copies = f"{abs(count)} {'copy' if abs(count) == 1 else 'copies'} too {'few' if count > 0 else 'many'}"
    return f"the result has {copies} of the row {shown} ({wrong.num_rows} distinct rows differ)"


def _add_signed_count(output_fields: Sequence[Field], table: pa.Table, sign: int) -> pa.Table:
    """Return the rows with comparable values and numbered names, and a column `count` that is always `sign`."""
    columns = []
    for column, field in zip(table.columns, output_fields, strict=True):
        if field.is_floating:  # one NaN, one zero
            nan, zero = pa.scalar(float("nan"), column.type), pa.scalar(0.0, column.type)
            column = pc.if_else(pc.is_nan(column), nan, column)
            column = pc.if_else(pc.equal(column, zero), zero, column)
        target = as_integer_type(column.type, include_floats=True)
        columns.append(column if target == column.type else reinterpret_column(column, target))
    names = [f"c{i}" for i in range(len(columns))]
    columns.append(pa.chunked_array([pa.array([sign] * table.num_rows, pa.int64())]))
    return pa.Table.from_arrays(columns, names=[*names, "count"])


def _readable_value(column: pa.ChunkedArray, arrow_type: pa.DataType) -> Any:
    scalar = _restore_canonical_type(column.combine_chunks()[:1], arrow_type)[0]
    try:
        return scalar.as_py()
    except ValueError:  # nanoseconds, which Python's own types do not have
        return str(scalar)


def _sql_key_names(spec: TableSpec) -> list[str]:
    return [f"k{i}" for i in range(len(spec.keys))]


def _all_keys_present_sql(spec: TableSpec) -> str:
    """Return the SQL condition that no key of a row is null or NaN."""
    types = {field.name: field for field in spec.left.fields}
    conditions = []
    for name, key in zip(_sql_key_names(spec), spec.keys, strict=True):
        conditions.append(f"{name} IS NOT NULL")
        if types[key].is_floating:
            conditions.append(f"NOT isnan({name})")
    return " AND ".join(conditions)


def duckdb_memory_limit() -> int:
    """Return the largest number of bytes of memory that DuckDB may use; beyond that it spills to disk."""
    return max(available_memory_bytes() // 4, LEAST_MEMORY)


@contextlib.contextmanager
def _open_duckdb_views(
    spec: TableSpec, untyped: UntypedColumns, *, keys_only: bool
) -> Iterator[tuple[duckdb.DuckDBPyConnection, list[int]]]:
    """Open a DuckDB connection with the views `left_rows` and `right_rows`; yields it and the number of rows of each.

    Key columns are k0… and, unless `keys_only`, all columns l0… or r0… `untyped`: columns, by file, that are read
    without their logical types.
    """
    with tempfile.TemporaryDirectory(prefix="merge-bench-duckdb-") as folder:
        settings: dict[str, Any] = {
            "memory_limit": f"{duckdb_memory_limit() // 2**20}MiB",
            "threads": THREADS,
            "temp_directory": os.path.join(folder, "spilled"),
            "preserve_insertion_order": False,
            "arrow_large_buffer_size": True,
            "enable_external_file_cache": False,
            "autoload_known_extensions": False,
            "autoinstall_known_extensions": False,
            "disabled_optimizers": TRUSTING,
        }
        with duckdb.connect(":memory:", config=settings) as connection:
            sides = [
                LinkedTableFiles(connection, side, os.path.join(folder, name), untyped)
                for side, name in ((spec.left, "left"), (spec.right, "right"))
            ]
            try:
                for side, name in zip(sides, ("left_rows", "right_rows"), strict=True):
                    side.create_view(name, spec.keys, name[0], keys_only=keys_only)
                yield connection, [side.rows for side in sides]
            except (duckdb.Error, pa.ArrowException) as error:
                if not isinstance(error, duckdb.OutOfMemoryException):
                    for side in sides:
                        side.raise_read_error(spec.keys)
                raise RunFailed(f"DuckDB could not compute the expected result: {first_message_line(error)}") from None


def _retry_with_untyped_columns(run_query: Callable[[UntypedColumns], _QueryResult]) -> _QueryResult:
    """Call `run_query` until DuckDB refuses no values.

    Columns with values that it refused are read without their logical types in the next call.
    """
    raw: dict[str, frozenset[str]] = {}
    while True:
        try:
            return run_query(raw)
        except LogicalTypesRefused as refused:
            for file, columns in refused.columns.items():
                raw[file] = raw.get(file, frozenset()) | columns


def _restore_canonical_type(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Convert values from DuckDB to their canonical Arrow type; text, which may not be UTF-8, comes as bytes."""
    as_integers = array.type != arrow_type and as_integer_type(arrow_type, include_floats=True) == array.type
    same_bytes = as_integers or pa.types.is_large_string(arrow_type)
    return array.view(arrow_type) if same_bytes else array.cast(arrow_type)

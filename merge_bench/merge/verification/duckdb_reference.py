"""The expected result of a merge of real tables, computed with DuckDB, which finds the matching rows.

Nothing here uses the hashes with which the workers find matches. All row groups of all files are read, whichever worker
they were assigned to. In DuckDB, dates, times and timestamps are integers, and columns have numbered names, so that
neither units nor DuckDB's case-insensitive names can change a value.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from merge_bench.errors import RunFailed, UsageError, WrongResult, first_line
from merge_bench.host.memory import available_bytes
from merge_bench.merge import hashing
from merge_bench.merge.frame import Frame, integer_type, viewed
from merge_bench.merge.workload.tables import TableSide, TableSpec, canonical_columns

BATCH_ROWS = 1 << 17
THREADS = 2  # of DuckDB


def count_rows(spec: TableSpec) -> int:
    """Rows of the result, without making any: for every key its left rows times its right rows.

    Raises
    ------
    UsageError
        If a file cannot be read, or a key value does not fit the type in which both sides' keys are compared.
    RunFailed
        If DuckDB cannot finish.
    """
    keys = ", ".join(_key_names(spec))
    counted = "SELECT {keys}, count(*) AS n FROM {side} WHERE {whole} GROUP BY {keys}"
    left, right = (
        counted.format(keys=keys, side=side, whole=_whole_keys(spec)) for side in ("left_rows", "right_rows")
    )
    query = f"SELECT coalesce(sum(l.n::HUGEINT * r.n), 0)::VARCHAR FROM ({left}) l JOIN ({right}) r USING ({keys})"
    with _session(spec, keys_only=True) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def expected(spec: TableSpec) -> tuple[int, int]:
    """Rows of the result, and `hashing.checksum` over all of its columns in the order of `spec.output`.

    The result is processed in batches and is never in memory as a whole. Errors as `count_rows`.
    """
    names = [field.name for field in spec.output]
    rows, checksum = 0, 0
    for table in expected_batches(spec):
        rows += table.num_rows
        checksum += hashing.checksum(Frame.from_arrow(table), names)
    return rows, checksum % 2**64


def expected_batches(spec: TableSpec) -> Iterator[pa.Table]:
    """The result in pieces, in no order, under `spec.output_schema`. Errors as `count_rows`."""
    keys = _key_names(spec)
    left = [f"l{i}" for i in range(len(spec.left.columns))]
    right = [f"r{i}" for i, field in enumerate(spec.right.fields) if field.name not in spec.keys]
    whole = _whole_keys(spec)
    query = (
        f"SELECT {', '.join([*left, *right])}"
        f" FROM (SELECT * FROM left_rows WHERE {whole}) l"
        f" JOIN (SELECT * FROM right_rows WHERE {whole}) r USING ({', '.join(keys)})"
    )
    with _session(spec, keys_only=False) as connection:
        for batch in connection.sql(query).to_arrow_reader(BATCH_ROWS):
            arrays = [
                _from_integers(array, field.type) for array, field in zip(batch.columns, spec.output, strict=True)
            ]
            yield pa.Table.from_arrays(arrays, schema=spec.output_schema)


def result_table(spec: TableSpec, table: pa.Table) -> pa.Table:
    """An engine's result → the same rows under `spec.output_schema`.

    Engines return columns in their own order and with their own types for the same values: string views, finer units,
    wider decimals, UTC timestamps without a zone.

    Raises
    ------
    WrongResult
        If a column is missing or has values that its type cannot hold.
    """
    columns = []
    for field in spec.output:
        if field.name not in table.column_names:
            raise WrongResult(f"the result has no column {field.name!r}")
        try:
            columns.append(pc.dictionary_decode(table.column(field.name)).cast(field.type))
        except pa.ArrowException as error:
            raise WrongResult(
                f"column {field.name!r} of the result does not fit type {field.type}: {first_line(error)}"
            ) from None
    return pa.Table.from_arrays(columns, schema=spec.output_schema)


def result_checksum(spec: TableSpec, table: pa.Table) -> int:
    """The checksum of an engine's result, to be compared with that of `expected`; large tables go piece by piece."""
    names = [field.name for field in spec.output]
    pieces = (table.slice(start, BATCH_ROWS) for start in range(0, table.num_rows, BATCH_ROWS))
    return sum(hashing.checksum(Frame.from_arrow(result_table(spec, piece)), names) for piece in pieces) % 2**64


def compare_full(spec: TableSpec, tables: list[pa.Table]) -> str | None:
    """Compare the workers' results with the expected rows, as multisets, exactly; all of it in memory.

    Returns
    -------
    A sentence about the first difference; None if there is none.
    """
    balance = [_counted(spec, table, 1) for table in expected_batches(spec)]
    balance += [_counted(spec, result_table(spec, table), -1) for table in tables]
    if not balance:
        return None
    names = [f"c{i}" for i in range(len(spec.output))]
    # Many keys of several types in one group_by; one thread keeps the order of first appearance.
    totals = pa.concat_tables(balance).group_by(names, use_threads=False).aggregate([("count", "sum")])
    wrong = totals.filter(pc.not_equal(totals["count_sum"], 0))
    if wrong.num_rows == 0:
        return None
    count = wrong["count_sum"][0].as_py()
    row = {field.name: _readable(wrong[name], field.type) for name, field in zip(names, spec.output, strict=True)}
    shown = ", ".join(f"{name}={value!r}" for name, value in row.items())
    copies = f"{abs(count)} {'copy' if abs(count) == 1 else 'copies'} too {'few' if count > 0 else 'many'}"
    return f"the result has {copies} of the row {shown} ({wrong.num_rows} distinct rows differ)"


def _counted(spec: TableSpec, table: pa.Table, sign: int) -> pa.Table:
    """The rows with comparable values under numbered names, and a column `count` of `sign`."""
    columns = []
    for column, field in zip(table.columns, spec.output, strict=True):
        columns.append(_to_integers(_one_nan_one_zero(column) if field.floating else column, floats=True))
    names = [f"c{i}" for i in range(len(columns))]
    columns.append(pa.chunked_array([pa.array([sign] * table.num_rows, pa.int64())]))
    return pa.Table.from_arrays(columns, names=[*names, "count"])


def _one_nan_one_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    nan, zero = pa.scalar(float("nan"), column.type), pa.scalar(0.0, column.type)
    column = pc.if_else(pc.is_nan(column), nan, column)
    return pc.if_else(pc.equal(column, zero), zero, column)


def _readable(column: pa.ChunkedArray, arrow_type: pa.DataType) -> Any:
    scalar = _from_integers(column.combine_chunks()[:1], arrow_type)[0]
    try:
        return scalar.as_py()
    except ValueError:  # nanoseconds, which Python's own types do not have
        return str(scalar)


def _key_names(spec: TableSpec) -> list[str]:
    return [f"k{i}" for i in range(len(spec.keys))]


def _whole_keys(spec: TableSpec) -> str:
    """The condition that no key is null or NaN, which match nothing."""
    types = {field.name: field for field in spec.left.fields}
    conditions = []
    for name, key in zip(_key_names(spec), spec.keys, strict=True):
        conditions.append(f"{name} IS NOT NULL")
        if types[key].floating:
            conditions.append(f"NOT isnan({name})")
    return " AND ".join(conditions)


def _memory_limit() -> int:
    """Bytes that DuckDB may use before it spills to disk."""
    return max(available_bytes() // 4, 256 << 20)


@contextlib.contextmanager
def _session(spec: TableSpec, *, keys_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB over `left_rows` and `right_rows`: key columns k0… and, unless `keys_only`, all columns l0… or r0…"""
    with tempfile.TemporaryDirectory(prefix="merge-bench-duckdb-") as folder:
        settings: dict[str, Any] = {
            "memory_limit": f"{_memory_limit() // 2**20}MiB",
            "threads": THREADS,
            "temp_directory": folder,
            "preserve_insertion_order": False,
            "arrow_large_buffer_size": True,
        }
        unreadable: list[UsageError] = []
        with duckdb.connect(":memory:", config=settings) as connection:
            try:
                for side, name in ((spec.left, "left_rows"), (spec.right, "right_rows")):
                    connection.register(name, _reader(side, spec.keys, name[0], keys_only, unreadable))
                yield connection
            except (duckdb.Error, pa.ArrowException) as error:
                if unreadable:
                    raise unreadable[0] from None
                raise RunFailed(f"DuckDB could not compute the expected result: {first_line(error)}") from None


def _reader(
    side: TableSide, keys: tuple[str, ...], prefix: str, keys_only: bool, unreadable: list[UsageError]
) -> pa.RecordBatchReader:
    """All rows of one side, file by file, for DuckDB.

    DuckDB replaces an error that occurs while a file is read by its own error, so the first is kept in `unreadable`.
    """
    by_name = {column.field.name: column for column in side.columns}
    wanted = [(f"k{i}", by_name[key]) for i, key in enumerate(keys)]
    if not keys_only:
        wanted += [(f"{prefix}{index}", column) for index, column in enumerate(side.columns)]
    schema = pa.schema([pa.field(name, integer_type(column.field.type)) for name, column in wanted])
    columns = [column for _, column in wanted]
    sources = sorted({column.source for column in columns})

    def batches() -> Iterator[pa.RecordBatch]:
        for file in side.files:
            try:
                with pq.ParquetFile(file) as opened:
                    for batch in opened.iter_batches(BATCH_ROWS, columns=sources):
                        values = canonical_columns(columns, pa.Table.from_batches([batch]), file)
                        yield from pa.Table.from_arrays([_to_integers(v) for v in values], schema=schema).to_batches()
            except UsageError as error:
                unreadable.append(error)
                raise
            except (OSError, pa.ArrowException) as error:
                unreadable.append(UsageError(f"{file} cannot be read: {first_line(error)}"))
                raise

    return pa.RecordBatchReader.from_batches(schema, batches())


def _to_integers(column: pa.ChunkedArray, *, floats: bool = False) -> pa.ChunkedArray:
    target = integer_type(column.type, floats=floats)
    return column if target == column.type else viewed(column, target)


def _from_integers(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    if array.type != arrow_type and integer_type(arrow_type, floats=True) == array.type:
        return array.view(arrow_type)
    return array.cast(arrow_type)

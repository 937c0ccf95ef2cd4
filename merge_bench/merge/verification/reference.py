"""The right answer of a merge of real tables, from an independent engine: DuckDB finds which rows match.

Nothing here uses the hashes by which the workers find partners. The tables are read whole, all row groups of all files,
whichever worker they were assigned to. Dates, times and timestamps travel through DuckDB as the integers they are made
of, and columns under numbered names, so that neither units nor DuckDB's case-insensitive names can change a value.
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

from merge_bench.errors import RunFailed, UsageError, WrongResult
from merge_bench.host.memory import available_bytes
from merge_bench.merge import hashing
from merge_bench.merge.frame import Frame
from merge_bench.merge.workload.parquet import first_line
from merge_bench.merge.workload.tables import TableSide, TableSpec, canonical_columns

BATCH_ROWS = 1 << 17
DEFAULT_THREADS = 2


def count_rows(spec: TableSpec, *, memory_bytes: int | None = None, threads: int = DEFAULT_THREADS) -> int:
    """Rows of the result: for every key the rows of the left times the rows of the right, none of them made.

    Parameters
    ----------
    memory_bytes
        Memory that DuckDB may take before it goes to disk; by default a quarter of what is available.
    threads
        Threads that DuckDB may use.

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
    with _session(spec, memory_bytes, threads, keys_only=True) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def expected(spec: TableSpec, *, memory_bytes: int | None = None, threads: int = DEFAULT_THREADS) -> tuple[int, int]:
    """Rows of the result, and `hashing.checksum` over all of its columns in the order of `spec.output`.

    The result streams through in batches and is never held whole. Parameters and errors as `count_rows`.
    """
    names = [field.name for field in spec.output]
    rows, checksum = 0, 0
    for table in expected_batches(spec, memory_bytes=memory_bytes, threads=threads):
        rows += table.num_rows
        checksum += hashing.checksum(Frame.from_arrow(table), names)
    return rows, checksum % 2**64


def expected_batches(
    spec: TableSpec, *, memory_bytes: int | None = None, threads: int = DEFAULT_THREADS
) -> Iterator[pa.Table]:
    """The result in pieces, in no order, under `spec.output_schema`. Parameters and errors as `count_rows`."""
    keys = _key_names(spec)
    left = [_number("l", i) for i in range(len(spec.left.columns))]
    right = [_number("r", i) for i, field in enumerate(spec.right.fields) if field.name not in spec.keys]
    whole = _whole_keys(spec)
    query = (
        f"SELECT {', '.join([*left, *right])}"
        f" FROM (SELECT * FROM left_rows WHERE {whole}) l"
        f" JOIN (SELECT * FROM right_rows WHERE {whole}) r USING ({', '.join(keys)})"
    )
    with _session(spec, memory_bytes, threads, keys_only=False) as connection:
        for batch in connection.sql(query).to_arrow_reader(BATCH_ROWS):
            arrays = [
                _from_integers(array, field.type) for array, field in zip(batch.columns, spec.output, strict=True)
            ]
            yield pa.Table.from_arrays(arrays, schema=spec.output_schema)


def result_table(spec: TableSpec, table: pa.Table) -> pa.Table:
    """An engine's result → the same rows under `spec.output_schema`.

    Engines give columns in their own order and in types of their own for the same values: string views, finer units,
    wider decimals, timestamps in UTC without saying so.

    Raises
    ------
    WrongResult
        If a column is missing or has values that its type cannot hold.
    """
    columns = []
    for field in spec.output:
        if field.name not in table.column_names:
            raise WrongResult(f"the result lacks the column {field.name!r}")
        values = table.column(field.name)
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        try:
            columns.append(values.cast(field.type))
        except pa.ArrowException as error:
            raise WrongResult(f"column {field.name!r} of the result is not {field.type}: {first_line(error)}") from None
    return pa.Table.from_arrays(columns, schema=spec.output_schema)


def result_frame(spec: TableSpec, table: pa.Table) -> Frame:
    """An engine's result as a frame whose columns are those of `spec.output`; errors as `result_table`."""
    return Frame.from_arrow(result_table(spec, table))


def result_checksum(spec: TableSpec, table: pa.Table) -> int:
    """The checksum of an engine's result, to be compared with that of `expected`; large tables go piece by piece."""
    names = [field.name for field in spec.output]
    pieces = (table.slice(start, BATCH_ROWS) for start in range(0, table.num_rows, BATCH_ROWS))
    return sum(hashing.checksum(result_frame(spec, piece), names) for piece in pieces) % 2**64


def compare_full(spec: TableSpec, tables: list[pa.Table]) -> str | None:
    """Compare the workers' results with the expected rows, as multisets, exactly; all of it in memory.

    Returns
    -------
    A sentence that names the first difference, or None if there is none.
    """
    balance = [_counted(spec, table, 1) for table in expected_batches(spec)]
    balance += [_counted(spec, result_table(spec, table), -1) for table in tables]
    if not balance:
        return None
    names = [_number("c", i) for i in range(len(spec.output))]
    # Many keys of several types in one group_by; one thread keeps the order of first appearance.
    totals = pa.concat_tables(balance).group_by(names, use_threads=False).aggregate([("count", "sum")])
    wrong = totals.filter(pc.not_equal(totals["count_sum"], 0))
    if wrong.num_rows == 0:
        return None
    count = wrong["count_sum"][0].as_py()
    row = {field.name: _readable(wrong[name], field.type) for name, field in zip(names, spec.output, strict=True)}
    shown = ", ".join(f"{name}={value!r}" for name, value in row.items())
    found = f"lacks {_times(count)} the row" if count > 0 else f"has {_times(-count)} too often the row"
    return f"the result {found} {shown} ({wrong.num_rows} distinct rows differ)"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _counted(spec: TableSpec, table: pa.Table, sign: int) -> pa.Table:
    """The rows with comparable values under numbered names, and a column `count` of `sign`."""
    columns = []
    for column, field in zip(table.columns, spec.output, strict=True):
        columns.append(_to_integers(_one_nan_one_zero(column) if field.floating else column, bits=True))
    names = [_number("c", i) for i in range(len(columns))]
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


def _number(prefix: str, index: int) -> str:
    return f"{prefix}{index}"


def _key_names(spec: TableSpec) -> list[str]:
    return [_number("k", i) for i in range(len(spec.keys))]


def _whole_keys(spec: TableSpec) -> str:
    """The condition that no key is null or NaN, neither of which matches anything."""
    types = {field.name: field for field in spec.left.fields}
    conditions = []
    for name, key in zip(_key_names(spec), spec.keys, strict=True):
        conditions.append(f"{name} IS NOT NULL")
        if types[key].floating:
            conditions.append(f"NOT isnan({name})")
    return " AND ".join(conditions)


@contextlib.contextmanager
def _session(
    spec: TableSpec, memory_bytes: int | None, threads: int, *, keys_only: bool
) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB over `left_rows` and `right_rows`: key columns k0… and, unless `keys_only`, all columns l0… or r0…"""
    limit = memory_bytes if memory_bytes is not None else max(available_bytes() // 4, 256 << 20)
    with tempfile.TemporaryDirectory(prefix="merge-bench-duckdb-") as folder:
        settings: dict[str, Any] = {
            "memory_limit": f"{limit // 2**20}MiB",
            "threads": threads,
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
    """All rows of one side, file after file, as DuckDB gets them.

    An error in reading goes through DuckDB, which makes another one of it; the first is kept in `unreadable`.
    """
    by_name = {column.field.name: column for column in side.columns}
    wanted = [(_number("k", i), by_name[key]) for i, key in enumerate(keys)]
    if not keys_only:
        wanted += [(_number(prefix, index), column) for index, column in enumerate(side.columns)]
    schema = pa.schema([pa.field(name, _integer_type(column.field.type)) for name, column in wanted])
    columns = [column for _, column in wanted]
    sources = sorted({column.source for column in columns})

    def read(file: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(BATCH_ROWS, columns=sources):
                values = canonical_columns(columns, pa.Table.from_batches([batch]), file)
                yield from pa.Table.from_arrays([_to_integers(v) for v in values], schema=schema).to_batches()

    def batches() -> Iterator[pa.RecordBatch]:
        for file in side.files:
            try:
                yield from read(file)
            except UsageError as error:
                unreadable.append(error)
                raise
            except (OSError, pa.ArrowException) as error:
                unreadable.append(UsageError(f"{file} cannot be read: {first_line(error)}"))
                raise

    return pa.RecordBatchReader.from_batches(schema, batches())


def _integer_type(arrow_type: pa.DataType, *, bits: bool = False) -> pa.DataType:
    """The integer type that stands for a temporal one (with `bits` also for a float); other types themselves."""
    if pa.types.is_temporal(arrow_type) or (bits and pa.types.is_floating(arrow_type)):
        return pa.int32() if arrow_type.bit_width == 32 else pa.int64()
    return arrow_type


def _to_integers(column: pa.ChunkedArray, *, bits: bool = False) -> pa.ChunkedArray:
    target = _integer_type(column.type, bits=bits)
    if target == column.type:
        return column
    return pa.chunked_array([chunk.view(target) for chunk in column.chunks], target)


def _from_integers(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    if array.type != arrow_type and _integer_type(arrow_type, bits=True) == array.type:
        return array.view(arrow_type)
    return array.cast(arrow_type)

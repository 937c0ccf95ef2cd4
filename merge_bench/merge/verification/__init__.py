"""Proves that a merge's result is correct, and writes it as Parquet files where the user wants to look at it.

Each worker checks its rows; their number and a checksum are checked over all workers. ``--write-result`` writes a part
for each worker.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from merge_bench.errors import RunFailed, UsageError, first_message_line
from merge_bench.merge.exchange.base import AbortFlag
from merge_bench.merge.frame import Field, arrow_schema, empty_table
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.tables import TableSpec, cast_to_file_types
from merge_bench.units import count_with_noun

MODULUS = 2**64
BATCH_ROWS = 1 << 17


class ResultCheck(msgspec.Struct, frozen=True):
    """What was found when one worker's part of the result was checked.

    `checksum`: modulo 2**64; over row numbers for the synthetic workload, over all columns for real tables. `bad_rows`:
    the number of rows that are wrong by themselves. `tables`: the rows as Arrow IPC, where all rows are to be compared.
    """

    rows: int
    checksum: int
    bad_rows: int = 0
    tables: bytes | None = None


def check_result(plan: Plan, pieces: Iterable[pa.Table], abort: AbortFlag) -> ResultCheck:
    """Check every row of one worker's part of the merge result, piece by piece.

    If the plan compares all rows (``full``), the check also keeps the rows of real tables.
    """
    workload, how, full = plan.workload, plan.how, plan.verify == "full"
    rows = total = bad = 0
    tables = []
    if isinstance(workload, SyntheticSpec):
        from merge_bench.merge.workload import synthetic

        marks = synthetic.matched_left_key_bits(workload, how)
    else:
        from merge_bench.merge.verification.duckdb_reference import result_checksum, to_expected_columns
    for piece in pieces:
        abort.raise_if_aborted()
        if isinstance(workload, SyntheticSpec):
            count, part, wrong = synthetic.check_result_rows(workload, piece, how, marks)
            bad += wrong
        else:
            count, part = piece.num_rows, result_checksum(workload, piece, how)
            if full:
                tables.append(to_expected_columns(workload, piece, how))
        rows += count
        total = (total + part) % MODULUS
    return ResultCheck(
        rows, total, bad, _serialize_tables(tables) if full and isinstance(workload, TableSpec) else None
    )


def _serialize_tables(tables: Sequence[pa.Table]) -> bytes:
    if not tables:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    return bytes(sink.getvalue())


def deserialize_tables(data: bytes | None) -> list[pa.Table]:
    """Return the Arrow tables in `ResultCheck.tables`; none if there is no data."""
    return [pa.ipc.open_stream(pa.py_buffer(data)).read_all()] if data else []


def combine_and_judge_checks(
    checks: Sequence[ResultCheck], expected_rows: int, expected_checksum: int
) -> tuple[ResultCheck, str | None]:
    """Add up the workers' checks.

    Returns the sum, and a sentence about what is wrong with the result (None: nothing).
    """
    total = sum(check.checksum for check in checks) % MODULUS
    whole = ResultCheck(sum(check.rows for check in checks), total, sum(check.bad_rows for check in checks))
    problems = []
    if difference := whole.rows - expected_rows:
        counted = count_with_noun(abs(difference), "row")
        problems.append(f"{counted} {'too many' if difference > 0 else 'missing'} (expected {expected_rows:,})")
    if whole.bad_rows:
        wrong = ", ".join(f"{check.bad_rows:,} on rank {rank}" for rank, check in enumerate(checks) if check.bad_rows)
        problems.append(f"rows with wrong values: {wrong}")
    if whole.checksum != expected_checksum:
        alone = "the checksum over all rows differs, so rows were duplicated, lost or changed"
        problems.append("the checksum differs" if problems else alone)
    return whole, "the merge result is wrong: " + "; ".join(problems) if problems else None


def make_result_parts_folder(folder: str) -> None:
    """Make the folder for the parts of the merged table on this host; an empty folder may exist already.

    Raises `UsageError` if it contains something, or cannot be made.
    """
    path, on_host = Path(folder), f"on {socket.gethostname()}"
    try:
        path.mkdir(parents=True, exist_ok=True)
        filled = any(path.iterdir())
    except OSError as error:
        raise UsageError(
            f"--write-result: the folder {folder} cannot be used {on_host}: {first_message_line(error)}"
        ) from None
    if filled:
        raise UsageError(f"--write-result: the folder {folder} is not empty {on_host}; name a new one")


def cast_to_stored_types(plan: Plan, piece: pa.Table) -> pa.Table:
    """Convert rows of the result to the column types of the Parquet files that were merged."""
    return cast_to_file_types(plan.workload, piece) if isinstance(plan.workload, TableSpec) else piece


def write_result_part(plan: Plan, part_number: int, pieces: Iterable[pa.Table], fields: Sequence[Field]) -> Path:
    """Write one part of the result to a new Parquet file, whose columns have these fields; returns its path.

    Raises `RunFailed` with the operating system's message if that fails; the file does not exist then.
    """
    assert plan.write_result is not None
    path, names = Path(plan.write_result) / f"part-{part_number:05}.parquet", [field.name for field in fields]
    schema = cast_to_stored_types(plan, empty_table(fields)).schema
    try:
        with path.open("xb") as file, pq.ParquetWriter(file, schema) as writer:
            for piece in pieces:
                for start in range(0, piece.num_rows, BATCH_ROWS):
                    writer.write_table(cast_to_stored_types(plan, piece.select(names).slice(start, BATCH_ROWS)))
    except FileExistsError:
        raise RunFailed(f"{path} was there already on {socket.gethostname()}, although its folder was empty") from None
    except OSError as error:
        path.unlink(missing_ok=True)
        where = f"{path} on {socket.gethostname()}"
        raise RunFailed(f"the merged table could not be written to {where}: {first_message_line(error)}") from error
    return path


def read_result_part(path: Path, fields: Sequence[Field]) -> Iterator[pa.Table]:
    """Read a part of the result batch by batch; yields tables with the types of `fields`."""
    schema = arrow_schema(fields)
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            columns = (batch.column(name) for name in schema.names)
            arrays = [_unwrapped_values(column).cast(kind) for column, kind in zip(columns, schema.types, strict=True)]
            yield pa.Table.from_arrays(arrays, schema=schema)


def _unwrapped_values(column: pa.Array) -> pa.Array:
    """Return a column's plain values, without an extension type or a dictionary."""
    if isinstance(column.type, pa.BaseExtensionType):
        return column.cast(column.type.storage_type)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

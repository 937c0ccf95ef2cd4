"""Verification of a result: each worker checks its rows; their number and a checksum are checked over all workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa

from merge_bench.merge.engines.base import How
from merge_bench.merge.exchange.base import Abort
from merge_bench.merge.workload import synthetic
from merge_bench.merge.workload.synthetic import SyntheticSpec
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.units import plural

MODULUS = 2**64


class Check(msgspec.Struct, frozen=True):
    """What the check of one worker's part of the result found.

    `checksum`: modulo 2**64; over row numbers for the synthetic workload, over all columns for real tables.
    `bad_rows`: rows that are wrong in themselves. `tables`: the rows as Arrow IPC, where all rows are compared.
    """

    rows: int
    checksum: int
    bad_rows: int = 0
    tables: bytes | None = None


def check_result(
    workload: SyntheticSpec | TableSpec, how: How, pieces: Iterable[pa.Table], abort: Abort, *, full: bool = False
) -> Check:
    """Check every row of one worker's part of the result of a merge of this kind, piece by piece.

    `full`: keep the rows of real tables, to be compared with the expected ones.
    """
    rows = total = bad = 0
    tables = []
    marks = synthetic.partner_bits(workload, how) if isinstance(workload, SyntheticSpec) else None
    for piece in pieces:
        abort.check()
        if isinstance(workload, SyntheticSpec):
            count, part, wrong = synthetic.check(workload, piece, how, marks)
            bad += wrong
        else:
            from merge_bench.merge.verification.duckdb_reference import result_checksum, result_table

            count, part = piece.num_rows, result_checksum(workload, piece, how)
            if full:
                tables.append(result_table(workload, piece, how))
        rows += count
        total = (total + part) % MODULUS
    return Check(rows, total, bad, _serialize_tables(tables) if full and isinstance(workload, TableSpec) else None)


def _serialize_tables(tables: Sequence[pa.Table]) -> bytes:
    if not tables:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    return bytes(sink.getvalue())


def deserialize_tables(data: bytes | None) -> list[pa.Table]:
    """The rows that a check holds in `tables`, as Arrow tables; none if it holds no rows."""
    return [pa.ipc.open_stream(pa.py_buffer(data)).read_all()] if data else []


def judge(checks: Sequence[Check], expected_rows: int, expected_checksum: int) -> tuple[Check, str | None]:
    """The workers' checks added up, and what is wrong with them beside the expected result; None if it is right."""
    total = sum(check.checksum for check in checks) % MODULUS
    whole = Check(sum(check.rows for check in checks), total, sum(check.bad_rows for check in checks))
    problems = []
    if whole.rows != expected_rows:
        difference = whole.rows - expected_rows
        counted = plural(abs(difference), "row")
        problems.append(f"{counted} {'too many' if difference > 0 else 'missing'} (expected {expected_rows:,})")
    if whole.bad_rows:
        wrong = ", ".join(f"{check.bad_rows:,} on rank {rank}" for rank, check in enumerate(checks) if check.bad_rows)
        problems.append(f"rows with wrong values: {wrong}")
    if whole.checksum != expected_checksum and not problems:
        problems.append("the checksum over all rows differs, so rows were duplicated, lost or changed")
    elif whole.checksum != expected_checksum:
        problems.append("the checksum differs")
    return whole, "the merge result is wrong: " + "; ".join(problems) if problems else None

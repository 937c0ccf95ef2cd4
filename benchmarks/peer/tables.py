"""Tables of any columns for the peers: the same values and names of columns for each, and a check of every column."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow as pa

from benchmarks.peer.checks import judge
from benchmarks.peer.protocol import Kind, Tables
from merge_bench.errors import UsageError
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.verification import duckdb_reference
from merge_bench.merge.workload import ExpectedWorkerResult
from merge_bench.merge.workload.benchmarks import BenchmarkQuestion
from merge_bench.merge.workload.tables import TableSpec, load_chunk, mean_row_bytes, plan_tables

SIDES = ("left", "right")


def of_question(question: BenchmarkQuestion, left: Path, right: Path) -> Tables:
    """The tables of a question, with the expected result, which DuckDB computes."""
    kinds: dict[str | None, Kind] = {"inner": "inner", "left": "left"}
    if question.left_on != question.right_on or question.how not in kinds:
        raise UsageError(
            f"the peers do not join {question.name}: its keys have two names, or it is no inner or left join"
        )
    found = Tables(str(left), str(right), question.left_on, 0, 0, kinds[question.how])
    plan = spec(found, 1)
    how = JoinKind(found.how)
    rows, checksum = duckdb_reference.compute_expected_result(plan, how)
    size = round(sum(mean_row_bytes(side) * side.rows for side in (plan.left, plan.right)))
    names = tuple(field.name for field in how.output_fields(plan.left.fields, plan.right.fields, plan.keys))
    return Tables(found.left, found.right, found.on, rows, checksum, found.how, names, size)


@cache
def spec(tables: Tables, workers: int) -> TableSpec:
    """How merge_bench shares the tables among so many workers, and what it calls the columns."""
    return plan_tables(tables.left, tables.right, tables.on, tables.on, workers, "native")


def chunk(tables: Tables, rank: int, workers: int, side: str) -> pa.Table:
    """The rows of one worker of one side, as one chunk, under the names of the result's columns."""
    frames = load_chunk(spec(tables, workers), rank)
    return frames[SIDES.index(side)].to_arrow().combine_chunks()


def check(tables: Tables, result: pa.Table) -> tuple[int, int]:
    """Rows of a part of the result, and their checksum over all columns."""
    return result.num_rows, duckdb_reference.result_checksum(spec(tables, 1), result, JoinKind(tables.how))


def verify(tables: Tables, result: pa.Table) -> int:
    """Check the whole result; gives its number of rows. Raises `WrongResult` like `judge`."""
    return judge(ExpectedWorkerResult(tables.rows, tables.checksum), *check(tables, result), 0)

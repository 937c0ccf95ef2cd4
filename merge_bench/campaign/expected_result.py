"""The expected result of a merge, computed without this package's partition, exchange or join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from merge_bench.merge.plan import Plan
from merge_bench.merge.steps import Prepared
from merge_bench.merge.verification.verify import MODULUS, Check, Verdict, deserialized
from merge_bench.merge.workload.tables import TableSpec


@dataclass(frozen=True)
class Expected:
    """The right number of rows, the right checksum, and how they were found."""

    rows: int
    checksum: int
    how: str


def expectation(plan: Plan, prepared: Sequence[Prepared]) -> Expected:
    """For the synthetic workload from the generator, for real tables from DuckDB."""
    if isinstance(plan.workload, TableSpec):
        from merge_bench.merge.verification import reference

        rows, total = reference.expected(plan.workload)
        return Expected(rows, total, "count and checksum against DuckDB")
    parts = [p.expected for p in prepared if p.expected is not None]
    return Expected(
        sum(part.rows for part in parts),
        sum(part.checksum for part in parts) % MODULUS,
        "every row, the count, and a checksum over right-row numbers",
    )


def judge_full(plan: Plan, verdict: Verdict, checks: Sequence[Check]) -> Verdict:
    """Compare all rows with DuckDB's, for `--verify full` on real tables."""
    if not isinstance(plan.workload, TableSpec):
        return verdict
    from merge_bench.merge.verification import reference

    tables = [table for check in checks for table in deserialized(check.tables)]
    message = reference.compare_full(plan.workload, tables)
    return replace(verdict, ok=message is None, message=message)

"""The tables of one launch's merge with the expected result, and its iterations and verdicts as they are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.campaign.cluster_session import Session
from merge_bench.errors import RunFailed, WrongResult
from merge_bench.merge import steps
from merge_bench.merge.frame import Field
from merge_bench.merge.plan import Plan
from merge_bench.merge.verification.verify import MODULUS, Check, deserialized, judge
from merge_bench.merge.workload.tables import TableSpec
from merge_bench.records.schema import IterationLine, VerificationLine


@dataclass(frozen=True)
class Expected:
    """The right number of rows, the right checksum, and how they were found."""

    rows: int
    checksum: int
    how: str


@dataclass(frozen=True)
class Tables:
    """Both frames over all workers: their rows and bytes, the fields of the left and the right one, and what a merge of
    them gives (None: not to be verified).
    """

    rows: int
    data_bytes: int
    fields: tuple[tuple[Field, ...], tuple[Field, ...]]
    expected: Expected | None


def make_tables(session: Session) -> Tables:
    """Have every worker generate or read its chunks."""
    session.progress.phase("creating the tables")
    prepared = session.workers.on_all(steps.prepare, session.plan, ranked=True, after=(session.topic,))
    if session.plan.write_result is not None:
        session.workers.on_all(steps.make_result_folder)  # finds one that cannot be used before the merge
    other = next((p.rank for p in prepared if p.fields != prepared[0].fields), None)
    if other is not None:
        raise RunFailed(
            f"rank {prepared[0].rank} and rank {other} read tables with different columns; give every host the same"
            " files"
        )
    return Tables(
        rows=sum(p.rows for p in prepared),
        data_bytes=sum(p.input_bytes for p in prepared),
        fields=prepared[0].fields,
        expected=None if session.plan.verify == "off" else _expectation(session.plan, prepared),
    )


def _expectation(plan: Plan, prepared: Sequence[steps.Prepared]) -> Expected:
    """The expected result, computed without this package's partition, exchange or join.

    For the synthetic workload from the generator, for real tables from DuckDB.
    """
    if isinstance(plan.workload, TableSpec):
        from merge_bench.merge.verification import duckdb_reference

        rows, total = duckdb_reference.expected(plan.workload, plan.how)
        return Expected(rows, total, "row count and checksum compared with DuckDB")
    parts = [p.expected for p in prepared if p.expected is not None]
    return Expected(
        sum(part.rows for part in parts),
        sum(part.checksum for part in parts) % MODULUS,
        "every row, row count and checksum",
    )


class MergeRecord:
    """Writes the iterations and verdicts of one launch, and shows them.

    `verdicts`: how many were written.
    """

    def __init__(self, session: Session, tables: Tables) -> None:
        self._session, self._tables = session, tables
        self.verdicts = 0

    def iteration(self, line: IterationLine) -> None:
        """Write an iteration and show it."""
        session = self._session
        session.writer.write(line)
        if not line.warmup:
            rate = self._tables.data_bytes / line.wall_seconds
            session.progress.iteration(line.index, session.plan.iterations, line.wall_seconds, rate)

    def verdict(self, after: int | None, checks: Sequence[Check], folder: str | None = None) -> None:
        """Judge what the workers found after this iteration (None: the warm-up) and write it; raises `WrongResult`.

        `folder`: where the workers read the result that they checked; None: it was in memory.
        """
        session, expected = self._session, self._tables.expected
        assert expected is not None
        whole, message = judge(checks, expected.rows, expected.checksum)
        workload = session.plan.workload
        if message is None and session.plan.verify == "full" and isinstance(workload, TableSpec):
            from merge_bench.merge.verification import duckdb_reference

            tables = [table for check in checks for table in deserialized(check.tables)]
            message = duckdb_reference.compare_full(workload, tables, session.plan.how)
        session.writer.write(
            VerificationLine(
                launch=session.launch,
                after=after,
                ok=message is None,
                how=expected.how,
                rows=whole.rows,
                expected_rows=expected.rows,
                checksum=f"{whole.checksum:016x}",
                expected_checksum=f"{expected.checksum:016x}",
                bad_rows=whole.bad_rows,
                message=message,
                folder=folder,
            )
        )
        self.verdicts += 1
        if message is not None:
            raise WrongResult(message)

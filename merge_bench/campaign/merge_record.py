"""The tables of one launch's merge, and its iterations and verdicts as they are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.campaign.cluster_session import Session
from merge_bench.campaign.expected_result import Expected, expectation, judge_full
from merge_bench.campaign.iteration_record import verification_line
from merge_bench.errors import RunFailed, WrongResult
from merge_bench.merge import steps
from merge_bench.merge.frame import Field
from merge_bench.merge.verification.verify import Check, judge
from merge_bench.records.schema import IterationLine


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
    session.progress.phase("making the tables")
    prepared = session.workers.on_all(steps.prepare, session.plan, ranked=True, after=(session.topic,))
    if len({p.fields for p in prepared}) != 1:
        raise RunFailed("the workers disagree about the tables' columns")
    return Tables(
        rows=sum(p.rows for p in prepared),
        data_bytes=sum(p.input_bytes for p in prepared),
        fields=prepared[0].fields,
        expected=None if session.plan.verify == "off" else expectation(session.plan, prepared),
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

    def verdict(self, after: int | None, checks: Sequence[Check]) -> None:
        """Judge what the workers found after this iteration (None: the warm-up) and write it; raises `WrongResult`."""
        session, expected = self._session, self._tables.expected
        assert expected is not None
        verdict = judge(checks, expected.rows, expected.checksum)
        if verdict.ok and session.plan.verify == "full":
            verdict = judge_full(session.plan, verdict, checks)
        session.writer.write(verification_line(session.launch, after, verdict, expected.how))
        self.verdicts += 1
        if not verdict.ok:
            raise WrongResult(verdict.message or "the merge result is wrong")

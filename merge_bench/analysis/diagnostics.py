"""What a person should know before believing a run's numbers: warnings with remedies, and the error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from merge_bench.analysis import metrics
from merge_bench.analysis.aggregate import WorkerFigures, pair_figures
from merge_bench.analysis.statistics import outliers
from merge_bench.analysis.traffic_check import contradictions
from merge_bench.analysis.verification_state import NOT_BY_US, State
from merge_bench.errors import RunFailed, WrongResult
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.schema import FailureLine, WarningLine
from merge_bench.units import format_rate, format_seconds

Finding = dict[str, str | None]
MOST_OVERLOADED = 3  # named; with many ranks a skew overloads many


def warnings(
    campaign: Campaign, run: Run, counted: Sequence[Launch], workers: Sequence[WorkerFigures], state: State
) -> list[Finding]:
    """Recorded warnings first, then what the numbers show; each once."""
    found: list[Finding] = []
    recorded = [*campaign.warnings, *(warning for launch in run.launches for warning in launch.warnings)]
    shown = (*_carried(counted), *_launches(run), *_links(counted, workers), *_ranks(workers), *_outliers(counted))
    for finding in (*_recorded(recorded), *_proof(state), *shown):
        if finding not in found:
            found.append(finding)
    if campaign.truncated:
        found.append(_finding("half-written-line", "the last line of the records is half written and was left out"))
    if campaign.skipped:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(campaign.skipped.items()))
        found.append(
            _finding(
                "unknown-records",
                f"lines of kinds that this version does not know were passed over: {kinds}",
                "read this result with a newer merge_bench",
            )
        )
    return found


def error(campaign: Campaign, run: Run) -> dict[str, Any] | None:
    """Why `run` is not whole, or ``None``. A wrong result comes before any other failure."""
    failures = [failure for launch in run.launches for failure in launch.failures]
    missing = run.planned_launches - sum(launch.complete for launch in run.launches)
    if missing > 0:
        failures.extend(campaign.unattributed_failures)
    wrong = [failure for failure in failures if failure.code == WrongResult.code]
    if wrong or failures:
        return _error(*(wrong or failures)[:1])
    for launch in run.launches:
        for check in launch.verifications:
            if not check.ok:
                message = check.message or "the merge result is wrong"
                return {"code": WrongResult.code, "message": message, "host": None, "rank": None}
    broken = [launch for launch in run.launches if launch.end is not None and launch.end.status != 0]
    if broken:
        message = f"launch {broken[0].index} ended with status {broken[0].end.status if broken[0].end else 0}"
        return {"code": RunFailed.code, "message": message, "host": None, "rank": None}
    if missing > 0:
        made = run.planned_launches - missing
        message = f"the records stop after {made} of {made + missing} launches: the run was killed, or still goes on"
        return {"code": "unfinished", "message": message, "host": None, "rank": None}
    return None


def overloaded(workers: Sequence[WorkerFigures]) -> tuple[metrics.Overload, ...]:
    """The ranks that received far more rows than the others."""
    return metrics.overloads(
        {w.rank: w.received_rows for w in workers if w.received_rows is not None},
        {w.rank: w.result_rows for w in workers if w.result_rows is not None},
    )


def straggling(workers: Sequence[WorkerFigures]) -> metrics.Straggler | None:
    """The rank that holds the others up, where the phases are known."""
    return metrics.straggler(
        {
            w.rank: metrics.WorkerTimes(w.partition, w.exchange, w.join, w.overlap or 0.0, w.join_overlap or 0.0)
            for w in workers
            if w.partition is not None and w.exchange is not None and w.join is not None
        }
    )


def _error(failure: FailureLine) -> dict[str, Any]:
    return {"code": failure.code, "message": failure.message, "host": failure.host, "rank": failure.rank}


def _finding(code: str, message: str, remedy: str | None = None) -> Finding:
    return {"code": code, "message": message, "remedy": remedy}


def _recorded(lines: Sequence[WarningLine]) -> Iterator[Finding]:
    for line in lines:
        yield _finding(line.code, line.message, line.remedy)


def _proof(state: State) -> Iterator[Finding]:
    if state is State.OFF:
        yield _finding(
            "unverified",
            "every number here is unverified: the merge result was not checked",
            "run again without --verify off",
        )
    elif state is State.IMPORTED:
        yield _finding("unverified", f"every number here is unverified: {NOT_BY_US}")
    elif state is State.MISSING:
        yield _finding(
            "not-verified", "no number here is verified: a check that was asked for is missing", "run again to the end"
        )
    elif state is State.WRONG:
        yield _finding("wrong-result", "no number here counts: the merge result was wrong")


def _carried(launches: Sequence[Launch]) -> Iterator[Finding]:
    for launch in launches:
        for each in contradictions(launch):
            yield _finding(
                "not-carried",
                each.message,
                "see whether another program used the device meanwhile; if not, UCX carried the frames another way",
            )


def _launches(run: Run) -> Iterator[Finding]:
    failed = sum(launch.failed for launch in run.launches)
    if not failed:
        return
    complete = sum(launch.complete for launch in run.launches)
    source = f"the numbers are of the {complete} that ended well" if complete else "the numbers are of what it measured"
    yield _finding(
        "failed-launches",
        f"{failed} of {len(run.launches)} launches failed; {source}",
        "look into the folder logs beside the records",
    )


def _links(launches: Sequence[Launch], workers: Sequence[WorkerFigures]) -> Iterator[Finding]:
    hosts = {worker.rank: worker.host for worker in workers}
    slow = metrics.slow_link(
        {pair: figures.bytes / figures.seconds for pair, figures in pair_figures(launches).items() if figures.seconds}
    )
    if slow is not None:
        yield _finding(
            "straggler",
            f"rank {slow.rank} ({hosts.get(slow.rank, '?')}) is slow in exchange: {format_rate(slow.rate)} with"
            f" each other rank, against {format_rate(slow.others)} between the others ({slow.factor:.1f} ×)",
            "look at that host's link: its speed, errors, and who else uses it",
        )


def _ranks(workers: Sequence[WorkerFigures]) -> Iterator[Finding]:
    hosts = {worker.rank: worker.host for worker in workers}
    for overload in overloaded(workers)[:MOST_OVERLOADED]:
        has = "received" if overload.what == "received" else "makes"
        rows = "rows" if overload.what == "received" else "rows of the result"
        yield _finding(
            "overloaded-rank",
            f"rank {overload.rank} ({hosts[overload.rank]}) {has} {overload.rows:,.0f} {rows}, "
            f"{overload.factor:.2f} × the mean of the other ranks",
            "the keys are skewed: all rows of a key go to one rank, and the others wait for it",
        )
    slow = straggling(workers)
    if slow is not None:
        yield _finding(
            "straggler",
            f"rank {slow.rank} ({hosts[slow.rank]}) is slow in {slow.phase}: {format_seconds(slow.seconds)} against "
            f"{format_seconds(slow.others)} for the others ({slow.factor:.2f} ×)",
            "see whether its core, GPU or network port is shared, throttled, or farther away than the others'",
        )


def _outliers(launches: Sequence[Launch]) -> Iterator[Finding]:
    flagged = [
        (launch.index, iteration.index)
        for launch in launches
        for iteration, far in zip(launch.timed, outliers([i.wall_seconds for i in launch.timed]), strict=True)
        if far
    ]
    if flagged:
        named = ", ".join(f"{iteration} of launch {launch}" for launch, iteration in flagged[:5])
        more = f" and {len(flagged) - 5} more" if len(flagged) > 5 else ""
        yield _finding(
            "outliers",
            f"far outside the spread of the other wall-clock times, and kept: iteration {named}{more}",
        )

"""Warnings with remedies about a run's numbers, and the error that made it incomplete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from merge_bench.analysis import aggregate, metrics
from merge_bench.analysis.aggregate import WorkerFigures, pair_figures
from merge_bench.analysis.documents.error import Failure
from merge_bench.analysis.host_load import busy_indexes, busy_launches
from merge_bench.analysis.statistics import median, outliers
from merge_bench.analysis.traffic_check import contradictions
from merge_bench.analysis.verification_state import NOT_BY_US, State
from merge_bench.errors import Caution, RunFailed, WrongResult
from merge_bench.host import machine
from merge_bench.merge.engines import descriptions
from merge_bench.merge.exchange import recorded_plane
from merge_bench.records.campaign import INTERRUPTED, Campaign, Launch, Run
from merge_bench.records.schema import FailureLine
from merge_bench.units import format_rate, format_seconds, plural

EXCEEDED = 1.05  # more than a link limit can be exceeded by the noise of both measurements
UNVERIFIED = "unverified"
"""The code of the warning that no check was made."""
MOST_OVERLOADED = 3  # named; with many ranks a skew overloads many


def warnings(
    campaign: Campaign, run: Run, counted: Sequence[Launch], workers: Sequence[WorkerFigures], state: State
) -> list[Caution]:
    """The recorded warnings, then those that follow from the numbers; each once."""
    recorded = [*campaign.warnings, *(warning for launch in run.launches for warning in launch.warnings)]
    if any(busy_indexes(run.launches)):  # of launches after launch 0, which has its own: one for all runs of the host
        recorded += busy_launches(campaign.launches)
    verification = [_UNVERIFIED[state]] if state in _UNVERIFIED and (counted or state is not State.MISSING) else []
    traffic = () if run.plan.runtime_filter else _traffic(counted)  # the filter's messages are not in the records
    several = len(campaign.runs) > 1
    keys = [(each.config.name, each.plan_index) for each in campaign.runs]
    name = campaign.labels[keys.index((run.config.name, run.plan_index))] if several else ""
    shown = (
        *traffic, *_launches(run), *limit_exceeded(counted), *_links(counted, workers, name),
        *_ranks(run, counted, workers, name), *_outliers(counted, several=several),
    )  # fmt: skip
    cautions = list(dict.fromkeys((*(line.caution for line in recorded), *verification, *shown)))
    if campaign.truncated:
        cautions.append(Caution("half-written-line", "the last line of the records is incomplete and was ignored"))
    if campaign.skipped:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(campaign.skipped.items()))
        cautions.append(
            Caution(
                "unknown-records",
                f"this version of merge_bench ignored records of unknown kinds: {kinds}",
                "open this result with a newer merge_bench",
            )
        )
    return cautions


def error(campaign: Campaign, run: Run) -> Failure | None:
    """Why `run` is not complete, or ``None``. A wrong result comes before any other failure."""
    failures = [failure for launch in run.launches for failure in launch.failures]
    missing = run.planned_launches - sum(launch.complete for launch in run.launches)
    if missing > 0:
        failures.extend(campaign.unattributed_failures)
    if failures:
        worst = next((failure for failure in failures if failure.code == WrongResult.code), failures[0])
        return _with_progress(Failure.of(worst), campaign, worst.launch)
    for launch in run.launches:
        for check in launch.verifications:
            if not check.ok:
                return Failure(WrongResult.code, check.message or "the merge result is wrong")
    for launch in run.launches:
        if launch.end is not None and launch.end.status != 0:
            return Failure(RunFailed.code, f"launch {launch.index} ended with status {launch.end.status}")
    stopped = next((failure for failure in _failures(campaign) if failure.code == INTERRUPTED), None)
    if missing > 0 and stopped is not None:
        return _with_progress(Failure(stopped.code, stopped.message), campaign, stopped.launch)
    if missing > 0:
        planned = run.planned_launches
        message = (
            f"the records stop after {planned - missing} of {planned} launches: the run was killed or is still running"
        )
        return Failure("unfinished", message)
    return None


def _with_progress(failure: Failure, campaign: Campaign, index: int | None) -> Failure:
    """An interruption with what its launch had measured, and what is missing; any other failure as it is."""
    runs = campaign.runs
    if failure.code == INTERRUPTED and not campaign.launches:
        before = " before the first launch, so nothing was measured"
        return msgspec.structs.replace(failure, message=failure.message + before)
    place = next(((run, each) for run in runs for each in run.launches if each.index == index), None)
    if failure.code != INTERRUPTED or place is None or campaign.probe or campaign.tuning:
        return failure
    run, launch = place
    where = f" in launch {launch.index}" if sum(each.planned_launches for each in runs) > 1 else ""
    planned, timed = run.plan.iterations, len(launch.timed)
    if not timed:
        how_far = (
            " before its first timed iteration" if where else " before the first iteration, so nothing was measured"
        )
    elif planned is None or timed < planned:
        of = "" if planned is None else f" of {planned:,}"
        how_far = f" after {timed:,}{of} iterations"
    else:
        how_far = f": all {timed:,} iterations are there" + _missing(run, launch)
    return msgspec.structs.replace(failure, message=f"{failure.message}{where}{how_far}")


def _missing(run: Run, launch: Launch) -> str:
    """What a launch measures after its iterations and does not have."""
    plan, sends = run.plan, recorded_plane(run.plan.exchange).link_limit and run.plan.workers != 1
    proven = run.verify == "off" or any(check.after is not None for check in launch.verifications)
    absent = [
        *([] if proven else ["the check of the result"]),
        *(["the link limit"] if sends and plan.link_rounds and launch.link is None else []),
        *(["peak memory"] if launch.memory is None else []),
    ]
    return f"; missing: {', '.join(absent)}" if absent else ""


def _failures(campaign: Campaign) -> Iterator[FailureLine]:
    """Every failure of a campaign that ended; one that was resumed goes on."""
    if campaign.end is not None:
        yield from campaign.failures
        for launch in campaign.standing:
            yield from launch.failures


def overloaded(workers: Sequence[WorkerFigures]) -> tuple[metrics.Overload, ...]:
    """The ranks that received far more rows than the others."""
    return metrics.overloads(
        {w.rank: w.received_rows for w in workers if w.received_rows is not None},
        {w.rank: w.result_rows for w in workers if w.result_rows is not None},
    )


def straggling(workers: Sequence[WorkerFigures]) -> metrics.Straggler | None:
    """The rank that holds the others up, where the phases are known; not by having more of the tables to partition."""
    straggler = metrics.straggler(
        {
            w.rank: metrics.WorkerTimes(w.partition, w.exchange, w.join, w.overlap or 0.0, w.join_overlap or 0.0)
            for w in workers
            if w.partition is not None and w.exchange is not None and w.join is not None
        }
    )
    if straggler is None or straggler.phase != "partition":
        return straggler
    inputs = {w.rank: w.memory.input or 0 for w in workers}
    others = median([size for rank, size in inputs.items() if rank != straggler.rank])
    return None if inputs[straggler.rank] > metrics.SLOWER * others else straggler


def short_of_cores(launches: Sequence[Launch]) -> machine.Shortage | None:
    """The host whose workers take turns, because it has fewer cores than workers."""
    lines = (launch.line for launch in launches if launch.line is not None)
    shortages = (machine.core_shortage((each.host, each.hardware) for each in line.workers) for line in lines)
    return next(filter(None, shortages), None)


def slow_link(launches: Sequence[Launch], workers: Sequence[WorkerFigures]) -> metrics.SlowLink | None:
    """The rank with which all others exchange slowly."""
    pairs = pair_figures(launches).items()
    rates = {pair: each.bytes / each.seconds for pair, each in pairs if each.seconds and each.bytes}
    return metrics.slow_link(rates, {worker.rank: worker.host for worker in workers})


_UNVERIFIED = {
    State.OFF: Caution(
        UNVERIFIED,
        "the numbers are unverified because the merge result was not checked",
        "run again without --verify off",
    ),
    State.IMPORTED: Caution(UNVERIFIED, f"the numbers are unverified because {NOT_BY_US}"),
    State.MISSING: Caution(
        "not-verified",
        "the numbers are unverified, because a requested check was not run",
        "run again and let the run finish",
    ),
    State.WRONG: Caution("wrong-result", "the merge result was wrong; do not use the numbers"),
}


def _traffic(launches: Sequence[Launch]) -> Iterator[Caution]:
    for launch in launches:
        for contradiction in contradictions(launch):
            yield Caution(
                "not-carried",
                contradiction.message,
                "run again while no other program uses the device",
            )


def _launches(run: Run) -> Iterator[Caution]:
    failed = sum(launch.failed for launch in run.launches)
    if not failed:
        return
    complete = sum(launch.complete for launch in run.launches)
    if complete:
        source = f"the numbers are from the {plural(complete, 'complete launch')}"
    elif any(launch.timed for launch in run.launches):
        source = "the numbers are from before the failure"
    else:
        source = "nothing was measured"
    yield Caution(
        "failed-launches",
        f"{failed} of {len(run.launches)} launches failed; {source}",
        "read the log files of this campaign, in its folder logs/",
    )


def _links(launches: Sequence[Launch], workers: Sequence[WorkerFigures], config: str) -> Iterator[Caution]:
    """A rank with a slow link; `config`: of the launches, if other runs have launches, too."""
    hosts = {worker.rank: worker.host for worker in workers}
    slow = slow_link(launches, workers)
    if slow is not None:
        yield Caution(
            "straggler",
            f"{_rank(slow.rank, hosts.get(slow.rank, '?'), config)} exchanges data at only {format_rate(slow.rate)};"
            f" the other ranks reach {format_rate(slow.others)} (factor {slow.factor:.1f})",
            "check the link of this host: speed, error counters, and traffic of other programs",
        )


def limit_exceeded(launches: Sequence[Launch]) -> Iterator[Caution]:
    """A warning if the exchange was faster than what was measured as the link limit."""
    fraction = aggregate.run_median(launches, aggregate.link_fraction)
    if fraction is not None and fraction > EXCEEDED:
        yield Caution(
            "limit-exceeded",
            f"the exchange ran at {fraction:.0%} of the link limit, so what was measured is no limit",
            "run again on a quiet machine, with --link-rounds 100",
        )


def _ranks(
    run: Run, launches: Sequence[Launch], workers: Sequence[WorkerFigures], config: str
) -> Iterator[Caution]:  # fmt: skip
    """What is uneven between ranks; `config`: as in `_links`, for what depends on the config."""
    hosts = {worker.rank: worker.host for worker in workers}
    for overload in overloaded(workers)[:MOST_OVERLOADED]:
        has, rows = ("received", "rows") if overload.what == "received" else ("produces", "result rows")
        yield Caution(
            "overloaded-rank",
            f"rank {overload.rank} ({hosts[overload.rank]}) {has} {overload.rows:,.0f} {rows}, "
            f"{overload.factor:.2f} × the mean of the other ranks",
            "check the keys for skew: all rows with the same key go to the same rank",
        )
    crowd = short_of_cores(launches)
    if crowd is not None:
        yield Caution(
            "oversubscribed",
            f"{crowd.processes} workers share {crowd.named_cores}: they take turns, so no time of a single worker is"
            " its own",
            "bind each worker to cores of its own"
            if crowd.bound
            else f"use at most {plural(crowd.workers_that_fit, 'worker')} on this host",
        )
        return  # who comes last in taking turns is no straggler
    slow = straggling(workers)
    if slow is not None:
        yield Caution(
            "straggler",
            f"{_rank(slow.rank, hosts[slow.rank], config)} is slow in {slow.phase}: it takes"
            f" {format_seconds(slow.seconds)}, the other ranks {format_seconds(slow.others)} (factor"
            f" {slow.factor:.2f})",
            _look_at(run, launches, slow.rank, several_hosts=len(set(hosts.values())) > 1),
        )


def _look_at(run: Run, launches: Sequence[Launch], rank: int, *, several_hosts: bool) -> str:
    """What to check about a slow rank, of what its host has."""
    on_gpu = any(engine.device_memory for engine in descriptions() if engine.name == run.plan.engine)
    workers = (each for launch in launches if launch.line is not None for each in launch.line.workers)
    nodes = next((each.hardware.numa_nodes or 1 for each in workers if each.rank == rank), 1)
    where = ("GPU" if on_gpu else "core") + " or network port" * several_hosts
    how = "shared, throttled, or on another NUMA node" if nodes > 1 else "shared or throttled"
    return f"check whether the {where} of this rank is {how}"


def _rank(rank: int, host: str, config: str) -> str:
    """``rank 1 (node0)``, or ``rank 1 (node0) with tcp``."""
    return f"rank {rank} ({host})" + (f" with {config}" if config else "")


def _outliers(launches: Sequence[Launch], *, several: bool) -> Iterator[Caution]:
    """Iterations far from the others of their launch; `several`: other runs have launches too, so name the config."""
    flagged = [
        (f"{launch.index} ({launch.key[0]})" if several and launch.key else str(launch.index), iteration.index)
        for launch in launches
        for iteration, far in zip(launch.timed, outliers([i.wall_seconds for i in launch.timed]), strict=True)
        if far
    ]
    if flagged:
        named = ", ".join(f"{iteration} of launch {launch}" for launch, iteration in flagged[:5])
        more = f" and {len(flagged) - 5} more" if len(flagged) > 5 else ""
        yield Caution(
            "outliers",
            f"outlying wall-clock time in iteration {named}{more}; all statistics include outliers",
        )

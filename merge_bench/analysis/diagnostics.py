"""Warnings with remedies about a run's numbers, and the error that made it incomplete.

Among them ranks that hold the others up: too many rows, a slow phase, a slow link, too few cores. All ranks wait for
the slowest one, so that a merge is as slow as that rank.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import msgspec

from merge_bench.analysis import aggregate
from merge_bench.analysis.aggregate import NOT_BY_US, VerificationState, WorkerFigures, worker_pair_traffic
from merge_bench.analysis.documents import Failure
from merge_bench.analysis.energy import throttling_warnings
from merge_bench.analysis.statistics import outlier_flags
from merge_bench.analysis.transports import host_staging_warnings, traffic_contradiction_warnings
from merge_bench.errors import RunFailed, WarningMessage, WrongResult
from merge_bench.host import machine
from merge_bench.host.other_load import BUSY as BUSY_SHARE
from merge_bench.merge.engines import engine_descriptions
from merge_bench.merge.exchange import find_recorded_plane
from merge_bench.records.campaign import INTERRUPTED, Campaign, Launch, Run
from merge_bench.records.schema import HostLoad, WarningLine
from merge_bench.units import count_with_noun, format_rate, format_seconds, plural_noun

OVERLOAD = 1.05
"""A rank is overloaded if it has more than this many times the rows of the other ranks' mean..."""

NOISE = 6.0
"""...and more than this many standard deviations of an even hash (√rows) above it."""

SLOWER = 1.2
"""A rank is a straggler if a phase takes it this many times as long as the others' median..."""

OF_WALL = 0.05
"""...and that costs it at least this share of the time that a worker usually needs."""

GAIN = 0.1
"""A rank, or the host, is named as the limit if it costs at least this share of the wall-clock time."""

SLOW_LINK = 2.0
"""A rank's link is slow if the others exchange this many times as fast among each other as with it."""


@dataclass(frozen=True)
class WorkerPhaseSeconds:
    """The seconds that one worker spends in each phase of a merge.

    ``overlap``: seconds in which partition and exchange overlap; ``join_overlap``: join and exchange.
    """

    partition: float
    exchange: float
    join: float
    overlap: float = 0.0
    join_overlap: float = 0.0

    @property
    def exchange_end_seconds(self) -> float:
        """Seconds from the opening barrier to the end of the exchange."""
        return self.partition + self.exchange - self.overlap


@dataclass(frozen=True)
class RankOverload:
    """A rank with ``factor`` times as many rows as the others' mean; ``what``: ``received`` or ``result`` rows."""

    rank: int
    what: str
    rows: float
    factor: float


@dataclass(frozen=True)
class Straggler:
    """The rank that delays the other ranks most: it takes ``seconds`` for ``phase``, where their median is ``others``.

    ``cost``: the seconds that all would save, were it as fast as the slowest other rank, over all phases.
    """

    rank: int
    phase: str
    seconds: float
    others: float
    cost: float

    @property
    def slowdown_factor(self) -> float:
        """The seconds that the phase takes this rank ÷ the median of the other ranks."""
        return self.seconds / self.others if self.others > 0 else float("inf")


@dataclass(frozen=True)
class SlowLink:
    """A rank with a slow link: it exchanges data at ``rate`` bytes per second, the other ranks at ``others``."""

    rank: int
    rate: float
    others: float

    @property
    def slowdown_factor(self) -> float:
        """How many times as fast as this rank the other ranks exchange data among each other."""
        return self.others / self.rate if self.rate > 0 else float("inf")


def overloaded_ranks(workers: Sequence[WorkerFigures]) -> tuple[RankOverload, ...]:
    """The ranks that receive or produce far more rows than the others, the most overloaded first."""
    return find_overloads(
        {w.rank: w.received_rows for w in workers if w.received_rows is not None},
        {w.rank: w.result_rows for w in workers if w.result_rows is not None},
    )


def straggling_rank(workers: Sequence[WorkerFigures]) -> Straggler | None:
    """The rank that delays the others most; None without such a rank, or if it only has more rows to partition."""
    times = {
        w.rank: WorkerPhaseSeconds(w.partition, w.exchange, w.join, w.overlap or 0.0, w.join_overlap or 0.0)
        for w in workers
        if w.partition is not None and w.exchange is not None and w.join is not None
    }
    straggler, inputs = find_straggler(times), {w.rank: w.memory.input or 0 for w in workers}
    if straggler is not None and straggler.phase == "partition":
        others = median([size for rank, size in inputs.items() if rank != straggler.rank])
        return None if inputs[straggler.rank] > SLOWER * others else straggler
    return straggler


def first_core_shortage(launches: Sequence[Launch]) -> machine.CoreShortage | None:
    """The shortage of cores on the first host with fewer cores than workers; None if every host has enough."""
    lines = (launch.line for launch in launches if launch.line is not None)
    shortages = (machine.find_core_shortage((each.host, each.hardware) for each in line.workers) for line in lines)
    return next(filter(None, shortages), None)


def rank_with_slow_link(launches: Sequence[Launch], workers: Sequence[WorkerFigures]) -> SlowLink | None:
    """The rank with which all others exchange data far more slowly than among each other; None if there is none."""
    pairs = worker_pair_traffic(launches).items()
    rates = {pair: each.bytes / each.seconds for pair, each in pairs if each.seconds and each.bytes}
    return find_slow_link(rates, {worker.rank: worker.host for worker in workers})


def find_overloads(received_rows: Mapping[int, float], result_rows: Mapping[int, float]) -> tuple[RankOverload, ...]:
    """The ranks with far more received or result rows than the others, the most overloaded first.

    Skewed keys show in the rows that a rank receives, and more clearly in the rows of the result that it makes.
    """
    worst: dict[int, RankOverload] = {}
    for what, rows in (("received", received_rows), ("result", result_rows)):
        total = sum(rows.values())
        for rank, own in rows.items():
            others = (total - own) / (len(rows) - 1) if len(rows) > 1 else 0.0
            if others > 0 and own > OVERLOAD * others and own - others > NOISE * others**0.5:
                suspect = RankOverload(rank, what, own, own / others)
                if rank not in worst or suspect.factor > worst[rank].factor:
                    worst[rank] = suspect
    return tuple(sorted(worst.values(), key=lambda overload: (-overload.factor, overload.rank)))


def find_straggler(phase_seconds_by_rank: Mapping[int, WorkerPhaseSeconds]) -> Straggler | None:
    """The rank that delays the others most, and in which phase; ``None`` if all take about the same time.

    A rank with a slow partition makes the other ranks wait in their exchange, which then looks slow. So time in the
    exchange counts only as far as the rank also ends its exchange later than the others do.

    The cost of a rank is what an iteration would save, were the rank in each phase as the slowest of the others. An
    iteration takes P + X + J: P until the slowest rank has partitioned, since no rank has all its rows before; X until
    that rank ends its exchange; J its join. With P', X', J' of the slowest of the others the difference is the sum of
    P − P', X − X' and J − J', each where it is positive. Of X only the lateness of the rank counts: how much faster all
    would exchange without it is not known. So the cost is a lower bound.
    """
    if len(phase_seconds_by_rank) < 2:
        return None
    usual = medians_of_other_ranks(
        {rank: own.exchange_end_seconds + own.join - own.join_overlap for rank, own in phase_seconds_by_rank.items()}
    )
    ends = {rank: own.exchange_end_seconds for rank, own in phase_seconds_by_rank.items()}
    exchanged, last_ends = medians_of_other_ranks(ends), greatest_of_other_ranks(ends)
    late: list[tuple[float, Straggler]] = []
    costs: dict[int, float] = dict.fromkeys(phase_seconds_by_rank, 0.0)
    for phase in ("partition", "exchange", "join"):
        own_seconds: dict[int, float] = {rank: getattr(own, phase) for rank, own in phase_seconds_by_rank.items()}
        slowest_others = greatest_of_other_ranks(own_seconds)
        for rank, middle in medians_of_other_ranks(own_seconds).items():
            seconds = own_seconds[rank]
            excess, cost = seconds - middle, seconds - slowest_others[rank]
            if phase == "exchange":
                excess, cost = min(excess, ends[rank] - exchanged[rank]), min(cost, ends[rank] - last_ends[rank])
            hidden = phase_seconds_by_rank[rank].join_overlap if phase == "join" else 0.0
            costs[rank] += max(0.0, cost - hidden)
            if excess > OF_WALL * usual[rank] and middle + excess > SLOWER * middle:
                late.append((excess, Straggler(rank, phase, seconds, middle, cost=0.0)))
    if not late:
        return None
    _, latest = max(late, key=lambda each: (each[0], -each[1].rank))
    return replace(latest, cost=costs[latest.rank])


def find_slow_link(pair_rates: Mapping[tuple[int, int], float], hosts: Mapping[int, str]) -> SlowLink | None:
    """The rank with which all others exchange data far more slowly than among each other; ``None`` if there is none.

    All ranks wait for that rank, so the slow link shows in the rates of pairs only, and in no phase. `pair_rates`:
    bytes per second by (from rank, to rank). `hosts`: by rank; pairs within a host are compared with such pairs only,
    and pairs of two hosts likewise. ``None`` below three ranks, where the rates do not show whose link is slow.
    """
    links: list[SlowLink] = []
    for rank in sorted({rank for pair in pair_rates for rank in pair}):
        for within in (False, True):
            alike = {
                pair: rate for pair, rate in pair_rates.items() if (hosts.get(pair[0]) == hosts.get(pair[1])) == within
            }
            own = [rate for pair, rate in alike.items() if rank in pair]
            others = [rate for pair, rate in alike.items() if rank not in pair]
            if own and others and median(others) > SLOW_LINK * median(own):
                links.append(SlowLink(rank, median(own), median(others)))
    return max(links, key=lambda link: link.slowdown_factor) if links else None


def medians_of_other_ranks(values: Mapping[int, float]) -> dict[int, float]:
    """For every rank the median of the other ranks' values."""
    ordered = sorted(values.items(), key=lambda item: item[1])
    numbers = [value for _, value in ordered]
    low, high = (len(numbers) - 2) // 2, (len(numbers) - 1) // 2  # the middle of one value fewer

    def median_of_others(position: int) -> float:
        return (numbers[low + (position <= low)] + numbers[high + (position <= high)]) / 2

    return {rank: median_of_others(place) for place, (rank, _) in enumerate(ordered)}


def greatest_of_other_ranks(values: Mapping[int, float]) -> dict[int, float]:
    """For every rank the greatest of the other ranks' values, of which there must be one."""
    *_, second, greatest = sorted(values.values())
    return {rank: second if value == greatest else greatest for rank, value in values.items()}


BUSY_HOST = "busy-host"
BUSY = "other processes keep {}, so times are longer and vary more"
REMEDY = "run again on a quiet host, or with --wait-for-quiet 5m"
MOST_NAMED = 6
"""The most launches that a warning about busy hosts names."""
UNVERIFIED = "unverified"
"""The code of the warning that no check was made."""
MOST_OVERLOADED = 3  # named; with many ranks a skew overloads many


def warnings_of_run(
    campaign: Campaign,
    run: Run,
    counted_launches: Sequence[Launch],
    workers: Sequence[WorkerFigures],
    verification_state: VerificationState,
) -> list[WarningMessage]:
    """All warnings about a run, each once: first those in its records, then those that follow from its figures.

    `counted_launches`: those from which the figures are computed.
    """
    recorded = [*campaign.warnings, *(warning for launch in run.launches for warning in launch.warnings)]
    if any(
        launches_started_on_busy_host(run.launches)
    ):  # launch 0 has a warning of its own; one for all other launches
        recorded += busy_launch_start_warnings(campaign.launches)
    verification = (
        [(_UNVERIFIED if run.plan.command is None else _UNVERIFIED_COMMAND)[verification_state]]
        if verification_state in _UNVERIFIED
        and (counted_launches or verification_state is not VerificationState.MISSING)
        else []
    )
    judged = [] if run.plan.runtime_filter else counted_launches  # the filter's messages are not recorded
    traffic = [caution for launch in judged for caution in traffic_contradiction_warnings(launch)]
    several = len(campaign.runs) > 1
    keys = [(each.config.name, each.plan_index) for each in campaign.runs]
    name = campaign.run_labels[keys.index((run.config.name, run.plan_index))] if several else ""
    lines = [launch.lanes for launch in counted_launches if launch.lanes]
    staged = [caution for line in lines for caution in host_staging_warnings(line.pairs, line.protocols)]
    from_figures = itertools.chain(
        _failed_launch_warnings(run),
        link_limit_exceeded_warnings(counted_launches),
        _slow_link_warnings(counted_launches, workers, name),
        throttling_warnings(counted_launches),
        _rank_warnings(run, counted_launches, workers, name),
        _outlier_warnings(counted_launches, name_configs=several),
    )
    every = (*(line.caution for line in recorded), *verification, *staged, *traffic, *from_figures)
    cautions = list(dict.fromkeys(every))
    if campaign.truncated:
        cautions.append(
            WarningMessage("half-written-line", "the last line of the records is incomplete and was ignored")
        )
    if campaign.skipped:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(campaign.skipped.items()))
        cautions.append(
            WarningMessage(
                "unknown-records",
                f"this version of merge_bench ignored records of unknown kinds: {kinds}",
                "open this result with a newer merge_bench",
            )
        )
    return cautions


def failure_of_run(campaign: Campaign, run: Run) -> Failure | None:
    """The failure that left `run` incomplete, None if it is complete; a wrong result comes before other failures."""
    failures = [failure for launch in run.launches for failure in launch.failures]
    missing = run.planned_launches - sum(launch.complete for launch in run.launches)
    if missing > 0:
        failures.extend(campaign.unattributed_failures)
    if failures:
        worst = next((failure for failure in failures if failure.code == WrongResult.code), failures[0])
        return _add_progress_to_interruption(Failure.from_line(worst), campaign, worst.launch)
    for check in (check for launch in run.launches for check in launch.verifications if not check.ok):
        result = "merge result" if run.plan.command is None else "result"
        return Failure(WrongResult.code, check.message or f"the {result} is wrong")
    for launch in run.launches:
        if launch.end is not None and launch.end.status != 0:
            return Failure(RunFailed.code, f"launch {launch.index} ended with status {launch.end.status}")
    if missing <= 0:
        return None
    every = [*campaign.failures, *(failure for launch in campaign.launches_not_replaced for failure in launch.failures)]
    stopped = next((failure for failure in every if failure.code == INTERRUPTED), None)
    if stopped is not None and campaign.end is not None:  # else it runs, or is resumed
        return _add_progress_to_interruption(Failure(stopped.code, stopped.message), campaign, stopped.launch)
    how_far = f"the records stop after {run.planned_launches - missing} of {run.planned_launches} launches"
    return Failure("unfinished", f"{how_far}: the run was killed or is still running")


def _add_progress_to_interruption(failure: Failure, campaign: Campaign, launch_index: int | None) -> Failure:
    """Add to an interruption how far its launch had come, and what is missing; other failures stay as they are."""
    runs = campaign.runs
    if failure.code == INTERRUPTED and not campaign.launches:
        before = " before the first launch, so nothing was measured"
        return msgspec.structs.replace(failure, message=failure.message + before)
    place = next(((run, each) for run in runs for each in run.launches if each.index == launch_index), None)
    if failure.code != INTERRUPTED or place is None or campaign.probe or campaign.tuning:
        return failure
    run, launch = place
    where = f" in launch {launch.index}" if sum(each.planned_launches for each in runs) > 1 else ""
    if run.plan.command is not None:
        how_far = "" if launch.timed_iterations else " before the command ended"
        return msgspec.structs.replace(failure, message=f"{failure.message}{where}{how_far}")
    planned, timed = run.plan.iterations, len(launch.timed_iterations)
    if not timed:
        how_far = (
            " before its first timed iteration" if where else " before the first iteration, so nothing was measured"
        )
    elif planned is None or timed < planned:
        of = "" if planned is None else f" of {planned:,}"
        how_far = f" after {timed:,}{of} iterations"
    else:
        how_far = f": all {timed:,} iterations are there" + _missing_measurements_text(run, launch)
    return msgspec.structs.replace(failure, message=f"{failure.message}{where}{how_far}")


def _missing_measurements_text(run: Run, launch: Launch) -> str:
    """The end of a sentence with what a launch did not measure after its iterations: ``; missing: …``, or empty."""
    plan, sends = run.plan, find_recorded_plane(run.plan.exchange).link_limit and run.plan.workers != 1
    proven = run.verification_mode == "off" or any(check.after is not None for check in launch.verifications)
    absent = [
        *([] if proven else ["the check of the result"]),
        *(["the link limit"] if sends and plan.link_rounds and launch.link is None else []),
        *(["peak memory"] if launch.memory is None else []),
    ]
    return f"; missing: {', '.join(absent)}" if absent else ""


_UNVERIFIED = {
    VerificationState.OFF: WarningMessage(
        UNVERIFIED,
        "the numbers are unverified because the merge result was not checked",
        "run again without --verify off",
    ),
    VerificationState.IMPORTED: WarningMessage(UNVERIFIED, f"the numbers are unverified because {NOT_BY_US}"),
    VerificationState.MISSING: WarningMessage(
        "not-verified",
        "the numbers are unverified, because a requested check was not run",
        "run again and let the run finish",
    ),
    VerificationState.WRONG: WarningMessage("wrong-result", "the merge result was wrong; do not use the numbers"),
}
_UNVERIFIED_COMMAND = _UNVERIFIED | {
    VerificationState.WRONG: WarningMessage("wrong-result", "the result was wrong; do not use the numbers"),
}


def _failed_launch_warnings(run: Run) -> Iterator[WarningMessage]:
    """A warning with the number of failed launches of a run; none if all succeeded."""
    failed = sum(launch.failed for launch in run.launches)
    if not failed:
        return
    complete = sum(launch.complete for launch in run.launches)
    if complete:
        source = f"the numbers are from the {count_with_noun(complete, 'complete launch')}"
    elif any(launch.timed_iterations for launch in run.launches) and run.plan.command is None:
        source = "the numbers are from before the failure"
    else:
        source = "nothing was measured" if run.plan.command is None else "none is complete, so there are no numbers"
    yield WarningMessage(
        "failed-launches",
        f"{failed} of {len(run.launches)} launches failed; {source}",
        "read the log files of this campaign, in its folder logs/",
    )


def _slow_link_warnings(
    launches: Sequence[Launch], workers: Sequence[WorkerFigures], config_name: str
) -> Iterator[WarningMessage]:
    """A warning about the rank with a slow link; `config_name`: the config that it names, empty for none."""
    hosts = {worker.rank: worker.host for worker in workers}
    slow = rank_with_slow_link(launches, workers)
    if slow is not None:
        yield WarningMessage(
            "straggler",
            f"{_rank_label(slow.rank, hosts.get(slow.rank, '?'), config_name)} exchanges data at only"
            f" {format_rate(slow.rate)}; the other ranks reach {format_rate(slow.others)}"
            f" (factor {slow.slowdown_factor:.1f})",
            "check the link of this host: speed, error counters, and traffic of other programs",
        )


def link_limit_exceeded_warnings(launches: Sequence[Launch]) -> Iterator[WarningMessage]:
    """A warning if the exchange was faster than the measured link limit, which is then no limit."""
    if launches_with_undisturbed_limit(launches):
        return
    ratio = aggregate.median_or_none(map(aggregate.exchange_above_limit, launches))
    if ratio is not None and ratio > aggregate.EXCEEDED:
        yield WarningMessage(
            "limit-exceeded",
            f"exchanges ran at {ratio:.0%} of the link limit, so the measurement of the limit was disturbed",
            "run again on a quiet machine, with --link-rounds 100",
        )


def launches_with_undisturbed_limit(launches: Sequence[Launch]) -> list[Launch]:
    """The launches with a link limit that no exchange of theirs exceeds by more than noise."""
    ratios = ((launch, aggregate.exchange_above_limit(launch)) for launch in launches if launch.link is not None)
    return [launch for launch, ratio in ratios if ratio is None or ratio <= aggregate.EXCEEDED]


def _rank_warnings(
    run: Run, launches: Sequence[Launch], workers: Sequence[WorkerFigures], config_name: str
) -> Iterator[WarningMessage]:
    """Warnings about ranks with many rows, few cores or a slow phase; `config_name`: the config that they name."""
    hosts = {worker.rank: worker.host for worker in workers}
    for overload in overloaded_ranks(workers)[:MOST_OVERLOADED]:
        has, rows = ("received", "rows") if overload.what == "received" else ("produces", "result rows")
        yield WarningMessage(
            "overloaded-rank",
            f"rank {overload.rank} ({hosts[overload.rank]}) {has} {overload.rows:,.0f} {rows}, "
            f"{overload.factor:.2f} × the mean of the other ranks",
            "check the keys for skew: all rows with the same key go to the same rank",
        )
    crowd = first_core_shortage(launches)
    if crowd is not None:
        yield WarningMessage(
            "oversubscribed",
            f"{crowd.processes} workers share {crowd.cores_text}: they take turns, so no time of a single worker is"
            " its own",
            "bind each worker to cores of its own"
            if crowd.bound
            else f"use at most {count_with_noun(crowd.max_worker_count, 'worker')} on this host",
        )
        return  # who comes last in taking turns is no straggler
    slow = straggling_rank(workers)
    if slow is not None:
        yield WarningMessage(
            "straggler",
            f"{_rank_label(slow.rank, hosts[slow.rank], config_name)} is slow in {slow.phase}: it takes"
            f" {format_seconds(slow.seconds)}, the other ranks {format_seconds(slow.others)} (factor"
            f" {slow.slowdown_factor:.2f})",
            _straggler_remedy(run, launches, slow.rank, several_hosts=len(set(hosts.values())) > 1),
        )


def _straggler_remedy(run: Run, launches: Sequence[Launch], rank: int, *, several_hosts: bool) -> str:
    """A sentence about what to check on the GPU, cores or network port of a straggling rank."""
    on_gpu = any(engine.device_memory for engine in engine_descriptions() if engine.name == run.plan.engine)
    workers = (each for launch in launches if launch.line is not None for each in launch.line.workers)
    nodes = next((each.hardware.numa_nodes or 1 for each in workers if each.rank == rank), 1)
    where = ("GPU" if on_gpu else "core") + " or network port" * several_hosts
    how = "shared, throttled, or on another NUMA node" if nodes > 1 else "shared or throttled"
    return f"check whether the {where} of this rank is {how}"


def _rank_label(rank: int, host: str, config_name: str) -> str:
    """The name of a rank in a warning: ``rank 1 (node0)``, or ``rank 1 (node0) with tcp``."""
    return f"rank {rank} ({host})" + (f" with {config_name}" if config_name else "")


def _outlier_warnings(launches: Sequence[Launch], *, name_configs: bool) -> Iterator[WarningMessage]:
    """A warning that lists the iterations with outlying wall-clock times; `name_configs`: with their configs."""
    flagged = [
        (
            f"{launch.index} ({launch.run_key[0]})" if name_configs and launch.run_key else str(launch.index),
            iteration.index,
        )
        for launch in launches
        for iteration, far in zip(
            launch.timed_iterations, outlier_flags([i.wall_seconds for i in launch.timed_iterations]), strict=True
        )
        if far
    ]
    if flagged:
        listed = ", ".join(f"{iteration} of launch {launch}" for launch, iteration in flagged[:5])
        more = f" and {len(flagged) - 5} more" if len(flagged) > 5 else ""
        yield WarningMessage(
            "outliers", f"outlying wall-clock time in iteration {listed}{more}; all statistics include outliers"
        )


def busy_host_warnings(campaign: Campaign) -> list[WarningLine]:
    """The warnings of a campaign that say that other processes kept a host's cores busy."""
    recorded = [*campaign.warnings, *(line for launch in campaign.launches for line in launch.warnings)]
    return [*(line for line in recorded if line.code == BUSY_HOST), *busy_launch_start_warnings(campaign.launches)]


def busy_launch_start_warnings(launches: Sequence[Launch]) -> list[WarningLine]:
    """One warning that lists the launches, after the first one, that began on a busy host; [] if there are none."""
    loads = _host_load_by_launch(launches)
    busy = {index: load for index, load in busy_host_load_by_launch(launches).items() if index}
    if not busy:
        return []
    worst = max(busy.values(), key=lambda load: load.busy)
    processes = f" ({', '.join(worst.processes)})" if worst.processes else ""
    listed = ", ".join(str(index) for index in list(busy)[:MOST_NAMED]) + ", …" * (len(busy) > MOST_NAMED)
    numbers = f"{plural_noun(len(busy), 'launch')} {listed}"
    when = f"as {len(busy)} of {len(loads)} launches started ({numbers})" if len(loads) > 1 else "as it started"
    message = (
        f"other processes kept up to {worst.busy:.1f} of {worst.cores} cores busy{processes} {when},"
        " so their times are longer and vary more"
    )
    return [WarningLine(code=BUSY_HOST, message=message, remedy=REMEDY)]


def launches_started_on_busy_host(launches: Sequence[Launch]) -> list[int]:
    """The indexes of the launches that began on a busy host."""
    return list(busy_host_load_by_launch(launches))


def busy_host_load_by_launch(launches: Sequence[Launch]) -> dict[int, HostLoad]:
    """The load of other processes at the start of each launch that began on a busy host, by the launch's index."""
    return {
        index: load for index, load in _host_load_by_launch(launches).items() if load.busy >= BUSY_SHARE * load.cores
    }


def _host_load_by_launch(launches: Sequence[Launch]) -> dict[int, HostLoad]:
    """The load of other processes at the start of each launch, by the launch's index."""
    return {launch.index: launch.line.other_load for launch in launches if launch.line and launch.line.other_load}

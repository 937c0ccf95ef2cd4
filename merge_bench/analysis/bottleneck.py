"""What limits a merge: the one thing whose improvement would shorten it most, as far as its records show.

The first that applies, in this order:

1. ``cores``: the workers of a host share fewer cores than there are workers, so they take turns.
   ``host``: a worker did not have its core while it computed, by its processor time (`core_loss.find_core_loss`).
   ``busy-host``: other processes kept the cores busy as most launches began, or as one did in which one rank is slow.
2. ``fixed-costs``: a merge of one row per worker takes at least `MOSTLY` of the wall-clock time, in the same launch.
3. ``slow-link``, ``overload``, ``straggler``: one rank costs all others at least `GAIN` of the wall-clock time.
4. With overlapping phases ``link`` or ``cores``, by `limit_of_overlapping_phases`.
5. The longest phase: ``partition``, ``join`` or ``exchange``. With phases apart it is the ``link`` if the exchange
   reaches `NEAR_LIMIT` of the link limit, and ``memory`` if partition or join reaches as much of memory's copy rate.

Where a table has fewer row groups than there are workers, the reason begins with that: it is why the others wait.

Also which share of the network's bandwidth a merge's exchange reaches (`compare_exchange_with_probes`). The network is
measured by `probe all-to-all` over the same data plane. A result of it belongs to a merge if config with its settings,
hosts by rank and number of workers are the same, and its messages are the merge's parcels, or as large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

import msgspec

from merge_bench.analysis import aggregate, diagnostics
from merge_bench.analysis.aggregate import PHASES, Phase, WorkerFigures
from merge_bench.analysis.core_loss import CoreLoss, find_core_loss
from merge_bench.analysis.documents import Bottleneck, Limit, LinkUtilization, MemoryCopyRates
from merge_bench.merge.engines import engine_descriptions
from merge_bench.merge.exchange import find_recorded_plane
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import HostLoad, IterationLine, ProbeLine, WorkerIteration
from merge_bench.units import count_with_noun, format_rate, format_seconds

MOSTLY = 0.5
"""Fixed costs limit a merge if one of a single row takes at least this share of its wall-clock time."""

MOST_NAMED = 3
"""The most ranks that are named as those without their cores."""

NEAR_WIRE = 1.1
"""The link limits a merge that takes at most this many times as long as its bytes need on the link."""

NEAR_LIMIT = 0.8
"""The link limits an exchange, and memory a partition or join, that reaches this share of its limit."""


def find_bottleneck(
    run: Run,
    launches: Sequence[Launch],
    workers: Sequence[WorkerFigures],
    link: LinkUtilization | None,
    memory_rates: MemoryCopyRates | None,
) -> Bottleneck | None:
    """Find what limits the merge of `run`: a phase, link, memory, cores or a rank; None if no phases were measured.

    `launches`: those from which the figures of the run are computed.
    """
    wall = aggregate.run_median(launches, aggregate.wall_seconds)
    seconds = {name: aggregate.run_median(launches, aggregate.phase_seconds(name)) for name in PHASES}
    phase_shares: dict[Phase, float] = {
        name: each / wall for name, each in seconds.items() if each is not None and wall
    }
    if not phase_shares or not wall:
        return None
    crowd = diagnostics.first_core_shortage(launches)
    if crowd is not None:
        return Bottleneck(what="cores", share=None, because=f"{crowd.processes} workers share {crowd.cores_text}")
    loads = diagnostics.busy_host_load_by_launch(launches)
    busy = max(loads.values(), key=lambda load: load.busy, default=None)
    loss = find_core_loss(run.plan, launches)
    if loss is not None:
        return _bottleneck_of_host(loss, workers, busy)
    limit = _fixed_cost_bottleneck(launches, wall) or max(
        _bottlenecks_of_ranks(launches, workers, phase_shares, wall), key=lambda limit: limit.share or 0.0, default=None
    )
    if limit is not None and limit.rank is not None:
        bound = "at least" if limit.what == "straggler" else "about"
        cost = f"that costs {bound} {limit.share or 0.0:.0%} of the wall-clock time"
        limit = msgspec.structs.replace(limit, because=f"{limit.because}; {cost}")
    elif limit is not None:
        pass
    elif run.plan.pipeline:
        limit = _bottleneck_of_overlapping_phases(launches, phase_shares, link)
    else:
        limit = _bottleneck_of_separate_phases(launches, phase_shares, link, memory_rates)
    often = 2 * len(loads) > len(launches)
    if busy is not None and limit.what != "overload" and (often or limit.rank is not None):
        kept = diagnostics.BUSY.format(f"up to {busy.busy:.1f} of {busy.cores} cores busy")
        because = f"{kept}; besides, {limit.what}: {limit.because}"
        return msgspec.structs.replace(limit, what="busy-host", besides=limit.what, because=because)
    few = _few_row_groups_text(run.plan)
    even = limit.what in ("join", "overload") and run.plan.distribution != "broadcast"  # a shuffle spreads the rows
    return msgspec.structs.replace(limit, because=f"{few}; {limit.because}") if few and not even else limit


def _bottleneck_of_host(loss: CoreLoss, workers: Sequence[WorkerFigures], busy: HostLoad | None) -> Bottleneck:
    """The host as the limit, because workers did not have their cores; `busy`: the load as launches began, if any."""
    hosts, ranks = {worker.rank: worker.host for worker in workers}, loss.ranks
    shares = [f"rank {rank} ({hosts.get(rank, '?')}) had {loss.shares[rank]:.2f}" for rank in ranks[:MOST_NAMED]]
    if ranks:
        more = f", and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
        had = f"{', '.join(shares)}{more} of {'its core' if len(ranks) == 1 else 'their cores'}"
    else:
        had = f"in most iterations a rank had at most {loss.least:.2f} of its core"
    because = f"{had}; that costs at least {loss.cost:.0%} of the wall-clock time"
    if busy is not None:
        because += f"; others kept {busy.busy:.1f} of {busy.cores} cores busy as launches began"
    return Bottleneck(what="host", share=loss.cost, rank=ranks[0] if len(ranks) == 1 else None, because=because)


def _fixed_cost_bottleneck(launches: Sequence[Launch], wall_seconds: float) -> Bottleneck | None:
    """Fixed costs as the limit, if a merge of one row per worker takes at least `MOSTLY` of the wall-clock time."""
    fixed = aggregate.one_row_merge_seconds(launches)
    if fixed is None or fixed < MOSTLY * wall_seconds:
        return None
    share = min(1.0, fixed / wall_seconds)
    because = f"a merge of one row takes {format_seconds(fixed)}, {share:.0%} of the wall-clock time; use more rows"
    return Bottleneck(what="fixed-costs", share=share, because=because)


def _few_row_groups_text(plan: RecordedPlan) -> str:
    """A text that says how many workers read the tables with fewer row groups than workers; empty without such."""
    work = plan.workload
    by_count: dict[tuple[str, str], list[str]] = {}
    for table in (work.left, work.right) if work is not None else ():
        if table is None or all(table.chunk_rows):
            continue
        reading, groups = sum(map(bool, table.chunk_rows)), sum(map(len, table.chunks))
        who = "one worker" if reading == 1 else f"only {reading} of {len(table.chunk_rows)} workers"
        name = Path(table.path or "").name or "a table"
        by_count.setdefault((who, count_with_noun(groups, "row group")), []).append(name)
    return "; ".join(
        f"{who} read all rows of {' and '.join(names)} ({groups}{' each' * (len(names) > 1)})"
        for (who, groups), names in by_count.items()
    )


def _bottlenecks_of_ranks(
    launches: Sequence[Launch],
    workers: Sequence[WorkerFigures],
    phase_shares: Mapping[Phase, float],
    wall_seconds: float,
) -> Iterator[Bottleneck]:
    """Yield a bottleneck for each rank whose slow link, many rows or slow phase costs the others time.

    That is at least the share `diagnostics.GAIN` of the wall-clock time. `phase_shares`: of that time, by phase.
    """
    hosts = {worker.rank: worker.host for worker in workers}
    slow = diagnostics.rank_with_slow_link(launches, workers)
    if (
        slow is not None
        and (cost := phase_shares.get("exchange", 0.0) * (1 - 1 / slow.slowdown_factor)) >= diagnostics.GAIN
    ):
        yield Bottleneck(
            what="slow-link",
            share=cost,
            rank=slow.rank,
            because=f"rank {slow.rank} ({hosts.get(slow.rank, '?')}) exchanges data at {format_rate(slow.rate)}, the"
            f" other ranks at {format_rate(slow.others)}",
        )
    for over in diagnostics.overloaded_ranks(workers)[:1]:
        slowed: tuple[Phase, ...] = ("exchange", "join") if over.what == "received" else ("join",)
        cost = min(1.0, sum(phase_shares.get(phase, 0.0) for phase in slowed)) * (1 - 1 / over.factor)
        if cost >= diagnostics.GAIN:
            has, rows = ("receives", "rows") if over.what == "received" else ("produces", "result rows")
            yield Bottleneck(
                what="overload",
                share=cost,
                rank=over.rank,
                because=f"rank {over.rank} ({hosts[over.rank]}) {has} {over.factor:.2f} × as many {rows} as the other"
                " ranks on average",
            )
    late = diagnostics.straggling_rank(workers)
    if late is not None and (cost := late.cost / wall_seconds) >= diagnostics.GAIN:
        yield Bottleneck(
            what="straggler",
            share=cost,
            rank=late.rank,
            because=f"rank {late.rank} ({hosts[late.rank]}) needs {format_seconds(late.seconds)} for {late.phase}, the"
            f" other ranks {format_seconds(late.others)}",
        )


def limit_of_overlapping_phases(
    wall_to_link_ratio: float | None, computing_share: float | None, cores_share: float | None
) -> str | None:
    """What limits a merge whose phases overlap: ``link``, ``cores``, or None where neither does by itself.

    The arguments are a run's medians of `wall_to_link_time_ratio`, `computing_share` and `busy_cores_share` in
    `analysis/aggregate.py`; None: not measured.
    """
    if wall_to_link_ratio is not None and wall_to_link_ratio <= NEAR_WIRE:
        return "link"
    busy = any(share is not None and share >= 1 / NEAR_WIRE for share in (computing_share, cores_share))
    return "cores" if busy else None


def _bottleneck_of_overlapping_phases(
    launches: Sequence[Launch], phase_shares: Mapping[Phase, float], link: LinkUtilization | None
) -> Bottleneck:
    """What limits a merge whose phases overlap: the link, the cores, or else its longest phase."""
    values = (aggregate.computing_share, aggregate.busy_cores_share)
    ratio = None if link is None else link.wall_ratio
    limit = limit_of_overlapping_phases(ratio, *(aggregate.run_median(launches, value) for value in values))
    if limit == "link" and ratio is not None:
        because = f"the merge takes {ratio:.2f} × the time that its bytes need at the link limit"
        return Bottleneck(what="link", share=min(1.0, 1 / ratio), because=because)
    if limit == "cores":
        return Bottleneck(what="cores", share=None, because="the cores are busy nearly all the time")
    name = max(phase_shares, key=lambda each: phase_shares[each])
    if link is not None and link.disturbed is not None:
        reason = f"the link limit is not known: {link.disturbed}"
    elif ratio is None:
        reason = "no link limit was measured"
    else:
        reason = "neither link nor cores alone are the limit"
    because = f"the longest phase, {phase_shares[name]:.0%} of the wall-clock time; {reason}"
    return Bottleneck(what=name, share=min(1.0, phase_shares[name]), because=because)


def _bottleneck_of_separate_phases(
    launches: Sequence[Launch],
    phase_shares: Mapping[Phase, float],
    link: LinkUtilization | None,
    memory_rates: MemoryCopyRates | None,
) -> Bottleneck:
    """What limits a merge whose phases do not overlap: its longest phase, or the link or memory that limits it."""
    name = max(phase_shares, key=lambda each: phase_shares[each])
    what: Limit = name
    because = takes = f"the longest phase, {phase_shares[name]:.0%} of the wall-clock time"
    if name != "exchange":
        reached = None
        if memory_rates is not None:
            reached = memory_rates.partition_fraction if name == "partition" else memory_rates.join_fraction
        if reached is None or reached > aggregate.EXCEEDED:  # then the copy rate is no limit
            pass
        elif reached >= NEAR_LIMIT:
            what, because = "memory", f"the {name} is {takes}, at {reached:.0%} of memory's copy rate"
        else:
            because = f"{takes}; a copy of its rows takes at least {reached:.0%} of that"
    elif link is not None and link.disturbed is not None:
        because = f"{takes}; the link limit is not known: {link.disturbed}"
    elif link is None or link.fraction is None:
        because = f"{takes}; no link limit was measured"
    elif link.fraction >= NEAR_LIMIT:
        what, because = "link", f"the exchange is {takes}, at {link.fraction:.0%} of the link limit"
    else:
        because = f"{takes}, at {link.fraction:.0%} of the link limit: the link could carry more"
        flying = aggregate.run_median(launches, _exchange_in_flight_share)
        because += "" if flying is None else f"; transfers are in flight for {min(1.0, flying):.0%} of the phase"
    return Bottleneck(what=what, share=phase_shares[name], because=because)


def _exchange_in_flight_share(launch: Launch, iteration: IterationLine) -> float | None:
    """The share of the exchange phase in which transfers are in flight, on the worker with the longest exchange."""
    timed = [(w.phases_seconds.exchange, w) for w in iteration.workers if w.phases_seconds is not None]
    seconds, worker = max(((s, w) for s, w in timed if s), key=lambda each: each[0], default=(None, None))
    if worker is None or not seconds or worker.flight_seconds is None:
        return None
    return worker.flight_seconds.union / seconds


ALL_TO_ALL, _TEST = "all-to-all", "ucx_alltoall"
_SAME_SIZE = 0.02
"""Parcels whose mean sizes differ by less than this share count as equally large."""
_SIMILAR_SIZE = 2.0
"""A measurement with messages of one size stands for parcels at most this many times as large or as small."""


@dataclass(frozen=True)
class ExchangeProbeComparison:
    """The bandwidth of a merge's exchange, that of `probe all-to-all`, and the seconds of each part of the exchange.

    `size`: mean bytes of a message of the probe; `parcels`: whether its messages have the sizes of the merge's parcels.
    `all_to_all`, `exchange`: bytes per second that a worker sends to others, mean over workers: in the probe, and in
    the merge while transfers of its slowest worker are in flight. `phase`: seconds of the exchange on its slowest
    worker, in the median iteration, and its parts: `ideal`, the time of the bytes at the rate of the probe; `slower`,
    the time that transfers take beyond that; `waiting`, for the slowest partition; `other`, headers, barriers and
    making room. The seconds are None where phases overlap.
    """

    size: int
    parcels: bool
    all_to_all: float
    exchange: float
    phase: float | None = None
    ideal: float | None = None
    slower: float | None = None
    waiting: float | None = None
    other: float | None = None

    @property
    def share_of_probe_bandwidth(self) -> float:
        """The share of the bandwidth of `probe all-to-all` that the merge reaches while transfers are in flight."""
        return self.exchange / self.all_to_all

    @property
    def phase_share_of_probe_bandwidth(self) -> float | None:
        """The share of the bandwidth of `probe all-to-all` that the merge reaches in its whole exchange, if known."""
        return self.ideal / self.phase if self.phase and self.ideal is not None else None


def compare_exchange_with_probes(run: Run, probes: Iterable[Campaign]) -> ExchangeProbeComparison | None:
    """Compare the exchange of `run` with the matching all-to-all measurements in `probes`; None if there are none."""
    launches = aggregate.complete_launches(run)
    timed = [each for launch in launches for each in launch.timed_iterations if _is_fully_measured(each)]
    if not find_recorded_plane(run.plan.exchange).endpoints or not timed:
        return None
    # a parcel is what one worker sends to one other of one frame
    size = mean(_mean_sent_bytes(each) / 2 / (len(each.workers) - 1) for each in timed)
    lines = [line for campaign in probes for line in _matching_probe_lines(campaign, run, launches[0])]
    chosen_lines = _probe_lines_nearest_in_size(lines, size, run.plan.rows_per_chunk)
    rates = [line.bandwidth_bytes_per_second for line in chosen_lines if line.bandwidth_bytes_per_second]
    if not rates:
        return None
    rate = median(rates)
    comparison = ExchangeProbeComparison(
        size=chosen_lines[0].size,
        parcels=chosen_lines[0].count is not None,
        all_to_all=rate,
        exchange=median(
            _mean_sent_bytes(each) / max(_in_flight_seconds(worker) for worker in each.workers) for each in timed
        ),
    )
    return comparison if run.plan.pipeline else _add_exchange_parts(comparison, timed)


def _add_exchange_parts(
    comparison: ExchangeProbeComparison, iterations: Sequence[IterationLine]
) -> ExchangeProbeComparison:
    """Add the seconds of the exchange phase and its parts to `comparison`, from the iteration with median exchange."""
    slowest = [(max(each.workers, key=lambda own: _phase_seconds(own, "exchange")), each) for each in iterations]
    by_time = sorted(slowest, key=lambda pair: _phase_seconds(pair[0], "exchange"))
    worker, iteration = by_time[(len(slowest) - 1) // 2]
    phase, flight = _phase_seconds(worker, "exchange"), _in_flight_seconds(worker)
    ideal = _mean_sent_bytes(iteration) / comparison.all_to_all
    late = max(_phase_seconds(each, "partition") for each in iteration.workers) - _phase_seconds(worker, "partition")
    waiting = min(late, max(phase - flight, 0.0))
    other = phase - flight - waiting
    return replace(comparison, phase=phase, ideal=ideal, slower=flight - ideal, waiting=waiting, other=other)


def _matching_probe_lines(probe_campaign: Campaign, run: Run, launch: Launch) -> list[ProbeLine]:
    """The rows of a `probe all-to-all` campaign with the settings, hosts and kind of memory of a launch of `run`."""
    settings = [  # without the variables of a config that are options of this program
        {name: value for name, value in each.variables.items() if not name.startswith("MERGE_BENCH_")}
        for each in (run.config, *probe_campaign.head.configs)
    ]
    alike = [
        each.name for each, own in zip(probe_campaign.head.configs, settings[1:], strict=True) if own == settings[0]
    ]
    if probe_campaign.probe != ALL_TO_ALL or run.config.name not in alike or launch.line is None:
        return []
    hosts = [worker.host for worker in launch.line.workers]
    on_gpus = any(each.device_memory for each in engine_descriptions() if each.name == run.plan.engine)
    return [
        line
        for each in probe_campaign.launches_not_replaced
        if each.complete and each.line is not None and each.line.config == run.config.name
        for line in each.probes
        if line.test.startswith(_TEST) and line.hosts == hosts and not line.wrong and (line.memory == "cuda") == on_gpus
    ]


def _probe_lines_nearest_in_size(
    lines: Sequence[ProbeLine], message_bytes: float, rows_per_chunk: int | None
) -> list[ProbeLine]:
    """The probe's lines whose messages are the merge's parcels, or else the lines with messages of the nearest size.

    `message_bytes`: mean size of a parcel of the merge.
    """
    same = [
        line
        for line in lines
        if line.count == rows_per_chunk is not None and abs(line.size / message_bytes - 1) < _SAME_SIZE
    ]
    if same or not message_bytes:
        return same
    alike = [
        line for line in lines if line.count is None and 1 / _SIMILAR_SIZE <= line.size / message_bytes <= _SIMILAR_SIZE
    ]
    best = min(
        {line.size for line in alike}, key=lambda each: max(each / message_bytes, message_bytes / each), default=None
    )
    return [line for line in alike if line.size == best]


def _is_fully_measured(iteration: IterationLine) -> bool:
    """Whether there are several workers, and sent bytes, seconds in flight and phases of each were measured."""
    workers = iteration.workers
    return len(workers) > 1 and all(
        each.sent_bytes and each.flight_seconds and each.flight_seconds.union > 0 and each.phases_seconds
        for each in workers
    )


def _mean_sent_bytes(iteration: IterationLine) -> float:
    """Mean bytes of both frames that a worker sends to others in an iteration."""
    return mean(each.sent_bytes.left + each.sent_bytes.right for each in iteration.workers if each.sent_bytes)


def _in_flight_seconds(worker: WorkerIteration) -> float:
    return worker.flight_seconds.union if worker.flight_seconds else 0.0


def _phase_seconds(worker: WorkerIteration, phase: Phase) -> float:
    return getattr(worker.phases_seconds, phase, None) or 0.0

"""From iterations to a launch, and from launches to a run.

A launch is one sample: its value is the median over its timed iterations. A run's value is the median
over its launches. Everything here is recomputed from the records alone.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from merge_bench.analysis import metrics
from merge_bench.analysis.documents.run import WorkerBandwidth, WorkerPeak
from merge_bench.analysis.statistics import harmonic_mean, median
from merge_bench.host import machine
from merge_bench.records.campaign import Launch, Run
from merge_bench.records.schema import IterationLine, PairTraffic, WorkerIteration, WorkerMemory

PHASES = ("partition", "exchange", "join")

Value: TypeAlias = Callable[[Launch, IterationLine], float | None]
"""A function that gives a number of one iteration of a launch, None where it was not measured."""

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class WorkerFigures:
    """One worker over a whole run; seconds, bytes, rows and bytes per second. ``None``: not measured."""

    rank: int
    host: str
    bandwidth: WorkerBandwidth
    seconds: float | None
    partition: float | None
    exchange: float | None
    join: float | None
    overlap: float | None
    join_overlap: float | None
    received_rows: float | None
    result_rows: float | None
    memory: WorkerPeak


@dataclass(frozen=True)
class PairFigures:
    """Bytes that one worker sent to another in an iteration, and the seconds they were in flight."""

    bytes: float
    seconds: float | None


def complete_launches(run: Run) -> tuple[Launch, ...]:
    """The complete launches of a run, from which its figures are made; if there are none, those that measured anything.

    A launch that broke off is no whole sample: its iterations stay in the records, and it counts as failed.
    """
    measured = tuple(launch for launch in run.launches if launch.timed)
    return tuple(launch for launch in measured if launch.complete) or measured


def median_or_none(values: Iterable[float | None]) -> float | None:
    """The median of the values that are not None; None if there are none."""
    measured = [value for value in values if value is not None]
    return median(measured) if measured else None


def iteration_values(launches: Sequence[Launch], value: Value) -> list[float]:
    """`value` of every timed iteration for which it was measured."""
    measured = (value(launch, iteration) for launch in launches for iteration in launch.timed)
    return [number for number in measured if number is not None]


def launch_median(launch: Launch, value: Value) -> float | None:
    """The median of `value` over the timed iterations of one launch."""
    return median_or_none(value(launch, iteration) for iteration in launch.timed)


def launch_medians(launches: Sequence[Launch], value: Value) -> list[float]:
    """The median of `value` for each launch that has it: the samples for statistics over launches."""
    return [sample for launch in launches if (sample := launch_median(launch, value)) is not None]


def run_median(launches: Sequence[Launch], value: Value) -> float | None:
    """The median over launches of the launches' medians of `value`."""
    return median_or_none(launch_medians(launches, value))


def wall_seconds(launch: Launch, iteration: IterationLine) -> float:
    """Wall-clock seconds of one iteration."""
    return iteration.wall_seconds


def bandwidth(launch: Launch, iteration: IterationLine) -> float | None:
    """Bandwidth of one iteration: harmonic mean over the workers, in bytes per second."""
    return metrics.iteration_bandwidth(iteration)


def slowest_bandwidth(launch: Launch, iteration: IterationLine) -> float | None:
    """Bandwidth of the slowest worker in one iteration, in bytes per second."""
    return min(metrics.worker_bandwidths(iteration), default=None)


def fastest_bandwidth(launch: Launch, iteration: IterationLine) -> float | None:
    """Bandwidth of the fastest worker in one iteration, in bytes per second."""
    return max(metrics.worker_bandwidths(iteration), default=None)


def throughput(launch: Launch, iteration: IterationLine) -> float | None:
    """Bytes per second of one iteration; if imported, as its text says, because its wall-clock time is rounded more."""
    if iteration.imported is not None:
        return iteration.imported.throughput_bytes_per_second
    return metrics.throughput(launch.line.data_bytes, iteration.wall_seconds) if launch.line is not None else None


def phase_seconds(name: str) -> Value:
    """A function that gives the most seconds that any worker spent in phase `name` of an iteration."""

    def longest(launch: Launch, iteration: IterationLine) -> float | None:
        return _greatest(_worker_phase_seconds(worker, name) for worker in iteration.workers)

    return longest


def flight_rate(launch: Launch, iteration: IterationLine) -> float | None:
    """Bytes per second of one iteration while they were in flight."""
    return metrics.flight_rate(iteration)


def link_fraction(launch: Launch, iteration: IterationLine) -> float | None:
    """Share of its launch's link limit that the exchange of one iteration reached."""
    return metrics.link_fraction(iteration, link_limit([launch]))


def wall_over_wire(launch: Launch, iteration: IterationLine) -> float | None:
    """Wall-clock time of one iteration ÷ the time that its bytes need at its launch's link limit."""
    return metrics.wall_over_wire(iteration, link_limit([launch]))


def computing_share(launch: Launch, iteration: IterationLine) -> float | None:
    """Share of one iteration's wall-clock time in which the busiest worker partitions or joins."""
    return metrics.computing_share(iteration)


def cores_share(launch: Launch, iteration: IterationLine) -> float | None:
    """Share of their cores' time that the workers of the busiest host use in one iteration."""
    return metrics.cores_share(iteration, launch.line.workers) if launch.line is not None else None


def link_limit(launches: Sequence[Launch]) -> float | None:
    """The measured link limit in bytes per second of a worker, median over launches."""
    return median_or_none(launch.link.limit_bytes_per_second for launch in launches if launch.link is not None)


def copy_rate(launches: Sequence[Launch]) -> float | None:
    """Bytes per second at which a worker copies memory while all do, on average; median over launches."""
    of_launches = [
        [rate for each in launch.memory.workers if (rate := metrics.copy_rate(each)) is not None]
        for launch in launches
        if launch.memory is not None
    ]
    return median_or_none(harmonic_mean(rates) for rates in of_launches if rates)


def copy_rate_fraction(phase: Literal["partition", "join"]) -> Value:
    """A function that gives the share of its launch's copy rate that one phase of an iteration reached."""

    def fraction(launch: Launch, iteration: IterationLine) -> float | None:
        if launch.memory is None or launch.line is None or not launch.line.rows:
            return None
        row_bytes = launch.line.data_bytes / launch.line.rows
        partition, join = metrics.memory_fractions(iteration, launch.memory.workers, row_bytes)
        return partition if phase == "partition" else join

    return fraction


def perftest_link_limit(launches: Sequence[Launch]) -> float | None:
    """The link limit that `ucx_perftest` measured, in bytes per second of a worker, median over launches.

    Measurements with more polling processes than cores are left out.
    """
    checked = [
        [row.bandwidth_bytes_per_second for row in launch.probes if row.probe == "link"]
        for launch in launches
        if not _crowding_reason(launch)
    ]
    return median_or_none(harmonic_mean([rate for rate in rates if rate]) for rates in checked if rates)


def why_link_not_checked(run: Run, launches: Sequence[Launch]) -> str | None:
    """Why `ucx_perftest` gave no rate to compare the link limit with; None if it gave one."""
    if perftest_link_limit(launches) is not None:
        return None
    if not run.plan.check_link:
        return "not checked against ucx_perftest; use --check-link"
    crowded = next(filter(None, map(_crowding_reason, launches)), None)
    if crowded:
        return f"cannot be checked against ucx_perftest: {crowded}"
    return "the check against ucx_perftest gave no result"


def _crowding_reason(launch: Launch) -> str | None:
    return machine.crowding((each.host, each.hardware) for each in launch.line.workers) if launch.line else None


def worker_figures(launches: Sequence[Launch]) -> tuple[WorkerFigures, ...]:
    """The figures of every worker over `launches`, in the order of ranks."""
    hosts: dict[int, str] = {}
    memory: dict[int, list[WorkerMemory]] = {}
    measured: dict[int, dict[int, list[WorkerIteration]]] = {}
    for launch in launches:
        for worker in launch.line.workers if launch.line is not None else ():
            hosts.setdefault(worker.rank, worker.host)
        for peak in launch.memory.workers if launch.memory is not None else ():
            memory.setdefault(peak.rank, []).append(peak)
        for iteration in launch.timed:
            for part in iteration.workers:
                measured.setdefault(part.rank, {}).setdefault(launch.index, []).append(part)
    parts = itertools.chain.from_iterable(each for of_rank in measured.values() for each in of_rank.values())
    frames = metrics.frames_sent(parts)
    return tuple(
        _worker_figures(rank, hosts[rank], list(measured.get(rank, {}).values()), memory.get(rank, []), frames)
        for rank in sorted(hosts)
    )


def ranks_without_traffic(launches: Sequence[Launch]) -> list[int]:
    """The ranks that sent nothing to others in any timed iteration, as where a table has too few row groups."""
    sent: Counter[int] = Counter()
    for launch in launches:
        for iteration in launch.timed:
            for worker in iteration.workers:
                if worker.sent_bytes is not None:
                    sent[worker.rank] += worker.sent_bytes.left + worker.sent_bytes.right
    return sorted(rank for rank, total in sent.items() if not total)


def pair_figures(launches: Sequence[Launch]) -> dict[tuple[int, int], PairFigures]:
    """Traffic by (from rank, to rank): the median over launches of each launch's median."""
    by_pair: dict[tuple[int, int], dict[int, list[PairTraffic]]] = {}
    for launch in launches:
        for iteration in launch.timed:
            for pair in iteration.pairs:
                by_pair.setdefault((pair.from_rank, pair.to_rank), {}).setdefault(launch.index, []).append(pair)
    return {
        key: PairFigures(
            median([median([pair.bytes for pair in pairs]) for pairs in by_pair[key].values()]),
            median_or_none(median_or_none(pair.seconds for pair in pairs) for pairs in by_pair[key].values()),
        )
        for key in sorted(by_pair)
    }


def _worker_phase_seconds(worker: WorkerIteration, name: str) -> float | None:
    seconds: float | None = getattr(worker.phases_seconds, name, None)
    return seconds


def _received_rows(worker: WorkerIteration) -> float | None:
    rows = worker.received_rows
    return None if rows is None else rows.left + rows.right


def _worker_figures(
    rank: int,
    host: str,
    launches: Sequence[Sequence[WorkerIteration]],
    memory: Sequence[WorkerMemory],
    frames: tuple[bool, bool],
) -> WorkerFigures:
    def nested(value: Callable[[WorkerIteration], float | None]) -> float | None:
        return median_or_none(median_or_none(value(worker) for worker in workers) for workers in launches)

    def rate(name: str) -> float | None:
        return nested(lambda worker: getattr(metrics.worker_bandwidth(worker, frames), name))

    return WorkerFigures(
        rank=rank,
        host=host,
        bandwidth=WorkerBandwidth(rank=rank, host=host, left=rate("left"), right=rate("right"), mean=rate("mean")),
        seconds=nested(lambda worker: worker.seconds),
        **{name: nested(partial(_worker_phase_seconds, name=name)) for name in PHASES},
        overlap=nested(lambda worker: worker.overlap_seconds),
        join_overlap=nested(lambda worker: worker.join_overlap_seconds),
        received_rows=nested(_received_rows),
        result_rows=nested(lambda worker: worker.result_rows),
        memory=WorkerPeak(
            rank=rank,
            host=host,
            peak=_greatest(m.peak_bytes for m in memory),
            above_imports=_greatest(m.peak_above_imports_bytes for m in memory),
            device_peak=_greatest(m.device_peak_bytes for m in memory),
            device_above_imports=None,  # not measured on a GPU; kept for programs that read it
            input=_greatest(m.input_bytes for m in memory),
        ),
    )


def _greatest(values: Iterable[Number | None]) -> Number | None:
    """The greatest of the values that are not None; None if there are none."""
    return max((value for value in values if value is not None), default=None)

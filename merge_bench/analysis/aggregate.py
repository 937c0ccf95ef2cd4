"""Computes the figures of iterations, launches, runs and workers from records, and whether results were verified.

A launch is one sample: its value is the median over its timed iterations. A run's value is the median over its
launches. Everything here is recomputed from the records alone. A number that was not measured, or that divides by
nothing, is None.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias, TypeVar

from merge_bench.analysis.documents import WorkerBandwidth, WorkerPeakMemory
from merge_bench.analysis.statistics import harmonic_mean, median
from merge_bench.host import machine
from merge_bench.host.kernel_files import parse_core_list
from merge_bench.records.campaign import Launch, Run
from merge_bench.records.schema import FrameCounts, IterationLine, PairTraffic, WorkerIteration, WorkerMemory

Phase: TypeAlias = Literal["partition", "exchange", "join"]
PHASES: tuple[Phase, ...] = ("partition", "exchange", "join")

FASTEST = 5
"""The link limit is made of this many rounds of its measurement, the fastest ones."""

EXCEEDED = 1.05
"""Exchanges that are faster than a link limit by more than this factor show that its measurement was disturbed.

The limit and the exchanges are measured seconds apart, so that they differ by a few percent without any disturbance.
"""

UNVERIFIED = "UNVERIFIED"
NOT_BY_US = "merge_bench did not verify this imported result"

IterationMetric: TypeAlias = Callable[[Launch, IterationLine], float | None]
"""A function that gives a number of one iteration of a launch, None where it was not measured."""

Number = TypeVar("Number", int, float)


class VerificationState(Enum):
    """Whether the result of a run was verified, and if not, why."""

    VERIFIED = "verified"
    OFF = "off"
    IMPORTED = "imported"
    MISSING = "missing"
    WRONG = "wrong"

    @property
    def unverified_mark(self) -> str | None:
        """``UNVERIFIED`` or ``WRONG RESULT``, printed beside every figure of a run in this state; None if verified."""
        return {VerificationState.VERIFIED: None, VerificationState.WRONG: "WRONG RESULT"}.get(self, UNVERIFIED)


@dataclass(frozen=True)
class BandwidthsByFrame:
    """Bytes per second that one worker sent to others: of the left frame, of the right frame, and their mean."""

    left: float | None
    right: float | None
    mean: float | None


@dataclass(frozen=True)
class WorkerFigures:
    """The medians of one worker over the launches of a run: seconds, rows, bytes of memory, and bytes per second.

    `seconds`: of an iteration. `overlap`: seconds in which partition and exchange overlap; `join_overlap`: in which
    join and exchange do.
    """

    rank: int
    host: str
    bandwidth: WorkerBandwidth
    memory: WorkerPeakMemory
    seconds: float | None
    partition: float | None
    exchange: float | None
    join: float | None
    overlap: float | None
    join_overlap: float | None
    received_rows: float | None
    result_rows: float | None


@dataclass(frozen=True)
class WorkerPairTraffic:
    """Bytes that one worker sent to another in an iteration, and the seconds in which these were in flight."""

    bytes: float
    seconds: float | None


def complete_launches(run: Run) -> tuple[Launch, ...]:
    """The complete launches of a run, from which its figures are computed; without any, all with a timed iteration.

    A launch that broke off is no whole sample: its iterations stay in the records, and it counts as failed. Of a
    command only complete launches count: one that ended with the wrong status, or failed a check, has no figures.
    """
    measured = tuple(launch for launch in run.launches if launch.timed_iterations)
    complete = tuple(launch for launch in measured if launch.complete)
    return complete if complete or run.plan.command is not None else measured


def median_or_none(values: Iterable[float | None]) -> float | None:
    """The median of the values that are not None; None if there are none."""
    measured = [value for value in values if value is not None]
    return median(measured) if measured else None


def iteration_values(launches: Sequence[Launch], iteration_metric: IterationMetric) -> list[float]:
    """The values of `iteration_metric` in all timed iterations in which it was measured."""
    measured = (iteration_metric(launch, iteration) for launch in launches for iteration in launch.timed_iterations)
    return [number for number in measured if number is not None]


def launch_median(launch: Launch, iteration_metric: IterationMetric) -> float | None:
    """The median of `iteration_metric` over the timed iterations of one launch."""
    return median_or_none(iteration_metric(launch, iteration) for iteration in launch.timed_iterations)


def launch_medians(launches: Sequence[Launch], iteration_metric: IterationMetric) -> list[float]:
    """The median of `iteration_metric` in each launch that has one: the samples for statistics over launches."""
    return [sample for launch in launches if (sample := launch_median(launch, iteration_metric)) is not None]


def run_median(launches: Sequence[Launch], iteration_metric: IterationMetric) -> float | None:
    """The median over launches of the launches' medians of `iteration_metric`."""
    return median_or_none(launch_medians(launches, iteration_metric))


def verification_state(run: Run, counted_launches: Sequence[Launch]) -> VerificationState:
    """Whether the result of `run` was verified in `counted_launches`, from which its figures are computed.

    Wrong, if any check of any launch failed; verified, if every check that the plan asks for was made in every
    launch that counts.
    """
    if any(not check.ok for launch in run.launches for check in launch.verifications):
        return VerificationState.WRONG
    if run.verification_mode == "off":
        return VerificationState.OFF
    if run.is_imported:
        return VerificationState.IMPORTED
    if counted_launches and all(
        _iterations_to_verify(run, launch) <= {c.after for c in launch.verifications} for launch in counted_launches
    ):
        return VerificationState.VERIFIED
    return VerificationState.MISSING


def _iterations_to_verify(run: Run, launch: Launch) -> set[int | None]:
    """The iterations after which the plan asks for a check in `launch`; ``None`` stands for the warm-up."""
    indices = {iteration.index for iteration in launch.timed_iterations}
    if run.verification_mode == "every":
        return set(indices)
    last = max(indices, default=0)
    warm_up: set[int | None] = {None} if any(iteration.warmup for iteration in launch.iterations) else set()
    return warm_up | {last}


def wall_seconds(launch: Launch, iteration: IterationLine) -> float:
    """Wall-clock seconds of one iteration."""
    return iteration.wall_seconds


def throughput(launch: Launch, iteration: IterationLine) -> float | None:
    """Bytes of both input frames ÷ wall-clock seconds of one iteration; if imported, the rate in its text.

    None for a command, whose bytes are not known.
    """
    if iteration.imported is not None:
        return iteration.imported.throughput_bytes_per_second
    if launch.line is None or launch.is_of_command:
        return None
    return data_rate(launch.line.data_bytes, iteration.wall_seconds)


def command_metric(metric_name: str) -> IterationMetric:
    """A function that gives the value of a command's metric in one iteration; the wall-clock is no such metric."""
    return lambda launch, iteration: iteration.values.get(metric_name)


def data_rate(data_bytes: int, wall_seconds: float) -> float | None:
    """Bytes per second: bytes of all chunks of both input frames ÷ wall-clock seconds; None if the time is 0."""
    return data_bytes / wall_seconds if wall_seconds > 0 else None


def phase_seconds(phase: str) -> IterationMetric:
    """A function that gives the seconds of `phase` in an iteration, on the worker for which the phase took longest."""
    return lambda launch, iteration: max_or_none(
        getattr(each.phases_seconds, phase, None) for each in iteration.workers
    )


def sum_of_both_frames(counts: FrameCounts | None) -> int | None:
    """The sum of the bytes or rows of the left and the right frame; None if they were not measured."""
    return None if counts is None else counts.left + counts.right


def which_frames_were_sent(workers: Iterable[WorkerIteration]) -> tuple[bool, bool]:
    """Whether any worker sent rows of the left frame, and whether any sent rows of the right frame.

    A broadcast sends only one of the two.
    """
    sent = [worker.sent_bytes for worker in workers if worker.sent_bytes is not None]
    return any(each.left > 0 for each in sent), any(each.right > 0 for each in sent)


def worker_bandwidth(worker: WorkerIteration, sent_frames: tuple[bool, bool] = (True, True)) -> BandwidthsByFrame:
    """The bandwidth of one worker in one iteration: of the left frame, of the right one, and their mean.

    Of a frame: bytes sent to other workers ÷ seconds in which its transfers were in flight; None if the worker sent
    nothing, as a 0 would pull the harmonic mean over workers to 0. `sent_frames`: whether the iteration sends the left
    frame, and whether the right one. The mean is over the sent frames; None if one of these has no bandwidth.
    """
    sent, flight = worker.sent_bytes, worker.flight_seconds
    if sent is None or flight is None:
        return BandwidthsByFrame(None, None, None)
    left = sent.left / flight.left if sent.left > 0 and flight.left > 0 else None
    right = sent.right / flight.right if sent.right > 0 and flight.right > 0 else None
    rates = [rate for rate, was_sent in zip((left, right), sent_frames, strict=True) if was_sent]
    measured = [rate for rate in rates if rate is not None]
    return BandwidthsByFrame(
        left, right, sum(measured) / len(measured) if measured and len(measured) == len(rates) else None
    )


def _worker_bandwidths(iteration: IterationLine) -> list[float]:
    """The bandwidths of the workers in one iteration, each the mean over frames; those without a bandwidth left out."""
    frames = which_frames_were_sent(iteration.workers)
    means = (worker_bandwidth(worker, frames).mean for worker in iteration.workers)
    return [mean for mean in means if mean is not None]


def iteration_bandwidth(iteration: IterationLine) -> float | None:
    """Bytes per second of one iteration: harmonic mean over the workers; if imported, the bandwidth in its text."""
    if iteration.imported is not None:
        return iteration.imported.bandwidth_bytes_per_second
    bandwidths = _worker_bandwidths(iteration)
    return harmonic_mean(bandwidths) if bandwidths else None


def bandwidth(launch: Launch, iteration: IterationLine) -> float | None:
    """Bandwidth of one iteration, as `iteration_bandwidth`: harmonic mean over the workers, in bytes per second."""
    return iteration_bandwidth(iteration)


def slowest_worker_bandwidth(launch: Launch, iteration: IterationLine) -> float | None:
    """Bandwidth of the slowest worker in one iteration, in bytes per second."""
    return min(_worker_bandwidths(iteration), default=None)


def fastest_worker_bandwidth(launch: Launch, iteration: IterationLine) -> float | None:
    """Bandwidth of the fastest worker in one iteration, in bytes per second."""
    return max(_worker_bandwidths(iteration), default=None)


def in_flight_bandwidth(launch: Launch, iteration: IterationLine) -> float | None:
    """Bytes per second while transfers are in flight, as `in_flight_rate`."""
    return in_flight_rate(iteration)


def in_flight_rate(iteration: IterationLine) -> float | None:
    """Bytes per second while transfers are in flight: Σ bytes ÷ Σ seconds in flight, over the workers."""
    sent, seconds = 0, 0.0
    for worker in iteration.workers:
        if worker.sent_bytes is None or worker.flight_seconds is None:
            return None
        sent += worker.sent_bytes.left + worker.sent_bytes.right
        seconds += worker.flight_seconds.union
    return sent / seconds if sent > 0 and seconds > 0 else None


def link_limit_fraction(launch: Launch, iteration: IterationLine) -> float | None:
    """Bandwidth of one iteration's exchange ÷ the link limit of its launch; None for one worker."""
    rate, limit = in_flight_bandwidth(launch, iteration), link_limit([launch])
    return None if rate is None or limit is None or limit <= 0 else rate / limit


def wall_to_link_time_ratio(launch: Launch, iteration: IterationLine) -> float | None:
    """Wall-clock time of an iteration ÷ time that the link needs for the most bytes that a worker sends or receives."""
    limit = link_limit([launch])
    received: Counter[int] = Counter()
    for pair in iteration.pairs:
        received[pair.to_rank] += pair.bytes
    sent = max_or_none(sum_of_both_frames(worker.sent_bytes) for worker in iteration.workers) or 0
    most_bytes = max([sent, *received.values()])
    return iteration.wall_seconds * limit / most_bytes if limit is not None and most_bytes > 0 else None


def computing_share(launch: Launch, iteration: IterationLine) -> float | None:
    """The share of an iteration's wall-clock time spent on partition and join, of the worker with the largest share."""
    phases = [worker.phases_seconds for worker in iteration.workers]
    busy = [(each.partition or 0.0) + (each.join or 0.0) for each in phases if each is not None]
    return max(busy) / iteration.wall_seconds if busy and iteration.wall_seconds > 0 else None


def busy_cores_share(launch: Launch, iteration: IterationLine) -> float | None:
    """Share of a host's cores that its workers keep busy: CPU seconds ÷ (cores × wall-clock time), of the busiest host.

    Where a container's quota is less than these cores, the quota counts. CPU seconds include those of moving bytes.
    ``None`` where CPU seconds or cores are not known. The share has no meaning where UCX polls while it waits, as it
    does where phases do not overlap.
    """
    workers = launch.line.workers if launch.line is not None else []
    cores: dict[str, frozenset[int]] = {}
    for worker in workers:
        cores[worker.host] = cores.get(worker.host, frozenset()) | parse_core_list(worker.hardware.affinity or "")
    usable = {host: float(len(its)) for host, its in cores.items()}
    for worker in workers:
        usable[worker.host] = min(usable[worker.host], worker.hardware.cpu_quota or usable[worker.host])
    used = dict.fromkeys(cores, 0.0)
    hosts = {worker.rank: worker.host for worker in workers}
    for work in iteration.workers:
        if work.cpu_seconds is None or work.rank not in hosts:
            return None
        used[hosts[work.rank]] += work.cpu_seconds
    if not iteration.workers or iteration.wall_seconds <= 0 or not all(cores.values()):
        return None
    return max(seconds / (usable[host] * iteration.wall_seconds) for host, seconds in used.items())


def one_row_merge_seconds(launches: Sequence[Launch]) -> float | None:
    """Seconds of a merge of one row of each frame per worker: median of a launch's merges, median over launches."""
    by_launch = []
    for launch in launches:
        workers = [each.one_row_merge_seconds for each in launch.memory.workers] if launch.memory is not None else []
        by_launch.append(median_or_none(map(max, zip(*workers, strict=False))))
    return median_or_none(by_launch)


def worker_memory_copy_rate(memory: WorkerMemory) -> float | None:
    """Bytes per second that a worker read and wrote in its fastest round of copying memory; ``None``: not measured."""
    fastest_seconds = min(memory.copy_seconds, default=0.0)
    return memory.copied_bytes / fastest_seconds if memory.copied_bytes and fastest_seconds > 0 else None


def memory_copy_rate_fractions(
    iteration: IterationLine, worker_memory: Sequence[WorkerMemory], row_bytes: float
) -> tuple[float | None, float | None]:
    """The shares of the memory's copy rate that the partition and the join of one iteration reached.

    Partition and join are taken to move every byte once. A share is the time that the least bytes need at the copy
    rate, on the worker for which that takes longest, ÷ the longest time of the phase. A partition
    reads its input, and writes what of it is received: rows with null keys are not. A join reads the rows that it
    received and writes those of the result, here taken to be as wide as the input's `row_bytes` on average, though they
    are wider. A worker without rows of its own joins at the others' rate. ``None`` where something was not measured.
    """
    inputs = {each.rank: each.input_bytes for each in worker_memory}
    rates = {each.rank: rate for each in worker_memory if (rate := worker_memory_copy_rate(each)) is not None}
    workers = [(each, each.received_rows, each.result_rows, each.phases_seconds) for each in iteration.workers]
    if not rates or not workers:
        return None, None
    usual_rate = harmonic_mean(list(rates.values()))
    received = sum(rows.left + rows.right for _, rows, _, _ in workers if rows is not None)
    everything = sum(each or 0 for each in inputs.values())
    sent = min(1.0, received * row_bytes / everything) if everything else 0.0
    least_seconds: list[tuple[float, float]] = []
    taken_seconds: list[tuple[float, float]] = []
    for worker, rows, result, phases in workers:
        size = inputs.get(worker.rank)
        rate = rates.get(worker.rank, None if size else usual_rate)
        if rate is None or size is None or rows is None or result is None or phases is None:
            return None, None
        least_seconds.append(((1 + sent) * size / rate, (rows.left + rows.right + result) * row_bytes / rate))
        taken_seconds.append((phases.partition or 0.0, phases.join or 0.0))
    needed, took = ([max(each) for each in zip(*values, strict=True)] for values in (least_seconds, taken_seconds))
    partition, join = (need / time if time > 0 else None for need, time in zip(needed, took, strict=True))
    return partition, join


def link_limit_of_rounds(sent_bytes: Sequence[int], round_seconds: Sequence[Sequence[float]]) -> float | None:
    """The link limit of a worker in bytes per second: the median of the five fastest rounds of the measurement.

    `sent_bytes`: bytes that each worker sends to others in a round; `round_seconds`: for every round, the seconds in
    which each worker's transfers were in flight. The fastest rounds count, because disturbances only slow transfers.
    Bytes and seconds are summed over the workers, so the limit is the rate of a worker on average, comparable with
    `in_flight_bandwidth`. None if nothing was sent (one worker) or no round was made.
    """
    rates = _link_round_rates(sent_bytes, round_seconds)[-FASTEST:]
    return median(rates) if rates else None


def _link_round_rates(sent_bytes: Sequence[int], round_seconds: Sequence[Sequence[float]]) -> list[float]:
    """The bytes per second of each round of the link measurement, the slowest first; [] if nothing was sent."""
    total = sum(sent_bytes)
    return sorted(total / sum(seconds) for seconds in round_seconds if sum(seconds) > 0) if total > 0 else []


def exchange_to_limit_ratio(
    exchange_rates: Sequence[float], sent_bytes: Sequence[int], round_seconds: Sequence[Sequence[float]]
) -> float | None:
    """The rate that as large a share of the exchanges reached as rounds reached the link limit, ÷ that limit.

    `exchange_rates`: `in_flight_rate` of each iteration; `sent_bytes`, `round_seconds`: as of `link_limit_of_rounds`.
    The limit is the rate of the third fastest of n rounds (the median of the five fastest): a share 3/n of the rounds
    reaches it. An exchange sends the same messages and may wait besides; so, without a disturbance, at most this share
    of the exchanges reaches the limit, and the ratio is at most 1 but for noise. It is the k-th fastest of m exchanges,
    k = ⌈3m/n⌉ and at most the median, that is compared, so that many iterations beside few rounds do not exceed the
    limit by their number. None if there are no exchanges or no rounds.
    """
    limit = link_limit_of_rounds(sent_bytes, round_seconds)
    if limit is None or not exchange_rates:
        return None
    rounds, exchanges = len(_link_round_rates(sent_bytes, round_seconds)), len(exchange_rates)
    counted = (min(rounds, FASTEST) + 1) // 2
    place = min(-(-counted * exchanges // rounds), (exchanges + 1) // 2)
    return sorted(exchange_rates, reverse=True)[place - 1] / limit


def exchange_above_limit(launch: Launch) -> float | None:
    """The `exchange_to_limit_ratio` of one launch; ``None`` without a link limit or exchanges."""
    rates = [rate for each in launch.timed_iterations if (rate := in_flight_rate(each)) is not None]
    return None if launch.link is None else exchange_to_limit_ratio(rates, launch.link.bytes, launch.link.rounds)


def link_limit(launches: Sequence[Launch]) -> float | None:
    """The measured link limit of a worker in bytes per second, median over launches."""
    return median_or_none(launch.link.limit_bytes_per_second for launch in launches if launch.link is not None)


def memory_copy_rate(launches: Sequence[Launch]) -> float | None:
    """Bytes per second at which a worker copies memory while all workers do: mean of a launch, median over launches."""
    by_launch = [
        list(map(worker_memory_copy_rate, launch.memory.workers)) for launch in launches if launch.memory is not None
    ]
    measured = [[rate for rate in rates if rate is not None] for rates in by_launch]
    return median_or_none(harmonic_mean(rates) for rates in measured if rates)


def phase_copy_rate_fraction(phase: Literal["partition", "join"]) -> IterationMetric:
    """A function that gives the share of the memory's copy rate that `phase` reached in an iteration."""

    def copy_rate_fraction(launch: Launch, iteration: IterationLine) -> float | None:
        if launch.memory is None or launch.line is None or not launch.line.rows:
            return None
        row_bytes = launch.line.data_bytes / launch.line.rows
        partition, join = memory_copy_rate_fractions(iteration, launch.memory.workers, row_bytes)
        return partition if phase == "partition" else join

    return copy_rate_fraction


def perftest_link_limit(launches: Sequence[Launch]) -> float | None:
    """The link limit of a worker that `ucx_perftest` measured, in bytes per second, median over launches.

    Measurements with more polling processes than cores are left out.
    """
    checked = [
        [row.bandwidth_bytes_per_second for row in launch.probes if row.probe == "link"]
        for launch in launches
        if not _too_few_cores_reason(launch)
    ]
    return median_or_none(harmonic_mean([rate for rate in rates if rate]) for rates in checked if rates)


def why_link_limit_not_checked(run: Run, launches: Sequence[Launch]) -> str | None:
    """Why the link limit was not checked against ``ucx_perftest``, as a phrase; None if it was."""
    if perftest_link_limit(launches) is not None:
        return None
    if not run.plan.check_link:
        return "not checked against ucx_perftest; use --check-link"
    crowded = next(filter(None, map(_too_few_cores_reason, launches)), None)
    if crowded:
        return f"cannot be checked against ucx_perftest: {crowded}"
    return "the check against ucx_perftest gave no result"


def _too_few_cores_reason(launch: Launch) -> str | None:
    return (
        machine.perftest_core_problem((each.host, each.hardware) for each in launch.line.workers)
        if launch.line
        else None
    )


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
        for iteration in launch.timed_iterations:
            for part in iteration.workers:
                measured.setdefault(part.rank, {}).setdefault(launch.index, []).append(part)
    parts = itertools.chain.from_iterable(each for of_rank in measured.values() for each in of_rank.values())
    frames = which_frames_were_sent(parts)

    def figures_of_rank(rank: int) -> WorkerFigures:
        host, peaks = hosts[rank], memory.get(rank, [])

        def median_over_launches(worker_metric: Callable[[WorkerIteration], float | None]) -> float | None:
            return median_or_none(median_or_none(map(worker_metric, own)) for own in measured.get(rank, {}).values())

        def median_bandwidth(frame: str) -> float | None:
            return median_over_launches(lambda worker: getattr(worker_bandwidth(worker, frames), frame))

        def median_phase_seconds(phase: Phase) -> float | None:
            return median_over_launches(lambda worker: getattr(worker.phases_seconds, phase, None))

        return WorkerFigures(
            rank=rank,
            host=host,
            bandwidth=WorkerBandwidth(
                rank=rank,
                host=host,
                left=median_bandwidth("left"),
                right=median_bandwidth("right"),
                mean=median_bandwidth("mean"),
            ),
            memory=WorkerPeakMemory(
                rank=rank,
                host=host,
                peak=max_or_none(each.peak_bytes for each in peaks),
                above_imports=max_or_none(each.peak_above_imports_bytes for each in peaks),
                device_peak=max_or_none(each.device_peak_bytes for each in peaks),
                device_above_imports=None,  # not measured on a GPU; kept for programs that read it
                input=max_or_none(each.input_bytes for each in peaks),
            ),
            seconds=median_over_launches(lambda worker: worker.seconds),
            partition=median_phase_seconds("partition"),
            exchange=median_phase_seconds("exchange"),
            join=median_phase_seconds("join"),
            overlap=median_over_launches(lambda worker: worker.overlap_seconds),
            join_overlap=median_over_launches(lambda worker: worker.join_overlap_seconds),
            received_rows=median_over_launches(lambda worker: sum_of_both_frames(worker.received_rows)),
            result_rows=median_over_launches(lambda worker: worker.result_rows),
        )

    return tuple(map(figures_of_rank, sorted(hosts)))


def sent_bytes_by_rank(launches: Sequence[Launch]) -> Counter[int]:
    """The bytes that each rank sent to others in all timed iterations, by rank; 0 if a rank had no rows to send."""
    sent: Counter[int] = Counter()
    for launch in launches:
        for iteration in launch.timed_iterations:
            for worker in iteration.workers:
                if worker.sent_bytes is not None:
                    sent[worker.rank] += worker.sent_bytes.left + worker.sent_bytes.right
    return sent


def worker_pair_traffic(launches: Sequence[Launch]) -> dict[tuple[int, int], WorkerPairTraffic]:
    """The bytes and seconds of each pair of workers, by (from rank, to rank): medians over launches and iterations."""
    by_pair: dict[tuple[int, int], dict[int, list[PairTraffic]]] = {}
    for launch in launches:
        for iteration in launch.timed_iterations:
            for pair in iteration.pairs:
                by_pair.setdefault((pair.from_rank, pair.to_rank), {}).setdefault(launch.index, []).append(pair)
    return {
        key: WorkerPairTraffic(
            median([median([pair.bytes for pair in pairs]) for pairs in by_pair[key].values()]),
            median_or_none(median_or_none(pair.seconds for pair in pairs) for pairs in by_pair[key].values()),
        )
        for key in sorted(by_pair)
    }


def max_or_none(values: Iterable[Number | None]) -> Number | None:
    """The greatest of the values that are not None; None if there are none."""
    return max((value for value in values if value is not None), default=None)

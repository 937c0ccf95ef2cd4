"""The numbers that follow from one iteration's record, each with its formula.

A number that was not measured, or that divides by nothing, is ``None``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from merge_bench.analysis import statistics
from merge_bench.host.files import parse_cores
from merge_bench.records.schema import IterationLine, Worker, WorkerIteration, WorkerMemory

OVERLOAD = 1.05
"""A rank is overloaded if it has more than this many times the rows of the other ranks' mean..."""

NOISE = 6.0
"""...and more than this many standard deviations of an even hash (√rows) above it."""

SLOWER = 1.2
"""A rank is a straggler if a phase takes it this many times as long as the others' median..."""

OF_WALL = 0.05
"""...and that costs it at least this share of the time that a worker usually needs."""

SLOW_LINK = 2.0
"""A rank's link is slow if the others exchange this many times as fast among each other as with it."""

FASTEST = 5
"""The link limit is made of this many rounds of its measurement, the fastest ones."""

NEAR_WIRE = 1.1
"""The link limits a merge that takes at most this many times as long as its bytes need on the link."""


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second that one worker sent to others, per frame and over both."""

    left: float | None
    right: float | None
    mean: float | None


@dataclass(frozen=True)
class WorkerTimes:
    """One worker's seconds in each phase, for `find_straggler`.

    ``overlap``: seconds in which partition and exchange overlap; ``join_overlap``: join and exchange.
    """

    partition: float
    exchange: float
    join: float
    overlap: float = 0.0
    join_overlap: float = 0.0


@dataclass(frozen=True)
class Overload:
    """A rank with ``factor`` times the other ranks' mean of ``what``: rows ``received``, or rows of the ``result``."""

    rank: int
    what: str
    rows: float
    factor: float


@dataclass(frozen=True)
class Straggler:
    """The rank that costs the most time: ``seconds`` in ``phase`` against the other ranks' median.

    ``excess``: the seconds by which it holds the others up.
    """

    rank: int
    phase: str
    seconds: float
    others: float
    excess: float

    @property
    def factor(self) -> float:
        """How many times as long as the other ranks' median the phase takes this rank."""
        return self.seconds / self.others if self.others > 0 else float("inf")


@dataclass(frozen=True)
class SlowLink:
    """A rank whose pairs carry ``rate`` bytes per second each, while the other pairs carry ``others``."""

    rank: int
    rate: float
    others: float

    @property
    def factor(self) -> float:
        """How many times as fast the other pairs are."""
        return self.others / self.rate if self.rate > 0 else float("inf")


def frame_bandwidth(sent_bytes: int, flight_seconds: float) -> float | None:
    """Bandwidth of one frame: bytes sent to other workers ÷ seconds in which its transfers were in flight.

    ``None`` for a worker that sent nothing: it has no bandwidth, and a 0 would pull the harmonic mean to 0.
    """
    return sent_bytes / flight_seconds if sent_bytes > 0 and flight_seconds > 0 else None


def frames_sent(workers: Iterable[WorkerIteration]) -> tuple[bool, bool]:
    """Whether any worker sent rows of the left frame, and of the right frame: a broadcast sends only one of them."""
    sent = [worker.sent_bytes for worker in workers if worker.sent_bytes is not None]
    return any(each.left > 0 for each in sent), any(each.right > 0 for each in sent)


def mean_bandwidth(left: float | None, right: float | None, frames: tuple[bool, bool] = (True, True)) -> float | None:
    """The mean bandwidth of the frames that were sent (`frames`: left, right); None if one of these has none."""
    values = [value for value, sent in zip((left, right), frames, strict=True) if sent]
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured and len(measured) == len(values) else None


def worker_bandwidth(worker: WorkerIteration, frames: tuple[bool, bool] = (True, True)) -> Bandwidth:
    """The bandwidth of one worker in one iteration; `frames`: which ones were sent, as `frames_sent` gives them."""
    sent, flight = worker.sent_bytes, worker.flight_seconds
    if sent is None or flight is None:
        return Bandwidth(None, None, None)
    left = frame_bandwidth(sent.left, flight.left)
    right = frame_bandwidth(sent.right, flight.right)
    return Bandwidth(left, right, mean_bandwidth(left, right, frames))


def mean_over_workers(bandwidths: Sequence[float | None]) -> float | None:
    """Harmonic mean of the bandwidths that are not None; None if there are none."""
    measured = [value for value in bandwidths if value is not None]
    return statistics.harmonic_mean(measured) if measured else None


def worker_bandwidths(iteration: IterationLine) -> list[float]:
    """The mean bandwidth over frames of every worker that has one in this iteration."""
    frames = frames_sent(iteration.workers)
    means = (worker_bandwidth(worker, frames).mean for worker in iteration.workers)
    return [mean for mean in means if mean is not None]


def iteration_bandwidth(iteration: IterationLine) -> float | None:
    """Harmonic mean over the workers of their bandwidths; of an imported iteration the value in its text."""
    if iteration.imported is not None:
        return iteration.imported.bandwidth_bytes_per_second
    return mean_over_workers(worker_bandwidths(iteration))


def throughput(data_bytes: int, wall_seconds: float) -> float | None:
    """Data processed ÷ wall: number of chunks × data per chunk ÷ wall, as the 2022 program counts."""
    return data_bytes / wall_seconds if wall_seconds > 0 else None


def link_limit(sent_bytes: Sequence[int], rounds: Sequence[Sequence[float]]) -> float | None:
    """Bytes per second that a worker can send over the link: the median of the five greatest Σ bytes ÷ Σ seconds.

    Parameters
    ----------
    sent_bytes
        What each worker sends to others in a round.
    rounds
        For every round, the seconds each worker's transfers were in flight.

    The fastest rounds count, because what disturbs only slows, and a limit is not exceeded by what it limits. Both sums
    run over the workers, so this is the rate of a worker on average, comparable with `flight_rate`.
    ``None`` if nothing was sent (one worker) or no round was made.
    """
    total = sum(sent_bytes)
    rates = sorted(total / sum(seconds) for seconds in rounds if sum(seconds) > 0)[-FASTEST:]
    return statistics.median(rates) if rates and total > 0 else None


def flight_rate(iteration: IterationLine) -> float | None:
    """Σ bytes of both frames ÷ Σ union of both frames' in-flight intervals, sums over the workers."""
    sent, seconds = 0, 0.0
    for worker in iteration.workers:
        if worker.sent_bytes is None or worker.flight_seconds is None:
            return None
        sent += worker.sent_bytes.left + worker.sent_bytes.right
        seconds += worker.flight_seconds.union
    return sent / seconds if sent > 0 and seconds > 0 else None


def link_fraction(iteration: IterationLine, limit: float | None) -> float | None:
    """Share of the link limit that the exchange reached: `flight_rate` ÷ `limit`; ``None`` for one worker."""
    rate = flight_rate(iteration)
    return None if rate is None or limit is None or limit <= 0 else rate / limit


def wall_over_wire(iteration: IterationLine, limit: float | None) -> float | None:
    """Wall ÷ the time that the link needs: the most bytes that any worker sends or receives ÷ link limit."""
    received: Counter[int] = Counter()
    for pair in iteration.pairs:
        received[pair.to_rank] += pair.bytes
    sent = [worker.sent_bytes.left + worker.sent_bytes.right for worker in iteration.workers if worker.sent_bytes]
    most_bytes = max([*sent, *received.values()], default=0)
    return iteration.wall_seconds * limit / most_bytes if limit is not None and most_bytes > 0 else None


def computing_share(iteration: IterationLine) -> float | None:
    """The largest share of the wall in which any worker partitions or joins; in the rest it exchanges or waits."""
    phases = [worker.phases_seconds for worker in iteration.workers]
    busy = [(each.partition or 0.0) + (each.join or 0.0) for each in phases if each is not None]
    return max(busy) / iteration.wall_seconds if busy and iteration.wall_seconds > 0 else None


def cores_share(iteration: IterationLine, workers: Sequence[Worker]) -> float | None:
    """Σ CPU seconds of a host's workers ÷ (cores that any of them may run on × wall), of the host with the most.

    Where a container's quota is less than these cores, it is what counts. CPU seconds hold what moving bytes costs too.
    ``None`` where they or the cores are not known; of no meaning where UCX polls while it waits, as with phases apart.
    """
    cores: dict[str, frozenset[int]] = {}
    for worker in workers:
        cores[worker.host] = cores.get(worker.host, frozenset()) | parse_cores(worker.hardware.affinity or "")
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


def copy_rate(memory: WorkerMemory) -> float | None:
    """Bytes that a worker read and wrote per second in its fastest round of copying; ``None``: not measured."""
    fastest_seconds = min(memory.copy_seconds, default=0.0)
    return memory.copied_bytes / fastest_seconds if memory.copied_bytes and fastest_seconds > 0 else None


def memory_fractions(
    iteration: IterationLine, memory: Sequence[WorkerMemory], row_bytes: float
) -> tuple[float | None, float | None]:
    """The share of the copy rate that partition and join reached, if they moved each byte once.

    Σ least bytes ÷ copy rate, of the worker for which that takes longest, ÷ the longest time of the phase. A partition
    reads its input, and writes what of it is received: rows with null keys are not. A join reads the rows that it
    received and writes those of the result, here taken to be as wide as the input's `row_bytes` on average, though they
    are wider. A worker without rows of its own joins at the others' rate. ``None`` where something was not measured.
    """
    inputs = {each.rank: each.input_bytes for each in memory}
    rates = {each.rank: rate for each in memory if (rate := copy_rate(each)) is not None}
    workers = [(each, each.received_rows, each.result_rows, each.phases_seconds) for each in iteration.workers]
    if not rates or not workers:
        return None, None
    usual_rate = statistics.harmonic_mean(list(rates.values()))
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


def bottleneck(wall_over_wire: float | None, computing: float | None, cores_used: float | None = None) -> str | None:
    """What limits a merge whose phases overlap: ``link``, ``cores``, or ``None`` where neither does by itself."""
    if wall_over_wire is not None and wall_over_wire <= NEAR_WIRE:
        return "link"
    busy = any(share is not None and share >= 1 / NEAR_WIRE for share in (computing, cores_used))
    return "cores" if busy else None


def find_overloads(received: Mapping[int, float], result: Mapping[int, float]) -> tuple[Overload, ...]:
    """The ranks with clearly more rows than the others, the worst first; each with the count that exceeds most.

    Skewed keys show in the rows that a rank receives, and more in the rows of the result that it has to make.
    """
    worst: dict[int, Overload] = {}
    for what, rows in (("received", received), ("result", result)):
        total = sum(rows.values())
        for rank, own in rows.items():
            others = (total - own) / (len(rows) - 1) if len(rows) > 1 else 0.0
            if others > 0 and own > OVERLOAD * others and own - others > NOISE * others**0.5:
                suspect = Overload(rank, what, own, own / others)
                if rank not in worst or suspect.factor > worst[rank].factor:
                    worst[rank] = suspect
    return tuple(sorted(worst.values(), key=lambda overload: (-overload.factor, overload.rank)))


def find_straggler(times: Mapping[int, WorkerTimes]) -> Straggler | None:
    """The rank that holds the others up most, and in which phase; ``None`` if they are even.

    A rank that is late with its partition makes the others wait in *their* exchange, where each of them then looks
    slow. So time in the exchange counts only as far as the rank also ends its exchange later than the others do.
    """
    if len(times) < 2:
        return None
    usual = _medians_of_others({rank: _exchange_end(own) + own.join - own.join_overlap for rank, own in times.items()})
    exchanged = _medians_of_others({rank: _exchange_end(own) for rank, own in times.items()})
    stragglers: list[Straggler] = []
    for phase in ("partition", "exchange", "join"):
        own_seconds: dict[int, float] = {rank: getattr(own, phase) for rank, own in times.items()}
        for rank, middle in _medians_of_others(own_seconds).items():
            seconds = own_seconds[rank]
            late = _exchange_end(times[rank]) - exchanged[rank]
            excess = seconds - middle if phase != "exchange" else min(seconds - middle, late)
            if excess > OF_WALL * usual[rank] and middle + excess > SLOWER * middle:
                stragglers.append(Straggler(rank, phase, seconds, middle, excess))
    return max(stragglers, key=lambda each: (each.excess, -each.rank), default=None)


def find_slow_link(rates: Mapping[tuple[int, int], float], hosts: Mapping[int, str]) -> SlowLink | None:
    """The rank with which all others exchange far more slowly than among each other.

    All ranks wait for it, so the times of phases do not show it; single pairs do. `rates`: bytes per second by
    (from, to). `hosts`: of each rank; pairs within a host are compared with such pairs only, and pairs of two hosts
    likewise. ``None`` below three ranks, where the rates do not show whose link it is.
    """
    links: list[SlowLink] = []
    for rank in sorted({rank for pair in rates for rank in pair}):
        for within in (False, True):
            alike = {pair: rate for pair, rate in rates.items() if _within_host(pair, hosts) == within}
            own = [rate for pair, rate in alike.items() if rank in pair]
            others = [rate for pair, rate in alike.items() if rank not in pair]
            if own and others and statistics.median(others) > SLOW_LINK * statistics.median(own):
                links.append(SlowLink(rank, statistics.median(own), statistics.median(others)))
    return max(links, key=lambda link: link.factor) if links else None


def _within_host(pair: tuple[int, int], hosts: Mapping[int, str]) -> bool:
    sender, other = (hosts.get(rank) for rank in pair)
    return sender == other


def _medians_of_others(values: Mapping[int, float]) -> dict[int, float]:
    """For every rank the median over the other ranks, from one sorting of them all."""
    ordered = sorted(values.items(), key=lambda item: item[1])
    numbers = [value for _, value in ordered]
    low, high = (len(numbers) - 2) // 2, (len(numbers) - 1) // 2  # the middle of one value fewer

    def without(place: int) -> float:
        return (numbers[low + (place <= low)] + numbers[high + (place <= high)]) / 2

    return {rank: without(place) for place, (rank, _) in enumerate(ordered)}


def _exchange_end(times: WorkerTimes) -> float:
    """Seconds from the opening barrier to the end of the exchange."""
    return times.partition + times.exchange - times.overlap

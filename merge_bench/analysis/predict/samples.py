"""The data of the fit: a few numbers per iteration from the records of a merge, and the shape of its run."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from merge_bench.analysis.aggregate import counted
from merge_bench.analysis.metrics import iteration_bandwidth
from merge_bench.analysis.predict.model import FRAMES, Problem
from merge_bench.records.campaign import Launch, Run
from merge_bench.records.schema import IterationLine, LaunchLine, PairTraffic, Phases, WorkerIteration


@dataclass(frozen=True)
class Shape:
    """What was merged where. `per_host`: workers of each host; `gpu`: the GPUs' name, None without; `name`: for people.

    `overlapped`: whether the exchange ran while something was computed.
    """

    name: str
    per_host: tuple[int, ...]
    rows_per_chunk: float
    row_bytes: float
    gpu: str | None = None
    overlapped: bool = False

    @property
    def workers(self) -> int:
        """W."""
        return sum(self.per_host)

    @property
    def problem(self) -> Problem:
        """The same, as the model takes it."""
        return Problem(self.workers, len(self.per_host), self.rows_per_chunk, self.row_bytes)


@dataclass(frozen=True)
class Transfer:
    """Both frames over one kind of link: `size` bytes in `messages` (of each frame one a peer) took `seconds`."""

    size: float
    messages: int
    seconds: float


@dataclass(frozen=True)
class Sample:
    """One timed iteration, seconds. `partition`, `join`: of the median worker, and `rows` that it joined; `*_spread`:
    variance of their logarithms over workers; `local`, `nic`: the slowest worker's and host's transfers; `meeting`:
    what the exchange took beside them; `overlap`: share of the shorter of exchange and computing that was hidden.
    """

    wall: float
    partition: float
    join: float
    rows: float
    bandwidth: float | None = None
    partition_spread: float | None = None
    join_spread: float | None = None
    local: Transfer | None = None
    nic: Transfer | None = None
    meeting: float | None = None
    overlap: float | None = None


@dataclass(frozen=True)
class Measured:
    """A run: its shape, and its samples by launch. `uneven`: the rows of the fullest worker ÷ the mean, at most.

    `limit`: what the link measurement found, bytes per second: of the fullest host's link if there are several hosts,
    else of a worker's transfers within the host; None without a measurement.
    """

    shape: Shape
    launches: tuple[tuple[Sample, ...], ...]
    uneven: float = 1.0
    limit: float | None = None

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """Those of all launches."""
        return tuple(sample for launch in self.launches for sample in launch)


def measured(name: str, run: Run) -> Measured | None:
    """The samples of a run; None if no launch has the phases of its workers."""
    found: list[tuple[Shape, tuple[Sample, ...]]] = []
    uneven = 1.0
    for launch in counted(run):
        if launch.line is None or not launch.line.workers:
            continue
        timed = [iteration for iteration in launch.timed if _complete(iteration)]
        if timed:
            overlapped = bool(run.plan.pipeline) or any(
                worker.overlap_seconds for iteration in timed for worker in iteration.workers
            )
            hosts = {worker.rank: worker.host for worker in launch.line.workers}
            shape = _shape(name, launch.line, hosts, overlapped=overlapped)
            found.append((shape, tuple(_sample(launch, iteration, hosts, shape) for iteration in timed)))
            uneven = max(uneven, *(_uneven(iteration, shape) for iteration in timed))
    if not found:
        return None
    shape = found[0][0]
    return Measured(shape, tuple(samples for each, samples in found if each == shape), uneven, _limit(run, shape))


def _limit(run: Run, shape: Shape) -> float | None:
    """`Measured.limit`. Of a worker's bytes, (W - w) ÷ (W - 1) leave a host of w workers."""
    limits = [launch.link.limit_bytes_per_second for launch in counted(run) if launch.link is not None]
    known = [limit for limit in limits if limit]
    if not known:
        return None
    most = max(shape.per_host)
    several = most * (shape.workers - most) / (shape.workers - 1) if len(shape.per_host) > 1 else 1.0
    return statistics.median(known) * several


def _complete(iteration: IterationLine) -> bool:
    """Whether all phases of all workers are recorded."""
    return bool(iteration.workers) and all(
        worker.phases_seconds is not None
        and None not in (worker.phases_seconds.partition, worker.phases_seconds.exchange, worker.phases_seconds.join)
        for worker in iteration.workers
    )


def _shape(name: str, line: LaunchLine, hosts: Mapping[int, str], *, overlapped: bool) -> Shape:
    per_host = tuple(sorted(Counter(hosts.values()).values(), reverse=True))
    return Shape(
        name=name,
        per_host=per_host,
        rows_per_chunk=line.rows / FRAMES / len(hosts),
        row_bytes=line.data_bytes / line.rows if line.rows else 0.0,
        gpu=_gpu(line),
        overlapped=overlapped,
    )


def _gpu(line: LaunchLine) -> str | None:
    """The name of the GPUs, if the workers have one kind of them."""
    names = {gpu.name for worker in line.workers for gpu in worker.hardware.gpus or () if gpu.name}
    return names.pop() if len(names) == 1 else None


def _sample(launch: Launch, iteration: IterationLine, hosts: Mapping[int, str], shape: Shape) -> Sample:
    phases = [(worker, worker.phases_seconds) for worker in iteration.workers if worker.phases_seconds is not None]
    partitions = [each.partition or 0.0 for _, each in phases]
    joins = [each.join or 0.0 for _, each in phases]
    local, nic = _from_rounds(launch, shape) if shape.overlapped else _from_pairs(iteration.pairs, hosts)
    flights = [worker.flight_seconds.union for worker, _ in phases if worker.flight_seconds is not None]
    exchanges = [each.exchange or 0.0 for _, each in phases]
    waits = [exchange - flight for exchange, flight in zip(exchanges, flights, strict=False)]
    return Sample(
        wall=iteration.wall_seconds,
        partition=_typical(partitions),
        join=_typical(joins),
        rows=statistics.median(_received(worker, shape) for worker, _ in phases) or FRAMES * shape.rows_per_chunk,
        bandwidth=iteration_bandwidth(iteration),
        partition_spread=_log_variance(partitions),
        join_spread=_log_variance(joins),
        local=local,
        nic=nic,
        meeting=max(min(waits), 0.0) if waits and shape.workers > 1 and not shape.overlapped else None,
        overlap=statistics.median(_hidden(worker, each) for worker, each in phases) if shape.workers > 1 else None,
    )


def _uneven(iteration: IterationLine, shape: Shape) -> float:
    """Rows that the fullest worker received ÷ the mean."""
    received = [_received(worker, shape) for worker in iteration.workers]
    return max(received) * len(received) / sum(received) if sum(received) else 1.0


def _received(worker: WorkerIteration, shape: Shape) -> float:
    rows = worker.received_rows
    return FRAMES * shape.rows_per_chunk if rows is None else rows.left + rows.right


def _typical(seconds: Sequence[float]) -> float:
    """The median, of two middle values their geometric mean: the arithmetic one is above a log-normal's median."""
    return math.sqrt(statistics.median_low(seconds) * statistics.median_high(seconds))


def _log_variance(seconds: Sequence[float]) -> float | None:
    """Unbiased variance of the logarithms over workers, None for one worker."""
    logs = [math.log(each) for each in seconds if each > 0]
    return statistics.variance(logs) if len(logs) > 1 else None


def _hidden(worker: WorkerIteration, phases: Phases) -> float:
    """What the phases' sum exceeds the worker's time by, as a share of the shorter side, to a millionth."""
    computing, exchange = (phases.partition or 0.0) + (phases.join or 0.0), phases.exchange or 0.0
    shorter = min(computing, exchange)
    hidden = (computing + exchange - worker.seconds) / shorter if shorter > 0 else 0.0
    return round(min(max(hidden, 0.0), 1.0), 6)


def _from_pairs(pairs: Sequence[PairTraffic], hosts: Mapping[int, str]) -> tuple[Transfer | None, Transfer | None]:
    """The slowest worker's transfers from its own host, and the slowest host's from all others.

    `pairs` have the bytes of both frames, and the seconds until the last of them arrived, summed over the frames; so
    a worker that receives from several is done when the slowest pair is.
    """
    local: dict[object, list[PairTraffic]] = {}
    far: dict[object, list[PairTraffic]] = {}
    for pair in pairs:
        same = hosts[pair.from_rank] == hosts[pair.to_rank]
        (local.setdefault(pair.to_rank, []) if same else far.setdefault(hosts[pair.to_rank], [])).append(pair)
    return _slowest(local), _slowest(far)


def _slowest(groups: Mapping[object, Sequence[PairTraffic]]) -> Transfer | None:
    found = []
    for pairs in groups.values():
        seconds = [pair.seconds for pair in pairs if pair.seconds]
        if seconds:
            receivers = len({pair.to_rank for pair in pairs})
            size = sum(pair.bytes for pair in pairs)
            found.append(Transfer(size, FRAMES * len(pairs) // receivers, max(seconds)))
    return max(found, key=lambda each: each.seconds, default=None)


def _from_rounds(launch: Launch, shape: Shape) -> tuple[Transfer | None, Transfer | None]:
    """The same from the link measurement, which computes nothing beside. Of several hosts it is taken for the time of
    the hosts' links: transfers within a host are done before.
    """
    link = launch.link
    if link is None or not link.rounds or not sum(link.bytes):
        return None, None
    seconds = statistics.median(max(one) for one in link.rounds)
    most, size = max(shape.per_host), sum(link.bytes) / shape.workers
    if len(shape.per_host) == 1:
        return Transfer(size, FRAMES * (most - 1), seconds), None
    far = shape.workers - most
    return None, Transfer(size * most * far / (shape.workers - 1), FRAMES * far, seconds)

"""Finds what a forecast is made of in stored campaigns: samples of iterations, and rates of links."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from merge_bench.analysis.aggregate import complete_launches
from merge_bench.analysis.host_load import busy_host
from merge_bench.analysis.metrics import iteration_bandwidth
from merge_bench.analysis.statistics import median
from merge_bench.analysis.verification_state import State, state_of
from merge_bench.errors import UsageError, WrongResult
from merge_bench.merge.exchange import planes_with, recorded_plane
from merge_bench.predict.model import FRAMES, Problem, Values
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.placements import ONE_HOST, TWO_HOSTS
from merge_bench.records.schema import IterationLine, LaunchLine, PairTraffic, Phases, ProbeLine, WorkerIteration

LINKS: Mapping[str, str] = {ONE_HOST: "local", TWO_HOSTS: "nic"}
LATENCY, BANDWIDTH = "tag_lat", "tag_bw"
SMALL = 1024
"""Bytes: latency and overhead are taken from messages up to this size."""


def links_of(lines: Sequence[ProbeLine]) -> dict[str, float]:
    """The parameters of each kind of link, from tag messages: the latency of the smallest message, one way; the seconds
    between two of the smallest messages under way together; and the rate of the largest ones, one way.
    """
    parameters: dict[str, float] = {}
    for placement, link in LINKS.items():
        own = [line for line in lines if line.placement == placement]
        latency = _smallest([(line.size, line.seconds) for line in own if line.test == LATENCY])
        pace = _smallest([(line.size, line.messages_per_second) for line in own if line.test == BANDWIDTH])
        rates = [(line.size, line.bandwidth_bytes_per_second) for line in own if line.test == BANDWIDTH]
        if latency is not None:
            parameters[f"{link}_latency"] = latency
        if pace:
            parameters[f"{link}_overhead"] = 1 / pace
        if rates:
            largest = max(size for size, _ in rates)
            largest_rates = [rate for size, rate in rates if size == largest and rate]
            parameters |= {f"{link}_rate": median(largest_rates)} if largest_rates else {}
    return parameters


def _smallest(rows: Sequence[tuple[int, float | None]]) -> float | None:
    """The median of the smallest size; None where that is not small."""
    sizes = [size for size, value in rows if value is not None]
    if not sizes or min(sizes) > SMALL:
        return None
    return median([value for size, value in rows if size == min(sizes) and value is not None])


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
    by_launch: list[tuple[Shape, tuple[Sample, ...]]] = []
    uneven = 1.0
    for launch in complete_launches(run):
        if launch.line is None or not launch.line.workers:
            continue
        timed = [iteration for iteration in launch.timed if _complete(iteration)]
        if timed:
            overlapped = bool(run.plan.pipeline) or any(
                worker.overlap_seconds for iteration in timed for worker in iteration.workers
            )
            hosts = {worker.rank: worker.host for worker in launch.line.workers}
            shape = _shape(name, launch.line, hosts, overlapped=overlapped)
            by_launch.append((shape, tuple(_sample(launch, iteration, hosts, shape) for iteration in timed)))
            uneven = max(uneven, *(_uneven(iteration, shape) for iteration in timed))
    if not by_launch:
        return None
    shape = by_launch[0][0]
    return Measured(shape, tuple(samples for each, samples in by_launch if each == shape), uneven, _limit(run, shape))


def _limit(run: Run, shape: Shape) -> float | None:
    """`Measured.limit`. Of a worker's bytes, (W - w) ÷ (W - 1) leave a host of w workers."""
    limits = [launch.link.limit_bytes_per_second for launch in complete_launches(run) if launch.link is not None]
    measured = [limit for limit in limits if limit]
    if not measured:
        return None
    most = max(shape.per_host)
    several = most * (shape.workers - most) / (shape.workers - 1) if len(shape.per_host) > 1 else 1.0
    return statistics.median(measured) * several


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
    transfers = []
    for pairs in groups.values():
        seconds = [pair.seconds for pair in pairs if pair.seconds]
        if seconds:
            receivers = len({pair.to_rank for pair in pairs})
            size = sum(pair.bytes for pair in pairs)
            transfers.append(Transfer(size, FRAMES * len(pairs) // receivers, max(seconds)))
    return max(transfers, key=lambda each: each.seconds, default=None)


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


UNEVEN = 1.2
"""A worker that received more than this many times the mean of rows gets a note."""


@dataclass(frozen=True)
class Probed:
    """Parameters of links from network measurements: `values` of all launches together, `of_launches` of each alone."""

    values: Values = field(default_factory=dict)
    of_launches: tuple[Values, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class Measurements:
    """What a forecast is made from. `notes`: its weaknesses, as sentences."""

    runs: tuple[Measured, ...]
    probed: Probed
    engine: str
    config: str
    notes: tuple[str, ...]


def gather(campaigns: Sequence[Campaign], config: str | None) -> Measurements:
    """The runs of sampled config, and the network measurements.

    Raises UsageError if there is no run that a forecast can rest on, or several that do not belong together;
    WrongResult if a run's result was wrong.
    """
    for index, campaign in enumerate(campaigns):
        if any(campaign.records.samefile(other.records) for other in campaigns[:index]):
            raise UsageError(f"{campaign.folder} is named twice; name each result once")
    merges = [(campaign, run) for campaign in campaigns if not campaign.probe for run in campaign.runs]
    chosen = _of_config(merges, config)
    measurements: list[Measured] = []
    notes: list[str] = []
    for campaign, run in chosen:
        _refuse(campaign, run)
        name = campaign.folder.name
        sampled = measured(name, run)
        if sampled is None:
            raise UsageError(
                f"{campaign.folder} cannot be used for a forecast: it lacks phase times of some workers; name"
                " another RESULT"
            )
        if not sampled.shape.rows_per_chunk or not sampled.shape.row_bytes:
            raise UsageError(f"{campaign.folder} merged no rows, so nothing can be forecast from it")
        measurements.append(sampled)
        if sampled.uneven > UNEVEN:
            notes.append(
                f"In {name}, one worker received {sampled.uneven:.1f} times the mean number of rows. The model spreads "
                "rows evenly, so its forecasts are too fast for such skewed keys."
            )
        notes += [f"Warning: {name} was measured on a busy host: {each.message}." for each in busy_host(campaign)]
        state = state_of(run, complete_launches(run))
        if state is State.WRONG:
            raise WrongResult(f"{campaign.folder}: the merge result was wrong, so nothing is forecast from it")
        if state is not State.VERIFIED:
            notes.append(f"{name} is not verified; its merge result may be wrong.")
    engine = _agreed("engine", [str(run.plan.engine) for _, run in chosen])
    _agreed("--pipeline", [str(sampled.shape.overlapped) for sampled in measurements if sampled.shape.workers > 1])
    used = chosen[0][1].config.name
    probed = _probed(campaigns, used, notes)
    return Measurements(tuple(measurements), probed, engine, used, tuple(dict.fromkeys(notes)))


def _of_config(merges: Sequence[tuple[Campaign, Run]], config: str | None) -> list[tuple[Campaign, Run]]:
    if not merges:
        raise UsageError("a forecast needs a measured merge, but got only network measurements; add a RESULT of `run`")
    names = list(dict.fromkeys(run.config.name for _, run in merges))
    if config is None and len(names) > 1:
        raise UsageError(
            f"the results were measured with several configs; choose one with --config: {', '.join(names)}"
        )
    chosen = [(campaign, run) for campaign, run in merges if config in (None, run.config.name)]
    if not chosen:
        raise UsageError(f"--config {config}: there are no results for this config, only for {', '.join(names)}")
    return chosen


def _refuse(campaign: Campaign, run: Run) -> None:
    """Refuse what the model does not describe."""
    folder = campaign.folder
    if run.imported:
        raise UsageError(
            f"{folder} cannot be used for a forecast: imported results have no phase times; use a RESULT of `run`"
        )
    if not recorded_plane(run.plan.exchange).by_workers:
        raise UsageError(
            f"{folder} cannot be used for a forecast: it was measured with --exchange {run.plan.exchange}; use a RESULT"
            f" of --exchange {planes_with(lambda plane: plane.by_workers)}"
        )
    if run.plan.how not in (None, "inner"):
        raise UsageError(
            f"{folder} cannot be used for a forecast: it was measured with --how {run.plan.how}; use a RESULT of"
            " --how inner"
        )
    if run.plan.distribution == "broadcast":
        raise UsageError(
            f"{folder} cannot be used for a forecast: it was measured with a broadcast of the {run.plan.broadcast_side}"
            " table; use a RESULT of --distribution shuffle"
        )
    if run.plan.runtime_filter:
        raise UsageError(
            f"{folder} cannot be used for a forecast: it was measured with --runtime-filter on; use a RESULT of"
            " --runtime-filter off"
        )
    workload = run.plan.workload
    if workload and workload.zipf:
        raise UsageError(
            f"{folder} cannot be used for a forecast: it has skewed keys (zipf:{workload.zipf}); use a RESULT with"
            " --skew none"
        )


def _agreed(what: str, words: Sequence[str]) -> str:
    names = list(dict.fromkeys(words))
    if len(names) > 1:
        raise UsageError(f"the results differ in {what} ({', '.join(names)}); give only results with the same {what}")
    return names[0] if names else ""


def _probed(campaigns: Sequence[Campaign], config: str, notes: list[str]) -> Probed:
    """From network measurements under `config`; from all of them, if they were made under one other config."""
    by_config: dict[str, list[tuple[Campaign, Launch]]] = {}
    for campaign in campaigns:
        if campaign.probe and campaign.probe != "p2p":
            raise UsageError(
                f"{campaign.folder} cannot be used for a forecast: it contains results of `probe {campaign.probe}`;"
                " use results of `probe p2p`"
            )
        for launch in campaign.standing if campaign.probe else ():
            if launch.probes and launch.line is not None:
                by_config.setdefault(launch.line.config, []).append((campaign, launch))
    if not by_config:
        return Probed()
    names = ", ".join(by_config)
    if config not in by_config and len(by_config) > 1:
        raise UsageError(
            f"the merges use {config}, but the network was measured with {names}; add a RESULT of `probe p2p` with"
            f" {config}"
        )
    if config not in by_config:
        notes.append(f"The network was measured with {names}, but the merges with {config}; their settings may differ.")
    chosen = by_config.get(config) or next(iter(by_config.values()))
    values = links_of([line for _, launch in chosen for line in launch.probes])
    of_launches = (links_of(launch.probes) for _, launch in chosen)
    whole = [links for links in of_launches if links.keys() == values.keys()]
    origin = ", ".join(dict.fromkeys(campaign.folder.name for campaign, _ in chosen))
    return Probed(values, tuple(whole) or (values,), origin) if values else Probed()

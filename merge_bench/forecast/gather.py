"""Finds what a forecast is made of in stored campaigns: samples of iterations, and rates of links."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from merge_bench.analysis.aggregate import (
    VerificationState,
    complete_launches,
    iteration_bandwidth,
    link_limit,
    verification_state,
)
from merge_bench.analysis.diagnostics import busy_host_warnings
from merge_bench.analysis.statistics import median
from merge_bench.errors import UsageError, WrongResult
from merge_bench.forecast.model import FRAMES, MergeScenario, ParameterValues, WorkerCores
from merge_bench.host.description import Hardware
from merge_bench.host.kernel_files import parse_core_list
from merge_bench.merge.engines import engine_descriptions
from merge_bench.merge.exchange import find_recorded_plane, format_plane_names
from merge_bench.records import ONE_HOST, TWO_HOSTS
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.schema import IterationLine, PairTraffic, PhaseSeconds, ProbeLine, Worker, WorkerIteration

LINKS: Mapping[str, str] = {ONE_HOST: "local", TWO_HOSTS: "nic"}
LATENCY, BANDWIDTH = "tag_lat", "tag_bw"
SMALL = 1024
"""Bytes: latency and overhead are taken from messages up to this size."""


def link_parameters_of_probe(lines: Sequence[ProbeLine]) -> dict[str, float]:
    """Compute latency, overhead and rate of each kind of link from the rows of `probe p2p` (tag messages, one way).

    Latency of the smallest message; overhead: seconds between two of the smallest messages under way together; rate of
    the largest messages.
    """
    parameters: dict[str, float] = {}
    for placement, link in LINKS.items():
        rows = [line for line in lines if line.placement == placement]
        latency = _median_at_smallest_size([(line.size, line.seconds) for line in rows if line.test == LATENCY])
        pace = _median_at_smallest_size(
            [(line.size, line.messages_per_second) for line in rows if line.test == BANDWIDTH]
        )
        rates = [(line.size, line.bandwidth_bytes_per_second) for line in rows if line.test == BANDWIDTH]
        if latency is not None:
            parameters[f"{link}_latency"] = latency
        if pace:
            parameters[f"{link}_overhead"] = 1 / pace
        if rates:
            largest = max(size for size, _ in rates)
            largest_rates = [rate for size, rate in rates if size == largest and rate]
            parameters |= {f"{link}_rate": median(largest_rates)} if largest_rates else {}
    return parameters


def _median_at_smallest_size(values_by_size: Sequence[tuple[int, float | None]]) -> float | None:
    """The median value at the smallest message size; None if that size is above `SMALL`.

    `values_by_size`: pairs of a message size in bytes and a value.
    """
    sizes = [size for size, value in values_by_size if value is not None]
    if not sizes or min(sizes) > SMALL:
        return None
    return median([value for size, value in values_by_size if size == min(sizes) and value is not None])


@dataclass(frozen=True)
class MergeShape:
    """The number of workers, hosts and rows of a measured merge.

    `name`: the result's name. `per_host`: the number of workers on each host. `gpu`: the name of the workers' GPUs.
    `overlapped`: whether the exchange ran while something was computed. `host_cores`: cores that the workers of the
    fullest host shared, or would have shared with as many for each worker as on the host with the fewest for each;
    infinite if they are not known or GPUs merged.
    """

    name: str
    per_host: tuple[int, ...]
    rows_per_chunk: float
    row_bytes: float
    gpu: str | None = None
    overlapped: bool = False
    host_cores: float = math.inf

    @property
    def worker_cores(self) -> WorkerCores:
        """The cores that a worker of the fullest host had."""
        return WorkerCores.share(self.host_cores, max(self.per_host))

    @property
    def workers(self) -> int:
        """The number of workers of the merge."""
        return sum(self.per_host)

    @property
    def scenario(self) -> MergeScenario:
        """The model's scenario with the workers, hosts and rows of this merge."""
        return MergeScenario(self.workers, len(self.per_host), self.rows_per_chunk, self.row_bytes)


@dataclass(frozen=True)
class LinkTransfer:
    """The transfer of both frames over one kind of link: `size` bytes in `messages` messages took `seconds`.

    `messages`: one for each frame and peer.
    """

    size: float
    messages: int
    seconds: float


@dataclass(frozen=True)
class IterationSample:
    """One timed iteration of a merge, as the model is fitted to it; all times are seconds.

    `partition`, `join`: of the median worker, and `rows` that it joined; `*_spread`: variance of their logarithms over
    workers; `local`, `nic`: the slowest worker's and host's transfers; `meeting`: what the exchange took besides them;
    `overlap`: share of the shorter of exchange and computing that was hidden.
    """

    wall: float
    partition: float
    join: float
    rows: float
    bandwidth: float | None = None
    partition_spread: float | None = None
    join_spread: float | None = None
    local: LinkTransfer | None = None
    nic: LinkTransfer | None = None
    meeting: float | None = None
    overlap: float | None = None


@dataclass(frozen=True)
class MeasuredRun:
    """A measured run, as the model is fitted to it: its shape, and samples of its iterations by launch.

    `uneven`: most rows of a worker ÷ the mean. `limit`: what the link measurement found, bytes per second: of the
    fullest host's link if there are several hosts, else of a worker's transfers within the host; None without a
    measurement.
    """

    shape: MergeShape
    launches: tuple[tuple[IterationSample, ...], ...]
    uneven: float = 1.0
    limit: float | None = None

    @cached_property
    def samples(self) -> tuple[IterationSample, ...]:
        """The samples of the iterations of all launches."""
        return tuple(sample for launch in self.launches for sample in launch)


def make_measured_run(result_name: str, run: Run) -> MeasuredRun | None:
    """Take the samples of a recorded run's iterations; None if no launch has recorded all phases of its workers."""
    by_launch: list[tuple[MergeShape, tuple[IterationSample, ...]]] = []
    on_gpus = any(engine.device_memory for engine in engine_descriptions() if engine.name == run.plan.engine)
    uneven = 1.0
    for launch in complete_launches(run):
        line, timed = launch.line, [iteration for iteration in launch.timed_iterations if _has_all_phases(iteration)]
        if line is None or not line.workers or not timed:
            continue
        hosts = {worker.rank: worker.host for worker in line.workers}
        gpus = {gpu.name for worker in line.workers for gpu in worker.hardware.gpus or () if gpu.name and on_gpus}
        overlaps = (worker.overlap_seconds for iteration in timed for worker in iteration.workers)
        shape = MergeShape(
            name=result_name,
            per_host=tuple(sorted(Counter(hosts.values()).values(), reverse=True)),
            rows_per_chunk=line.rows / FRAMES / len(hosts),
            row_bytes=line.data_bytes / line.rows if line.rows else 0.0,
            gpu=next(iter(gpus)) if len(gpus) == 1 else None,
            overlapped=bool(run.plan.pipeline) or any(overlaps),
            host_cores=math.inf if gpus else cores_of_fullest_host(line.workers),
        )
        by_launch.append((shape, tuple(_make_iteration_sample(launch, iteration, hosts, shape) for iteration in timed)))
        for iteration in timed:
            received = [_received_rows(worker, shape) for worker in iteration.workers]
            uneven = max(uneven, max(received) * len(received) / sum(received) if sum(received) else 1.0)
    if not by_launch:
        return None
    shape = by_launch[0][0]
    limit = link_limit(complete_launches(run))
    if limit and len(shape.per_host) > 1:  # of a worker's bytes, (W - w) ÷ (W - 1) leave a host of w workers
        most = max(shape.per_host)
        limit *= most * (shape.workers - most) / (shape.workers - 1)
    return MeasuredRun(shape, tuple(samples for each, samples in by_launch if each == shape), uneven, limit or None)


def cores_of_fullest_host(workers: Sequence[Worker]) -> float:
    """The cores of the fullest host, with as many for each worker as where a worker has the fewest.

    Cores that the workers of a host may use together; a container's quota of CPU time counts if it is less. Infinite if
    they are not recorded.
    """
    by_host: dict[str, list[Hardware]] = {}
    for worker in workers:
        by_host.setdefault(worker.host, []).append(worker.hardware)
    fullest = max(map(len, by_host.values()))
    return min(
        min(
            len(frozenset[int]().union(*(parse_core_list(each.affinity or "") for each in described))) or math.inf,
            min((each.cpu_quota for each in described if each.cpu_quota), default=math.inf),
        )
        * fullest
        / len(described)
        for described in by_host.values()
    )


def _has_all_phases(iteration: IterationLine) -> bool:
    """Whether partition, exchange and join of every worker are recorded in an iteration."""
    phases = [worker.phases_seconds for worker in iteration.workers]
    return bool(phases) and all(each and None not in (each.partition, each.exchange, each.join) for each in phases)


def _make_iteration_sample(
    launch: Launch, iteration: IterationLine, hosts: Mapping[int, str], shape: MergeShape
) -> IterationSample:
    phases = [(worker, worker.phases_seconds) for worker in iteration.workers if worker.phases_seconds is not None]
    partitions = [each.partition or 0.0 for _, each in phases]
    joins = [each.join or 0.0 for _, each in phases]
    local, nic = (
        _link_round_transfers(launch, shape) if shape.overlapped else _iteration_transfers(iteration.pairs, hosts)
    )
    flights = [worker.flight_seconds.union for worker, _ in phases if worker.flight_seconds is not None]
    exchanges = [each.exchange or 0.0 for _, each in phases]
    waits = [exchange - flight for exchange, flight in zip(exchanges, flights, strict=False)]
    return IterationSample(
        wall=iteration.wall_seconds,
        partition=_median_seconds(partitions),
        join=_median_seconds(joins),
        rows=statistics.median(_received_rows(worker, shape) for worker, _ in phases) or FRAMES * shape.rows_per_chunk,
        bandwidth=iteration_bandwidth(iteration),
        partition_spread=_log_variance(partitions),
        join_spread=_log_variance(joins),
        local=local,
        nic=nic,
        meeting=max(min(waits), 0.0) if waits and shape.workers > 1 and not shape.overlapped else None,
        overlap=statistics.median(_hidden_time_share(worker, each) for worker, each in phases)
        if shape.workers > 1
        else None,
    )


def _received_rows(worker: WorkerIteration, shape: MergeShape) -> float:
    rows = worker.received_rows
    return FRAMES * shape.rows_per_chunk if rows is None else rows.left + rows.right


def _median_seconds(seconds: Sequence[float]) -> float:
    """The median of seconds; of two middle values the geometric mean.

    The arithmetic mean would be above a log-normal distribution's median.
    """
    return math.sqrt(statistics.median_low(seconds) * statistics.median_high(seconds))


def _log_variance(seconds: Sequence[float]) -> float | None:
    """The unbiased variance of the logarithms of the workers' seconds; None for one worker."""
    logs = [math.log(each) for each in seconds if each > 0]
    return statistics.variance(logs) if len(logs) > 1 else None


def _hidden_time_share(worker: WorkerIteration, phases: PhaseSeconds) -> float:
    """The share of the shorter of computing and exchange that ran while the other did, rounded to a millionth."""
    computing, exchange = (phases.partition or 0.0) + (phases.join or 0.0), phases.exchange or 0.0
    shorter = min(computing, exchange)
    hidden = (computing + exchange - worker.seconds) / shorter if shorter > 0 else 0.0
    return round(min(max(hidden, 0.0), 1.0), 6)


def _iteration_transfers(
    pairs: Sequence[PairTraffic], hosts: Mapping[int, str]
) -> tuple[LinkTransfer | None, LinkTransfer | None]:
    """Return an iteration's transfers within a host of the slowest worker, and between hosts of the slowest host.

    `pairs` have the bytes of both frames, and the seconds until the last of them arrived, summed over the frames; so
    a worker that receives from several is done when the slowest pair is.
    """
    local: dict[object, list[PairTraffic]] = {}
    far: dict[object, list[PairTraffic]] = {}
    for pair in pairs:
        same = hosts[pair.from_rank] == hosts[pair.to_rank]
        (local.setdefault(pair.to_rank, []) if same else far.setdefault(hosts[pair.to_rank], [])).append(pair)
    return _slowest_transfer(local), _slowest_transfer(far)


def _slowest_transfer(pairs_by_receiver: Mapping[object, Sequence[PairTraffic]]) -> LinkTransfer | None:
    transfers = []
    for pairs in pairs_by_receiver.values():
        seconds = [pair.seconds for pair in pairs if pair.seconds]
        if seconds:
            receivers = len({pair.to_rank for pair in pairs})
            size = sum(pair.bytes for pair in pairs)
            transfers.append(LinkTransfer(size, FRAMES * len(pairs) // receivers, max(seconds)))
    return max(transfers, key=lambda each: each.seconds, default=None)


def _link_round_transfers(launch: Launch, shape: MergeShape) -> tuple[LinkTransfer | None, LinkTransfer | None]:
    """Return the transfers of the link measurement within a host and between hosts; nothing is computed meanwhile.

    With several hosts its time is taken for that of the hosts' links: transfers within a host are done before.
    """
    link = launch.link
    if link is None or not link.rounds or not sum(link.bytes):
        return None, None
    seconds = statistics.median(max(one) for one in link.rounds)
    most, size = max(shape.per_host), sum(link.bytes) / shape.workers
    if len(shape.per_host) == 1:
        return LinkTransfer(size, FRAMES * (most - 1), seconds), None
    far = shape.workers - most
    return None, LinkTransfer(size * most * far / (shape.workers - 1), FRAMES * far, seconds)


UNEVEN = 1.2
"""A worker that received more than this many times the mean of rows gets a note."""


@dataclass(frozen=True)
class ProbedLinks:
    """The parameters of links from network measurements: of all launches together, and of each alone.

    `origin`: the names of the results.
    """

    values: ParameterValues = field(default_factory=dict)
    of_launches: tuple[ParameterValues, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class ForecastMeasurements:
    """The measured runs and links that a forecast is made from.

    `notes`: their weaknesses, as sentences.
    """

    runs: tuple[MeasuredRun, ...]
    probed: ProbedLinks
    engine: str
    config: str
    notes: tuple[str, ...]


def gather_measurements(campaigns: Sequence[Campaign], config: str | None) -> ForecastMeasurements:
    """Collect the measured runs and network measurements in `campaigns` that a forecast for `config` is made from.

    Raises UsageError if there is no run that a forecast can rest on, or several that do not belong together;
    WrongResult if a run's result was wrong.
    """
    for index, campaign in enumerate(campaigns):
        if any(campaign.records.samefile(other.records) for other in campaigns[:index]):
            raise UsageError(f"{campaign.folder} is named twice; name each result once")
        if campaign.command is not None:
            raise UsageError(f"{campaign.folder} cannot be used for a forecast: it contains no merges, but a command")
    merges = [(campaign, run) for campaign in campaigns if not campaign.probe for run in campaign.runs]
    chosen_runs = _runs_of_config(merges, config)
    measurements: list[MeasuredRun] = []
    notes: list[str] = []
    for campaign, run in chosen_runs:
        _check_model_supports(campaign, run)
        name = campaign.folder.name
        sampled = make_measured_run(name, run)
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
        notes += [
            f"Warning: {name} was measured on a busy host: {each.message}." for each in busy_host_warnings(campaign)
        ]
        state = verification_state(run, complete_launches(run))
        if state is VerificationState.WRONG:
            raise WrongResult(f"{campaign.folder}: the merge result was wrong, so nothing is forecast from it")
        if state is not VerificationState.VERIFIED:
            notes.append(f"{name} is not verified; its merge result may be wrong.")
    engine = _common_value("engine", [str(run.plan.engine) for _, run in chosen_runs])
    _common_value(
        "--pipeline", [str(sampled.shape.overlapped) for sampled in measurements if sampled.shape.workers > 1]
    )
    used = chosen_runs[0][1].config.name
    probed = _read_probed_links(campaigns, used, notes)
    if any(math.isinf(sampled.shape.host_cores) for sampled in measurements):  # rates are then those of whole workers
        measurements = [replace(sampled, shape=replace(sampled.shape, host_cores=math.inf)) for sampled in measurements]
    return ForecastMeasurements(tuple(measurements), probed, engine, used, tuple(dict.fromkeys(notes)))


def _runs_of_config(merges: Sequence[tuple[Campaign, Run]], config: str | None) -> list[tuple[Campaign, Run]]:
    if not merges:
        raise UsageError("a forecast needs a measured merge, but got only network measurements; add a RESULT of `run`")
    names = list(dict.fromkeys(run.config.name for _, run in merges))
    if config is None and len(names) > 1:
        raise UsageError(
            f"the results were measured with several configs; choose one with --config: {', '.join(names)}"
        )
    chosen_runs = [(campaign, run) for campaign, run in merges if config in (None, run.config.name)]
    if not chosen_runs:
        raise UsageError(f"--config {config}: there are no results for this config, only for {', '.join(names)}")
    return chosen_runs


def _check_model_supports(campaign: Campaign, run: Run) -> None:
    """Raise UsageError if a recorded run is not of a kind that the forecast's model describes."""
    plan, zipf = run.plan, run.plan.workload and run.plan.workload.zipf
    for unsupported, why, instead in (
        (run.is_imported, "imported results have no phase times", "of `run`"),
        (
            not find_recorded_plane(plan.exchange).workers_exchange_rows,
            f"it was measured with --exchange {plan.exchange}",
            f"of --exchange {format_plane_names(lambda plane: plane.workers_exchange_rows)}",
        ),
        (plan.how not in (None, "inner"), f"it was measured with --how {plan.how}", "of --how inner"),
        (
            plan.distribution == "broadcast",
            f"it was measured with a broadcast of the {plan.broadcast_side} table",
            "of --distribution shuffle",
        ),
        (plan.runtime_filter, "it was measured with --runtime-filter on", "of --runtime-filter off"),
        (zipf, f"it has skewed keys (zipf:{zipf})", "with --skew none"),
    ):
        if unsupported:
            raise UsageError(f"{campaign.folder} cannot be used for a forecast: {why}; use a RESULT {instead}")


def _common_value(value_name: str, values: Sequence[str]) -> str:
    """The one value that all results have for `value_name`, empty without results; raises UsageError if they differ."""
    names = list(dict.fromkeys(values))
    if len(names) > 1:
        raise UsageError(
            f"the results differ in {value_name} ({', '.join(names)}); give only results with the same {value_name}"
        )
    return names[0] if names else ""


def _read_probed_links(campaigns: Sequence[Campaign], config: str, notes: list[str]) -> ProbedLinks:
    """Read the parameters of links from network measurements under `config`, or else under the only other config."""
    by_config: dict[str, list[tuple[Campaign, Launch]]] = {}
    for campaign in campaigns:
        if campaign.probe and campaign.probe != "p2p":
            raise UsageError(
                f"{campaign.folder} cannot be used for a forecast: it contains results of `probe {campaign.probe}`;"
                " use results of `probe p2p`"
            )
        for launch in campaign.launches_not_replaced if campaign.probe else ():
            if launch.probes and launch.line is not None:
                by_config.setdefault(launch.line.config, []).append((campaign, launch))
    if not by_config:
        return ProbedLinks()
    names = ", ".join(by_config)
    if config not in by_config and len(by_config) > 1:
        raise UsageError(
            f"the merges use {config}, but the network was measured with {names}; add a RESULT of `probe p2p` with"
            f" {config}"
        )
    if config not in by_config:
        notes.append(f"The network was measured with {names}, but the merges with {config}; their settings may differ.")
    chosen_launches = by_config.get(config) or next(iter(by_config.values()))
    values = link_parameters_of_probe([line for _, launch in chosen_launches for line in launch.probes])
    of_launches = (link_parameters_of_probe(launch.probes) for _, launch in chosen_launches)
    whole = [links for links in of_launches if links.keys() == values.keys()]
    origin = ", ".join(dict.fromkeys(campaign.folder.name for campaign, _ in chosen_launches))
    return ProbedLinks(values, tuple(whole) or (values,), origin) if values else ProbedLinks()

"""The model and its parameters: seconds of a merge on W workers of N hosts; `docs/predict.md` explains each term.

`--what-if` and `--link` replace measured parameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

import msgspec

from merge_bench.errors import UsageError
from merge_bench.units import parse_duration, parse_rate

MEASURED, GIVEN, ASSUMED = "measured", "given", "assumed"
"""Where the value of a parameter is from."""

ParameterValues = Mapping[str, float]
"""The parameters' values by name, as the model takes them; one that is not known is missing."""


@dataclass(frozen=True)
class ParameterDefinition:
    """The definition of a model parameter: its unit, and a few words on what it is.

    `default`: its value if nothing was measured; None if there is none.
    """

    unit: str
    what: str
    default: float | None = None


KNOWN: Mapping[str, ParameterDefinition] = {
    "partition_rate": ParameterDefinition(
        "rows/s", "rows of both frames that a core of a worker partitions per second"
    ),
    "partition_fixed": ParameterDefinition("s", "fixed time of a partition, independent of the rows", 0.0),
    "partition_spread": ParameterDefinition("", "spread of the logarithm of the workers' partition times", 0.0),
    "join_rate": ParameterDefinition("rows/s", "rows of both frames that a core of a worker joins per second"),
    "join_fixed": ParameterDefinition("s", "fixed time of a join, independent of the rows", 0.0),
    "join_spread": ParameterDefinition("", "spread of the logarithm of the workers' join times", 0.0),
    "local_rate": ParameterDefinition("B/s", "rate at which a worker receives from the other workers of its host"),
    "local_latency": ParameterDefinition("s", "latency of the first message of a frame within a host", 0.0),
    "local_overhead": ParameterDefinition("s", "time per message within a host", 0.0),
    "nic_rate": ParameterDefinition("B/s", "rate between a host and the other hosts, each way, shared by its workers"),
    "nic_latency": ParameterDefinition("s", "latency of the first message of a frame between hosts", 0.0),
    "nic_overhead": ParameterDefinition("s", "time per message between hosts", 0.0),
    "meeting": ParameterDefinition("s", "time to announce message sizes to all workers and to allocate buffers", 0.0),
    "overlap": ParameterDefinition(
        "", "share of the shorter of exchange and computing that is hidden behind the other", 0.0
    ),
    "host_cores": ParameterDefinition("", "cores of a host, which its workers share", math.inf),
}


class ModelParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of the model in the document of ``predict``, with its value, interval and source.

    `value`: null if nothing limits it. `source`: ``measured``, ``given`` or ``assumed``.
    """

    name: str
    what: str
    unit: str
    value: float | None
    interval: tuple[float, float] | None
    source: str
    origin: str


class UserGivenParameter(NamedTuple):
    """The value of a model parameter from the command line, and the option that gave it."""

    value: float
    origin: str


FRAMES = 2

PARTITION, JOIN, SLOWEST = "partition", "join", "waiting for the slowest worker"
LOCAL, NIC, MESSAGES = "transfers within a host", "the hosts' network links", "messages and meeting"
CORES = "the cores of a host"
"""What limits a merge if more workers than cores share a host, and most of the time needs a core."""


class UnknownParameter(ValueError):
    """Raised if a forecast needs a model parameter that is not known; the message is the parameter's name."""


@dataclass(frozen=True)
class MergeScenario:
    """A merge to forecast: numbers of workers and hosts, and rows per chunk.

    `row_bytes`: bytes of a row of one frame. Hosts have equally many workers, or differ by one.
    """

    workers: int
    hosts: int
    rows_per_chunk: float
    row_bytes: float

    @property
    def max_and_min_workers_per_host(self) -> tuple[int, int]:
        """The number of workers on the fullest host, and on the emptiest."""
        return -(-self.workers // self.hosts), self.workers // self.hosts

    @property
    def message_bytes(self) -> float:
        """The bytes of one frame from one worker to one other: 1 ÷ W of a chunk, for W workers."""
        return self.rows_per_chunk * self.row_bytes / self.workers

    @property
    def data_bytes(self) -> float:
        """The bytes of data processed: all chunks of both frames."""
        return FRAMES * self.workers * self.rows_per_chunk * self.row_bytes


class WorkerCores(NamedTuple):
    """What w workers of a host with C cores have: each `threads` cores, or `turns` workers take turns on each core.

    As `run` starts workers, `threads` = max(1, ⌊C ÷ w⌋). Where that is more threads than cores, w > C, the kernel gives
    each worker an equal share C ÷ w of a core, so what needs a core takes `turns` = max(1, w ÷ C) times as long.
    Both are 1 if the cores are not known.
    """

    threads: int
    turns: float

    @classmethod
    def share(cls, host_cores: float, workers_per_host: int) -> WorkerCores:
        """Divide the cores of a host among its workers; `host_cores`: infinite if they are not known."""
        if not math.isfinite(host_cores):
            return cls(1, 1.0)
        return cls(max(1, int(host_cores) // workers_per_host), max(1.0, workers_per_host / host_cores))


@dataclass(frozen=True)
class ModelResult:
    """The times, traffic and rates that the model gives for one merge: seconds, bytes, bytes per second.

    `partition` and `join` are those of the slowest worker, `hidden` what runs behind something else. `crossing`: bytes
    that leave a worker; `between_hosts`: those of them that leave a host. `bandwidth`: harmonic mean over workers, None
    for one worker. `parts`: the seconds by what they are spent on; `limit`: the most important of them. `turns`: how
    many workers take turns on a core.
    """

    wall: float
    partition: float
    exchange: float
    join: float
    hidden: float
    throughput: float
    bandwidth: float | None
    crossing: float
    between_hosts: float
    parts: Mapping[str, float]
    limit: str
    turns: float


def forecast_merge(scenario: MergeScenario, values: ParameterValues) -> ModelResult:
    """Compute times and rates of one merge by the model: wall = partition + exchange + join - hidden.

    Where more workers than cores share a host, all that needs a core takes `WorkerCores.turns` times as long:
    partition, join, transfers within the host, and the handling of messages; only the bytes between hosts do not. All
    terms then grow at least as the number of workers of a host does, so w > C workers never merge more rows a second
    than C workers.

    Raises UnknownParameter if `values` lacks a parameter that the model takes.
    """
    workers, frame = scenario.workers, scenario.message_bytes
    partition, partition_times = _phase_seconds_and_slowdown(PARTITION, scenario, values)
    join, join_times = _phase_seconds_and_slowdown(JOIN, scenario, values)
    slowest = partition * (partition_times - 1) + join * (join_times - 1)
    parts = {PARTITION: partition, JOIN: join, SLOWEST: slowest}
    exchange, bandwidth = 0.0, None
    if workers > 1:
        flight, transfer, where = _frame_transfer_seconds(scenario, values)
        most, _ = scenario.max_and_min_workers_per_host
        announcing = parameter_value(values, "meeting") + size_announcement_seconds(most, workers, values)
        meeting = _worker_cores(scenario, values).turns * announcing
        exchange = FRAMES * flight + meeting
        parts |= {where: FRAMES * transfer, MESSAGES: FRAMES * (flight - transfer) + meeting}
        bandwidth = frame * (workers - 1) / flight if flight > 0 else math.inf
    computing = partition + join + slowest
    hidden = parameter_value(values, "overlap") * min(exchange, computing)
    wall = computing + exchange - hidden
    most, least = scenario.max_and_min_workers_per_host
    fuller = workers - least * scenario.hosts  # hosts with one worker more
    leaving = sum(count * each * (workers - each) for count, each in ((fuller, most), (scenario.hosts - fuller, least)))
    return ModelResult(
        wall=wall,
        partition=partition * partition_times,
        exchange=exchange,
        join=join * join_times,
        hidden=hidden,
        throughput=scenario.data_bytes / wall if wall > 0 else math.inf,
        bandwidth=bandwidth,
        crossing=FRAMES * workers * (workers - 1) * frame,
        between_hosts=FRAMES * leaving * frame,
        parts=parts,
        limit=_name_of_limit(parts, hidden, exchange > computing, _worker_cores(scenario, values)),
        turns=_worker_cores(scenario, values).turns,
    )


def _worker_cores(scenario: MergeScenario, values: ParameterValues) -> WorkerCores:
    return WorkerCores.share(parameter_value(values, "host_cores"), scenario.max_and_min_workers_per_host[0])


def slowest_worker_factor(spread: float, workers: int) -> float:
    """The slowest worker's time as a multiple of a typical worker's: the median of the maximum of W log-normal values.

    P(all of W ≤ m) = Φ(ln m ÷ σ)^W = 1/2, so m = exp(σ · Φ⁻¹(2^(-1/W))): 1 for W = 1. The mean of the maximum is above
    it; but what is measured of a run, and so is forecast, is its median iteration.
    """
    return math.exp(max(spread, 0.0) * normal_quantile_of_largest(workers))


@cache
def normal_quantile_of_largest(workers: int) -> float:
    """The median of the largest of W standard normal values: Φ⁻¹(2^(-1/W)).

    Cached, because resampling asks for the same few hundreds of times.
    """
    return NormalDist().inv_cdf(2 ** (-1 / workers))


def parameter_value(values: ParameterValues, name: str) -> float:
    """The value of a model parameter, or its default.

    Raises UnknownParameter if it is not known and has no default.
    """
    value = values.get(name, KNOWN[name].default)
    if value is None:
        raise UnknownParameter(name)
    return value


def _phase_seconds_and_slowdown(phase: str, scenario: MergeScenario, values: ParameterValues) -> tuple[float, float]:
    """Seconds of a phase on a typical worker, and how many times as long the slowest worker takes."""
    threads, turns = _worker_cores(scenario, values)
    rows_of_core = FRAMES * scenario.rows_per_chunk / threads
    typical = parameter_value(values, f"{phase}_fixed") + rows_of_core / parameter_value(values, f"{phase}_rate")
    at_once = workers_at_once(scenario.workers, scenario.hosts, parameter_value(values, "host_cores"))
    return turns * typical, slowest_worker_factor(parameter_value(values, f"{phase}_spread"), at_once)


def workers_at_once(workers: int, hosts: int, host_cores: float) -> int:
    """How many of a merge's workers run at the same time: at most one on each core.

    Workers that take turns share the slow moments of their cores, so that the slowest of them is hardly slower than the
    slowest of as many workers as cores.
    """
    return min(workers, hosts * max(1, int(host_cores))) if math.isfinite(host_cores) else workers


def _frame_transfer_seconds(scenario: MergeScenario, values: ParameterValues) -> tuple[float, float, str]:
    """Seconds of transferring one frame, those of its bytes alone, and the kind of link that takes them (the slower).

    Within a host a worker receives (w - 1) messages, the others send to it at once. Between hosts a host of w workers
    receives w · (W - w) messages through its link, and sends as many the other way at the same time. Where workers take
    turns on cores, so do transfers within the host, and the handling of messages between hosts.
    """
    flights: list[tuple[float, float, str]] = []
    turns = _worker_cores(scenario, values).turns
    for workers in dict.fromkeys(scenario.max_and_min_workers_per_host):
        far = scenario.workers - workers
        if workers > 1:
            before, transfer = _link_transfer_seconds(
                values, "local", workers - 1, (workers - 1) * scenario.message_bytes
            )
            flights.append((turns * (before + transfer), turns * transfer, LOCAL))
        if far and workers:
            before, transfer = _link_transfer_seconds(values, "nic", far, workers * far * scenario.message_bytes)
            flights.append((turns * before + transfer, transfer, NIC))
    return max(flights)


def _link_transfer_seconds(values: ParameterValues, link: str, messages: int, size_bytes: float) -> tuple[float, float]:
    """The seconds of a transfer over a kind of link: those of its messages, and those of its bytes.

    Latency + overhead · messages + bytes ÷ rate, as in LogGP (Alexandrov, Ionescu, Schauser & Scheiman 1995).
    """
    seconds = size_bytes / parameter_value(values, f"{link}_rate")
    before = parameter_value(values, f"{link}_latency") + messages * parameter_value(values, f"{link}_overhead")
    return before, seconds


def size_announcement_seconds(most_workers_per_host: int, workers: int, values: ParameterValues) -> float:
    """Seconds of the round of small messages in which workers announce to each other how much they will send."""
    ways = (("local", most_workers_per_host - 1), ("nic", workers - most_workers_per_host))
    return max(
        parameter_value(values, f"{link}_latency") + peers * parameter_value(values, f"{link}_overhead")
        for link, peers in ways
        if peers
    )


def _name_of_limit(
    seconds_by_part: Mapping[str, float], hidden_seconds: float, exchange_is_longer: bool, worker_cores: WorkerCores
) -> str:
    """The name of the part that takes most of a merge's time; `CORES` if workers take turns for it.

    If computing and exchange overlap, only the parts of the longer of the two count.
    """
    computing = (PARTITION, JOIN, SLOWEST)
    of_longer = {
        name: seconds for name, seconds in seconds_by_part.items() if (name not in computing) == exchange_is_longer
    }
    candidates = of_longer if hidden_seconds > 0 else seconds_by_part
    largest = max(candidates, key=lambda name: candidates[name])
    return CORES if worker_cores.turns > 1 and largest != NIC else largest


@dataclass(frozen=True)
class Gpu:
    """A GPU model for ``--what-if``: the bandwidth of its memory (B/s), and words of its driver's name for it.

    `words`: in lower case; the driver's name has all of them. `source`: of the bandwidth.
    """

    bandwidth: float
    words: tuple[str, ...]
    source: str


GPUS: Mapping[str, Gpu] = {  # memory bandwidths, as their vendor publishes them
    "t4": Gpu(320e9, ("t4",), "NVIDIA T4 data sheet"),
    "v100": Gpu(900e9, ("v100",), "NVIDIA V100 data sheet"),
    "a100-40gb": Gpu(1555e9, ("a100", "40gb"), "NVIDIA A100 data sheet"),
    "a100-80gb": Gpu(2039e9, ("a100", "80gb"), "NVIDIA A100 data sheet, SXM"),
    "a100-80gb-pcie": Gpu(1935e9, ("a100", "80gb", "pcie"), "NVIDIA A100 data sheet, PCIe"),
    "h100": Gpu(3350e9, ("h100",), "NVIDIA H100 data sheet, SXM"),
    "h100-pcie": Gpu(2000e9, ("h100", "pcie"), "NVIDIA H100 data sheet, PCIe"),
    "h200": Gpu(4800e9, ("h200",), "NVIDIA H200 data sheet"),
}


def find_gpu(name: str) -> Gpu:
    """Return the GPU that ``--what-if gpu=NAME`` names.

    Raises UsageError if it is not in `GPUS`.
    """
    gpu = GPUS.get(name.lower())
    if gpu is None:
        raise UsageError(f"--what-if gpu={name}: unknown GPU; choose from {', '.join(GPUS)}")
    return gpu


def find_gpu_by_driver_name(driver_name: str) -> Gpu | None:
    """The GPU that a driver calls by this name, such as ``Tesla V100-SXM2-32GB``; None if it is not in `GPUS`."""
    words = set(re.split(r"[^a-z0-9]+", driver_name.lower()))
    fitting = [gpu for gpu in GPUS.values() if words.issuperset(gpu.words)]
    return max(fitting, key=lambda gpu: len(gpu.words), default=None)


_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)\s*"
_FACTOR = re.compile(_NUMBER + "[x×]", re.IGNORECASE)
_MICROSECONDS = re.compile(_NUMBER + "[uµ]s", re.IGNORECASE)

MULTIPLIED: Mapping[str, tuple[str, ...]] = {
    "nic": ("nic_rate",),
    "local": ("local_rate",),
    "partition": ("partition_rate",),
    "join": ("join_rate",),
    "compute": ("partition_rate", "join_rate"),
    "latency": ("nic_latency", "nic_overhead", "local_latency", "local_overhead"),
    "spread": ("partition_spread", "join_spread"),
}
"""The parameters that a factor of each name multiplies: rates (more is better), seconds and spreads (less is)."""

LINKS = ("local", "nic")


@dataclass(frozen=True)
class WhatIfChanges:
    """The changes of a parsed ``--what-if``.

    `factors`: by parameter. `new_values`: by parameter, of the overlap and of a host's cores. `gpu`: the named GPU.
    `words`: as written.
    """

    factors: Mapping[str, float] = field(default_factory=dict)
    new_values: Mapping[str, float] = field(default_factory=dict)
    gpu: str | None = None
    words: tuple[str, ...] = ()

    def change_parameter_values(self, values: Mapping[str, float], gpu_factor: float = 1.0) -> dict[str, float]:
        """Return the parameter values after these changes.

        `gpu_factor`: for the rates of partition and join on another GPU.
        """
        changed = {name: value * self.factors.get(name, 1.0) for name, value in values.items()}
        for name in MULTIPLIED["compute"]:
            if name in changed:
                changed[name] *= gpu_factor
        return {**changed, **self.new_values}


def parse_what_if(texts: Iterable[str]) -> WhatIfChanges:
    """Parse the values of ``--what-if``, such as ``nic=4x,gpu=h200,overlap=0.9,cores=64``.

    Raises UsageError if a name is not known or given twice, or its value is not of its kind.
    """
    factors: dict[str, float] = {}
    new_values: dict[str, float] = {}
    gpu: str | None = None
    words = tuple(word.strip() for text in texts for word in text.split(",") if word.strip())
    names = [word.partition("=")[0].strip().lower() for word in words]
    for name, word in zip(names, words, strict=True):
        value = word.partition("=")[2].strip()
        if names.count(name) > 1:
            raise UsageError(f"--what-if sets {name} twice")
        if name == "gpu":
            find_gpu(value)
            gpu = value.lower()
        elif name == "overlap":
            new_values["overlap"] = _parse_overlap_share(word, value)
        elif name == "cores":
            new_values["host_cores"] = _parse_core_count(word, value)
        elif name in MULTIPLIED:
            match = _FACTOR.fullmatch(value)
            factor = float(match[1]) if match else 0.0
            if not 0 < factor < math.inf:
                raise UsageError(f"--what-if {word}: {value!r} is not a factor above 0; use a form such as 4x or 0.5x")
            for parameter in MULTIPLIED[name]:
                factors[parameter] = factors.get(parameter, 1.0) * factor
        else:
            forms = ", ".join(f"{each}=4x" for each in MULTIPLIED)
            raise UsageError(
                f"--what-if {word} is not valid; use a form such as {forms}, cores=64, overlap=0.9 or gpu=h200"
            )
    return WhatIfChanges(factors, new_values, gpu, words)


def parse_link_parameters(texts: Sequence[str]) -> dict[str, UserGivenParameter]:
    """Parse the values of ``--link``, such as ``nic=12.5GB/s,2us``, into a rate and perhaps a latency for each link.

    Raises UsageError if a value is not of this form.
    """
    parameters: dict[str, UserGivenParameter] = {}
    for text in texts:
        link, equals, words = text.partition("=")
        rate, _, latency = (word.strip() for word in words.partition(","))
        name = link.strip().lower()
        if name not in LINKS or not equals:
            raise UsageError(f"--link {text} is not valid; use a form such as nic=12.5GB/s,2us or local=20GB/s")
        if f"{name}_rate" in parameters:
            raise UsageError(f"--link sets {name} twice")
        parameters[f"{name}_rate"] = UserGivenParameter(_parse_link_rate(text, rate), f"--link {text}")
        if latency:
            parameters[f"{name}_latency"] = UserGivenParameter(_parse_latency_seconds(text, latency), f"--link {text}")
    return parameters


def _parse_overlap_share(option_word: str, value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"--what-if {option_word}: {value!r} is not a number from 0 to 1")
    return share


def _parse_core_count(option_word: str, value: str) -> float:
    """Parse the cores of a host; a fraction is the share of a container, or of a host that others use as well."""
    try:
        cores = float(value)
    except ValueError:
        cores = 0.0
    if not 0 < cores < math.inf:
        raise UsageError(f"--what-if {option_word}: {value!r} is not a number of cores above 0")
    return cores


def _parse_link_rate(option_text: str, value: str) -> float:
    try:
        rate = parse_rate(value)
    except ValueError as error:
        raise UsageError(f"--link {option_text}: {error}") from None
    if rate <= 0:
        raise UsageError(f"--link {option_text}: {value!r} is not a rate above 0")
    return rate


def _parse_latency_seconds(option_text: str, value: str) -> float:
    match = _MICROSECONDS.fullmatch(value)
    try:
        if value[-1:].isdigit():
            raise ValueError
        return float(match[1]) * 1e-6 if match else parse_duration(value)
    except ValueError:
        raise UsageError(
            f"--link {option_text}: {value!r} is not a latency with its unit; use a form such as 2us or 0.1ms"
        ) from None

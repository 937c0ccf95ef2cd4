"""Structures of the documents that ``--json`` prints: of `compare`, `run`, `import`, `check`, `configs`, `doctor`, …

Units are SI seconds, bytes and bytes per second. A value is null where it was not measured or does not apply. A change
that would mislead existing readers raises `document_version`; a new field does not. `docs/schema` has the JSON Schemas,
`docs/reference/records.md` describes every key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self, TypeAlias

import msgspec

from merge_bench.config.check import SettingsConflict, VariableState
from merge_bench.errors import WarningMessage
from merge_bench.host.description import Finding
from merge_bench.host.pinning import WorkerBinding
from merge_bench.records.schema import (
    SCHEMA,
    Config,
    FailureLine,
    ImportSource,
    PhaseSeconds,
    PlanOptions,
    UcxProtocolRange,
)


class Failure(msgspec.Struct, frozen=True):
    """Why a result is incomplete: a code for programs, a sentence for people, and the host and rank, if known."""

    code: str
    message: str
    host: str | None = None
    rank: int | None = None

    @classmethod
    def from_line(cls, line: FailureLine) -> Self:
        """Make the failure from its line in the records."""
        return cls(line.code, line.message, line.host, line.rank)


class ComparedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A compared campaign; `letter`: its name in labels, null if there is only one campaign."""

    letter: str | None
    path: str


class RatioInterval(msgspec.Struct, frozen=True, kw_only=True):
    """A confidence interval of a ratio and its level: 0.95 for one candidate, up to 1 - 0.05 ÷ k for k candidates."""

    low: float
    high: float
    level: float


class MedianValue(msgspec.Struct, frozen=True, kw_only=True):
    """The median of a metric over the complete launches of a baseline or candidate, in the unit of the comparison."""

    median: float | None
    ci95: tuple[float, float] | None
    launches: int
    failed_launches: int


class RatioPoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ratio of candidate to baseline in one block; if unpaired, of a candidate launch to the baseline's median."""

    block: int | None = None
    launch: int | None = None
    ratio: float

    @property
    def block_or_launch_label(self) -> str:
        """The name of the block or launch, such as ``block 3`` or ``launch 3``."""
        return f"launch {self.launch}" if self.block is None else f"block {self.block}"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of a candidate with its baseline in one metric; a `ratio` above 1: the candidate is better."""

    pair: int
    baseline: str
    candidate: str
    baseline_result: str
    candidate_result: str
    plan: dict[str, int | str | None]
    metric: str
    unit: str
    verdict: str
    reason: str | None
    ratio: float | None
    interval: RatioInterval | None
    confidence: float | None
    launches: int
    more_launches: int | None
    p: float | None
    p_holm: float | None
    threshold: float
    noise_floor: float | None
    level_of: int | None
    aa: bool
    paired: bool | None
    verified: bool
    baseline_value: MedianValue
    candidate_value: MedianValue | None
    points: list[RatioPoint]
    caveats: list[str]


class PropertyDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A property in which two compared runs differ, with the value of each; null: that run lacks the property."""

    pair: int
    baseline: str
    candidate: str
    kind: str
    name: str
    baseline_value: str | None
    candidate_value: str | None


class CompareDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `compare --json`: every candidate against its baseline in every metric.

    In version 1 the interval of a ratio was `ci95`, without its level.
    """

    document_version: Literal[2] = 2
    results: list[ComparedResult]
    threshold: float
    alpha: float
    comparisons: list[Comparison]
    differences: list[PropertyDifference]
    notes: list[str]
    verified: bool
    error: Failure | None = None


class MetricSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A metric's median over launches, its 95 % interval (null below 6 launches); quartiles, extremes of iterations."""

    median: float | None
    ci95: tuple[float, float] | None
    quartiles: tuple[float, float] | None
    min: float | None = None
    max: float | None = None
    ci95_ranks: tuple[int, int] | None = None
    ci95_coverage: float | None = None


class WorkerBandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per second that a worker sent to others, of the left frame, of the right frame, and their mean."""

    rank: int
    host: str
    left: float | None
    right: float | None
    mean: float | None


class BandwidthSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Bandwidth of an iteration: the harmonic mean over workers, the slowest and the fastest worker; medians of each.

    So min ≤ harmonic_mean ≤ max. `per_worker`: the medians of each worker, which are another figure. Imported results
    have the mean alone. `spread`: of the harmonic mean.
    """

    harmonic_mean: float | None
    min: float | None
    max: float | None
    per_worker: list[WorkerBandwidth]
    spread: MetricSummary | None = None


class LinkUtilization(msgspec.Struct, frozen=True, kw_only=True):
    """The measured link limit, and the share of it that the merge's exchange reached.

    `disturbed`: why no share is known, because what was measured is no limit; null if it is one. Of several launches,
    those with a limit that was not disturbed count.
    """

    limit_bytes_per_second: float
    fraction: float | None
    check_bytes_per_second: float | None
    not_checked: str | None
    wall_ratio: float | None
    transports: list[str]
    bytes_per_second: float | None = None
    silent_ranks: list[int] = []
    disturbed: str | None = None


class MemoryCopyRates(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per second at which a worker copies memory, and the shares of that rate that partition and join reached."""

    copy_bytes_per_second: float
    partition_fraction: float | None
    join_fraction: float | None


Limit: TypeAlias = Literal[
    "cores",
    "host",
    "busy-host",
    "fixed-costs",
    "slow-link",
    "overload",
    "straggler",
    "link",
    "memory",
    "partition",
    "exchange",
    "join",
]


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """What limits a merge, in one word and as a sentence; `docs/slow-merge.md` lists the words.

    `share`: of the wall-clock time, what the phase or the fixed costs take, what the host or a straggler costs at
    least, or what an overloaded rank or a slow link costs about; null if unknown.
    """

    what: Limit
    besides: Limit | None = None
    share: float | None
    rank: int | None = None
    because: str


class PairTransports(msgspec.Struct, frozen=True, kw_only=True):
    """The transports that UCX selected from one worker to another, such as ``tcp/eth0``.

    `processes`: of a command, from rank 0 to rank 0, how many of its processes logged lanes to peers at this placement.
    """

    from_rank: int = msgspec.field(name="from")
    to_rank: int = msgspec.field(name="to")
    placement: str | None
    transports: list[str]
    processes: int | msgspec.UnsetType = msgspec.UNSET


class SelectedProtocols(msgspec.Struct, frozen=True, kw_only=True):
    """The protocols that UCX uses between `pairs` of ranks, by kind of memory and message size."""

    pairs: list[tuple[int, int]]
    ranges: list[UcxProtocolRange]


class NetworkDeviceBytes(msgspec.Struct, kw_only=True):
    """Bytes that a network device of a host sent and received, by its counters."""

    sent: int = 0
    received: int = 0


class CountedTraffic(msgspec.Struct, kw_only=True):
    """Bytes that a host's ranks sent to others in a period, and bytes that its network devices counted meanwhile."""

    host: str
    during: str
    sent: int = 0
    devices: dict[str, NetworkDeviceBytes] = {}


class WorkerPeakMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory and input of one worker, in bytes."""

    rank: int
    host: str
    peak: int | None
    above_imports: int | None
    device_peak: int | None
    device_above_imports: int | None
    input: int | None


class PeakMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory in bytes: the largest of any worker, and that of each worker."""

    max: int | None
    per_worker: list[WorkerPeakMemory]


class GpuEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU during the timed iterations: energy of a merge, power, clocks, and throttling.

    `sm_mhz`, `memory_mhz`: the lowest clock that was read before or after the iterations, unless the GPU was idle then;
    `max_…`: the highest clock that the GPU has. `celsius`: the highest temperature that was read. `reasons`: why the
    clocks were not higher when they were read. `throttled_share`: share of the time between the readings, by cause;
    null where no time is counted.
    """

    host: str
    index: int
    name: str | None
    ranks: list[int]
    joules_per_merge: float | None
    watts: float | None
    limit_watts: float | None
    sm_mhz: int | None
    max_sm_mhz: int | None
    memory_mhz: int | None
    max_memory_mhz: int | None
    celsius: int | None
    reasons: list[str] | None
    throttled_share: dict[str, float] | None


class HostEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """Energy of a merge and mean power of one host's processors during the timed iterations."""

    host: str
    packages: int
    joules_per_merge: float | None
    watts: float | None


EnergyParts: TypeAlias = Literal["GPUs and processors", "GPUs", "processors"]


class MergeEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """The energy of one merge in joules: that of the timed iterations ÷ their number, median over launches.

    `joules_per_merge`: of all parts that `counts` names; null if no part could be read, or the GPUs of the merge could
    not be read. `unknown`: which parts could not be read, and why, as sentences.
    """

    joules_per_merge: float | None
    counts: EnergyParts | None
    gpu_joules_per_merge: float | None
    cpu_joules_per_merge: float | None
    unknown: list[str]
    gpus: list[GpuEnergy]
    hosts: list[HostEnergy]


class MeasurementCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How much was measured: complete launches, their timed iterations and warm-ups, and the bytes of an iteration."""

    launches: int = 0
    planned_launches: int = 0
    iterations: int = 0
    warmup: list[int] = []
    data_bytes: int | None = None
    protocol: str | None = None


class VerificationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the merge result is correct, and the values of the first check that failed, or else of the last check."""

    state: Literal["verified", "off", "imported", "missing", "wrong"] = "missing"
    checks: int = 0
    how: str | None = None
    rows: int | None = None
    expected_rows: int | None = None
    checksum: str | None = None
    expected_checksum: str | None = None
    message: str | None = None
    folders: list[str] = []


class CommandMetricSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of one metric of a command, in the metric's unit, which is empty if unknown."""

    name: str
    unit: str
    better: Literal["more", "less"]
    spread: MetricSummary


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `run --json`: the figures of one config with one plan.

    In version 1 the bottleneck was a word in `link`, and null unless the phases overlapped.

    `metrics`: of a command, the main one first; values that only merges have are null then. Merges have no `metrics`.
    `plan`: the options as in the records, and the `hosts` of the workers, each once. `comparisons`: those that
    ``--against`` or ``--fail-on`` asked for.
    """

    document_version: Literal[2] = 2
    schema: int = SCHEMA
    run_id: str
    records: str
    config: Config
    plan: PlanOptions
    verified: bool
    result_rows: int | None
    wall_seconds: MetricSummary
    throughput_bytes_per_second: MetricSummary
    bandwidth_bytes_per_second: BandwidthSummary
    phases_seconds: PhaseSeconds
    bottleneck: Bottleneck | None
    link: LinkUtilization | None
    memory_rate: MemoryCopyRates | None
    lanes: list[PairTransports]
    requested_transports: dict[str, str]
    protocols: list[SelectedProtocols]
    traffic: list[CountedTraffic]
    peak_memory_bytes: PeakMemory
    imported: ImportSource | None
    warnings: list[WarningMessage]
    error: Failure | None
    measured: MeasurementCounts = MeasurementCounts()
    verification: VerificationSummary = VerificationSummary()
    energy: MergeEnergy | None = None
    metrics: list[CommandMetricSummary] | msgspec.UnsetType = msgspec.UNSET
    comparisons: list[Comparison] | msgspec.UnsetType = msgspec.UNSET


class SweepDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `run --json` for several runs: every config with every plan, in the order of the options."""

    document_version: Literal[2] = 2
    schema: int = SCHEMA
    records: str
    runs: list[RunDocument]
    comparisons: list[Comparison] | msgspec.UnsetType = msgspec.UNSET
    error: Failure | msgspec.UnsetType | None = msgspec.UNSET


Document: TypeAlias = RunDocument | SweepDocument


def run_documents(document: Document) -> Sequence[RunDocument]:
    """The documents of all runs in `document`: of every run of a sweep, or of the single run."""
    return document.runs if isinstance(document, SweepDocument) else (document,)


def command_metric_summaries(document: RunDocument) -> Sequence[CommandMetricSummary]:
    """The summaries of a command's metrics, the main one first; empty for a merge."""
    return () if isinstance(document.metrics, msgspec.UnsetType) else document.metrics


class CheckedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a checked config, with its checksum."""

    name: str
    path: str
    sha256: str


class UcxReleaseCheck(msgspec.Struct, frozen=True, kw_only=True):
    """How a release of UCX reads a config; `variables`: settings that the chosen release reads in another way."""

    ucx: str
    ok: bool
    variables: list[VariableState]


class ConfigCheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `check --json`: how UCX reads a config, and the errors with which `run` would refuse it.

    `ucx`: the chosen release, null if none is installed; `errors`: why `ok` is false, as sentences. `releases`: how the
    releases of UCX in the user's cache read the config; empty with ``--ucx``.
    """

    document_version: Literal[1] = 1
    ok: bool
    config: CheckedConfig
    ucx: str | None
    variables: list[VariableState]
    conflicts: list[SettingsConflict]
    errors: list[str]
    warnings: list[str]
    releases: list[UcxReleaseCheck] = []


class ShippedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that comes with the package; `about`: its first comment line."""

    name: str
    about: str
    path: str


class CachedUcxRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A release of UCX in the user's cache; `sha256`: of the wheel from which it was installed."""

    version: str
    package: str
    sha256: str
    path: str


class ConfigsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `configs --json`: the configs and the tuning space that come with the package.

    `ucx`: the releases of UCX in the user's cache.
    """

    document_version: Literal[1] = 1
    configs: list[ShippedFile]
    space: ShippedFile
    ucx: list[CachedUcxRelease] = []


class DoctorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `doctor --json`: the finding of every check on every host, and the worst state of all.

    `bindings`: the cores, GPU and ports of each worker of a running cluster, or of one worker on each GPU of this host.
    """

    document_version: Literal[1] = 1
    worst: str
    findings: list[Finding]
    bindings: list[WorkerBinding] = []


class PairTransportsAndProtocols(PairTransports, frozen=True, kw_only=True):
    """The transports and protocols that UCX selected from one worker to another."""

    protocols: list[UcxProtocolRange]


class TransportsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `transports --json`: the transports requested, offered by each host, and selected by UCX.

    `bindings`: the cores, GPU and ports of each worker, by rank.
    """

    document_version: Literal[1] = 1
    requested: dict[str, str]
    available: dict[str, dict[str, list[str]]]
    pairs: list[PairTransportsAndProtocols]
    bindings: list[WorkerBinding] = []
    warnings: list[WarningMessage]

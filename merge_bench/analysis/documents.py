"""Structures of the documents that ``--json`` prints: of `compare`, `run`, `import`, `check`, `configs`, `doctor`, …

Units are SI seconds, bytes and bytes per second. A value is null where it was not measured or does not apply. A change
that would mislead existing readers raises `document_version`; a new field does not. `docs/schema` has the JSON Schemas,
`docs/reference/records.md` describes every key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self, TypeAlias

import msgspec

from merge_bench.config.check import Conflict, VariableState
from merge_bench.errors import Caution
from merge_bench.host.doctor import Finding
from merge_bench.host.pinning import Binding
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
    """Why a result is incomplete: a code for programs, a sentence, and the host and rank, if known."""

    code: str
    message: str
    host: str | None = None
    rank: int | None = None

    @classmethod
    def from_line(cls, line: FailureLine) -> Self:
        """Make the failure from its record."""
        return cls(line.code, line.message, line.host, line.rank)


class ComparedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A compared campaign; `letter` stands for it in labels, null if there is only one."""

    letter: str | None
    path: str


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A confidence interval of a ratio and its level: 0.95 for one candidate, up to 1 - 0.05 ÷ k for k."""

    low: float
    high: float
    level: float


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """The median of a metric over the complete launches of a baseline or candidate, in the unit of the comparison."""

    median: float | None
    ci95: tuple[float, float] | None
    launches: int
    failed_launches: int


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ratio of candidate to baseline in one block; unpaired, of one candidate launch to the baseline's median."""

    block: int | None = None
    launch: int | None = None
    ratio: float

    @property
    def label(self) -> str:
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
    interval: Interval | None
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
    baseline_value: Value
    candidate_value: Value | None
    points: list[Point]
    caveats: list[str]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A property in which the two compared runs differ, with the value of each; null: that run does not have it."""

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
    differences: list[Difference]
    notes: list[str]
    verified: bool
    error: Failure | None = None


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Median over launches with its 95 % interval, null below 6 launches; quartiles and extremes over iterations."""

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


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """Bandwidth of an iteration: harmonic mean over workers, the slowest and the fastest; of each, the median.

    So min ≤ harmonic_mean ≤ max. `per_worker`: medians of each worker, another figure. Imported: the mean alone.
    `spread`: of the harmonic mean.
    """

    harmonic_mean: float | None
    min: float | None
    max: float | None
    per_worker: list[WorkerBandwidth]
    spread: Spread | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The measured link limit, and the share of it that the merge's exchange reached."""

    limit_bytes_per_second: float
    fraction: float | None
    check_bytes_per_second: float | None
    not_checked: str | None
    wall_ratio: float | None
    transports: list[str]
    bytes_per_second: float | None = None
    silent_ranks: list[int] = []


class MemoryRate(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per second at which a worker copies memory, and the shares of it that partition and join reached."""

    copy_bytes_per_second: float
    partition_fraction: float | None
    join_fraction: float | None


Limit: TypeAlias = Literal[
    "cores", "busy-host", "slow-link", "overload", "straggler", "link", "memory", "partition", "exchange", "join"
]


class Bottleneck(msgspec.Struct, frozen=True, kw_only=True):
    """What limits a merge, in one word and as a sentence; `docs/slow-merge.md` lists the words.

    `share`: of the wall-clock time, what the phase takes or what `rank` costs the others; null if unknown.
    """

    what: Limit
    besides: Limit | None = None
    share: float | None
    rank: int | None = None
    because: str


class PairTransports(msgspec.Struct, frozen=True, kw_only=True):
    """The transports that UCX selected from one worker to another, such as ``tcp/eth0``."""

    from_rank: int = msgspec.field(name="from")
    to_rank: int = msgspec.field(name="to")
    placement: str | None
    transports: list[str]


class Protocols(msgspec.Struct, frozen=True, kw_only=True):
    """The protocols that UCX uses between `pairs` of ranks, by kind of memory and message size."""

    pairs: list[tuple[int, int]]
    ranges: list[UcxProtocolRange]


class DeviceBytes(msgspec.Struct, kw_only=True):
    """Bytes that a network device of a host sent and received, by its counters."""

    sent: int = 0
    received: int = 0


class Traffic(msgspec.Struct, kw_only=True):
    """Bytes that the ranks of a host sent to others, and the bytes that its network devices counted meanwhile."""

    host: str
    during: str
    sent: int = 0
    devices: dict[str, DeviceBytes] = {}


class WorkerPeak(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory and input of one worker, in bytes."""

    rank: int
    host: str
    peak: int | None
    above_imports: int | None
    device_peak: int | None
    device_above_imports: int | None
    input: int | None


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """The largest peak memory of any worker, and that of each, in bytes."""

    max: int | None
    per_worker: list[WorkerPeak]


class GpuEnergy(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU during the timed iterations: energy of a merge, power, clocks, and throttling.

    `sm_mhz`, `memory_mhz`: the lowest that was read before or after the iterations, unless it was idle then; `max_…`:
    the highest that the GPU has. `celsius`: the highest that was read. `reasons`: why the clocks were not higher, at
    these moments. `throttled_share`: of the time between them, by cause; null where no time is counted.
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


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """The energy of one merge in joules: that of the timed iterations ÷ their number, median over launches.

    `joules_per_merge`: of all parts that `counts` names; null if nothing could be read, or not the GPUs that the merge
    uses. `unknown`: what could not be read, and why, as sentences.
    """

    joules_per_merge: float | None
    counts: EnergyParts | None
    gpu_joules_per_merge: float | None
    cpu_joules_per_merge: float | None
    unknown: list[str]
    gpus: list[GpuEnergy]
    hosts: list[HostEnergy]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """How much was measured: launches that count, their timed iterations and warm-ups, bytes of an iteration."""

    launches: int = 0
    planned_launches: int = 0
    iterations: int = 0
    warmup: list[int] = []
    data_bytes: int | None = None
    protocol: str | None = None


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the merge result is correct, and what the first failed check, or else the last check, compared."""

    state: Literal["verified", "off", "imported", "missing", "wrong"] = "missing"
    checks: int = 0
    how: str | None = None
    rows: int | None = None
    expected_rows: int | None = None
    checksum: str | None = None
    expected_checksum: str | None = None
    message: str | None = None
    folders: list[str] = []


class CommandFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one metric of a command, in its unit, which is empty if unknown."""

    name: str
    unit: str
    better: Literal["more", "less"]
    spread: Spread


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `run --json`: the figures of one config with one plan.

    In version 1 the bottleneck was a word in `link`, and null unless the phases overlapped.

    `metrics`: of a command, the main one first; what only merges have is null then. There is none of merges.
    `plan`: its options as the records have them, and the `hosts` of its workers, each once. `comparisons`: where
    ``--against`` or ``--fail-on`` asked for them.
    """

    document_version: Literal[2] = 2
    schema: int = SCHEMA
    run_id: str
    records: str
    config: Config
    plan: PlanOptions
    verified: bool
    result_rows: int | None
    wall_seconds: Spread
    throughput_bytes_per_second: Spread
    bandwidth_bytes_per_second: Bandwidth
    phases_seconds: PhaseSeconds
    bottleneck: Bottleneck | None
    link: Link | None
    memory_rate: MemoryRate | None
    lanes: list[PairTransports]
    requested_transports: dict[str, str]
    protocols: list[Protocols]
    traffic: list[Traffic]
    peak_memory_bytes: Memory
    imported: ImportSource | None
    warnings: list[Caution]
    error: Failure | None
    measured: Measured = Measured()
    verification: Verification = Verification()
    energy: Energy | None = None
    metrics: list[CommandFigure] | msgspec.UnsetType = msgspec.UNSET
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


def command_figures(document: RunDocument) -> Sequence[CommandFigure]:
    """The figures of a command's metrics, the main one first; none of a merge."""
    return () if isinstance(document.metrics, msgspec.UnsetType) else document.metrics


class CheckedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The file of a checked config, with its checksum."""

    name: str
    path: str
    sha256: str


class CheckedRelease(msgspec.Struct, frozen=True, kw_only=True):
    """How a release of UCX reads a config; `variables`: those of the config that it reads otherwise than `ucx`."""

    ucx: str
    ok: bool
    variables: list[VariableState]


class CheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `check --json`: how UCX reads a config, and the errors with which `run` would refuse it.

    `ucx`: the release that was asked, null if none is installed; `errors`: why `ok` is false, a sentence each.
    `releases`: how the releases of UCX in the user's cache read the config, without ``--ucx``.
    """

    document_version: Literal[1] = 1
    ok: bool
    config: CheckedConfig
    ucx: str | None
    variables: list[VariableState]
    conflicts: list[Conflict]
    errors: list[str]
    warnings: list[str]
    releases: list[CheckedRelease] = []


class ShippedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that comes with the package; `about`: its first comment line."""

    name: str
    about: str
    path: str


class CachedUcx(msgspec.Struct, frozen=True, kw_only=True):
    """A release of UCX in the user's cache; `sha256`: of the wheel that it was installed from."""

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
    ucx: list[CachedUcx] = []


class DoctorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `doctor --json`: the finding of every check on every host, and the worst state of all.

    `bindings`: of each worker of a running cluster, or of one worker on each GPU of this host.
    """

    document_version: Literal[1] = 1
    worst: str
    findings: list[Finding]
    bindings: list[Binding] = []


class Pair(PairTransports, frozen=True, kw_only=True):
    """The transports and protocols that UCX selected from one worker to another."""

    protocols: list[UcxProtocolRange]


class TransportsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `transports --json`: the transports requested, offered by each host, and selected by UCX.

    `bindings`: of each worker, by rank.
    """

    document_version: Literal[1] = 1
    requested: dict[str, str]
    available: dict[str, dict[str, list[str]]]
    pairs: list[Pair]
    bindings: list[Binding] = []
    warnings: list[Caution]

"""The lines of ``records.jsonl``, one structure for each kind; `docs/reference/records.md` explains them.

SI seconds and bytes. A value that was not measured is ``None`` (null), never 0. Readers ignore unknown fields, so that
older programs can read newer records of the same schema; the tests refuse them, to find misspelt fields.
"""

from __future__ import annotations

from time import time as now
from typing import Annotated, Any, Self, TypeAlias

import msgspec

from merge_bench.errors import WarningMessage
from merge_bench.host.description import GpuState, Hardware, ProcessFacts, UcxDescription

SCHEMA = 1
"""The version of the lines. It rises only if an older reader would misunderstand a line; new fields do not count."""

# Figures are made of these, so a damaged line with a number beyond what there can be is refused when it is read.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Rate: TypeAlias = Annotated[float, msgspec.Meta(ge=1e-21, le=1e21)]
NotNegative: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
PlanOptions: TypeAlias = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema={"$ref": "#/$defs/RecordedPlan"})]
"""A plan in records and documents, with all options that its command wrote."""


class RecordLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """The fields that every line of the records has, besides its ``kind``."""

    schema: int = SCHEMA
    time: float = msgspec.field(default_factory=now)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A config as it was used; ``path`` is null for the built-in defaults."""

    name: str
    path: str | None = None
    variables: dict[str, str] = {}


class RunKey(msgspec.Struct, frozen=True, kw_only=True):
    """One planned run: the name of a config and the index of a plan."""

    config: str
    plan: Count


class GitState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the git checkout: its commit, whether it had local changes, and on which host."""

    commit: str | None = None
    dirty: bool | None = None
    host: str | None = None


class PrintedTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The totals that another program printed: throughput is all bytes ÷ the whole wall-clock, no median."""

    wall_seconds: NotNegative
    wall_resolution_seconds: NotNegative
    bandwidth_bytes_per_second: NotNegative
    throughput_bytes_per_second: NotNegative


class ImportSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of an imported campaign: the output of another program. merge_bench did not measure or verify it.

    ``headline``: of merges; null for others.
    """

    program: str
    file: str
    sha256: str
    command: str | None = None
    fraction: float | None = None
    headline: PrintedTotals | None = None


class ImportedIteration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The figures that the other program printed for an iteration: of all workers together."""

    bandwidth_bytes_per_second: NotNegative
    throughput_bytes_per_second: NotNegative
    wall_resolution_seconds: NotNegative


GivenOptions: TypeAlias = dict[str, str | bool | list[str]]
"""Options of a command by key, each as it was typed: a text, several if it was repeated, true for a flag.

A config or a baseline that the command names without an option is `config`.
"""


class CampaignLine(RecordLine, tag="campaign", frozen=True, kw_only=True):
    """The first line of a campaign's records. Config names are unique in it.

    `surroundings`: what else decides how launches run, besides configs and plans; if it differs, a campaign is not
    resumed.
    """

    campaign_id: str
    argv: list[str]
    options: GivenOptions | None = None
    version: str
    git: GitState | None = None
    configs: list[Config]
    seed: int | None = None
    plans: list[PlanOptions]
    runs: list[RunKey]
    surroundings: dict[str, Any] | None = None
    imported_from: ImportSource | None = None

    @property
    def driver_host(self) -> str | None:
        """The host that made the campaign; None if the records do not have it."""
        return (self.surroundings or {}).get("host")

    def environment_variable(self, name: str) -> str | None:
        """Return the recorded value of a variable of the campaign's environment; None if it was not set."""
        environment = (self.surroundings or {}).get("environment")
        return environment.get(name) if isinstance(environment, dict) else None


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """How the processes were started, and the protocol of their control plane.

    `dashboard`: the address of Dask's own dashboard; `mpirun`: the path of the program that started the ranks.
    """

    launcher: str
    protocol: str | None
    scheduler: str | None = None
    dashboard: str | None = None
    mpirun: str | None = None


class ParcelWriteMethod(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker writes rows into parcels, the buffers that it sends: ``plain`` or ``lines``.

    `because`: ``asked for``, ``measured`` in this launch, or ``known`` from an earlier launch. `nanoseconds`: the
    partition's time per row, by way, as that launch measured it.
    """

    way: str
    because: str
    nanoseconds: dict[str, float] = {}


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, as its own process describes it: effective environment, versions, UCX, hardware."""

    rank: Count
    host: str
    pid: int
    name: str
    environment: dict[str, str] = {}
    versions: dict[str, str | None] = {}
    ucx: UcxDescription = UcxDescription()
    hardware: Hardware = Hardware()
    stores: ParcelWriteMethod | None = None

    @classmethod
    def from_process_facts(cls, rank: int, name: str, facts: ProcessFacts) -> Self:
        """Make the record of the worker of this rank and name, from the facts that its process reported."""
        return cls(rank=rank, name=name, **{each: getattr(facts, each) for each in ProcessFacts.__struct_fields__})


class HostLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Cores of the driver's host that other processes kept busy while a launch's processes started.

    ``busy``: on average, of the ``cores`` that the driver may use; ``processes``: process id and
    name of the busiest ones, such as ``pid 71 mypy``.
    """

    busy: Seconds
    cores: Count
    processes: list[str] = []


class LaunchLine(RecordLine, tag="launch", frozen=True, kw_only=True):
    """The start of a launch: a cluster is up and holds its data. ``other_load`` is null if it runs on other hosts.

    ``startup_parts``: the seconds of each part of ``startup_seconds``, by its name, in their order: ``processes``
    (started), ``scheduler`` (answers), ``workers`` (have connected), ``libraries`` (are loaded), ``tables``, ``data
    plane`` (of each worker), ``connections``, ``parcel writers`` (chosen); with Dask's dataframes ``partitions`` after
    ``tables``; of other launches fewer.
    """

    launch: Count
    config: str
    plan: Count
    block: Count = 0
    cluster: Cluster
    workers: list[Worker]
    data_bytes: Count
    rows: Count
    startup_seconds: Seconds | None = None
    startup_parts: dict[str, Seconds] = {}
    other_load: HostLoad | None = None


class PhaseSeconds(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Seconds of one worker, or of its processor time, in each phase; where phases overlap, they exceed its time."""

    partition: Seconds | None
    exchange: Seconds | None
    join: Seconds | None


class FrameCounts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes or rows of the left and of the right dataframe."""

    left: Count
    right: Count


class TransferSeconds(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Seconds in which transfers were in flight: per frame, and of both (overlap counted once)."""

    left: Seconds
    right: Seconds
    union: Seconds


class WorkerIteration(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's part of one merge, on its own monotonic clock.

    ``cpu_seconds``, ``phases_cpu_seconds``: processor time of its process, all threads; the latter is null where phases
    overlap.
    """

    rank: Count
    seconds: Seconds
    phases_seconds: PhaseSeconds | None = None
    overlap_seconds: Seconds | None = None
    join_overlap_seconds: Seconds | None = None
    sent_bytes: FrameCounts | None = None
    flight_seconds: TransferSeconds | None = None
    received_rows: FrameCounts | None = None
    result_rows: Count | None = None
    cpu_seconds: Seconds | None = None
    phases_cpu_seconds: PhaseSeconds | None = None


class PairTraffic(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes of both frames from one worker to another, and the seconds in which they were in flight."""

    from_rank: Count = msgspec.field(name="from")
    to_rank: Count = msgspec.field(name="to")
    bytes: Count
    seconds: Seconds | None = None


class IterationLine(RecordLine, tag="iteration", frozen=True, kw_only=True):
    """The figures of one whole merge between two barriers, or of one run of a command.

    ``values``: the metrics of a command besides its wall-clock, by name.
    """

    launch: Count
    index: Count
    warmup: bool = False
    wall_seconds: Seconds
    values: dict[str, float] = {}
    barrier_skew_seconds: Seconds | None = None
    workers: list[WorkerIteration] = []
    pairs: list[PairTraffic] = []
    imported: ImportedIteration | None = None


class VerificationLine(RecordLine, tag="verification", frozen=True, kw_only=True):
    """A check of the result. ``after`` is the index of the iteration before it, null for the warm-up.

    ``folder``: the workers had written the result to this folder, and what they read from there was checked; null: what
    they held in memory.
    """

    launch: Count
    after: Count | None
    ok: bool
    how: str
    rows: Count | None = None
    expected_rows: Count | None = None
    checksum: str | None = None
    expected_checksum: str | None = None
    bad_rows: Count | None = None
    message: str | None = None
    folder: str | None = None


class LinkLimitLine(RecordLine, tag="link", frozen=True, kw_only=True):
    """A measurement of the link limit: the messages of an iteration are sent, without partition and join."""

    launch: Count
    bytes: list[Count]
    rounds: list[list[Seconds]]
    limit_bytes_per_second: Rate | None


class UcxProtocolRange(msgspec.Struct, frozen=True, kw_only=True):
    """How UCX sends tag messages of a range of sizes from one kind of memory; ``last_bytes`` null: no upper end."""

    memory: str
    first_bytes: Count
    last_bytes: Count | None = None
    protocol: str
    transports: str
    estimated: bool = False


class WorkerPairLanes(msgspec.Struct, frozen=True, kw_only=True):
    """The transports that UCX selected from one worker to another, as ``tcp/eth0``.

    ``protocols`` is an index into the line's ``protocols``: most pairs have the same ones. ``processes``: of a command,
    whose processes are rank 0 together, how many of them logged lanes to peers at this placement.
    """

    from_rank: Count = msgspec.field(name="from")
    to_rank: Count = msgspec.field(name="to")
    placement: str | None = None
    transports: list[str]
    protocols: Count | None = None
    processes: Count | msgspec.UnsetType = msgspec.UNSET


class LanesLine(RecordLine, tag="lanes", frozen=True, kw_only=True):
    """The transports that settings allow (``requested``, of rank 0), and those that UCX selected for each pair."""

    launch: Count
    requested: dict[str, str] = {}
    pairs: list[WorkerPairLanes]
    protocols: list[list[UcxProtocolRange]] = []


class DeviceTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that one device of a host counted: ``lo``, ``mlx5_0:1``, ``nvlink 00000000:1B:00.0``."""

    device: str
    sent_bytes: Count
    received_bytes: Count


class HostTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one host that counted any bytes."""

    host: str
    devices: list[DeviceTraffic]


class TimelineLine(RecordLine, tag="timeline", frozen=True, kw_only=True):
    """Whether the launch has a timeline, and why.

    ``because``: ``asked for``, ``cheap``, ``expensive`` (more than 1 % of an iteration), or ``too many events`` in one
    iteration. ``notes``: the most messages, phases and barriers that one worker noted in an iteration; ``share``: the
    part of its shortest iteration that the notes take, at ``note_seconds`` each.
    """

    launch: Count
    recorded: bool
    because: str
    notes: Count | None = None
    note_seconds: Seconds | None = None
    share: Seconds | None = None
    file: str | None = None
    events: Count = 0
    iterations: list[Count] = []


class TrafficLine(RecordLine, tag="traffic", frozen=True, kw_only=True):
    """The bytes that the hosts' devices counted ``during`` the timed ``iterations`` or the ``link`` measurement."""

    launch: Count
    during: str
    hosts: list[HostTraffic]


class GpuPower(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU during the timed iterations, from ``before`` to ``after`` them.

    ``ranks``: of the workers on it, of which the first one read it. ``throttled_seconds``: by cause, ``power cap`` or
    ``temperature``; a cause that the driver does not count is missing.
    """

    host: str
    index: Count
    name: str | None = None
    ranks: list[Count]
    seconds: Seconds
    joules: NotNegative | None = None
    throttled_seconds: dict[str, Seconds] = {}
    before: GpuState = GpuState()
    after: GpuState = GpuState()
    limit_watts: NotNegative | None = None
    max_sm_mhz: Count | None = None
    max_memory_mhz: Count | None = None


class HostPower(msgspec.Struct, frozen=True, kw_only=True):
    """The processors of one host during the timed iterations; ``unknown``: why their energy is not known."""

    host: str
    packages: Count = 0
    seconds: Seconds
    joules: NotNegative | None = None
    unknown: str | None = None


class PowerLine(RecordLine, tag="power", frozen=True, kw_only=True):
    """Energy and clocks during the timed iterations; what else ran between the two readings counts, too.

    ``gpus``: those that could be read, each once; null if the launch uses none.
    """

    launch: Count
    gpus: list[GpuPower] | None = None
    hosts: list[HostPower] = []


class WorkerMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory of one worker's process, verification excluded, and how fast it copied memory while all workers did.

    ``one_row_merge_seconds``: its seconds of each merge of one row of each frame per worker, by the same engine over
    the same connections: the time that does not depend on the number of rows.
    ``exchange_statistics``: what the library of the data plane counted since it was opened, under its own names.
    """

    rank: Count
    peak_bytes: Count | None = None
    peak_above_imports_bytes: Count | None = None
    device_peak_bytes: Count | None = None
    input_bytes: Count | None = None
    copied_bytes: Count | None = None
    copy_seconds: list[Seconds] = []
    one_row_merge_seconds: list[Seconds] = []
    exchange_statistics: dict[str, float] = {}


class MemoryLine(RecordLine, tag="memory", frozen=True, kw_only=True):
    """Peak memory of every worker, and the rate at which it copies memory."""

    launch: Count
    workers: list[WorkerMemory]


class ProbeLine(RecordLine, tag="probe", frozen=True, kw_only=True):
    """One row of a network measurement in one launch, as the tool or the loop measured it.

    ``test`` is the tool's own name (``tag_lat``, ``put-overlapping``); ``seconds`` is the mean time of one operation as
    that test defines it, ``seconds_min`` and ``seconds_max`` are its extremes over ranks. ``as_requested``: whether
    every selected lane was requested; null if that is unknown.

    Of `probe all-to-all`: ``seconds_mean`` is the mean over ranks and rounds, ``busiest_bytes`` what the rank that
    sends or receives most exchanges with others, ``limit_bytes_per_second`` what a rank could send and ``limit_from``
    how that is known: ``given``, or ``ring``.
    """

    launch: Count
    probe: str
    test: str
    method: str
    placement: str
    ranks: list[Count]
    hosts: list[str] = []
    memory: str = "host"
    size: Count
    count: Count | None = None
    iterations: Count | None = None
    seconds: Seconds | None = None
    seconds_min: Seconds | None = None
    seconds_max: Seconds | None = None
    seconds_mean: Seconds | None = None
    bandwidth_bytes_per_second: Rate | None = None
    bandwidth_min: Rate | None = None
    bandwidth_max: Rate | None = None
    bus_bandwidth_bytes_per_second: Rate | None = None
    busiest_bytes: Count | None = None
    limit_bytes_per_second: Rate | None = None
    limit_from: str | None = None
    messages_per_second: Rate | None = None
    wrong: Count | None = None
    requested: dict[str, str] = {}
    selected: list[str] = []
    protocol: str | None = None
    as_requested: bool | None = None


class AddedConfigLine(RecordLine, tag="config", frozen=True, kw_only=True):
    """A config that was added after the campaign's first line: tuning made it from `settings` of its space."""

    config: Config
    settings: list[str] = []


class TuningStepLine(RecordLine, tag="tune", frozen=True, kw_only=True):
    """A step of tuning: what was compared with what, and what was decided.

    ``ratio`` is the speed-up of ``config`` over ``against`` (above 1: better), paired by block over ``launches``
    launches of each, with its interval ``low`` to ``high``; null if there are too few launches.
    """

    phase: str
    config: str
    against: str
    plan: Count = 0
    setting: str | None = None
    ratio: Rate | None = None
    low: Rate | None = None
    high: Rate | None = None
    launches: Count = 0
    decision: str
    reason: str


class WarningLine(RecordLine, tag="warning", frozen=True, kw_only=True):
    """A warning about something that distorts or explains figures, with what to do about it."""

    launch: Count | None = None
    code: str
    message: str
    remedy: str | None = None

    @classmethod
    def from_caution(cls, caution: WarningMessage, launch_index: int | None = None) -> Self:
        """Make the line of a warning about the launch of this index, or about the whole campaign."""
        return cls(launch=launch_index, code=caution.code, message=caution.message, remedy=caution.remedy)

    @property
    def caution(self) -> WarningMessage:
        """The warning without its launch."""
        return WarningMessage(self.code, self.message, self.remedy)


class FailureLine(RecordLine, tag="failure", frozen=True, kw_only=True):
    """A failure and its reason.

    If it came before the ``launch`` line, ``config``, ``plan`` and ``block`` identify its launch.
    """

    launch: Count | None
    config: str | None = None
    plan: Count | None = None
    block: Count | None = None
    code: str
    message: str
    host: str | None = None
    rank: Count | None = None
    log_tail: str | None = None


class LaunchEndLine(RecordLine, tag="launch_end", frozen=True, kw_only=True):
    """The end of a launch: all its processes have ended. ``status`` is its exit status, 0 if it succeeded."""

    launch: Count
    status: int
    seconds: Seconds | None


class ExtensionLine(RecordLine, tag="extension", frozen=True, kw_only=True):
    """Launches were added to a campaign that had ended.

    ``launches``: the number for each run, which replaces that of its plan.
    """

    launches: Count
    argv: list[str] = []
    options: GivenOptions | None = None


class CampaignEndLine(RecordLine, tag="end", frozen=True, kw_only=True):
    """The last line of a campaign that was not killed; ``status`` is the command's exit status."""

    status: int


Measurement: TypeAlias = (
    IterationLine
    | VerificationLine
    | LinkLimitLine
    | LanesLine
    | TimelineLine
    | TrafficLine
    | PowerLine
    | MemoryLine
    | ProbeLine
)
"""The measurements of a launch: lines that come after its ``launch`` line."""

Record: TypeAlias = (
    CampaignLine
    | LaunchLine
    | Measurement
    | AddedConfigLine
    | TuningStepLine
    | WarningLine
    | FailureLine
    | LaunchEndLine
    | ExtensionLine
    | CampaignEndLine
)

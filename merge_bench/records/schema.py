"""What one line of ``records.jsonl`` holds, kind by kind; `docs/records.md` says it for people.

SI seconds and bytes. A value that was not measured is ``None`` (null), never 0. Reading ignores
fields that it does not know, so that older programs read newer records of the same schema;
`codec.validate` does not, so that a misspelt field is found in the tests and not years later.
"""

from __future__ import annotations

from time import time as now
from typing import Annotated, Any, Self, TypeAlias

import msgspec

from merge_bench.errors import Caution
from merge_bench.host.facts import Hardware, ProcessFacts, Ucx
from merge_bench.records.imported import ImportedFrom, ImportedIteration
from merge_bench.records.plan import PlanOptions

SCHEMA = 1
"""Rises when a line changes so that an older reader would misunderstand it; a new field is no such change."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
Rate: TypeAlias = Annotated[float, msgspec.Meta(gt=0)]


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every line has beside its ``kind``."""

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


class Git(msgspec.Struct, frozen=True, kw_only=True):
    """State of the checkout: its commit, whether it had local changes, and on which host."""

    commit: str | None = None
    dirty: bool | None = None
    host: str | None = None


class CampaignLine(Line, tag="campaign", frozen=True, kw_only=True):
    """The first line of a folder. Config names are unique in it. `surroundings`: what decides beside configs and plans
    how launches run, so that a campaign is gone on with under the same ones only.
    """

    campaign_id: str
    argv: list[str]
    version: str
    git: Git | None = None
    configs: list[Config]
    seed: int | None = None
    plans: list[PlanOptions]
    runs: list[RunKey]
    surroundings: dict[str, Any] | None = None
    imported_from: ImportedFrom | None = None


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """How the processes were brought up and what their control plane speaks.

    `dashboard`: the address of Dask's own; `mpirun`: the path of the one that started the ranks.
    """

    launcher: str
    protocol: str | None
    scheduler: str | None = None
    dashboard: str | None = None
    mpirun: str | None = None


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, described from inside: effective environment, versions, UCX, hardware."""

    rank: Count
    host: str
    pid: int
    name: str
    environment: dict[str, str] = {}
    versions: dict[str, str | None] = {}
    ucx: Ucx = Ucx()
    hardware: Hardware = Hardware()

    @classmethod
    def of(cls, rank: int, name: str, facts: ProcessFacts) -> Self:
        """The worker of this rank and name."""
        return cls(rank=rank, name=name, **{each: getattr(facts, each) for each in ProcessFacts.__struct_fields__})


class LaunchLine(Line, tag="launch", frozen=True, kw_only=True):
    """A cluster is up and holds its data."""

    launch: Count
    config: str
    plan: Count
    block: Count = 0
    cluster: Cluster
    workers: list[Worker]
    data_bytes: Count
    rows: Count
    startup_seconds: Seconds | None = None


class Phases(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Seconds of one worker in each phase; where phases overlap, their sum exceeds its time."""

    partition: Seconds | None
    exchange: Seconds | None
    join: Seconds | None


class FrameCounts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes or rows of the two frames."""

    left: Count
    right: Count


class Flight(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Seconds in which transfers were in flight: per frame, and of both (overlap counted once)."""

    left: Seconds
    right: Seconds
    union: Seconds


class WorkerIteration(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's part of one merge, on its own monotonic clock."""

    rank: Count
    seconds: Seconds
    phases_seconds: Phases | None = None
    overlap_seconds: Seconds | None = None
    join_overlap_seconds: Seconds | None = None
    sent_bytes: FrameCounts | None = None
    flight_seconds: Flight | None = None
    received_rows: FrameCounts | None = None
    result_rows: Count | None = None
    cpu_seconds: Seconds | None = None


class PairTraffic(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes of both frames from one worker to another, and the seconds they were in flight."""

    from_rank: Count = msgspec.field(name="from")
    to_rank: Count = msgspec.field(name="to")
    bytes: Count
    seconds: Seconds | None = None


class IterationLine(Line, tag="iteration", frozen=True, kw_only=True):
    """One whole merge between two barriers."""

    launch: Count
    index: Count
    warmup: bool = False
    wall_seconds: Seconds
    barrier_skew_seconds: Seconds | None = None
    workers: list[WorkerIteration] = []
    pairs: list[PairTraffic] = []
    imported: ImportedIteration | None = None


class VerificationLine(Line, tag="verification", frozen=True, kw_only=True):
    """A proof of the result. ``after`` is the index of the iteration before it, null for the warm-up."""

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


class LinkLine(Line, tag="link", frozen=True, kw_only=True):
    """What the link can carry: the iteration's messages with no partition and no join."""

    launch: Count
    bytes: list[Count]
    rounds: list[list[Seconds]]
    limit_bytes_per_second: Rate | None


class SizeRange(msgspec.Struct, frozen=True, kw_only=True):
    """How UCX carries tag messages of some sizes out of one kind of memory; ``last_bytes`` null: no end."""

    memory: str
    first_bytes: Count
    last_bytes: Count | None = None
    protocol: str
    transports: str
    estimated: bool = False


class LanePair(msgspec.Struct, frozen=True, kw_only=True):
    """The transports that UCX selected from one worker to another, as ``tcp/eth0``.

    ``protocols`` is an index into the line's ``protocols``: most pairs have the same ones.
    """

    from_rank: Count = msgspec.field(name="from")
    to_rank: Count = msgspec.field(name="to")
    placement: str | None = None
    transports: list[str]
    protocols: Count | None = None


class LanesLine(Line, tag="lanes", frozen=True, kw_only=True):
    """What was asked of UCX (``requested``, of rank 0) and what it selected for every pair of workers."""

    launch: Count
    requested: dict[str, str] = {}
    pairs: list[LanePair]
    protocols: list[list[SizeRange]] = []


class DeviceTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """What one device of a host counted: ``lo``, ``mlx5_0:1``, ``nvlink 00000000:1B:00.0``."""

    device: str
    sent_bytes: Count
    received_bytes: Count


class HostTraffic(msgspec.Struct, frozen=True, kw_only=True):
    """The devices of one host that counted anything."""

    host: str
    devices: list[DeviceTraffic]


class TrafficLine(Line, tag="traffic", frozen=True, kw_only=True):
    """What the hosts' counters saw ``during`` the timed ``iterations`` or the ``link`` measurement."""

    launch: Count
    during: str
    hosts: list[HostTraffic]


class WorkerMemory(msgspec.Struct, frozen=True, kw_only=True):
    """High-water marks of one process, verification excluded."""

    rank: Count
    peak_bytes: Count | None = None
    peak_above_imports_bytes: Count | None = None
    device_peak_bytes: Count | None = None
    input_bytes: Count | None = None


class MemoryLine(Line, tag="memory", frozen=True, kw_only=True):
    """Peak memory of every worker."""

    launch: Count
    workers: list[WorkerMemory]


class ProbeLine(Line, tag="probe", frozen=True, kw_only=True):
    """One row of a network measurement, as the tool or loop that made it gave it: nothing is averaged over launches.

    ``test`` is the method's own word (``tag_lat``, ``put-overlapping``); ``seconds`` is the mean time of one operation
    as that test defines it, ``seconds_min`` and ``seconds_max`` its extremes over ranks. ``as_requested``: whether
    every lane selected is one that was asked for; null where nobody can tell.
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
    iterations: Count
    seconds: Seconds | None = None
    seconds_min: Seconds | None = None
    seconds_max: Seconds | None = None
    bandwidth_bytes_per_second: Rate | None = None
    bandwidth_min: Rate | None = None
    bandwidth_max: Rate | None = None
    messages_per_second: Rate | None = None
    wrong: Count | None = None
    requested: dict[str, str] = {}
    selected: list[str] = []
    protocol: str | None = None
    as_requested: bool | None = None


class ConfigLine(Line, tag="config", frozen=True, kw_only=True):
    """A config that joined the campaign after its first line: one that tuning made, of `settings` of its space."""

    config: Config
    settings: list[str] = []


class TuneLine(Line, tag="tune", frozen=True, kw_only=True):
    """A step of tuning: what was compared with what, and what was decided.

    ``ratio`` is the speed-up of ``config`` over ``against`` (above 1: better), paired by block over ``launches``
    launches of each, with its interval ``low`` to ``high``; null where too few were made.
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


class WarningLine(Line, tag="warning", frozen=True, kw_only=True):
    """Something that spoils or explains a number, with what to do about it."""

    launch: Count | None = None
    code: str
    message: str
    remedy: str | None = None

    @classmethod
    def of(cls, caution: Caution, launch: int | None = None) -> Self:
        """The line of a warning about `launch`, or about the whole campaign."""
        return cls(launch=launch, code=caution.code, message=caution.message, remedy=caution.remedy)

    @property
    def caution(self) -> Caution:
        """The warning, wherever it belongs to."""
        return Caution(self.code, self.message, self.remedy)


class FailureLine(Line, tag="failure", frozen=True, kw_only=True):
    """A launch failed. Where it failed before its ``launch`` line, ``config``, ``plan``, ``block`` say whose it was."""

    launch: Count | None
    config: str | None = None
    plan: Count | None = None
    block: Count | None = None
    code: str
    message: str
    host: str | None = None
    rank: Count | None = None
    log_tail: str | None = None


class LaunchEndLine(Line, tag="launch_end", frozen=True, kw_only=True):
    """The processes of a launch are gone. ``status`` is its exit status, 0 when all went well."""

    launch: Count
    status: int
    seconds: Seconds | None


class EndLine(Line, tag="end", frozen=True, kw_only=True):
    """The last line of a campaign that was not killed; ``status`` is the command's exit status."""

    status: int


Measurement: TypeAlias = IterationLine | VerificationLine | LinkLine | LanesLine | TrafficLine | MemoryLine | ProbeLine
"""What is measured in a launch: lines that come after the launch's own."""

Record: TypeAlias = (
    CampaignLine
    | LaunchLine
    | Measurement
    | ConfigLine
    | TuneLine
    | WarningLine
    | FailureLine
    | LaunchEndLine
    | EndLine
)

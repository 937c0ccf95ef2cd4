"""The JSON that clients send and get. The same structures validate requests and make the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from merge_bench.errors import GateNotMet

Text = Annotated[str, Meta(max_length=1000)]
Name = Annotated[str, Meta(max_length=100)]
Value = Text | int | float | bool | None
JobState = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
Role = Literal["read", "run"]


class JobRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to queue: a command with its configs and options.

    `command`: run, tune, `probe NAME`, or exec with the option `named`, one of ``/api/commands``; `options`: the
    command's, without dashes; `configs`: names of shipped ones, the baseline first; `settings`: UCX_… and MERGE_BENCH_…
    variables, instead of `configs`, and `name`: that of the config; `resume`: if the service ends during the job, queue
    it again to continue its campaign; `key`: two requests with the same one are one job.
    """

    command: Name
    options: Annotated[dict[Name, Value | Annotated[list[Value], Meta(max_length=100)]], Meta(max_length=100)] = {}
    configs: Annotated[list[Name], Meta(max_length=50)] = []
    settings: Annotated[dict[Name, Text], Meta(max_length=200)] = {}
    name: Annotated[str, Meta(max_length=60)] | None = None
    resume: bool = False
    key: Name | None = None


class StoredJob(Struct, frozen=True, kw_only=True):
    """A job as it is stored; times are seconds since the epoch.

    `status`: the exit status; `result`: the name of its campaign; `message`: why it ended, if not by itself.
    """

    id: int
    who: str
    key: str | None
    words: list[str]
    settings: dict[str, str]
    resume: bool
    attempts: int
    cancelled: bool
    state: JobState
    status: int | None
    result: str | None
    message: str | None
    created: float
    started: float | None
    ended: float | None

    @property
    def displayed_state(self) -> str:
        """The job's state as people see it.

        ``gate not met`` instead of ``failed`` if the command failed for that; ``cancelling`` while a job that was
        cancelled still runs.
        """
        if self.state == "running" and self.cancelled:
            return "cancelling"
        return "gate not met" if self.state == "failed" and self.status == GateNotMet.exit_status else self.state


class Job(StoredJob, frozen=True, kw_only=True):
    """A job, as clients get it.

    `command`: as a person would type it; `schedule`: the name of the schedule that queued it; `ahead`: the number of
    jobs before it; `log`: the end of its output, where a single job was asked for.
    """

    command: str
    schedule: str | None = None
    ahead: int = 0
    cancellable: bool = False
    log: str | None = None


class JobList(Struct, frozen=True, kw_only=True):
    """Jobs, the newest first."""

    jobs: list[Job]


class ScheduleRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job to queue at a time of day, once on each of some days, with keys that the schedule makes.

    `at`: the time of day, such as 02:30; `days`: daily, or days such as mon,wed or mon-fri; `zone`: the time zone of
    both, such as Europe/Berlin; `missed`: if the service did not run then, wait for the next time (skip), or run once.
    """

    name: Annotated[str, Meta(max_length=60)]
    at: Name
    job: JobRequest
    days: Name = "daily"
    zone: Name = "UTC"
    missed: Literal["skip", "run"] = "skip"


class Schedule(ScheduleRequest, frozen=True, kw_only=True):
    """A schedule as clients get it. `last_job`: number of its last job; `message`: why no job was queued last time."""

    who: str
    command: str
    created: float
    next: float
    last_job: int | None = None
    message: str | None = None


class ScheduleList(Struct, frozen=True, kw_only=True):
    """All schedules by name."""

    schedules: list[Schedule]


class NamedCommand(Struct, frozen=True, kw_only=True):
    """A command that the operator named. `name`: what jobs give as the option `named`; `command`: its command line."""

    name: str
    command: str


class NamedCommandList(Struct, frozen=True, kw_only=True):
    """The commands that jobs of exec can run, by name."""

    commands: list[NamedCommand]


class ListedResult(Struct, frozen=True, kw_only=True):
    """A stored result. `name`: of its folder; `kind`: merge, tune, command, import or probe NAME."""

    name: str
    kind: str
    title: str
    status: str
    started: float | None
    configs: list[str]


class ResultList(Struct, frozen=True, kw_only=True):
    """Results, the newest first; `total`: how many there are."""

    results: list[ListedResult]
    total: int


class ServiceHealth(Struct, frozen=True, kw_only=True):
    """Whether the service can run jobs."""

    ok: bool


class TokenProofQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks for a proof that the service knows a token, before a client sends the token.

    `token`: the SHA-256 of ``name`` and of the token's SHA-256, as hexadecimal digits; `nonce`: a random text.
    """

    token: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    nonce: Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{16,64}$")]


class TokenProof(Struct, frozen=True, kw_only=True):
    """A proof that the service knows a token.

    `proof`: HMAC-SHA-256 of the random text, a space and the ``Host`` of the request; its key is the token's SHA-256.
    """

    proof: str


class RefusalReason(Struct, frozen=True, kw_only=True):
    """Why a request was refused: a word for programs and a sentence for people."""

    code: str
    message: str


class RefusalResponse(Struct, frozen=True, kw_only=True):
    """The body of every answer that reports an error."""

    error: RefusalReason


class HistoryQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The series of results to show: only those with this `config`, …; at most `limit`, the newest first.

    `chunk`: rows per chunk; `command`: a text that the command contains.
    """

    metric: Name | None = None
    threshold: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.02
    config: Name | None = None
    command: Text | None = None
    chunk: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    workers: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    hosts: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    engine: Name | None = None
    exchange: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=20)] = 20


class ListPageQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of a list that is asked for: at most `limit` entries, without the first `offset` ones."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    offset: Annotated[int, Meta(ge=0, le=10**9)] = 0

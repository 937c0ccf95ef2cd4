"""The JSON that clients send and get. The same structures validate requests and make the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

Text = Annotated[str, Meta(max_length=1000)]
Name = Annotated[str, Meta(max_length=100)]
Value = Text | int | float | bool | None
State = Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
Role = Literal["read", "run"]


class JobRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to measure.

    `command`: run, tune or `probe NAME`; `options`: the command's, without dashes; `configs`: shipped ones, the
    baseline first; `settings`: UCX_… and MERGE_BENCH_… variables, instead of configs; `resume`: if the service ends
    during the job, queue it again to continue its campaign; `key`: the same request sent twice is one job.
    """

    command: Name
    options: Annotated[dict[Name, Value | Annotated[list[Value], Meta(max_length=100)]], Meta(max_length=100)] = {}
    configs: Annotated[list[Name], Meta(max_length=50)] = []
    settings: Annotated[dict[Name, Text], Meta(max_length=200)] = {}
    resume: bool = False
    key: Name | None = None


class Job(Struct, frozen=True, kw_only=True):
    """A job. Times are seconds since the epoch.

    `command`: as a person would type it; `status`: the exit status; `result`: the name of its campaign; `message`: why
    it ended, if not by itself; `ahead`: jobs before it; `cancellable`: whether this token can cancel it now; `log`: the
    end of its output, only if one job was asked for.
    """

    id: int
    who: str
    state: State
    command: str
    settings: dict[str, str]
    status: int | None
    result: str | None
    message: str | None
    created: float
    started: float | None
    ended: float | None
    ahead: int = 0
    cancellable: bool = False
    log: str | None = None


class Jobs(Struct, frozen=True, kw_only=True):
    """Jobs, the newest first; `queued`: how many wait in total."""

    jobs: list[Job]
    queued: int


class ResultRow(Struct, frozen=True, kw_only=True):
    """A stored result: `name` of its folder, `kind`: merge, tune, import or probe NAME."""

    name: str
    kind: str
    title: str
    status: str
    started: float | None
    configs: list[str]


class Results(Struct, frozen=True, kw_only=True):
    """Results, the newest first; `total`: how many there are."""

    results: list[ResultRow]
    total: int


class Health(Struct, frozen=True, kw_only=True):
    """Whether the service can run jobs."""

    ok: bool


class Problem(Struct, frozen=True, kw_only=True):
    """Why a request was refused: a word for programs and a sentence for people."""

    code: str
    message: str


class Refusal(Struct, frozen=True, kw_only=True):
    """The body of every answer that is an error."""

    error: Problem


class HistoryQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which results: only those with this `config`, rows per `chunk`, …; `limit`: series at most, the newest first."""

    metric: Name = "throughput"
    threshold: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.02
    config: Name | None = None
    chunk: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    workers: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    hosts: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    engine: Name | None = None
    exchange: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=20)] = 20


class Page(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of a list: at most `limit`, without the first `offset`."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    offset: Annotated[int, Meta(ge=0, le=10**9)] = 0

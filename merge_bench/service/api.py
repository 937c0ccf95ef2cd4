"""The HTTP interface: the table of its routes, and the answer of each. `handler` has what comes before an answer."""

from __future__ import annotations

import functools
import inspect
import re
import time
from asyncio import Semaphore
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from merge_bench.cluster.supervisor import last_bytes
from merge_bench.config.installation import __version__
from merge_bench.errors import UsageError
from merge_bench.history.document import history
from merge_bench.history.series_document import HistoryDocument
from merge_bench.records.results_folder import YOURS, Entry, ResultsFolder, is_result
from merge_bench.records.writer import RECORDS
from merge_bench.service import documents as d
from merge_bench.service import schedules
from merge_bench.service.rules import Rules, as_typed
from merge_bench.service.runner import LOG, Runner
from merge_bench.service.sessions import Sessions
from merge_bench.service.store import LOCAL, NAME, Refused, Store, Token
from merge_bench.view.titles import title_of_entry

_LOG_BYTES = 16 << 10


@dataclass(frozen=True)
class Limits:
    """`queue`: jobs that wait; `job_seconds`: of a job; `requests`: a minute and token; `body_bytes`: of a request."""

    queue: int = 1000
    job_seconds: float = 4 * 3600.0
    requests: int = 600
    body_bytes: int = 64 << 10


@dataclass(frozen=True)
class Service:
    """What requests are about.

    `hosts`: the values of ``Host`` that are its own; `scheme`: http or https; `waiting`: limits the requests for
    results that wait for each other; `read_only`: why a page that may only read starts nothing; `only_pages`: of the
    session without a cookie; nothing else is answered.
    """

    store: Store
    runner: Runner
    rules: Rules
    limits: Limits
    hosts: Collection[str]
    scheme: str
    results: ResultsFolder
    read_only: str = "This token can only read; log in with one that has the role run to start runs."
    only_pages: bool = False
    counts: Counter[object] = field(default_factory=Counter)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "api"))
    slow: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "results"))
    waiting: Semaphore = field(default_factory=lambda: Semaphore(8))

    @functools.cached_property
    def sessions(self) -> Sessions:
        """The logins to its pages."""
        return Sessions(self.store)

    def over_limit(self, client: object) -> bool:
        """Count a request of this client; whether it made too many in this minute."""
        minute = time.monotonic() // 60
        if minute not in self.counts:
            self.counts.clear()
        self.counts.update((minute, client))
        return self.counts[client] > self.limits.requests


class AuthorizedRequest(NamedTuple):
    """A request that passed the checks: who asks, the number or name in its path (without a token the service's name in
    the request), its body or query."""

    token: Token
    key: str
    value: Any


def add_job(service: Service, authorized: AuthorizedRequest) -> d.Job:
    """Queue a job."""
    request: d.JobRequest = authorized.value
    if request.key is not None and (not request.key.isprintable() or request.key.startswith(schedules.KEY)):
        raise UsageError(
            f"the key of a job contains only printable characters, and does not begin with {schedules.KEY!r}"
        )
    words = service.rules.words(request)
    row, new = service.store.add(
        authorized.token.name,
        words,
        request.settings,
        most=service.limits.queue,
        resume=request.resume,
        key=request.key,
    )
    if new:
        service.runner.wake()
    return _job(service, row, authorized)


def list_jobs(service: Service, authorized: AuthorizedRequest) -> d.Jobs:
    """List jobs, the newest first."""
    rows = service.store.jobs(limit=authorized.value.limit, offset=authorized.value.offset)
    return d.Jobs(jobs=[_job(service, row, authorized) for row in rows])


def show_job(service: Service, authorized: AuthorizedRequest) -> d.Job:
    """Show a job, with the end of its output."""
    row = _existing(service, authorized)
    result = service.runner.result_of(row) if row.state == "running" else row.result
    log = last_bytes(service.runner.folder_of(row.id) / LOG, _LOG_BYTES)
    return msgspec.structs.replace(_job(service, row, authorized), log=log, result=result)


def show_records(service: Service, authorized: AuthorizedRequest) -> Path:
    """Send the records of a job's campaign, as far as they are written: one JSON document a line."""
    name = show_job(service, authorized).result
    if name is None or not is_result(folder := service.results.path / name):
        raise Refused(404, "no-records", "this job has no records")
    return folder / RECORDS


def cancel_job(service: Service, authorized: AuthorizedRequest) -> d.Job:
    """Cancel a job: a running one is interrupted as Ctrl-C does, and keeps what it measured."""
    row = _existing(service, authorized)
    if not _owns(authorized.token, row):
        raise Refused(403, "not-yours", "this job belongs to another token")
    changed = service.store.cancel(row.id)
    service.runner.wake()
    return _job(service, changed or row, authorized)


def add_schedule(service: Service, authorized: AuthorizedRequest) -> d.Schedule:
    """Add a schedule."""
    return schedules.add(service.store, service.rules, authorized.token.name, authorized.value)


def list_schedules(service: Service, authorized: AuthorizedRequest) -> d.Schedules:
    """List schedules by name."""
    return d.Schedules(schedules=service.store.schedules())


def remove_schedule(service: Service, authorized: AuthorizedRequest) -> d.Schedules:
    """Remove a schedule, and list the others. A job that it has queued stays."""
    if not service.store.remove_schedule(authorized.key, authorized.token.name):
        raise Refused(404, "no-such-schedule", "this token has no schedule with this name")
    return list_schedules(service, authorized)


def list_results(service: Service, authorized: AuthorizedRequest) -> d.Results:
    """List stored results, the newest first."""
    every = [entry for entry in service.results.entries() if entry.origin == YOURS and entry.head is not None]
    shown = every[authorized.value.offset :][: authorized.value.limit]
    return d.Results(results=list(map(_result, shown)), total=len(every))


def show_history(service: Service, authorized: AuthorizedRequest) -> HistoryDocument:
    """Show the levels and shifts of repeated merges."""
    query = msgspec.structs.asdict(authorized.value)
    return history([service.results.path], most=query.pop("limit"), **query)


def health(service: Service, authorized: AuthorizedRequest) -> d.Health:
    """Say whether the service can run jobs. Needs no token."""
    if not service.runner.alive:
        raise Refused(503, "not-running", "the service cannot run jobs")
    return d.Health(ok=True)


def prove(service: Service, authorized: AuthorizedRequest) -> d.Proof:
    """Show a client that the service knows its token, before it sends that. Needs no token."""
    return d.Proof(proof=service.store.prove(authorized.value.token, authorized.value.nonce, authorized.key))


def describe(service: Service, authorized: AuthorizedRequest) -> dict[str, Any]:
    """Describe this interface as an OpenAPI document."""
    return openapi_document(ROUTES, __version__)


@dataclass(frozen=True)
class Route:
    """One kind of request. `role`: that a token needs, None: needs none; `takes`: the type of its body or query."""

    method: str
    path: str
    role: d.Role | None
    answer: Callable[[Service, AuthorizedRequest], Any]
    takes: type[msgspec.Struct] | None = None
    gives: type[msgspec.Struct] | None = None
    status: int = 200
    content: str = "application/json"
    slow: bool = False

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches its path."""
        return re.compile(self.path.replace("{id}", "([0-9]{1,18})").replace("{name}", f"({NAME})"))


ROUTES = (
    Route("POST", "/api/jobs", "run", add_job, d.JobRequest, d.Job, 201),
    Route("GET", "/api/jobs", "read", list_jobs, d.Page, d.Jobs),
    Route("GET", "/api/jobs/{id}", "read", show_job, None, d.Job),
    Route("GET", "/api/jobs/{id}/records", "read", show_records, content="application/x-ndjson"),
    Route("DELETE", "/api/jobs/{id}", "run", cancel_job, None, d.Job),
    Route("POST", "/api/schedules", "run", add_schedule, d.ScheduleRequest, d.Schedule, 201),
    Route("GET", "/api/schedules", "read", list_schedules, None, d.Schedules),
    Route("DELETE", "/api/schedules/{name}", "run", remove_schedule, None, d.Schedules),
    Route("GET", "/api/results", "read", list_results, d.Page, d.Results, slow=True),
    Route("GET", "/api/history", "read", show_history, d.HistoryQuery, HistoryDocument, slow=True),
    Route("GET", "/api/health", None, health, None, d.Health),
    Route("GET", "/api/proof", None, prove, d.ProofQuery, d.Proof),
    Route("GET", "/api/openapi.json", "read", describe),
)


def _existing(service: Service, authorized: AuthorizedRequest) -> d.Row:
    if (row := service.store.job(int(authorized.key))) is None:
        raise Refused(404, "no-such-job", "there is no job with this number")
    return row


def _owns(token: Token, row: d.Row) -> bool:
    return token.role == "run" and token.name in (row.who, LOCAL)


def _job(service: Service, row: d.Row, authorized: AuthorizedRequest) -> d.Job:
    ahead = service.store.ahead(row.id) if row.state == "queued" else 0
    can = row.state in ("queued", "running") and not row.cancelled and _owns(authorized.token, row)
    planned = re.match(f"{schedules.KEY}({NAME}) ", row.key or "")
    return d.Job(
        command=as_typed(row.words), schedule=planned and planned[1], ahead=ahead, cancellable=can,
        **msgspec.structs.asdict(row),
    )  # fmt: skip


def _result(entry: Entry) -> d.ResultRow:
    return d.ResultRow(
        name=entry.folder.name,
        kind=entry.kind,
        title=title_of_entry(entry),
        status=entry.status,
        started=entry.started,
        configs=list(entry.configs),
    )


_REFERENCE = "#/components/schemas/{name}"
_IN_PATHS: dict[str, dict[str, Any]] = {
    "id": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}, "name": {"type": "string", "maxLength": 60},
}  # fmt: skip


def openapi_document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The OpenAPI document of these routes, made of the structures that validate requests."""
    types = [each for route in routes for each in (route.takes, route.gives) if each is not None]
    _, schemas = msgspec.json.schema_components([*types, d.Refusal], ref_template=_REFERENCE)
    for schema in schemas.values():
        schema["description"] = inspect.cleandoc(schema["description"])
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "merge_bench", "version": version},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    described = inspect.getdoc(route.answer)
    given = _content(route.gives.__name__) if route.gives else {route.content: {}}
    operation: dict[str, Any] = {
        "operationId": route.answer.__name__,
        "summary": described,
        "security": [{"token": []}] if route.role else [],
        "responses": {
            str(route.status): {"description": described, "content": given},
            "default": {"description": "The request was refused.", "content": _content(d.Refusal.__name__)},
        },
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in _IN_PATHS.items() if f"{{{name}}}" in route.path
    ]  # fmt: skip
    if route.takes is not None and route.method == "POST":
        operation["requestBody"] = {"required": True, "content": _content(route.takes.__name__)}
    elif route.takes is not None:
        fields = schemas[route.takes.__name__]["properties"].items()
        parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in fields]
    return {**operation, "parameters": parameters}


def _content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(name=name)}}}

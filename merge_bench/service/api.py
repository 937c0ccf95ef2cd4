"""The HTTP interface: the table of its routes, and the answer of each. `handler` checks requests before that."""

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
from merge_bench.records.results_folder import YOURS, Entry, ResultsFolder, is_result
from merge_bench.records.writer import RECORDS
from merge_bench.regressions.document import HistoryDocument, history
from merge_bench.service import documents as d
from merge_bench.service import schedules
from merge_bench.service.job_rules import Rules, typed_command
from merge_bench.service.runner import LOG, Runner
from merge_bench.service.sessions import Sessions
from merge_bench.service.store import LOCAL, NAME, Refused, Store, Token
from merge_bench.view.titles import title_of_entry

_LOG_BYTES = 16 << 10


@dataclass(frozen=True)
class Limits:
    """At most: `queue` jobs that wait, `job_seconds` of a job, `requests` in a minute of a token, `body_bytes` each."""

    queue: int = 1000
    job_seconds: float = 4 * 3600.0
    requests: int = 600
    body_bytes: int = 64 << 10


@dataclass(frozen=True)
class Service:
    """What the answers of requests need.

    `hosts`: the values of the header ``Host`` that name this service; `scheme`: http or https; `waiting`: limits how
    many requests wait for `slow`, the thread that reads results; `read_only`: the sentence that a page shows if it may
    only read; `only_pages`: nothing is answered but the pages of the session that needs no cookie.
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
        """The logins to the service's pages."""
        return Sessions(self.store)

    def too_many_requests(self, client: object) -> bool:
        """Count a request of this client; returns whether it has made too many in this minute."""
        minute = time.monotonic() // 60
        if minute not in self.counts:
            self.counts.clear()
        self.counts.update((minute, client))
        return self.counts[client] > self.limits.requests


class AuthorizedRequest(NamedTuple):
    """A request that passed the checks: the token of who sent it; the number or name in its path (for a route without
    tokens, its header ``Host``); its body or query."""

    token: Token
    key: str
    value: Any


def add_job(service: Service, authorized: AuthorizedRequest) -> d.Job:
    """Queue a job."""
    request: d.JobRequest = authorized.value
    if request.key is not None and (not request.key.isprintable() or request.key.startswith(schedules.KEY_PREFIX)):
        raise UsageError(
            f"the key of a job contains only printable characters, and does not begin with {schedules.KEY_PREFIX!r}"
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
    return _job_document(service, row, authorized)


def list_jobs(service: Service, authorized: AuthorizedRequest) -> d.Jobs:
    """List jobs, the newest first."""
    rows = service.store.jobs(limit=authorized.value.limit, offset=authorized.value.offset)
    return d.Jobs(jobs=[_job_document(service, row, authorized) for row in rows])


def show_job(service: Service, authorized: AuthorizedRequest) -> d.Job:
    """Show a job, with the end of its output."""
    row = _requested_job(service, authorized)
    result = service.runner.result_of(row) if row.state == "running" else row.result
    log = last_bytes(service.runner.folder_of(row.id) / LOG, _LOG_BYTES)
    return msgspec.structs.replace(_job_document(service, row, authorized), log=log, result=result)


def show_records(service: Service, authorized: AuthorizedRequest) -> Path:
    """Send the records of a job's campaign, as far as they are written: one JSON document a line."""
    name = show_job(service, authorized).result
    if name is None or not is_result(folder := service.results.path / name):
        raise Refused(404, "no-records", "this job has no records")
    return folder / RECORDS


def cancel_job(service: Service, authorized: AuthorizedRequest) -> d.Job:
    """Cancel a job: a running one is interrupted as Ctrl-C does, and keeps what it measured."""
    row = _requested_job(service, authorized)
    if not _may_cancel(authorized.token, row):
        raise Refused(403, "not-yours", "this job belongs to another token")
    changed = service.store.cancel(row.id)
    service.runner.wake()
    return _job_document(service, changed or row, authorized)


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
    stored = [entry for entry in service.results.entries() if entry.origin == YOURS and entry.head is not None]
    page = stored[authorized.value.offset :][: authorized.value.limit]
    return d.Results(results=list(map(_result_row, page)), total=len(stored))


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
    """One kind of request.

    `role`: that its token needs, None if it needs no token; `takes`: the type of its body or query; `gives`: that of
    its answer; `slow`: one of these is answered at a time.
    """

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
        """Matches the paths of requests of this kind."""
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


def _requested_job(service: Service, authorized: AuthorizedRequest) -> d.Row:
    if (row := service.store.job(int(authorized.key))) is None:
        raise Refused(404, "no-such-job", "there is no job with this number")
    return row


def _may_cancel(token: Token, row: d.Row) -> bool:
    return token.role == "run" and token.name in (row.who, LOCAL)


def _job_document(service: Service, row: d.Row, authorized: AuthorizedRequest) -> d.Job:
    ahead = service.store.count_ahead(row.id) if row.state == "queued" else 0
    cancellable = row.state in ("queued", "running") and not row.cancelled and _may_cancel(authorized.token, row)
    schedule = re.match(f"{schedules.KEY_PREFIX}({NAME}) ", row.key or "")
    return d.Job(
        command=typed_command(row.words), schedule=schedule and schedule[1], ahead=ahead,
        cancellable=cancellable, **msgspec.structs.asdict(row),
    )  # fmt: skip


def _result_row(entry: Entry) -> d.ResultRow:
    return d.ResultRow(
        name=entry.folder.name,
        kind=entry.kind,
        title=title_of_entry(entry),
        status=entry.status,
        started=entry.started,
        configs=list(entry.configs),
    )


_SCHEMA_REFERENCE = "#/components/schemas/{name}"
_PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "id": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}, "name": {"type": "string", "maxLength": 60},
}  # fmt: skip


def openapi_document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    """The OpenAPI document of these routes, made of the structures that validate requests."""
    types = [kind for route in routes for kind in (route.takes, route.gives) if kind is not None]
    _, schemas = msgspec.json.schema_components([*types, d.Refusal], ref_template=_SCHEMA_REFERENCE)
    for schema in schemas.values():
        schema["description"] = inspect.cleandoc(schema["description"])
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _openapi_operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "merge_bench", "version": version},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _openapi_operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    description = inspect.getdoc(route.answer)
    content = _json_content(route.gives.__name__) if route.gives else {route.content: {}}
    operation: dict[str, Any] = {
        "operationId": route.answer.__name__,
        "summary": description,
        "security": [{"token": []}] if route.role else [],
        "responses": {
            str(route.status): {"description": description, "content": content},
            "default": {"description": "The request was refused.", "content": _json_content(d.Refusal.__name__)},
        },
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name, schema in _PATH_PARAMETERS.items() if f"{{{name}}}" in route.path
    ]  # fmt: skip
    if route.takes is not None and route.method == "POST":
        operation["requestBody"] = {"required": True, "content": _json_content(route.takes.__name__)}
    elif route.takes is not None:
        fields = schemas[route.takes.__name__]["properties"].items()
        parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in fields]
    return {**operation, "parameters": parameters}


def _json_content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _SCHEMA_REFERENCE.format(name=name)}}}

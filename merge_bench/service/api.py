"""The HTTP interface: the table of its routes, the answer of each, and the handler that checks requests first."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import re
import shlex
import sqlite3
import time
from asyncio import Semaphore, get_running_loop
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tornado.httputil import HTTPServerRequest
from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler, StaticFileHandler

from merge_bench.cluster.supervisor import read_last_bytes
from merge_bench.config.installation import __version__
from merge_bench.errors import UsageError
from merge_bench.records.results_folder import YOURS, ResultEntry, ResultsFolder, is_result_folder
from merge_bench.records.writer import RECORDS
from merge_bench.regressions.document import HistoryDocument, load_history
from merge_bench.service import documents as d
from merge_bench.service import schedules
from merge_bench.service.job_rules import JobRules, typed_command_line
from merge_bench.service.runner import LOG, JobRunner
from merge_bench.service.store import LOCAL, NAME, LoginSessions, RequestRefused, ServiceStore, Token
from merge_bench.view.text import mark_unprintable
from merge_bench.view.titles import title_of_result_entry

_LOG_BYTES = 16 << 10
_LOGGER = logging.getLogger(__name__)
_NoFields = msgspec.defstruct("_NoFields", (), forbid_unknown_fields=True)


@dataclass(frozen=True)
class ServiceLimits:
    """Limits of a service: waiting jobs, seconds of a job, requests of a token in a minute, bytes of a request."""

    queue: int = 1000
    job_seconds: float = 4 * 3600.0
    requests: int = 600
    body_bytes: int = 64 << 10


@dataclass(frozen=True)
class ServiceContext:
    """What the answers of requests use of the service: its database, runner, rules, limits and results.

    `hosts`: the values of the header ``Host`` that name this service; `scheme`: http or https; `waiting`: limits how
    many requests wait for `slow`, the thread that reads results; `read_only`: the sentence that a page shows if it may
    only read; `only_pages`: nothing is answered but the pages of the session that needs no cookie; `clock`: the seconds
    by which requests are limited and sessions end.
    """

    store: ServiceStore
    runner: JobRunner
    rules: JobRules
    limits: ServiceLimits
    hosts: Collection[str]
    scheme: str
    results: ResultsFolder
    read_only: str = "This token can only read; log in with one that has the role run to start runs."
    only_pages: bool = False
    clock: Callable[[], float] = time.monotonic
    counts: Counter[object] = field(default_factory=Counter)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "api"))
    slow: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "results"))
    waiting: Semaphore = field(default_factory=lambda: Semaphore(8))

    @functools.cached_property
    def page_sessions(self) -> LoginSessions:
        """The logins to the service's pages."""
        return LoginSessions(self.store, clock=self.clock)

    def too_many_requests(self, client: object) -> bool:
        """Count a request of this client; returns whether the client has made too many requests in this minute."""
        minute = self.clock() // 60
        if minute not in self.counts:
            self.counts.clear()
        self.counts.update((minute, client))
        return self.counts[client] > self.limits.requests


class AuthorizedRequest(NamedTuple):
    """A request that passed the checks.

    `token`: that of the sender; `key`: the number or name in its path, or for a route without tokens its header
    ``Host``; `value`: its body or query.
    """

    token: Token
    key: str
    value: Any


def add_job(service: ServiceContext, request: AuthorizedRequest) -> d.Job:
    """Queue a job."""
    job_request: d.JobRequest = request.value
    if job_request.key is not None and (
        not job_request.key.isprintable() or job_request.key.startswith(schedules.KEY_PREFIX)
    ):
        raise UsageError(
            f"the key of a job contains only printable characters, and does not begin with {schedules.KEY_PREFIX!r}"
        )
    words, most = service.rules.command_arguments(job_request), service.limits.queue
    row, new = service.store.add_job(
        request.token.name,
        words,
        job_request.settings,
        most_queued=most,
        resume=job_request.resume,
        request_key=job_request.key,
    )
    if new:
        service.runner.look_for_jobs_now()
    return _job_document(service, row, request)


def list_jobs(service: ServiceContext, request: AuthorizedRequest) -> d.JobList:
    """List jobs, the newest first."""
    rows = service.store.list_jobs(limit=request.value.limit, offset=request.value.offset)
    return d.JobList(jobs=[_job_document(service, row, request) for row in rows])


def show_job(service: ServiceContext, request: AuthorizedRequest) -> d.Job:
    """Show a job, with the end of its output."""
    row = _find_requested_job(service, request)
    result = service.runner.find_result_name(row) if row.state == "running" else row.result
    log = read_last_bytes(service.runner.job_folder(row.id) / LOG, _LOG_BYTES)
    return msgspec.structs.replace(_job_document(service, row, request), log=log, result=result)


def find_records_file(service: ServiceContext, request: AuthorizedRequest) -> Path:
    """Send the records of a job's campaign, as far as they are written: one JSON document a line."""
    name = show_job(service, request).result
    if name is None or not is_result_folder(folder := service.results.path / name):
        raise RequestRefused(404, "no-records", "this job has no records")
    return folder / RECORDS


def cancel_job(service: ServiceContext, request: AuthorizedRequest) -> d.Job:
    """Cancel a job: a running one is interrupted as Ctrl-C does, and keeps what it measured."""
    row = _find_requested_job(service, request)
    if not _may_cancel_job(request.token, row):
        raise RequestRefused(403, "not-yours", "this job belongs to another token")
    changed = service.store.cancel_job(row.id)
    service.runner.look_for_jobs_now()
    return _job_document(service, changed or row, request)


def add_schedule(service: ServiceContext, request: AuthorizedRequest) -> d.Schedule:
    """Add a schedule, which queues a job at a time of day."""
    return schedules.add_schedule(service.store, service.rules, request.token.name, request.value)


def list_schedules(service: ServiceContext, request: AuthorizedRequest) -> d.ScheduleList:
    """List all schedules, sorted by name."""
    return d.ScheduleList(schedules=service.store.list_schedules())


def remove_schedule(service: ServiceContext, request: AuthorizedRequest) -> d.ScheduleList:
    """Remove a schedule, and list the others. Jobs that the schedule has queued stay in the queue."""
    if not service.store.remove_schedule(request.key, request.token.name):
        raise RequestRefused(404, "no-such-schedule", "this token has no schedule with this name")
    return list_schedules(service, request)


def list_named_commands(service: ServiceContext, request: AuthorizedRequest) -> d.NamedCommandList:
    """List the commands that the operator named, which jobs of exec can run."""
    named = sorted(service.rules.commands.items())
    return d.NamedCommandList(commands=[d.NamedCommand(name=name, command=shlex.join(argv)) for name, argv in named])


def list_results(service: ServiceContext, request: AuthorizedRequest) -> d.ResultList:
    """List stored results, the newest first."""
    stored = [entry for entry in service.results.entries() if entry.origin == YOURS and entry.head is not None]
    page = stored[request.value.offset :][: request.value.limit]
    return d.ResultList(results=list(map(_listed_result, page)), total=len(stored))


def show_history(service: ServiceContext, request: AuthorizedRequest) -> HistoryDocument:
    """Show the levels and shifts of repeated merges."""
    query = msgspec.structs.asdict(request.value)
    return load_history([service.results.path], most_series=query.pop("limit"), **query)


def show_health(service: ServiceContext, request: AuthorizedRequest) -> d.ServiceHealth:
    """Say whether the service can run jobs. Needs no token."""
    if not service.runner.can_run_jobs:
        raise RequestRefused(503, "not-running", "the service cannot run jobs")
    return d.ServiceHealth(ok=True)


def show_token_proof(service: ServiceContext, request: AuthorizedRequest) -> d.TokenProof:
    """Prove to a client that the service knows its token, before the client sends it. Needs no token."""
    return d.TokenProof(
        proof=service.store.make_proof_for_identifier(request.value.token, request.value.nonce, request.key)
    )


def show_openapi_document(service: ServiceContext, request: AuthorizedRequest) -> dict[str, Any]:
    """Describe this interface as an OpenAPI document."""
    return openapi_document(ROUTES, __version__)


@dataclass(frozen=True)
class ApiRoute:
    """A route of the HTTP interface: method, path, role, and the function that answers.

    `role`: the role that a token needs, None if the route needs no token; `takes`: the type of its body or query;
    `gives`: the type of its answer; `slow`: whether only one such request is answered at a time.
    """

    method: str
    path: str
    role: d.Role | None
    answer: Callable[[ServiceContext, AuthorizedRequest], Any]
    takes: type[msgspec.Struct] | None = None
    gives: type[msgspec.Struct] | None = None
    status: int = 200
    content: str = "application/json"
    slow: bool = False

    @functools.cached_property
    def path_pattern(self) -> re.Pattern[str]:
        """The regular expression of the paths that belong to this route; its groups are number and name."""
        return re.compile(self.path.replace("{id}", "([0-9]{1,18})").replace("{name}", f"({NAME})"))


ROUTES = (
    ApiRoute("POST", "/api/jobs", "run", add_job, d.JobRequest, d.Job, 201),
    ApiRoute("GET", "/api/jobs", "read", list_jobs, d.ListPageQuery, d.JobList),
    ApiRoute("GET", "/api/jobs/{id}", "read", show_job, None, d.Job),
    ApiRoute("GET", "/api/jobs/{id}/records", "read", find_records_file, content="application/x-ndjson"),
    ApiRoute("DELETE", "/api/jobs/{id}", "run", cancel_job, None, d.Job),
    ApiRoute("POST", "/api/schedules", "run", add_schedule, d.ScheduleRequest, d.Schedule, 201),
    ApiRoute("GET", "/api/schedules", "read", list_schedules, None, d.ScheduleList),
    ApiRoute("DELETE", "/api/schedules/{name}", "run", remove_schedule, None, d.ScheduleList),
    ApiRoute("GET", "/api/commands", "run", list_named_commands, None, d.NamedCommandList),
    ApiRoute("GET", "/api/results", "read", list_results, d.ListPageQuery, d.ResultList, slow=True),
    ApiRoute("GET", "/api/history", "read", show_history, d.HistoryQuery, HistoryDocument, slow=True),
    ApiRoute("GET", "/api/health", None, show_health, None, d.ServiceHealth),
    ApiRoute("GET", "/api/proof", None, show_token_proof, d.TokenProofQuery, d.TokenProof),
    ApiRoute("GET", "/api/openapi.json", "read", show_openapi_document),
)


def _find_requested_job(service: ServiceContext, request: AuthorizedRequest) -> d.StoredJob:
    if (row := service.store.find_job(int(request.key))) is None:
        raise RequestRefused(404, "no-such-job", "there is no job with this number")
    return row


def _may_cancel_job(token: Token, job: d.StoredJob) -> bool:
    return token.role == "run" and token.name in (job.who, LOCAL)


def _job_document(service: ServiceContext, job: d.StoredJob, request: AuthorizedRequest) -> d.Job:
    ahead = service.store.count_jobs_ahead(job.id) if job.state == "queued" else 0
    cancellable = job.state in ("queued", "running") and not job.cancelled and _may_cancel_job(request.token, job)
    schedule = re.match(f"{schedules.KEY_PREFIX}({NAME}) ", job.key or "")
    name, stored = schedule and schedule[1], msgspec.structs.asdict(job)
    return d.Job(command=typed_command_line(job.words), schedule=name, ahead=ahead, cancellable=cancellable, **stored)


def _listed_result(entry: ResultEntry) -> d.ListedResult:
    name, title, configs = entry.folder.name, title_of_result_entry(entry), list(entry.configs)
    return d.ListedResult(
        name=name, kind=entry.kind, title=title, status=entry.status, started=entry.started, configs=configs
    )


_SCHEMA_REFERENCE = "#/components/schemas/{name}"
_PATH_PARAMETERS: dict[str, dict[str, Any]] = {
    "id": {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
    "name": {"type": "string", "maxLength": 60},
}


def openapi_document(routes: Sequence[ApiRoute], version: str) -> dict[str, Any]:
    """The OpenAPI document of `routes`, made of the structures that validate requests."""
    types = [kind for route in routes for kind in (route.takes, route.gives) if kind is not None]
    _, schemas = msgspec.json.schema_components([*types, d.RefusalResponse], ref_template=_SCHEMA_REFERENCE)
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


def _openapi_operation(route: ApiRoute, schemas: dict[str, Any]) -> dict[str, Any]:
    description = inspect.getdoc(route.answer)
    content = _openapi_json_content(route.gives.__name__) if route.gives else {route.content: {}}
    operation: dict[str, Any] = {
        "operationId": route.answer.__name__,
        "summary": description,
        "security": [{"token": []}] if route.role else [],
        "responses": {
            str(route.status): {"description": description, "content": content},
            "default": {
                "description": "The request was refused.",
                "content": _openapi_json_content(d.RefusalResponse.__name__),
            },
        },
    }
    in_path = [(name, schema) for name, schema in _PATH_PARAMETERS.items() if f"{{{name}}}" in route.path]
    parameters = [{"name": name, "in": "path", "required": True, "schema": schema} for name, schema in in_path]
    if route.takes is not None and route.method == "POST":
        operation["requestBody"] = {"required": True, "content": _openapi_json_content(route.takes.__name__)}
    elif route.takes is not None:
        fields = schemas[route.takes.__name__]["properties"].items()
        parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in fields]
    return {**operation, "parameters": parameters}


def _openapi_json_content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _SCHEMA_REFERENCE.format(name=name)}}}


class ApiHandler(RequestHandler):
    """Checks and answers a request of the HTTP interface, whatever its path."""

    def initialize(self, service: ServiceContext) -> None:
        """Keep `service`; tornado calls this method, and then `set_default_headers` and `prepare`."""
        self.service = service

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")

    def compute_etag(self) -> None:
        """Return None, so that answers have no ETag and are not cached."""

    async def prepare(self) -> None:
        """Check the request and answer it, whatever its method: tornado's methods `get`, `post`, … are not used."""
        try:
            route, authorized = self._authorize_request()
            answer = await self._answer_in_thread(route, authorized)
            self.set_status(route.status)
            self.set_header("Content-Type", route.content)
            if not isinstance(answer, Path):
                await self.finish(msgspec.json.encode(answer))
                return
            with contextlib.suppress(StreamClosedError):
                for piece in StaticFileHandler.get_content(str(answer)):  # a file of any size, which may grow
                    self.write(piece)
                    await self.flush()
            self.finish()
        except RequestRefused as refused:
            self._refuse_request(refused.status, refused.code, str(refused))
        except UsageError as error:
            self._refuse_request(400, "refused", str(error))
        except sqlite3.OperationalError as error:  # a full disk, for example
            self._refuse_request(503, "storage", f"the service cannot store anything now: {error}")

    async def _answer_in_thread(self, route: ApiRoute, request: AuthorizedRequest) -> Any:
        """Answer in a thread, slow routes one at a time; health at once, whatever others ask for."""
        service, loop = self.service, get_running_loop()
        if route.role is None:
            return route.answer(service, request)
        if not route.slow:
            return await loop.run_in_executor(service.threads, route.answer, service, request)
        if service.waiting.locked():
            raise RequestRefused(429, "busy", "others wait for results already; try again later")
        async with service.waiting:
            return await loop.run_in_executor(service.slow, route.answer, service, request)

    def _authorize_request(self) -> tuple[ApiRoute, AuthorizedRequest]:
        """Check the request; returns its route and what the route's function takes; raises `RequestRefused`."""
        service, request = self.service, self.request
        check_host_and_origin(service, request)
        if service.only_pages:
            raise RequestRefused(403, "only-pages", "open the whole address that merge-bench dashboard printed")
        matches = ((route, route.path_pattern.fullmatch(request.path)) for route in ROUTES)
        routes = {route.method: (route, "".join(match.groups())) for route, match in matches if match}
        route, key = routes.get(request.method or "", (None, ""))
        if route is not None and route.role is None:
            value = self._read_request_input(route) if route.takes else None
            return route, AuthorizedRequest(Token("", "read"), request.headers["Host"], value)
        token = self._find_token()
        if not routes:
            raise RequestRefused(404, "no-such-address", "there is nothing at this address; see /api/openapi.json")
        if route is None:
            self.set_header("Allow", ", ".join(routes))
            raise RequestRefused(405, "no-such-method", "this address does not have that method")
        if route.role == "run" and token.role != "run":
            raise RequestRefused(403, "read-only", "this token can only read; ask for one with the role run")
        return route, AuthorizedRequest(token, key, self._read_request_input(route))

    def _find_token(self) -> Token:
        """Return the token in the request's header; raises `RequestRefused` if unknown, or after too many requests."""
        kind, _, secret = self.request.headers.get("Authorization", "").partition(" ")
        token = self.service.store.find_token(secret.strip()) if kind.lower() == "bearer" and secret else None
        if self.service.too_many_requests(token or self.request.remote_ip):
            self.set_header("Retry-After", "60")
            raise RequestRefused(429, "too-many-requests", "too many requests in this minute; wait for the next one")
        if token is None:
            self.set_header("WWW-Authenticate", "Bearer")
            why = "this token is not known" if secret else "this needs a token: Authorization: Bearer TOKEN"
            raise RequestRefused(401, "no-token", why)
        return token

    def _read_request_input(self, route: ApiRoute) -> Any:
        """Read the body or query of the request as the type that `route` takes; raises `RequestRefused`."""
        if route.method == "POST":
            kind = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise RequestRefused(415, "not-json", "the body must have the Content-Type application/json")
        elif self.request.body:
            raise RequestRefused(400, "body", "this request takes no body")
        try:
            if route.method == "POST":
                return msgspec.json.decode(self.request.body, type=route.takes)
            query = {name: values[-1].decode() for name, values in self.request.query_arguments.items()}
            return msgspec.convert(query, route.takes or _NoFields, strict=False)
        except (ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else mark_unprintable(str(error))[:300]
            raise RequestRefused(400, "invalid", f"the request is not valid: {why}") from None

    def _refuse_request(self, status: int, code: str, message: str) -> None:
        self.set_status(status)
        self.finish(msgspec.json.encode(d.RefusalResponse(error=d.RefusalReason(code=code, message=message))))

    def write_error(self, status_code: int, **_: Any) -> None:
        """Answer with an error that tornado found, or with one for a mistake of this program, which is logged."""
        sentences = {400: "the request cannot be understood", 405: "this method does not exist"}
        message = sentences.get(status_code, "the service made a mistake; its log has more")
        self._refuse_request(status_code, f"http-{status_code}", message)

    def log_exception(self, kind: Any, value: Any, trace: Any) -> None:
        """Log errors of this program, but not those that tornado answers itself, such as a malformed request."""
        if not isinstance(value, HTTPError):
            _LOGGER.error("a request failed", exc_info=(kind, value, trace))


def check_host_and_origin(service: ServiceContext, request: HTTPServerRequest) -> None:
    """Raise `RequestRefused` if ``Host`` is no name of the service, or ``Origin`` is that of another site."""
    if request.headers.get("Host", "").lower() not in service.hosts:
        raise RequestRefused(403, "wrong-host", "this name is not one of the service's own; see serve --host-name")
    origin = request.headers.get("Origin")
    scheme, _, host = (origin or "").lower().partition("://")
    # A proxy may speak TLS for a service that does not.
    if origin is not None and (host not in service.hosts or scheme not in (service.scheme, "https")):
        raise RequestRefused(403, "wrong-origin", "pages of other sites cannot use this service")

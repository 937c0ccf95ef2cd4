"""The HTTP interface: host, origin, token and size of a request are checked before anything else is done with it."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import shlex
import sqlite3
import time
from asyncio import get_running_loop
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from tornado.httputil import HTTPServerRequest
from tornado.iostream import StreamClosedError
from tornado.web import Application, HTTPError, RequestHandler

from merge_bench.analysis.documents.history import HistoryDocument
from merge_bench.analysis.history.document import history
from merge_bench.cluster.supervisor import last_bytes
from merge_bench.config.version import __version__
from merge_bench.errors import MergeBenchError, UsageError
from merge_bench.records.writer import RECORDS
from merge_bench.service import documents as d
from merge_bench.service import openapi, schedules
from merge_bench.service.rules import Rules
from merge_bench.service.runner import LOG, Runner
from merge_bench.service.store import LOCAL, QUEUED, RUNNING, QueueFull, Store, Token
from merge_bench.view.dashboard.campaign_index import YOURS, Entry

_MOST_WAITING = 8
"""Requests for results that wait for each other."""
_LOG_BYTES, _CHUNK_BYTES = 16 << 10, 256 << 10
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Limits:
    """`queue`: jobs that wait; `job_seconds`: of a job; `requests`: a minute and token; `body_bytes`: of a request."""

    queue: int = 1000
    job_seconds: float = 4 * 3600.0
    requests: int = 600
    body_bytes: int = 64 << 10


class Rate:
    """Counts what each client did in this minute."""

    def __init__(self) -> None:
        self._minute = 0
        self._counts: Counter[object] = Counter()

    def count(self, client: object) -> int:
        """Count once more; gives how often that was."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute = minute
            self._counts.clear()
        self._counts[client] += 1
        return self._counts[client]


class Refused(MergeBenchError):
    """The answer is an error: an HTTP status, a word for programs, and a sentence."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True)
class Service:
    """What requests are about.

    `hosts`: the values of ``Host`` that are its own; `scheme`: http or https; `results`: gives the stored results, the
    newest first.
    """

    store: Store
    runner: Runner
    rules: Rules
    limits: Limits
    hosts: Collection[str]
    scheme: str
    results: Callable[[], Sequence[Entry]]
    rate: Rate = field(default_factory=Rate)
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4, "api"))
    slow: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "results"))
    waiting: list[object] = field(default_factory=list)

    def over_limit(self, client: object) -> bool:
        """Count a request of this client; whether it made too many in this minute."""
        return self.rate.count(client) > self.limits.requests


class Asked(NamedTuple):
    """A request that passed the checks: who asks, the number or name in its path, its body or query."""

    token: Token
    key: str
    value: Any


def add_job(service: Service, asked: Asked) -> d.Job:
    """Queue a job."""
    request: d.JobRequest = asked.value
    if request.key is not None and not request.key.isprintable():
        raise UsageError("the key of a job can contain only printable characters")
    words = service.rules.words(request)
    row, new = service.store.add(
        asked.token.name, words, request.settings, most=service.limits.queue, resume=request.resume, key=request.key
    )
    if new:
        service.runner.wake()
    return _job(service, row, asked)


def list_jobs(service: Service, asked: Asked) -> d.Jobs:
    """List jobs, the newest first."""
    rows = service.store.jobs(limit=asked.value.limit, offset=asked.value.offset)
    return d.Jobs(jobs=[_job(service, row, asked) for row in rows], queued=service.store.ahead())


def show_job(service: Service, asked: Asked) -> d.Job:
    """Show a job, with the end of its output."""
    row = _existing(service, asked)
    job = _job(service, row, asked)
    result = service.runner.result_of(row) if row.state == RUNNING else row.result
    log = last_bytes(service.runner.folder_of(row.id) / LOG, _LOG_BYTES)
    return msgspec.structs.replace(job, log=log, result=result)


def show_records(service: Service, asked: Asked) -> Path:
    """Send the records of a job's campaign, as far as they are written: one JSON document a line."""
    name = show_job(service, asked).result
    if name is None or not (file := service.rules.results / name / RECORDS).is_file():
        raise Refused(404, "no-records", "this job has no records")
    return file


def cancel_job(service: Service, asked: Asked) -> d.Job:
    """Cancel a job: a running one is interrupted as Ctrl-C does, and keeps what it measured."""
    row = _existing(service, asked)
    if not _owns(asked.token, row):
        raise Refused(403, "not-yours", "this job belongs to another token")
    changed = service.store.cancel(row.id)
    service.runner.wake()
    return _job(service, changed or row, asked)


def add_schedule(service: Service, asked: Asked) -> d.Schedule:
    """Add a schedule."""
    return schedules.add(service.store, service.rules, asked.token.name, asked.value)


def list_schedules(service: Service, asked: Asked) -> d.Schedules:
    """List schedules by name."""
    return d.Schedules(schedules=service.store.schedules())


def remove_schedule(service: Service, asked: Asked) -> d.Schedules:
    """Remove a schedule, and list the others. A job that it has queued stays."""
    if not service.store.remove_schedule(asked.key, asked.token.name):
        raise Refused(404, "no-such-schedule", "this token has no schedule with this name")
    return list_schedules(service, asked)


def list_results(service: Service, asked: Asked) -> d.Results:
    """List stored results, the newest first."""
    every = [entry for entry in service.results() if entry.origin == YOURS and entry.head is not None]
    shown = every[asked.value.offset :][: asked.value.limit]
    return d.Results(results=list(map(_result, shown)), total=len(every))


def show_history(service: Service, asked: Asked) -> HistoryDocument:
    """Show the levels and shifts of repeated merges."""
    query = msgspec.structs.asdict(asked.value)
    return history([service.rules.results], most=query.pop("limit"), **query)


def health(service: Service, asked: Asked) -> d.Health:
    """Say whether the service can run jobs. Needs no token."""
    if not service.runner.alive:
        raise Refused(503, "not-running", "the service cannot run jobs")
    return d.Health(ok=True)


def describe(service: Service, asked: Asked) -> dict[str, Any]:
    """Describe this interface as an OpenAPI document."""
    return openapi.document(ROUTES, __version__)


@dataclass(frozen=True)
class Route:
    """One kind of request. `role`: that a token needs, None: needs none; `takes`: the type of its body or query."""

    method: str
    path: str
    role: d.Role | None
    answer: Callable[[Service, Asked], Any]
    takes: type[msgspec.Struct] | None = None
    gives: type[msgspec.Struct] | None = None
    status: int = 200
    content: str = "application/json"
    slow: bool = False

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches its path."""
        return re.compile(self.path.replace("{id}", "([0-9]{1,18})").replace("{name}", f"({schedules.NAME})"))


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
    Route("GET", "/api/openapi.json", "read", describe),
)


def _existing(service: Service, asked: Asked) -> d.Row:
    row = service.store.job(int(asked.key))
    if row is None:
        raise Refused(404, "no-such-job", "there is no job with this number")
    return row


def _owns(token: Token, row: d.Row) -> bool:
    return token.role == "run" and token.name in (row.who, LOCAL)


def _job(service: Service, row: d.Row, asked: Asked) -> d.Job:
    ahead = service.store.ahead(row.id) if row.state == QUEUED else 0
    can = row.state in (QUEUED, RUNNING) and not row.cancelled and _owns(asked.token, row)
    command = shlex.join(["merge-bench", *row.words])
    return d.Job(command=command, ahead=ahead, cancellable=can, **msgspec.structs.asdict(row))


def _result(entry: Entry) -> d.ResultRow:
    return d.ResultRow(
        name=entry.folder.name, kind=entry.kind, title=entry.title, status=entry.status, started=entry.started,
        configs=list(entry.configs),
    )  # fmt: skip


class Api(RequestHandler):
    """Answers every request, to whatever path."""

    def initialize(self, service: Service) -> None:
        """Called by tornado with what the application has for this handler."""
        self.service = service

    def set_default_headers(self) -> None:
        """Called by tornado before each answer."""
        self.clear_header("Server")
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")

    def compute_etag(self) -> None:
        """No answer is cached."""

    async def prepare(self) -> None:
        """Check the request and answer it; tornado's methods by name are not used."""
        try:
            route, asked = self._asked()
            found = await self._answer(route, asked)
            self.set_status(route.status)
            self.set_header("Content-Type", route.content)
            if isinstance(found, Path):
                await self._send(found)
            else:
                await self.finish(msgspec.json.encode(found))
        except Refused as refused:
            self._refuse(refused.status, refused.code, str(refused))
        except QueueFull as full:
            self._refuse(429, full.code, str(full))
        except UsageError as error:
            self._refuse(400, "refused", str(error))
        except sqlite3.OperationalError as error:  # a full disk, for example
            self._refuse(503, "storage", f"the service cannot store anything now: {error}")

    async def _answer(self, route: Route, asked: Asked) -> Any:
        """In a thread, and of what takes long one at a time: health is answered at once, whatever others ask for."""
        service = self.service
        if route.role is None:
            return route.answer(service, asked)
        if not route.slow:
            return await get_running_loop().run_in_executor(service.threads, route.answer, service, asked)
        if len(service.waiting) >= _MOST_WAITING:
            raise Refused(429, "busy", "others wait for results already; try again later")
        service.waiting.append(self)
        try:
            return await get_running_loop().run_in_executor(service.slow, route.answer, service, asked)
        finally:
            service.waiting.remove(self)

    async def _send(self, file: Path) -> None:
        """Send a file in chunks, so that it may have any size and grow meanwhile."""
        with file.open("rb") as stream, contextlib.suppress(StreamClosedError):
            while piece := stream.read(_CHUNK_BYTES):
                self.write(piece)
                await self.flush()
        self.finish()

    def _asked(self) -> tuple[Route, Asked]:
        """The route and what it needs; raises `Refused`."""
        service, request = self.service, self.request
        check_place(service, request)
        matches = [(route, match) for route in ROUTES if (match := route.pattern.fullmatch(request.path))]
        found = next(((route, match) for route, match in matches if route.method == request.method), None)
        if found is not None and found[0].role is None:
            return found[0], Asked(Token("", "read"), "", None)
        token = self._token()
        if found is None:
            if matches:
                self.set_header("Allow", ", ".join(route.method for route, _ in matches))
                raise Refused(405, "no-such-method", "this address does not have that method")
            raise Refused(404, "no-such-address", "there is nothing at this address; see /api/openapi.json")
        route, match = found
        if route.role == "run" and token.role != "run":
            raise Refused(403, "read-only", "this token can only read; ask for one with the role run")
        return route, Asked(token, "".join(match.groups()), self._value(route))

    def _token(self) -> Token:
        """Whose token the request has."""
        kind, _, given = self.request.headers.get("Authorization", "").partition(" ")
        token = self.service.store.find_token(given.strip()) if kind.lower() == "bearer" and given else None
        if self.service.over_limit(token or self.request.remote_ip):
            self.set_header("Retry-After", "60")
            raise Refused(429, "too-many-requests", "too many requests in this minute; wait for the next one")
        if token is None:
            self.set_header("WWW-Authenticate", "Bearer")
            raise Refused(401, "no-token", "this needs a token: Authorization: Bearer TOKEN")
        return token

    def _value(self, route: Route) -> Any:
        """The body or the query, checked."""
        if route.method == "POST":
            kind = self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                raise Refused(415, "not-json", "the body must have the Content-Type application/json")
        elif self.request.body:
            raise Refused(400, "body", "this request takes no body")
        try:
            if route.method == "POST":
                return msgspec.json.decode(self.request.body, type=route.takes)
            query = {name: values[-1].decode() for name, values in self.request.query_arguments.items()}
            if route.takes is not None:
                return msgspec.convert(query, route.takes, strict=False)
        except (ValueError, RecursionError) as error:
            raise Refused(400, "invalid", f"the request is not valid: {_sentence(error)}") from None
        if query:
            raise Refused(400, "invalid", "this request takes no parameters")
        return None

    def _refuse(self, status: int, code: str, message: str) -> None:
        self.set_status(status)
        self.finish(msgspec.json.encode(d.Refusal(error=d.Problem(code=code, message=message))))

    def write_error(self, status_code: int, **given: Any) -> None:
        """Tornado's own refusals, and mistakes of this program, which are logged."""
        known = {400: "the request cannot be understood", 405: "this method does not exist"}
        message = known.get(status_code, "the service made a mistake; its log has more")
        self._refuse(status_code, f"http-{status_code}", message)

    def log_exception(self, kind: Any, value: Any, trace: Any) -> None:
        """Log mistakes of this program only."""
        if not isinstance(value, HTTPError):
            _LOGGER.error("a request failed", exc_info=(kind, value, trace))


def check_place(service: Service, request: HTTPServerRequest) -> None:
    """Raise `Refused` for a name that is not the service's own, and for pages of other sites."""
    if request.headers.get("Host", "").lower() not in service.hosts:
        raise Refused(403, "wrong-host", "this name is not one of the service's own; see serve --host-name")
    origin = request.headers.get("Origin")
    scheme, _, host = (origin or "").lower().partition("://")
    # A proxy may speak TLS for a service that does not.
    if origin is not None and (host not in service.hosts or scheme not in (service.scheme, "https")):
        raise Refused(403, "wrong-origin", "pages of other sites cannot use this service")


def application(service: Service) -> Application:
    """The application that answers requests to `service`."""
    return Application([(".*", Api, {"service": service})], log_function=lambda handler: None)


def _sentence(error: Exception) -> str:
    text = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return "".join(each if each.isprintable() else "?" for each in text)[:300]

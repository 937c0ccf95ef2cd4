"""The service as a process: opens its folder, listens, serves pages, and runs jobs until a signal ends it.

The `dashboard` command is a service for one person: its page needs no login, and may name any table.

A user who logs in with a token gets the pages of a session; other requests go to the API. `AuthorizingRouter` checks
host, origin and session before any of Bokeh's handlers gets a request. A `PageApplicationMaker` makes what a page
shows, with the `JobQueue` of its session.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import logging
import os
import re
import resource
import socket
import ssl
import sys
import webbrowser
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.iostream import IOStream
from tornado.netutil import bind_unix_socket
from tornado.routing import Router
from tornado.web import Application

from merge_bench.analysis.published import published_results_folders
from merge_bench.cluster import signals, supervisor
from merge_bench.config.files import make_user_cache_folder, open_regular_file
from merge_bench.errors import RunFailed, UsageError
from merge_bench.host.network import allowed_page_origins, choose_server_port, format_host_for_url, is_loopback_address
from merge_bench.records.results_folder import ResultEntry, ResultsFolder
from merge_bench.service import api
from merge_bench.service import documents as d
from merge_bench.service.api import ApiHandler, AuthorizedRequest, ServiceContext, ServiceLimits, check_host_and_origin
from merge_bench.service.job_rules import JobRules, options_by_job_command
from merge_bench.service.named_commands import check_command_programs
from merge_bench.service.runner import JobRunner
from merge_bench.service.schedules import LOOK_SECONDS, queue_due_scheduled_jobs
from merge_bench.service.store import (
    FOLDER,
    LOCAL,
    RequestRefused,
    ServiceStore,
    Token,
    has_running_service,
    open_service_store,
)

if TYPE_CHECKING:
    from bokeh.server.tornado import BokehTornado

TOKEN_FILE, SOCKET = "token", "socket"
_NO_LIMIT = 1e9
"""The longest time of a job of a person's dashboard, in seconds."""
_HOST_NAME = re.compile(r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?", re.ASCII)
_MOST_CONNECTIONS = 256
_CONNECTION_LIMITS: Any = {"max_header_size": 16 << 10, "idle_connection_timeout": 10.0, "body_timeout": 30.0}
PAGE_SECONDS_DURING_JOB = 10.0
"""The least seconds between two updates of a page of several users' service while a job runs."""
HOLD_SECONDS = 1.0
"""For this long, several pages share one listing of the folder."""
_MOST_LISTED_JOBS = 1000
_ICON_PATH = "/favicon.ico"
"""Browsers ask for the icon there, whatever the address of the page."""
_PAGE_PATHS = re.compile(r"/|/ws|/static/.*|/logout")
_SESSION_PATH = re.compile(r"/([\w-]{32})(/.*)")
_LOGIN_FORM = (resources.files("merge_bench.service") / "login.html").read_text(encoding="utf-8")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"


class ServiceResultsFolder(ResultsFolder):
    """The results of the service. While a job runs, it reads only the campaigns of that job and of the one before.

    `hold_seconds`: how long several pages share one listing of the folder.
    """

    def __init__(self, results: Path, runner: JobRunner, hold_seconds: float = HOLD_SECONDS) -> None:
        super().__init__(results, other_folders=published_results_folders(results), hold_seconds=hold_seconds)
        self._runner = runner
        self._recent_names: list[str] = []

    def entries(self) -> tuple[ResultEntry, ...]:
        """Every result, the newest first."""
        job = self._runner.current
        if job is None:
            return super().entries()
        if (name := self._runner.find_result_name(job)) is not None and name not in self._recent_names:
            self._recent_names = [*self._recent_names[-1:], name]
        return self.refresh_entries(self._recent_names)


class TokenJobQueue:
    """The queue of jobs for the holder of a token; each call checks the token.

    `token`: a function that returns that token, None once it is invalid; `is_logged_in`: whether its holder can log
    out.
    """

    def __init__(
        self, service: ServiceContext, token: Callable[[], Token | None], *, is_logged_in: bool = False
    ) -> None:
        self._service, self.token, self.is_logged_in = service, token, is_logged_in
        self.fetch_jobs = partial(
            self._call_route_function, api.list_jobs, request_value=d.ListPageQuery(limit=_MOST_LISTED_JOBS)
        )
        self.fetch_job, self.cancel_job = (
            partial(self._call_route_function, answer) for answer in (api.show_job, api.cancel_job)
        )

    @property
    def queueable_commands(self) -> Mapping[str, Collection[str]]:
        """The commands that can be queued, each with the keys of its options."""
        return options_by_job_command()

    @property
    def refusal_reason(self) -> str:
        """The reason why this user cannot start runs, as a sentence; empty if the user can."""
        token = self.token()
        return "" if token is not None and token.role == "run" else self._service.read_only

    @property
    def end_reason(self) -> str:
        """The reason why the page must end, as a sentence; empty as long as its token is valid."""
        return "" if self.token() is not None else "Your session has ended, or your token was removed; log in again."

    def queue_run(self, command: str, configs: Sequence[str], options: Mapping[str, str]) -> d.Job:
        """Queue a job with a command, configs and options; raises UsageError or RequestRefused."""
        if reason := self.refusal_reason:
            raise RequestRefused(403, "read-only", reason)
        try:
            request = msgspec.convert({"command": command, "configs": configs, "options": options}, d.JobRequest)
        except msgspec.ValidationError as error:
            raise UsageError(str(error)) from None
        job: d.Job = self._call_route_function(api.add_job, request_value=request)
        return job

    def _call_route_function(
        self,
        route_function: Callable[[ServiceContext, AuthorizedRequest], Any],
        job_number: int = 0,
        request_value: Any = None,
    ) -> Any:
        token = self.token()
        if token is None:
            raise RequestRefused(401, "no-token", self.end_reason)
        return route_function(self._service, AuthorizedRequest(token, str(job_number), request_value))


class PageApplicationMaker(Protocol):
    """Makes the web application of the dashboard's pages.

    `allowed_hosts`: those whose pages may connect; `queue_of_session`: gives the job queue of a session by the
    session's name; `least_update_seconds`: gives the least seconds between two updates of a page.
    """

    def __call__(
        self,
        results: ResultsFolder,
        allowed_hosts: Sequence[str],
        queue_of_session: Callable[[str], TokenJobQueue],
        least_update_seconds: Callable[[], float],
    ) -> BokehTornado: ...


class LoginHandler(ApiHandler):
    """Shows the form for a token and begins a session with it; each request counts for the limit.

    `ended`: the name of the session that this request ends.
    """

    def initialize(self, service: ServiceContext, ended: str | None = None) -> None:
        """Keep the service, and the name of the session to end, if any; tornado calls this method."""
        super().initialize(service)
        self.ended = ended

    async def prepare(self) -> None:
        """End a session, begin one, or show the login form."""
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        self.set_header("Content-Security-Policy", _POLICY)
        secret, problem = self.get_body_argument("token", ""), ""
        if self.ended is not None:
            self.service.page_sessions.end_session(self.ended)
            self.clear_cookie(session_cookie_name(self.request), path=f"/{self.ended}/")
            self.redirect("/", status=303)
            return
        if self.service.too_many_requests(self.request.remote_ip):
            self.set_status(429)
            problem = "Too many requests in this minute; wait for the next one."
        elif self.service.store.find_token(secret) is not None:
            secure = self.request.headers.get("Origin", self.service.scheme).startswith("https")  # a proxy's, too
            path, cookie = self.service.page_sessions.begin_session(secret)
            self.set_cookie(
                session_cookie_name(self.request),
                cookie,
                path=f"/{path}/",
                httponly=True,
                samesite="Strict",
                secure=secure,
            )
            self.redirect(f"/{path}/", status=303)
            return
        elif self.request.method == "POST":
            self.set_status(401)
            problem = "The service does not have this token."
        await self.finish(_LOGIN_FORM.replace("PROBLEM", problem))


def session_cookie_name(request: HTTPServerRequest) -> str:
    """The name of the session's cookie, with the port, so that people who look at cookies know the service."""
    return f"merge-bench-{request.host.rpartition(':')[2]}"


class AuthorizingRouter(Router):
    """Checks host, origin and session of each request, and chooses its handler: the API, the login, or a page."""

    def __init__(
        self, service: ServiceContext, make_page_application: PageApplicationMaker, *, pace: Callable[[], float]
    ) -> None:
        self._service = service
        self._application = Application(log_function=lambda handler: None)
        hosts = [host if ":" in host else f"{host}:80" for host in service.hosts]

        def queue_of_session(session_name: str) -> TokenJobQueue:
            sessions = service.page_sessions
            return TokenJobQueue(
                service,
                partial(sessions.session_token, session_name),
                is_logged_in=not sessions.is_cookieless_session(session_name),
            )

        self.pages = make_page_application(service.results, hosts, queue_of_session, pace)

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> HTTPMessageDelegate | None:
        """Choose the handler of a request by its headers; tornado calls this method."""
        service, morsel = self._service, request.cookies.get(session_cookie_name(request))
        cookie = None if morsel is None else morsel.value
        match = _SESSION_PATH.fullmatch(request.path)
        name, path = (match[1], match[2]) if match else ("", request.path)
        page = request.method == "GET" and _PAGE_PATHS.fullmatch(path) is not None
        form = request.path == "/login" or (page and path == "/")
        handler: type[ApiHandler] = ApiHandler
        options: dict[str, Any] = {}
        try:
            check_host_and_origin(service, request)
            if request.path == _ICON_PATH:
                return self.pages.find_handler(request)
            if match and page and service.page_sessions.has_session(name, cookie):
                if path != "/logout":
                    # The parts of a page have addresses relative to its own.
                    request.path, request.uri = path, (request.uri or "").removeprefix(f"/{name}")
                    request.session = name  # type: ignore[attr-defined]  # for the maker of pages
                    return self.pages.find_handler(request)
                form, options = True, {"ended": name}
            if form and not service.only_pages:
                handler = LoginHandler
        except RequestRefused:
            pass  # `ApiHandler` says why
        return self._application.get_handler_delegate(request, handler, {"service": service, **options})


@dataclass(frozen=True)
class DashboardUser:
    """The only user of a dashboard. `allow_run`: whether runs can be started, but only after a login."""

    allow_run: bool = False
    open_browser: bool = False


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of a service: results folder, address, port and limits.

    `tables`: folders whose tables jobs may read; `commands`: those that jobs may run by name, each with its words;
    `host_names`: by which clients reach the service besides its address, each with the port of a proxy if there is one;
    `tls_cert`, `tls_key`: files; `insecure`: serve another address than loopback without them; `person`: whose
    dashboard it is.
    """

    results: Path
    port: int
    address: str
    tables: Sequence[Path] = ()
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    host_names: Sequence[str] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    person: DashboardUser | None = None


class _LimitedServer(HTTPServer):
    """Limits the connections at a time: anybody can open them, and jobs need open files, too."""

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        if len(self._connections) < min(_MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4):
            super().handle_stream(stream, address)
        else:
            stream.close()


def serve_until_signal(settings: ServiceSettings, make_page_application: PageApplicationMaker) -> int:
    """Serve until a signal ends the service. A job that runs then is interrupted, and found again at the next start.

    Raises
    ------
    UsageError
        If another service uses the folder, or this machine cannot listen there.
    """
    from bokeh.server.server import BaseServer

    person, loop = settings.person, cast(Any, IOLoop.current())
    if person is None:
        os.umask(0o077)  # what jobs write is for the service's user, who gives it to those who have a token
    context = _tls_context(settings)
    with contextlib.ExitStack() as stack:
        port = choose_server_port(settings.address, settings.port)
        scheme = "https" if context else "http"
        service = start_service(stack, settings, hosts=_host_header_values(settings, port), scheme=scheme)
        logging.getLogger("tornado.general").setLevel(logging.ERROR)  # what it says about malformed requests
        pace = PAGE_SECONDS_DURING_JOB if person is None else 0.0
        gate = AuthorizingRouter(service, make_page_application, pace=lambda: pace if service.runner.current else 0.0)
        server = _LimitedServer(
            gate, ssl_options=context, max_body_size=settings.limits.body_bytes, **_CONNECTION_LIMITS
        )
        pages = BaseServer(loop, gate.pages, server)
        server.listen(port, settings.address)
        url, folder = f"{scheme}://{format_host_for_url(settings.address)}:{port}/", settings.results.resolve() / FOLDER
        if context is None and not service.only_pages:
            # For programs that cannot ask for a proof, such as curl; no other user can open the folder.
            with contextlib.suppress(OSError):  # its path is too long
                server.add_socket(bind_unix_socket(str(folder / SOCKET), mode=0o600))
        pages.start()
        stack.callback(pages.stop)
        if person is None:
            due = (
                queue_due_scheduled_jobs,
                service.store,
                service.rules,
                settings.limits.queue,
                service.runner.look_for_jobs_now,
            )
            PeriodicCallback(lambda: loop.run_in_executor(service.threads, *due), LOOK_SECONDS * 1000).start()
            remarks = [f"Your token is in {folder / TOKEN_FILE}."]
        else:
            remarks = _dashboard_start_messages(settings, service, url)
            url += f"{service.page_sessions.begin_cookieless_session(make_dashboard_token(service))}/"
            loop.run_in_executor(None, service.results.entries)  # so that the first page does not wait for it
            if person.open_browser:
                loop.call_later(0.1, webbrowser.open, _write_browser_redirect_file(url, stack))
        for number in signals.termination_signals():
            loop.asyncio_loop.add_signal_handler(number, loop.stop)
            stack.callback(loop.asyncio_loop.remove_signal_handler, number)
        what = "service" if person is None else "dashboard"
        first = f"The {what} of {settings.results}/ listens at {url} until you press Ctrl-C."
        print(first, *remarks, sep="\n", file=sys.stderr, flush=True)
        loop.start()
    return 0


def open_local_job_queue(results: Path) -> TokenJobQueue:
    """Open a queue whose jobs this process runs until it ends, with results in `results`, for its own user."""
    stack, settings = contextlib.ExitStack(), ServiceSettings(results, 0, "127.0.0.1", person=DashboardUser())
    atexit.register(stack.close)
    service = start_service(stack, settings, hosts=(), scheme="")
    token = make_dashboard_token(service)
    return TokenJobQueue(service, lambda: token)


def start_service(
    stack: contextlib.ExitStack, settings: ServiceSettings, *, hosts: Collection[str], scheme: str
) -> ServiceContext:
    """Open the service's folder, and run the jobs in it until `stack` is closed.

    A person's dashboard shows results even if another service runs jobs there, or none can be stored.
    """
    person, results, problem = settings.person, settings.results.resolve(), ""
    try:
        store = stack.enter_context(_open_locked_store(results, to_serve=True))
    except UsageError as reason:
        if person is None:
            raise
        served = has_running_service(results)
        store = stack.enter_context(
            contextlib.closing(open_service_store(results) if served else ServiceStore(Path(":memory:")))
        )
        problem = "a service of these results is running; start runs from its pages" if served else str(reason)
        problem = f"Runs cannot be started from this page: {problem}."
    else:
        _make_token_file(store, results / FOLDER / TOKEN_FILE)
    seconds = settings.limits.job_seconds if person is None else _NO_LIMIT
    jobs, commands = results / FOLDER / "jobs", settings.commands
    runner = JobRunner(store, jobs, results, job_seconds=seconds, own=person is not None, named_commands=commands)
    shown, tables = settings.results, settings.tables if person is None else (Path.cwd(), Path("/"))
    index = (
        ServiceResultsFolder(results, runner)
        if person is None
        else ResultsFolder(shown, other_folders=published_results_folders(shown), hold_seconds=HOLD_SECONDS)
    )
    service = ServiceContext(store, runner, JobRules(results, tables, commands), settings.limits, hosts, scheme, index)
    if person is not None:
        only_pages = bool(problem) or not (is_loopback_address(settings.address) or person.allow_run)
        service = replace(service, read_only=problem or _no_runs_reason(settings, person), only_pages=only_pages)
    stack.callback(service.slow.shutdown)
    stack.callback(service.threads.shutdown)
    if not problem:
        runner.start()
        stack.callback(runner.close)
    return service


def _no_runs_reason(settings: ServiceSettings, user: DashboardUser) -> str:
    """The sentence that says why runs cannot be started from a dashboard's own page; empty if they can."""
    if user.allow_run:
        return "To start runs, log in with the token of this dashboard; its command says where that is."
    if is_loopback_address(settings.address):
        return ""
    return (
        f"Runs cannot be started from this page, because other machines can reach {settings.address}. "
        "Restart the dashboard with --allow-run to get a token for starting runs."
    )


def make_dashboard_token(service: ServiceContext) -> Token:
    """Make the token of a dashboard's own page, or of a notebook; it can run jobs unless the service is `read_only`."""
    return Token(LOCAL, "read" if service.read_only else "run")


def _dashboard_start_messages(settings: ServiceSettings, service: ServiceContext, url: str) -> list[str]:
    """The sentences that the dashboard prints below its address."""
    runs = "" if service.read_only else ", and can start runs as you"
    remarks = [f"Whoever has this address sees the results{runs}."]
    if settings.person and settings.person.allow_run and not service.only_pages:
        token = settings.results.resolve() / FOLDER / TOKEN_FILE
        remarks.append(f"To start runs, log in at {url} with the token in {token}.")
    if service.runner.can_run_jobs and (waiting := service.store.count_jobs_ahead()):
        remarks.append(f"Jobs that waited in the queue begin now: {waiting}.")
    return remarks


def _write_browser_redirect_file(url: str, stack: contextlib.ExitStack) -> str:
    """Write a file that leads to `url`, for this user only; returns its address, which other users may see."""
    folder = supervisor.make_scratch_folder("dashboard")
    stack.callback(supervisor.remove_scratch_folder, folder)
    file = folder / "open.html"
    file.touch(mode=0o600)
    file.write_text(f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={url}">', encoding="ascii")
    return file.as_uri()


def check_service_can_start(settings: ServiceSettings) -> str:
    """Check that a service could start; returns its newest job as text, or ``none``; else raises RunFailed."""
    results = settings.results.resolve()
    try:
        _tls_context(settings)
        with _open_locked_store(results, to_serve=False) as store:
            choose_server_port(settings.address, settings.port)
            if problem := store.find_file_damage():
                raise UsageError(f"the file of jobs is damaged: {problem}; restore a copy of {results / FOLDER}")
            return next((f"job {job.id}" for job in store.list_jobs(limit=1)), "none")
    except UsageError as error:
        raise RunFailed(str(error)) from None


def _tls_context(settings: ServiceSettings) -> ssl.SSLContext | None:
    """Check `settings`, and load their certificate if they name one; raises UsageError if they do not work."""
    for folder in settings.tables:
        if not folder.is_dir():
            raise UsageError(f"--tables {folder} is not a folder")
    check_command_programs(settings.commands)
    for name in settings.host_names:
        if not _HOST_NAME.fullmatch(name):
            raise UsageError(f"--host-name {name} is not a name of a host; give NAME, or NAME:PORT for a proxy")
    if not settings.tls_cert:
        if not is_loopback_address(settings.address) and not settings.insecure and settings.person is None:
            raise UsageError(
                f"other machines can reach {settings.address}, and tokens would cross the network unencrypted; give"
                " --tls-cert and --tls-key, or --insecure if nobody else can read that network"
            )
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        for file in filter(None, (settings.tls_cert, settings.tls_key)):
            open_regular_file(file).close()  # a pipe would be waited for
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"cannot use --tls-cert {settings.tls_cert} with its key: {error}") from None
    return context


def _host_header_values(settings: ServiceSettings, port: int) -> frozenset[str]:
    """The values of the header ``Host`` that name this service; pages elsewhere may send requests with others."""
    named = [name if re.search(r":\d+$", name) else f"{name}:{port}" for name in settings.host_names]
    hosts = {each.lower() for each in (*allowed_page_origins(settings.address, port), *named)}
    return frozenset(hosts | {each.removesuffix(usual) for each in hosts for usual in (":80", ":443")})


@contextlib.contextmanager
def _open_locked_store(results: Path, *, to_serve: bool) -> Iterator[ServiceStore]:
    """Open the database, locked against a second service. The kernel frees the lock when this process ends.

    `to_serve`: also lock out a service of a copy of the folder on this machine; each would end the other's jobs.
    Both locks are files that only their owner can open, so nobody else can hold them.
    """
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(contextlib.closing(open_service_store(results)))
        files = [results / FOLDER / "lock"]
        try:
            if to_serve:
                files.append(make_user_cache_folder() / f"service-{store.instance}-{socket.gethostname()}.lock")
            for file in files:
                descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = "cannot lock it: a service or dashboard of these results, or of a copy, is running already"
            raise UsageError(f"{results / FOLDER}: {why}") from None
        except (OSError, RuntimeError) as error:
            why = str(getattr(error, "strerror", None) or error)
            raise UsageError(
                f"cannot lock files in {results / FOLDER} and in the user's cache: {why}; use another folder on a local"
                " disk, or set XDG_CACHE_HOME"
            ) from None
        yield store


def _make_token_file(store: ServiceStore, file: Path) -> Path:
    """Write the file with the token of who runs the service, unless there is one, and return its path."""
    with contextlib.suppress(OSError):
        token = store.find_token(file.read_text(encoding="ascii", errors="replace").strip())
        if token is not None and token.name == LOCAL and file.stat().st_mode & 0o077 == 0:
            return file
    draft = file.with_name(f"{TOKEN_FILE}.new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600, exist_ok=False)
    draft.write_text(store.add_token(LOCAL, "run", replace=True) + "\n", encoding="ascii")
    return draft.replace(file)

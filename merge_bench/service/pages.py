"""The pages of the service: who logs in with a token gets the pages of a session; other requests go to the API.

The gate stands before Bokeh's handlers, so none of them can forget to check host, origin and token. A `PageMaker`
makes what a page shows, with the `Queue` of its session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.routing import Router
from tornado.web import Application

from merge_bench.analysis.published import published_beside
from merge_bench.errors import UsageError
from merge_bench.records.results_folder import Entry, ResultsFolder
from merge_bench.service import api
from merge_bench.service import documents as d
from merge_bench.service.api import Api, AuthorizedRequest, Service, check_host_and_origin
from merge_bench.service.job_rules import commands
from merge_bench.service.runner import Runner
from merge_bench.service.store import Refused, Token

if TYPE_CHECKING:
    from bokeh.server.tornado import BokehTornado

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


class QuietResults(ResultsFolder):
    """The results of the service. While a job runs, it reads only the campaigns of that job and of the one before."""

    def __init__(self, results: Path, runner: Runner) -> None:
        super().__init__(results, other_folders=published_beside(results), hold_seconds=HOLD_SECONDS)
        self._runner = runner
        self._recent_names: list[str] = []

    def entries(self) -> tuple[Entry, ...]:
        """Every result, the newest first."""
        job = self._runner.current
        if job is None:
            return super().entries()
        if (name := self._runner.result_of(job)) is not None and name not in self._recent_names:
            self._recent_names = [*self._recent_names[-1:], name]
        return self.refresh(self._recent_names)


class Queue:
    """The queue of jobs, for the holder of a token, which is checked with each call.

    `token`: returns that token, None once it is invalid; `logged_in`: its holder can log out.
    """

    def __init__(self, service: Service, token: Callable[[], Token | None], *, logged_in: bool = False) -> None:
        self._service, self.token, self.logged_in = service, token, logged_in
        self.jobs = partial(self._call_api, api.list_jobs, value=d.Page(limit=_MOST_LISTED_JOBS))
        self.job, self.cancel = (partial(self._call_api, answer) for answer in (api.show_job, api.cancel_job))

    @property
    def commands(self) -> Mapping[str, Collection[str]]:
        """The commands that can be queued, each with the keys of its options."""
        return commands()

    @property
    def refusal(self) -> str:
        """Why no run can be started here, a sentence; empty if one can."""
        token = self.token()
        return "" if token is not None and token.role == "run" else self._service.read_only

    @property
    def ended(self) -> str:
        """Why the page must no longer show anything, a sentence; empty as long as its token is valid."""
        return "" if self.token() is not None else "Your session has ended, or your token was removed; log in again."

    def run(self, command: str, configs: Sequence[str], options: Mapping[str, str]) -> d.Job:
        """Queue a job; raises UsageError or Refused."""
        if refusal := self.refusal:
            raise Refused(403, "read-only", refusal)
        try:
            request = msgspec.convert({"command": command, "configs": configs, "options": options}, d.JobRequest)
        except msgspec.ValidationError as error:
            raise UsageError(str(error)) from None
        job: d.Job = self._call_api(api.add_job, value=request)
        return job

    def _call_api(self, answer: Callable[[Service, AuthorizedRequest], Any], number: int = 0, value: Any = None) -> Any:
        token = self.token()
        if token is None:
            raise Refused(401, "no-token", self.ended)
        return answer(self._service, AuthorizedRequest(token, str(number), value))


class PageMaker(Protocol):
    """Makes the application that answers requests of pages; `queue`: gives the queue of the session with a name."""

    def __call__(
        self, results: ResultsFolder, hosts: Sequence[str], queue: Callable[[str], Queue], pace: Callable[[], float]
    ) -> BokehTornado: ...


class Login(Api):
    """Shows the form for a token and begins a session with it; each request counts for the limit.

    `ended`: the name of the session that this request ends.
    """

    def initialize(self, service: Service, ended: str | None = None) -> None:
        """Called by tornado with what the application has for this handler."""
        super().initialize(service)
        self.ended = ended

    async def prepare(self) -> None:
        """End a session, begin one, or show the form."""
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        self.set_header("Content-Security-Policy", _POLICY)
        secret, problem = self.get_body_argument("token", ""), ""
        if self.ended is not None:
            self.service.sessions.end(self.ended)
            self.clear_cookie(cookie_name(self.request), path=f"/{self.ended}/")
            self.redirect("/", status=303)
            return
        if self.service.too_many_requests(self.request.remote_ip):
            self.set_status(429)
            problem = "Too many requests in this minute; wait for the next one."
        elif self.service.store.find_token(secret) is not None:
            secure = self.request.headers.get("Origin", self.service.scheme).startswith("https")  # a proxy's, too
            path, cookie = self.service.sessions.begin(secret)
            self.set_cookie(
                cookie_name(self.request), cookie, path=f"/{path}/", httponly=True, samesite="Strict", secure=secure
            )
            self.redirect(f"/{path}/", status=303)
            return
        elif self.request.method == "POST":
            self.set_status(401)
            problem = "The service does not have this token."
        await self.finish(_LOGIN_FORM.replace("PROBLEM", problem))


def cookie_name(request: HTTPServerRequest) -> str:
    """The name of the session's cookie, with the port, so that people who look at cookies know the service."""
    return f"merge-bench-{request.host.rpartition(':')[2]}"


class Gate(Router):
    """Decides which handler answers a request, once its headers are read and nothing else."""

    def __init__(self, service: Service, make: PageMaker, *, pace: Callable[[], float]) -> None:
        self._service = service
        self._application = Application(log_function=lambda handler: None)
        hosts = [host if ":" in host else f"{host}:80" for host in service.hosts]

        def queue(name: str) -> Queue:
            sessions = service.sessions
            return Queue(service, partial(sessions.token, name), logged_in=not sessions.is_own(name))

        self.pages = make(service.results, hosts, queue, pace)

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> HTTPMessageDelegate | None:
        """Called by tornado with the headers of each request."""
        service, morsel = self._service, request.cookies.get(cookie_name(request))
        cookie = None if morsel is None else morsel.value
        match = _SESSION_PATH.fullmatch(request.path)
        name, path = (match[1], match[2]) if match else ("", request.path)
        page = request.method == "GET" and _PAGE_PATHS.fullmatch(path) is not None
        form = request.path == "/login" or (page and path == "/")
        handler: type[Api] = Api
        options: dict[str, Any] = {}
        try:
            check_host_and_origin(service, request)
            if request.path == _ICON_PATH:
                return self.pages.find_handler(request)
            if match and page and service.sessions.has(name, cookie):
                if path != "/logout":
                    # The parts of a page have addresses relative to its own.
                    request.path, request.uri = path, (request.uri or "").removeprefix(f"/{name}")
                    request.session = name  # type: ignore[attr-defined]  # for the maker of pages
                    return self.pages.find_handler(request)
                form, options = True, {"ended": name}
            if form and not service.only_pages:
                handler = Login
        except Refused:
            pass  # `Api` says why
        return self._application.get_handler_delegate(request, handler, {"service": service, **options})

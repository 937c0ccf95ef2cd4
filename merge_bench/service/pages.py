"""The dashboard of the service: who logs in with a token gets pages of a session, other requests go to the API.

The gate stands before Bokeh's handlers, so none of them can forget to check host, origin and token.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import panel as pn
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.routing import Router
from tornado.web import Application

from merge_bench.analysis.published import beside
from merge_bench.records.results_folder import Entry, ResultsFolder
from merge_bench.service import api
from merge_bench.service import documents as d
from merge_bench.service.api import Asked, Service
from merge_bench.service.handler import Api, check_place
from merge_bench.service.runner import Runner
from merge_bench.service.store import Refused, Token
from merge_bench.view.dashboard.app import Dashboard
from merge_bench.view.dashboard.campaign_cache import CampaignCache
from merge_bench.view.dashboard.components import html
from merge_bench.view.dashboard.serve import ICON, below, bokeh_pages, prepare

JOB_SECONDS = 10.0
"""The least seconds between two updates of a page while a job runs."""
_HOLD_SECONDS, _MOST_JOBS = 1.0, 1000
_PAGES = re.compile(r"/|/ws|/static/.*|/logout")
_SESSION = re.compile(r"/([\w-]{32})(/.*)")
_FORM = (resources.files("merge_bench.service") / "login.html").read_text(encoding="utf-8")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"


ENDED = "your session has ended, or your token was removed; log in again"


class QuietResults(ResultsFolder):
    """The results of the service. While a job runs, only its campaign is looked at, and that of the job before."""

    def __init__(self, results: Path, runner: Runner) -> None:
        super().__init__(results, also=beside(results), hold_seconds=_HOLD_SECONDS)
        self._runner = runner
        self._names: list[str] = []

    def entries(self) -> tuple[Entry, ...]:
        """Every result, the newest first."""
        job = self._runner.current
        if job is None:
            return super().entries()
        if (name := self._runner.result_of(job)) is not None and name not in self._names:
            self._names = [*self._names[-1:], name]
        return self.look_at(self._names)


class Queue:
    """The queue, for the holder of a token, which is checked each time; `token`: gives it, None once it is invalid."""

    def __init__(self, service: Service, token: Callable[[], Token | None]) -> None:
        self._service, self.token = service, token
        self.jobs = partial(self._ask, api.list_jobs, value=d.Page(limit=_MOST_JOBS))
        self.job, self.cancel = (partial(self._ask, answer) for answer in (api.show_job, api.cancel_job))

    def _ask(self, answer: Callable[[Service, Asked], Any], number: int = 0, value: Any = None) -> Any:
        token = self.token()
        if token is None:
            raise Refused(401, "no-token", ENDED)
        return answer(self._service, Asked(token, str(number), value))


class Login(Api):
    """The form for a token, which begins a session. Every request counts.

    `ended`: the path of the session that this request ends.
    """

    def initialize(self, service: Service, ended: str | None = None) -> None:
        """Called by tornado."""
        super().initialize(service)
        self.ended = ended

    async def prepare(self) -> None:
        """Answer the request."""
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        self.set_header("Content-Security-Policy", _POLICY)
        secret, problem = self.get_body_argument("token", ""), ""
        if self.ended is not None:
            self.service.sessions.end(self.ended)
            self.clear_cookie(cookie_name(self.request), path=f"/{self.ended}/")
            self.redirect("/", status=303)
            return
        if self.service.over_limit(self.request.remote_ip):
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
        await self.finish(_FORM.replace("PROBLEM", problem))


def cookie_name(request: HTTPServerRequest) -> str:
    """With the port, for who looks at cookies; see `sessions`."""
    return f"merge-bench-{request.host.rpartition(':')[2]}"


class Gate(Router):
    """Decides who answers a request, before any of it is read but its headers."""

    def __init__(self, service: Service, index: ResultsFolder) -> None:
        self._service = service
        self._application = Application(log_function=lambda handler: None)
        prepare()
        cache = CampaignCache()

        def page() -> Dashboard:
            queue = Queue(
                service, partial(self._service.sessions.token, pn.state.curdoc.session_context.request.session)
            )
            made = Dashboard(
                index.path, index=index, cache=cache, queue=queue,
                pace=lambda: JOB_SECONDS if service.runner.current else 0.0,
            )  # fmt: skip
            made.queue.layout.append(html("<p><a href='logout'>Log out</a></p>"))
            made.show_while(lambda: queue.token() is not None, f"{ENDED.capitalize()}.")
            return made

        self.pages = bokeh_pages(page, [host if ":" in host else f"{host}:80" for host in service.hosts])

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> HTTPMessageDelegate | None:
        """Called by tornado with the headers of each request."""
        match, cookie = _SESSION.fullmatch(request.path), request.cookies.get(cookie_name(request))
        name, path = (match[1], match[2]) if match else ("", request.path)
        page = request.method == "GET" and _PAGES.fullmatch(path) is not None
        form = request.path == "/login" or (page and path == "/")
        handler: type[Api] = Api
        more: dict[str, Any] = {}
        try:
            check_place(self._service, request)
            if request.path == ICON:
                return self.pages.find_handler(request)
            if match and page and cookie is not None and self._service.sessions.has(name, cookie.value):
                if path != "/logout":
                    below(request, f"/{name}")
                    request.session = name  # type: ignore[attr-defined]  # for `page`
                    return self.pages.find_handler(request)
                form, more = True, {"ended": name}
            if form:
                handler = Login
        except Refused:
            pass  # `Api` says why
        return self._application.get_handler_delegate(request, handler, {"service": self._service, **more})

"""The dashboard of the service: who logs in with a token gets pages, every other request goes to the API.

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
from bokeh.server.tornado import BokehTornado
from panel.io.application import build_applications
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.routing import Router
from tornado.web import Application

from merge_bench.service import api
from merge_bench.service import documents as d
from merge_bench.service.api import Asked, Service
from merge_bench.service.handler import Api, check_place
from merge_bench.service.runner import Runner
from merge_bench.service.store import Refused
from merge_bench.view.dashboard.app import Dashboard
from merge_bench.view.dashboard.campaign_cache import CampaignCache
from merge_bench.view.dashboard.campaign_index import Entry, Index
from merge_bench.view.dashboard.serve import prepare

JOB_SECONDS = 10.0
"""The least seconds between two updates of a page while a job runs."""
_HOLD_SECONDS, _MOST_JOBS = 1.0, 1000
_PAGES = re.compile(r"/|/ws|/favicon\.ico|/static/.*")
_FORM = (resources.files("merge_bench.service") / "login.html").read_text(encoding="utf-8")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"


class QuietIndex(Index):
    """The results of the service. While a job runs, only its campaign is looked at, and that of the job before."""

    def __init__(self, results: Path, runner: Runner) -> None:
        super().__init__(results, hold_seconds=_HOLD_SECONDS)
        self._runner = runner
        self._names: list[str] = []

    def scan(self) -> tuple[Entry, ...]:
        """Every campaign, the newest first."""
        job = self._runner.current
        if job is None:
            return super().scan()
        if (name := self._runner.result_of(job)) is not None and name not in self._names:
            self._names = [*self._names[-1:], name]
        return self.look_at(self._names)


class Queue:
    """The queue, for the holder of a token, which is checked each time; `token`: None once it was removed."""

    def __init__(self, service: Service, secret: str) -> None:
        self._service = service
        self.token = partial(service.store.find_token, secret)
        self.jobs = partial(self._ask, api.list_jobs, value=d.Page(limit=_MOST_JOBS))
        self.job, self.cancel = (partial(self._ask, answer) for answer in (api.show_job, api.cancel_job))

    def _ask(self, answer: Callable[[Service, Asked], Any], number: int = 0, value: Any = None) -> Any:
        token = self.token()
        if token is None:
            raise Refused(401, "no-token", "your token was removed; log in with another one")
        return answer(self._service, Asked(token, str(number), value))


class Login(Api):
    """The form for a token, which becomes a cookie. Every request counts."""

    async def prepare(self) -> None:
        """Answer the request."""
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        self.set_header("Content-Security-Policy", _POLICY)
        secret, problem = self.get_body_argument("token", ""), ""
        if self.service.over_limit(self.request.remote_ip):
            self.set_status(429)
            problem = "Too many requests in this minute; wait for the next one."
        elif self.service.store.find_token(secret) is not None:
            secure = self.request.headers.get("Origin", self.service.scheme).startswith("https")  # a proxy's, too
            self.set_cookie(cookie_name(self.request), secret, httponly=True, samesite="Strict", secure=secure)
            self.redirect("/", status=303)
            return
        elif self.request.method == "POST":
            self.set_status(401)
            problem = "The service does not have this token."
        await self.finish(_FORM.replace("PROBLEM", problem))


def cookie_name(request: HTTPServerRequest) -> str:
    """With the port: browsers send cookies of a host to all of its ports."""
    return f"merge-bench-{request.host.rpartition(':')[2]}"


class Gate(Router):
    """Decides who answers a request, before any of it is read but its headers."""

    def __init__(self, service: Service, index: Index) -> None:
        self._service = service
        self._application = Application(log_function=lambda handler: None)
        prepare()
        cache = CampaignCache()

        def page() -> Dashboard:
            queue = Queue(service, pn.state.curdoc.session_context.request.secret)
            made = Dashboard(
                index.results, index=index, cache=cache, queue=queue,
                pace=lambda: JOB_SECONDS if service.runner.current else 0.0,
            )  # fmt: skip
            made.show_while(lambda: queue.token() is not None, "Your token was removed; log in with another one.")
            return made

        # Bokeh would put headers and cookies into the page, where scripts can read them.
        self.pages = BokehTornado(
            build_applications(page, title="merge_bench"), include_headers=[], include_cookies=[],
            extra_websocket_origins=[host if ":" in host else f"{host}:80" for host in service.hosts],
        )  # fmt: skip

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> HTTPMessageDelegate | None:
        """Called by tornado with the headers of each request."""
        cookie = request.cookies.get(cookie_name(request))
        page = request.method == "GET" and _PAGES.fullmatch(request.path) is not None
        handler: type[Api] = Login if request.path == "/login" or (page and request.path == "/") else Api
        try:
            check_place(self._service, request)
            if page and cookie is not None and self._service.store.find_token(cookie.value) is not None:
                request.secret = cookie.value  # type: ignore[attr-defined]  # for `page`
                return self.pages.find_handler(request)
        except Refused:
            handler = Api  # says why
        return self._application.get_handler_delegate(request, handler, {"service": self._service})

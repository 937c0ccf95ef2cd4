"""The `dashboard` command: serves the view to browsers on this machine, or on another address if one is given."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import sys
import warnings
import webbrowser
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import panel as pn
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from bokeh.util.warnings import BokehUserWarning
from panel.io.application import build_applications
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.routing import Router
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketClosedError

from merge_bench.analysis.published import beside
from merge_bench.cluster import scratch, signals
from merge_bench.host.network import free_port, in_url, is_loopback, origins
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.view.dashboard import style_sheets
from merge_bench.view.dashboard.app import Dashboard
from merge_bench.view.dashboard.campaign_cache import CampaignCache
from merge_bench.view.dashboard.runner import Permission, Runner

HOLD_SECONDS = 1.0
"""For this long, several pages share one listing of the folder."""
ICON = "/favicon.ico"
"""Browsers ask for it there, whatever the address of the page."""


def serve(results: Path, *, port: int, address: str, open_browser: bool, allow_run: bool) -> int:
    """Serve the view of `results` until a signal ends it; a run that was started from it ends, too.

    Only requests below a secret path are answered, because other users of this machine reach the port as well.

    Raises
    ------
    UsageError
        If this machine cannot listen on `address` and `port`.
    """
    permission = permission_for(address, allow_run=allow_run)
    port = free_port(address, port)
    prepare()
    index = ResultsFolder(results, also=beside(results), hold_seconds=HOLD_SECONDS)
    cache, runner = CampaignCache(), Runner(results)
    pages = bokeh_pages(
        lambda: Dashboard(results, index=index, cache=cache, runner=runner, permission=permission),
        origins(address, port),
    )
    token = secrets.token_urlsafe(24)
    server = HTTPServer(_Gate(pages, token))
    both = BaseServer(IOLoop.current(), pages, server)
    server.listen(port, address)
    url = f"http://{in_url(address)}:{port}/{token}/"
    runs = ", and can start runs as you" if permission.granted("") else ""
    more = [f"Whoever has this address sees the results{runs}."]
    if permission.token is not None:
        more.append(f"Enter this token in the dashboard to start runs: {permission.token}")
    loop: Any = IOLoop.current()
    loop.run_in_executor(None, index.entries)  # so that the first page does not wait for it
    both.start()
    folder = scratch.make("dashboard")
    if open_browser:
        loop.call_later(0.1, webbrowser.open, _way_to(url, folder))
    closing = (both.stop, runner.close, partial(scratch.remove, folder))
    run_until_signal(f"dashboard of {results}/", url, more, closing=closing)
    return 0


def _way_to(url: str, folder: Path) -> str:
    """A file that leads to `url`, which only this user can read; every user can read the command line of a browser."""
    file = folder / "open.html"
    file.touch(mode=0o600)
    file.write_text(f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={url}">', encoding="ascii")
    return file.as_uri()


def bokeh_pages(page: Callable[[], Any], hosts: Sequence[str]) -> BokehTornado:
    """What answers the requests of pages; `hosts`: of the addresses whose pages may connect."""
    # By default Bokeh puts headers and cookies into the page, where scripts can read them.
    return BokehTornado(
        build_applications(page, title="merge_bench"), include_headers=[], include_cookies=[],
        extra_websocket_origins=hosts,
    )  # fmt: skip


def below(request: HTTPServerRequest, prefix: str) -> None:
    """Take the first part off a request's path; the parts of a page have addresses relative to its own."""
    request.path, request.uri = request.path.removeprefix(prefix), (request.uri or "").removeprefix(prefix)


class _Gate(Router):
    """Answers requests below the token, and refuses all others."""

    def __init__(self, pages: BokehTornado, token: str) -> None:
        self._pages, self._token = pages, token
        self._refusals = Application(log_function=lambda handler: None)

    def find_handler(self, request: HTTPServerRequest, **_: Any) -> HTTPMessageDelegate | None:
        """Called by tornado with the headers of each request."""
        given, slash, _rest = request.path[1:].partition("/")
        if request.path == ICON:
            return self._pages.find_handler(request)
        if slash and hmac.compare_digest(given.encode(), self._token.encode()):
            below(request, f"/{given}")
            return self._pages.find_handler(request)
        return self._refusals.get_handler_delegate(request, _Refusal)


class _Refusal(RequestHandler):
    """Says which address to open."""

    async def prepare(self) -> None:
        """Answer, whatever was asked."""
        self.set_status(403)
        self.set_header("Content-Type", "text/plain")
        await self.finish("Open the whole address that merge-bench dashboard printed.\n")


def run_until_signal(what: str, url: str, more: Sequence[str], *, closing: Sequence[Callable[[], object]]) -> None:
    """Print that it listens, and `more`; run the event loop until a signal ends it, then call `closing` in turn."""
    loop: Any = IOLoop.current()
    with contextlib.ExitStack() as stack:
        for number in signals.ending_signals():
            loop.asyncio_loop.add_signal_handler(number, loop.stop)
            stack.callback(loop.asyncio_loop.remove_signal_handler, number)
        for close in reversed(closing):
            stack.callback(close)
        print(f"The {what} listens at {url} until you press Ctrl-C.", *more, sep="\n", file=sys.stderr, flush=True)
        loop.start()


def prepare() -> None:
    """Prepare this process, whose event loop is the current one, for serving pages."""
    pn.extension("tabulator", raw_css=[style_sheets.PAGE])
    # Bokeh warns if a browser sends a part that the server already has, as it does when a tab is shown again.
    warnings.filterwarnings("ignore", message="reference already known", category=BokehUserWarning)
    loop: Any = IOLoop.current()
    loop.asyncio_loop.set_exception_handler(log_exception)


def log_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception of the event loop, unless its page was closed during an update."""
    if not isinstance(context.get("exception"), WebSocketClosedError):
        loop.default_exception_handler(context)


def permission_for(address: str, *, allow_run: bool) -> Permission:
    """Who may start runs: with `allow_run`, who has the token; without, who has the page's address on this machine."""
    if allow_run:
        return Permission(token=secrets.token_urlsafe(18))
    if is_loopback(address):
        return Permission()
    return Permission(
        refusal=f"Runs cannot be started from this page, because other machines can reach {address}. "
        "Restart the dashboard with --allow-run to get a token for starting runs."
    )

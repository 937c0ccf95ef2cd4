"""The `dashboard` command: serves the view to browsers on this machine, or on another address if one is given."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import warnings
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import panel as pn
from bokeh.util.warnings import BokehUserWarning
from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClosedError

from merge_bench.cluster import signals
from merge_bench.host.addresses import free_port, in_url, is_loopback, origins
from merge_bench.view.dashboard import style_sheets
from merge_bench.view.dashboard.app import Dashboard
from merge_bench.view.dashboard.campaign_cache import CampaignCache
from merge_bench.view.dashboard.campaign_index import Index
from merge_bench.view.dashboard.runner import Permission, Runner

HOLD_SECONDS = 1.0
"""For this long, several pages share one listing of the folder."""


def serve(results: Path, *, port: int, address: str, open_browser: bool, allow_run: bool) -> int:
    """Serve the view of `results` until a signal ends it; a run that was started from it ends, too.

    Raises
    ------
    UsageError
        If this machine cannot listen on `address` and `port`.
    """
    permission = permission_for(address, allow_run=allow_run)
    port = free_port(address, port)
    prepare()
    index, cache, runner = Index(results, hold_seconds=HOLD_SECONDS), CampaignCache(), Runner(results)
    server: Any = pn.serve(
        lambda: Dashboard(results, index=index, cache=cache, runner=runner, permission=permission),
        port=port, address=address, show=False, start=False, title="merge_bench", verbose=False,
        websocket_origin=origins(address, port), session_history=0,
    )  # fmt: skip
    url = f"http://{in_url(address)}:{port}/"
    token = [] if permission.token is None else [f"Enter this token in the dashboard to start runs: {permission.token}"]
    loop: Any = IOLoop.current()
    loop.run_in_executor(None, index.scan)  # so that the first page does not wait for it
    server.start()
    if open_browser:
        loop.call_later(0.1, webbrowser.open, url)
    run_until_signal(f"dashboard of {results}/", url, token, closing=(server.stop, runner.close))
    return 0


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
    """Who may start runs: with `allow_run`, everybody who has the token; without, everybody on this machine."""
    if allow_run:
        return Permission(token=secrets.token_urlsafe(18))
    if is_loopback(address):
        return Permission()
    return Permission(
        refusal=f"Runs cannot be started from this page, because other machines can reach {address}. "
        "Restart the dashboard with --allow-run to get a token for starting runs."
    )

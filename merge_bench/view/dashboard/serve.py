"""The `dashboard` command: serves the view to browsers on this machine, or on another address if one is given."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import socket
import sys
import warnings
import webbrowser
from pathlib import Path
from typing import Any

import panel as pn
from bokeh.util.warnings import BokehUserWarning
from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClosedError

from merge_bench.cluster import signals
from merge_bench.errors import UsageError
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
    port = _free_port(address, port)
    pn.extension("tabulator", raw_css=[style_sheets.PAGE])
    # Bokeh warns if a browser sends a part that the server already has, as it does when a tab is shown again.
    warnings.filterwarnings("ignore", message="reference already known", category=BokehUserWarning)
    index, cache, runner = Index(results, hold_seconds=HOLD_SECONDS), CampaignCache(), Runner(results)
    server: Any = pn.serve(
        lambda: Dashboard(results, index=index, cache=cache, runner=runner, permission=permission),
        port=port, address=address, show=False, start=False, title="merge_bench", verbose=False,
        websocket_origin=origins(address, port), session_history=0,
    )  # fmt: skip
    url = f"http://{_in_url(address)}:{port}/"
    print(f"Press Ctrl-C to stop the dashboard of {results}: {url}", file=sys.stderr, flush=True)
    if permission.token is not None:
        print(f"Enter this token in the dashboard to start runs: {permission.token}", file=sys.stderr, flush=True)
    loop: Any = IOLoop.current()
    loop.asyncio_loop.set_exception_handler(log_exception)
    loop.run_in_executor(None, index.scan)  # so that the first page does not wait for it
    ending = signals.ending_signals()
    for number in ending:
        loop.asyncio_loop.add_signal_handler(number, loop.stop)
    try:
        server.start()
        if open_browser:
            loop.call_later(0.1, webbrowser.open, url)
        loop.start()
    finally:
        server.stop()
        runner.close()
        for number in ending:
            loop.asyncio_loop.remove_signal_handler(number)
    return 0


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


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `address`, which may be a host name."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def origins(address: str, port: int) -> list[str]:
    """The hosts in addresses of this server's own pages; pages from elsewhere cannot connect to it."""
    names = {address, *(("localhost", "127.0.0.1") if is_loopback(address) else ())}
    if address in ("0.0.0.0", "::"):
        own = socket.gethostname()
        names = {own, socket.getfqdn(), "localhost", "127.0.0.1", *_addresses(own)}
    return sorted(f"{_in_url(name)}:{port}" for name in names)


def _addresses(name: str) -> set[str]:
    """The addresses of this machine: those of its interfaces, and those of its `name`."""
    import psutil

    found = {
        each.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for each in addresses
        if each.family in (socket.AF_INET, socket.AF_INET6)
    }
    with contextlib.suppress(OSError):
        found |= {str(info[4][0]) for info in socket.getaddrinfo(name, None)}
    return found


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _free_port(address: str, port: int) -> int:
    """`port`, or a free one for 0."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"cannot serve on {address}, port {port}: {reason}; set --address or --port to another value"
        ) from None

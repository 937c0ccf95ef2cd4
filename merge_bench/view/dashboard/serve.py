"""The `dashboard` command: the view in a browser, on this machine alone unless another address is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import signal
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
from merge_bench.view.dashboard.app import HOLD_SECONDS, Dashboard
from merge_bench.view.dashboard.index import Index
from merge_bench.view.dashboard.library import Library
from merge_bench.view.dashboard.runner import Permission, Runner

TITLE = "merge_bench"
LOOPBACK = "127.0.0.1"


def serve(results: Path, *, port: int, address: str, open_browser: bool, allow_run: bool) -> int:
    """Serve the view of `results` until a signal comes; a run that was started from it ends with it.

    Raises
    ------
    UsageError
        If `address` is none of this machine's, or the port is taken.
    """
    permission = permission_for(address, allow_run=allow_run)
    port = _free_port(address, port)
    pn.extension("tabulator", raw_css=[style_sheets.PAGE])
    # Bokeh warns when a browser sends a part that the server already has, which happens when a tab is shown again.
    warnings.filterwarnings("ignore", message="reference already known", category=BokehUserWarning)
    index, library, runner = Index(results, hold_seconds=HOLD_SECONDS), Library(), Runner(results)
    server: Any = pn.serve(
        lambda: Dashboard(results, index=index, library=library, runner=runner, permission=permission),
        port=port, address=address, show=False, start=False, title=TITLE, verbose=False,
        websocket_origin=origins(address, port), session_history=0,
    )  # fmt: skip
    url = f"http://{_in_url(address)}:{port}/"
    print(f"The view of {results} is at {url}; Ctrl-C ends it.", file=sys.stderr, flush=True)
    if permission.token is not None:
        print(f"To start runs from it, this token is needed: {permission.token}", file=sys.stderr, flush=True)
    loop: Any = IOLoop.current()
    loop.asyncio_loop.set_exception_handler(tell_mistakes)
    loop.run_in_executor(None, index.scan)  # so that the first page need not wait for it
    before = {
        number: signal.signal(number, lambda *_: loop.add_callback_from_signal(loop.stop))
        for number in signals.ending_signals()
    }
    try:
        server.start()
        if open_browser:
            loop.call_later(0.1, webbrowser.open, url)
        loop.start()
    finally:
        server.stop()
        runner.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def tell_mistakes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log exceptions of the event loop, except those of pages that were closed during an update."""
    if not isinstance(context.get("exception"), WebSocketClosedError):
        loop.default_exception_handler(context)


def permission_for(address: str, *, allow_run: bool) -> Permission:
    """Who may start runs: everybody on this machine; elsewhere, and with `allow_run`, who has the token."""
    if allow_run:
        return Permission(token=secrets.token_urlsafe(18))
    if is_loopback(address):
        return Permission()
    return Permission(
        refusal=f"Runs cannot be started here: the view is served on {address}, where others reach it, too. "
        "With --allow-run the command prints a token with which they can."
    )


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches `address`."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def origins(address: str, port: int) -> list[str]:
    """The names under which a page of this server may call itself; pages of others get no answer from it."""
    names = {address, *(("localhost", LOOPBACK) if is_loopback(address) else ())}
    if address in ("0.0.0.0", "::"):
        own = socket.gethostname()
        names = {own, socket.getfqdn(), "localhost", LOOPBACK, *_addresses(own)}
    return sorted(f"{_in_url(name)}:{port}" for name in names)


def _addresses(name: str) -> set[str]:
    """The addresses of this machine: those of its name, and those of its interfaces."""
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
            f"cannot serve on {address}, port {port}: {reason}; choose with --address and --port"
        ) from None

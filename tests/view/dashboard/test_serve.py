"""The `dashboard` command: where it listens, who may start runs, and how it ends.

`tests/browser/test_browser.py` asks one in a process of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import webbrowser
from pathlib import Path

import pytest
from tornado.websocket import WebSocketClosedError

from merge_bench.errors import UsageError
from merge_bench.host.addresses import is_loopback, origins
from merge_bench.view.dashboard.serve import log_exception, permission_for, serve


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_control_c_and_a_hang_up_end_it_with_0(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_browser(url: str) -> None:
        opened.append(url)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(webbrowser, "open", open_browser)
    before = signal.getsignal(number)
    assert serve(tmp_path, port=0, address="127.0.0.1", open_browser=True, allow_run=False) == 0
    assert [url.rpartition(":")[0] for url in opened] == ["http://127.0.0.1"]
    assert signal.getsignal(number) is before


def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refusal = f"^cannot serve on 127.0.0.1, port {port}: Address already in use"
        with pytest.raises(UsageError, match=refusal):
            serve(tmp_path, port=port, address="127.0.0.1", open_browser=False, allow_run=False)


def test_on_loopback_everybody_may_start_runs_and_elsewhere_nobody_without_the_token() -> None:
    assert permission_for("127.0.0.1", allow_run=False).granted("")
    assert not permission_for("127.0.0.1", allow_run=True).granted("")
    assert not permission_for("10.0.0.5", allow_run=False).granted("")
    asked = permission_for("10.0.0.5", allow_run=True)
    assert asked.token is not None
    assert asked.granted(asked.token)
    assert not asked.granted("")


def test_tokens_differ() -> None:
    assert len({permission_for("0.0.0.0", allow_run=True).token for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("address", "is_it"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.1.2.3", False), ("localhost.evil.example", False)],
)  # fmt: skip
def test_loopback_is_known_from_the_address(address: str, is_it: bool) -> None:
    assert is_loopback(address) is is_it


def test_only_pages_of_this_server_may_connect() -> None:
    assert origins("127.0.0.1", 5006) == ["127.0.0.1:5006", "localhost:5006"]
    assert origins("10.1.2.3", 80) == ["10.1.2.3:80"]
    assert origins("::1", 9) == ["127.0.0.1:9", "[::1]:9", "localhost:9"]
    everywhere = origins("0.0.0.0", 5006)
    assert f"{socket.gethostname()}:5006" in everywhere
    assert "*" not in "".join(everywhere)


def test_a_page_that_was_closed_during_an_update_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    with caplog.at_level(logging.ERROR):
        log_exception(loop, {"message": "never retrieved", "exception": WebSocketClosedError()})
        assert caplog.records == []
        log_exception(loop, {"message": "never retrieved", "exception": ValueError("a mistake")})
    assert "a mistake" in caplog.text
    loop.close()

"""The `dashboard` command: where it listens, who may start runs, and how it ends."""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tornado.websocket import WebSocketClosedError

from merge_bench.view.dashboard.serve import is_loopback, origins, permission_for, tell_mistakes
from tests.helpers.runs import ROOT, environment


@contextmanager
def served(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """The process, its address, and what it said until it served."""
    command = [sys.executable, "-m", "merge_bench", "dashboard", "--results", str(tmp_path), "--no-open", *options]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment(tmp_path), start_new_session=True
    )
    try:
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        if "--allow-run" in options:
            lines.append(process.stderr.readline())
        found = re.search(r"http://\S+/", lines[0])
        assert found is not None, lines
        yield process, found[0], lines
    finally:
        process.kill()
        process.wait()


def ended(process: subprocess.Popen[str], number: signal.Signals) -> bool:
    """Whether the server ends with status 0 upon this signal."""
    os.kill(process.pid, number)
    return process.wait(timeout=60) == 0


def test_it_serves_on_loopback_until_a_signal_and_ends_with_0(tmp_path: Path) -> None:
    with served(tmp_path, "--port", "0") as (process, url, _):
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.status == 200
            page = answer.read().decode()
        assert "<title>merge_bench</title>" in page
        assert "https://" not in re.sub(r"<!--.*?-->", "", page, flags=re.S).replace("https://www.w3.org", "")
        assert ended(process, signal.SIGTERM)


def test_pages_of_others_get_no_connection_and_control_c_ends_it(tmp_path: Path) -> None:
    with served(tmp_path, "--port", "0") as (process, url, _):
        assert _upgraded(url, "http://evil.example") == 403
        assert _upgraded(url, url.rstrip("/")) == 101
        assert ended(process, signal.SIGINT)


def _upgraded(url: str, origin: str) -> int:
    """The status with which a page of `origin` that wants a websocket is answered."""
    host = url.split("/")[2]
    with urllib.request.urlopen(url, timeout=60) as answer:
        token = re.search(r'"token":"([^"]+)"', answer.read().decode())
    assert token is not None
    connection = http.client.HTTPConnection(host, timeout=60)
    headers = {
        "Origin": origin, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": f"bokeh, {token[1]}",
    }  # fmt: skip
    connection.request("GET", "/ws", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [
            sys.executable,
            "-m",
            "merge_bench",
            "dashboard",
            "--results",
            str(tmp_path),
            "--no-open",
            "--port",
            port,
        ]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(tmp_path), timeout=120)
    assert done.returncode == 2
    assert done.stderr.strip().startswith(
        f"merge_bench: cannot serve on 127.0.0.1, port {port}: Address already in use"
    )
    assert "Traceback" not in done.stderr


def test_a_token_is_printed_where_it_is_asked_for_and_a_hang_up_ends_it(tmp_path: Path) -> None:
    with served(tmp_path, "--port", "0", "--allow-run") as (process, url, lines):
        urllib.request.urlopen(url, timeout=60).close()  # it listens, so signals are heard
        assert re.search(r"this token is needed: [\w-]{24}$", lines[1].strip())
        assert ended(process, signal.SIGHUP)


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
def test_loopback_is_told_by_the_address(address: str, is_it: bool) -> None:
    assert is_loopback(address) is is_it


def test_only_pages_of_this_server_may_connect() -> None:
    assert origins("127.0.0.1", 5006) == ["127.0.0.1:5006", "localhost:5006"]
    assert origins("10.1.2.3", 80) == ["10.1.2.3:80"]
    assert origins("::1", 9) == ["127.0.0.1:9", "[::1]:9", "localhost:9"]
    everywhere = origins("0.0.0.0", 5006)
    assert f"{socket.gethostname()}:5006" in everywhere
    assert "*" not in "".join(everywhere)


def test_a_page_that_was_closed_while_it_was_told_something_is_no_mistake(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    with caplog.at_level(logging.ERROR):
        tell_mistakes(loop, {"message": "never retrieved", "exception": WebSocketClosedError()})
        assert caplog.records == []
        tell_mistakes(loop, {"message": "never retrieved", "exception": ValueError("a mistake")})
    assert "a mistake" in caplog.text
    loop.close()

"""The `dashboard` command: where it listens, who may start runs, and how it ends.

`tests/browser/test_browser.py` asks one in a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tornado.websocket import WebSocketClosedError

from merge_bench.dashboard.app import log_exception, make_pages
from merge_bench.errors import MergeBenchError, UsageError
from merge_bench.host.network import allowed_page_origins, is_loopback_address
from merge_bench.records.campaign import JOB, is_read_on_another_machine
from merge_bench.service.serve import (
    DashboardUser,
    ServiceSettings,
    TokenQueue,
    make_own_token,
    serve_until_signal,
    start_service,
)


class Browser(webbrowser.BaseBrowser):
    """A browser for `webbrowser`: it does `visit` with the address, and nothing while there is none."""

    visit: Callable[[str], object] | None = None

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        if self.visit is not None:
            self.visit(url)
        return True


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The first choice of `webbrowser`, which it stays until this process ends."""
    made = Browser()
    webbrowser.register("of-tests", None, made, preferred=True)
    yield made
    made.visit = None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_control_c_and_a_hang_up_end_it_with_0(
    number: signal.Signals, tmp_path: Path, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[tuple[str, str, int, int]] = []

    def open_browser(url: str) -> None:
        file = Path(url.removeprefix("file://"))
        opened.append((url, file.read_text(), file.stat().st_mode & 0o77, file.parent.stat().st_mode & 0o77))
        os.kill(os.getpid(), number)

    browser.visit = open_browser
    before = signal.getsignal(number)
    assert (
        serve_until_signal(
            ServiceSettings(tmp_path, 0, "127.0.0.1", person=DashboardUser(open_browser=True)), make_pages
        )
        == 0
    )
    ((url, page, *modes),) = opened
    printed = re.search(r"http://127\.0\.0\.1:\d+/([\w-]{32})/", capsys.readouterr().err)
    assert printed is not None
    assert f"url={printed[0]}" in page
    assert printed[1] not in url  # every user can read the command line of a browser
    assert modes == [0, 0]
    assert not Path(url.removeprefix("file://")).exists()
    assert signal.getsignal(number) is before


@pytest.mark.slow
def test_only_who_has_the_token_gets_anything(tmp_path: Path) -> None:
    def ask(path: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")

    command = [sys.executable, "-m", "merge_bench", "dashboard", "--results", tmp_path, "--no-open", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = re.search(r"http://127\.0\.0\.1:(\d+)(/[\w-]{32})/", process.stderr.readline())
            assert found is not None
            port, token = int(found[1]), found[2]
            upgrade = {
                "Upgrade": "websocket",
                "Connection": "Upgrade",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
                "Origin": f"http://127.0.0.1:{port}",
            }
            status, page = ask(f"{token}/")
            assert status == 200
            session = re.search(r'"token":"([\w.-]+)"', page)
            assert session is not None
            upgrade["Sec-WebSocket-Protocol"] = f"bokeh, {session[1]}"
            other = token[:-1] + ("y" if token.endswith("x") else "x")
            for base in ("", other, token[:-1], "/" + "x" * 32):
                for path in ("/x", "/static/js/bokeh.min.js", "/autoload.js?bokeh-autoload-element=1", "/metadata"):
                    status, text = ask(base + path)
                    assert (status, token[1:] in text) == (401, False), base + path
                assert ask(f"{base}/ws", **upgrade)[0] == 401
            assert 'name="token"' in ask("/")[1]  # a login, as of any service
            assert ask("/favicon.ico")[0] == 200
            assert ask(token)[0] == 401  # without its last slash, the parts of the page would be elsewhere
            assert ask(f"{token}/static/js/bokeh.min.js")[0] == 200
            assert ask(f"{token}/ws", **upgrade | {"Origin": "http://evil.example"})[0] == 403
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with contextlib.closing(connection):
                connection.request("GET", f"{token}/ws", headers=upgrade)
                assert connection.getresponse().status == 101
        finally:
            process.terminate()
            process.wait(60)


def test_a_taken_port_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refusal = f"^cannot serve on 127.0.0.1, port {port}: Address already in use"
        with pytest.raises(UsageError, match=refusal):
            serve_until_signal(ServiceSettings(tmp_path, port, "127.0.0.1", person=DashboardUser()), make_pages)


@pytest.mark.parametrize(
    ("address", "allow_run", "runs", "logs_in"),
    [
        ("127.0.0.1", False, True, True),
        ("127.0.0.1", True, False, True),
        ("10.0.0.5", False, False, False),
        ("10.0.0.5", True, False, True),
    ],
)
def test_who_has_the_address_starts_runs_on_loopback_only_and_elsewhere_a_login_has_to_be_allowed(
    tmp_path: Path, address: str, allow_run: bool, runs: bool, logs_in: bool
) -> None:
    settings = ServiceSettings(tmp_path, 0, address, person=DashboardUser(allow_run=allow_run))
    with contextlib.ExitStack() as stack:
        service = start_service(stack, settings, hosts=(), scheme="http")
        queue = TokenQueue(service, lambda: make_own_token(service))
        assert (queue.refusal_reason == "", not service.only_pages) == (runs, logs_in)
        if not runs:
            with pytest.raises(MergeBenchError, match=r"log in|other machines can reach"):
                queue.run("run", [], {})


def test_beside_a_service_of_the_same_results_the_dashboard_shows_its_jobs_and_starts_none(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        first = start_service(
            stack, ServiceSettings(tmp_path, 0, "127.0.0.1", person=DashboardUser()), hosts=(), scheme="http"
        )
        first.runner.command = lambda words, _: [sys.executable, "-c", "import time; time.sleep(600)"]
        number = TokenQueue(first, lambda: make_own_token(first)).run("run", [], {"chunk": "1e6"}).id
        second = start_service(
            stack, ServiceSettings(tmp_path, 0, "127.0.0.1", person=DashboardUser()), hosts=(), scheme="http"
        )
        queue = TokenQueue(second, lambda: make_own_token(second))
        assert "a service of these results is running" in queue.refusal_reason
        assert [job.id for job in queue.jobs().jobs] == [number]
        assert not queue.job(number).cancellable


def test_a_job_of_the_dashboard_is_marked_as_one_whose_output_is_read_on_this_machine(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        service = start_service(
            stack, ServiceSettings(tmp_path, 0, "127.0.0.1", person=DashboardUser()), hosts=(), scheme="http"
        )
        print_mark = f"import os; print(os.environ[{JOB!r}])"
        service.runner.command = lambda words, _: [sys.executable, "-c", print_mark]
        queue = TokenQueue(service, lambda: make_own_token(service))
        number = queue.run("run", [], {"chunk": "1e6"}).id
        end = time.monotonic() + 60.0
        while (job := queue.job(number)).ended is None and time.monotonic() < end:
            time.sleep(0.02)
        assert (job.state, is_read_on_another_machine(job.log.strip())) == ("done", False)


def test_results_that_cannot_be_written_are_shown_all_the_same(tmp_path: Path) -> None:
    (tmp_path / ".service").write_text("no folder")
    with contextlib.ExitStack() as stack:
        service = start_service(
            stack, ServiceSettings(tmp_path, 0, "127.0.0.1", person=DashboardUser()), hosts=(), scheme="http"
        )
        queue = TokenQueue(service, lambda: make_own_token(service))
        assert "cannot use the folder" in queue.refusal_reason
        assert queue.jobs().jobs == []


@pytest.mark.parametrize(
    ("address", "is_it"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.1.2.3", False),
        ("localhost.evil.example", False),
    ],
)
def test_loopback_is_known_from_the_address(address: str, is_it: bool) -> None:
    assert is_loopback_address(address) is is_it


def test_only_pages_of_this_server_may_connect() -> None:
    assert allowed_page_origins("127.0.0.1", 5006) == ["127.0.0.1:5006", "localhost:5006"]
    assert allowed_page_origins("10.1.2.3", 80) == ["10.1.2.3:80"]
    assert allowed_page_origins("::1", 9) == ["[::1]:9", "localhost:9"]
    assert allowed_page_origins("127.0.0.2", 9) == ["127.0.0.2:9", "localhost:9"]
    assert allowed_page_origins("localhost", 9) == ["127.0.0.1:9", "[::1]:9", "localhost:9"]
    assert not any("[" in origin for origin in allowed_page_origins("0.0.0.0", 5006))
    assert "127.0.0.1:5006" not in allowed_page_origins("::", 5006)
    everywhere = allowed_page_origins("0.0.0.0", 5006)
    assert "127.0.0.1:5006" in everywhere
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

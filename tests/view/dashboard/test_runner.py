"""A run started from the view: the same command, one at a time, stopped cleanly, and never left behind."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from merge_bench.cli import cli
from merge_bench.config.shipped import config_names
from merge_bench.errors import UsageError
from merge_bench.view.dashboard import runner as runner_module
from merge_bench.view.dashboard.runner import COMMANDS, Permission, Request, Runner, arguments

POLITE = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: sys.exit(3))
print("\\x1b[1mready\\x1b[0m", flush=True)
time.sleep(600)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def running(program: str, results: Path) -> Runner:
    runner = Runner(results, lambda request: [sys.executable, "-c", program, request.chunk])
    runner.start(Request(chunk="1e6"))
    until(lambda: "ready" in runner.state().log)
    return runner


@pytest.fixture
def polite(tmp_path: Path) -> Iterator[Runner]:
    runner = running(POLITE, tmp_path)
    yield runner
    runner.close()


def test_the_command_is_what_a_person_would_type() -> None:
    words = arguments(Request(configs=("tcp.cfg",), chunk=" 25e6 ", workers="2"), Path("my results"))
    assert words == [
        "-m",
        "merge_bench",
        "run",
        "--config=tcp.cfg",
        "--chunk=25e6",
        "--workers=2",
        "--results=my results",
    ]


@pytest.mark.parametrize("text", ["; rm -rf /", "$(id)", "--results=/etc", "1e6 --insecure", "`id`", "x\n--json"])
def test_no_text_becomes_a_second_word_or_reaches_a_shell(text: str) -> None:
    words = arguments(Request(chunk=text, workers="2"), Path("r"))
    assert words[3:] == [f"--chunk={text}", "--workers=2", "--results=r"]


@pytest.mark.parametrize("config", ["/etc/passwd", "../secret.cfg", "--help", "no-such.cfg"])
def test_only_shipped_configs_can_be_chosen(tmp_path: Path, config: str) -> None:
    with pytest.raises(UsageError, match="no shipped config"):
        Runner(tmp_path).start(Request(configs=(config,)))


def test_a_config_that_brings_code_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies among the shipped configs, such as one of this site, and whatever the environment says."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "site.cfg").write_text("UCX_TLS=tcp\nPYTHONPATH=/some/folder\n")
    monkeypatch.setattr("merge_bench.config.shipped.FOLDER", tmp_path / "configs")
    monkeypatch.setenv("MERGE_BENCH_TRUST_CONFIG", "1")
    runner = Runner(tmp_path)
    with pytest.raises(UsageError, match=r"site\.cfg:2: PYTHONPATH"):
        runner.start(Request(configs=("site.cfg",)))
    assert runner.state().what == "idle"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("configs", [(), ("tcp.cfg",)])
def test_no_request_trusts_a_config(command: str, configs: tuple[str, ...]) -> None:
    assert "--trust-config" not in arguments(Request(command, configs, "1e6"), Path("r"))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_knows_the_options_that_it_is_given(command: str, tmp_path: Path) -> None:
    texts = {field.name: "1" for field in dataclasses.fields(Request) if field.name not in ("command", "configs")}
    words = arguments(Request(command, ("tcp.cfg",), **texts), tmp_path)[2:]
    found: click.Command = cli
    while isinstance(found, click.Group):
        known = found.get_command(click.Context(found), words.pop(0))
        assert known is not None
        found = known
    options = {option for parameter in found.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("command", ["", "report", "run --insecure", "shell"])
def test_no_other_command_is_started(command: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the dashboard cannot start"):
        Runner(tmp_path).start(Request(command))


def test_no_service_is_asked_by_the_dashboard(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on its own machine"):
        Runner(tmp_path).start(Request(on="http://127.0.0.1:5007"))


def test_the_shipped_configs_are_offered() -> None:
    assert {"default.cfg", "optimized.cfg", "tcp.cfg"} <= set(config_names())


def test_a_null_character_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="null character"):
        Runner(tmp_path).start(Request(chunk="1\0"))


@pytest.mark.cluster
def test_what_the_command_says_of_a_wrong_option_is_in_the_log(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.start(Request(chunk="many"))
    until(lambda: runner.state().what == "over")
    assert runner.state().status == 2
    assert "'many' is not a count" in runner.state().log
    assert runner.state().command == f"python -m merge_bench run --chunk=many --results={tmp_path}"


def test_one_run_at_a_time(polite: Runner) -> None:
    with pytest.raises(UsageError, match="in progress"):
        polite.start(Request())


def test_stop_is_an_interrupt_and_the_log_shows_no_terminal_codes(polite: Runner) -> None:
    assert polite.state().log == "ready"
    polite.stop()
    until(lambda: polite.state().what == "over")
    assert polite.state().status == 3
    polite.start(Request())  # and another can begin


def test_a_run_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    runner = running(DEAF, tmp_path)
    runner.stop()
    assert runner.state().what == "stopping"
    runner.kill()
    until(lambda: runner.state().what == "over")
    assert runner.state().status == -signal.SIGKILL
    runner.close()


def test_closing_ends_a_run_that_goes_on(polite: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert polite._run is not None
    process = polite._run.process
    polite.close()
    assert process.poll() == 3
    assert polite.state().what == "idle"


def test_closing_kills_a_run_that_does_not_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "GRACE_SECONDS", 0.1)
    runner = running(DEAF, tmp_path)
    assert runner._run is not None
    process = runner._run.process
    runner.close()
    assert process.poll() == -signal.SIGKILL


def test_a_run_goes_on_when_the_thread_that_asked_for_it_ends(tmp_path: Path) -> None:
    runner = Runner(tmp_path, lambda _: [sys.executable, "-c", POLITE])
    asked = threading.Thread(target=runner.start, args=[Request()])
    asked.start()
    asked.join()
    until(lambda: "ready" in runner.state().log)
    assert runner.state().what == "running"
    runner.close()


def test_a_run_ends_when_whoever_started_it_is_killed(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import sys, time
        from merge_bench.view.dashboard.runner import Request, Runner
        runner = Runner({str(tmp_path)!r}, lambda request: [sys.executable, "-c", "import time; time.sleep(600)"])
        runner.start(Request())
        print(runner._run.process.pid, flush=True)
        time.sleep(600)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    until(lambda: not _alive(child))


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    runner = Runner(
        tmp_path, lambda _: [sys.executable, "-c", "print('x' * 99 + '\\n', end='')\n" * 1000 + "print('last')"]
    )
    runner.start(Request())
    until(lambda: runner.state().what == "over")
    log = runner.state().log
    assert log.endswith("last")
    assert len(log) < 40_000
    runner.close()


def test_a_token_is_asked_for_where_there_is_one() -> None:
    assert Permission().granted("")
    assert Permission(token="abc").granted("abc")
    assert not Permission(token="abc").granted("abd")
    assert not Permission(token="abc").granted("")
    assert not Permission(refusal="no").granted("")
    assert not Permission(token="abc", refusal="no").granted("abc")
    assert not Permission(token="abc").granted("äbc")


def open_files() -> set[str]:
    """What the open descriptors of this process stand for; a count would change when something older closes."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return found


def test_no_descriptor_stays_open_when_a_run_is_over(tmp_path: Path) -> None:
    before = open_files()
    for _ in range(3):
        runner = Runner(tmp_path, lambda _: [sys.executable, "-c", ""])
        runner.start(Request())
        until(lambda runner=runner: runner.state().what == "over")
        runner.close()
    assert open_files() <= before

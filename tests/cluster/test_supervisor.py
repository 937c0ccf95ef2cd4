"""Processes that are started here: their environment, logs and ends; nothing of a session is left, nor semaphores."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from merge_bench.cluster.supervisor import ChildProcess, end_child_processes, kill_sessions, read_log_tail

PARENT = """
import multiprocessing, sys, time

def child(lock):
    time.sleep(600)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    lock = context.Lock()
    context.Process(target=child, args=(lock,)).start()
    print(lock._semlock.name, flush=True)
    time.sleep(600)
"""
LIMIT = 60.0  # seconds, for a machine that is busy


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not reached():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def start(tmp_path: Path, *argv: str | Path, **how: object) -> ChildProcess:
    words = [str(word) for word in argv]
    return ChildProcess(words, environment=os.environ, log=tmp_path / "log", **how)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[ChildProcess]:
    """A process with a child, a named semaphore and a resource tracker."""
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    child = start(tmp_path, sys.executable, program, stdout=subprocess.PIPE)
    yield child
    child.end_session()


def semaphore(child: ChildProcess) -> Path:
    return Path("/dev/shm") / f"sem.{child.stdout.readline().decode().strip().removeprefix('/')}"


def test_the_semaphores_of_killed_processes_are_gone(session: ChildProcess) -> None:
    left = semaphore(session)
    assert left.exists()
    started = psutil.Process(session.pid).children(recursive=True)
    assert len(started) == 2  # the child and the resource tracker
    assert session.end_session() == -signal.SIGKILL
    assert not left.exists()
    assert psutil.wait_procs(started, timeout=10)[1] == []


def test_a_tracker_that_does_not_end_is_killed(session: ChildProcess) -> None:
    left = semaphore(session)
    (tracker,) = [
        each for each in psutil.Process(session.pid).children() if "resource_tracker" in " ".join(each.cmdline())
    ]
    tracker.suspend()
    kill_sessions([session.pid], tracker_seconds=0.3)
    assert psutil.wait_procs([tracker], timeout=10)[1] == []
    left.unlink(missing_ok=True)


def test_processes_without_a_tracker_are_not_waited_for(tmp_path: Path) -> None:
    sleepers = [start(tmp_path, "sh", "-c", "sleep 600 & wait") for _ in range(2)]
    until(lambda: all(psutil.Process(each.pid).children() for each in sleepers))
    started = [child for each in sleepers for child in psutil.Process(each.pid).children()]
    before = time.monotonic()
    kill_sessions([each.pid for each in sleepers], tracker_seconds=60.0)
    assert time.monotonic() - before < 30
    assert end_child_processes(sleepers, LIMIT) == []
    assert [each.poll() for each in sleepers] == [-signal.SIGKILL] * 2
    assert psutil.wait_procs(started, timeout=10)[1] == []


def test_what_outlives_the_first_process_of_a_session_is_ended_too(tmp_path: Path) -> None:
    child = start(tmp_path, "sh", "-c", "sleep 600 & echo $!; exit 5")
    assert child.wait(LIMIT) == 5
    left = psutil.Process(int(read_log_tail(tmp_path / "log")))
    assert child.end_session() == 5
    assert psutil.wait_procs([left], timeout=10)[1] == []


def test_the_status_is_known_before_the_number_is_given_back(tmp_path: Path) -> None:
    child = start(tmp_path, "sh", "-c", "exit 7")
    assert child.wait(LIMIT) == 7
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    assert not child.is_reaped
    assert child.end_session() == child.poll() == 7
    assert child.is_reaped
    child.kill_session()  # its number may be another's: no signal is sent


def test_a_signal_first_lets_a_process_end_by_itself(tmp_path: Path) -> None:
    polite = "trap 'exit 4' TERM; echo ready; while :; do sleep 0.02; done"
    child = start(tmp_path, "sh", "-c", polite)
    until(lambda: read_log_tail(tmp_path / "log") == "ready")
    assert child.end_session(signal.SIGTERM, LIMIT) == 4
    deaf = start(tmp_path, "sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.02; done")
    until(lambda: read_log_tail(tmp_path / "log", line_count=1) == "deaf")
    assert deaf.end_session(signal.SIGTERM, 0.1) == -signal.SIGKILL


def test_output_is_appended_to_the_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    start(tmp_path, "sh", "-c", "echo one; echo two >&2").wait(LIMIT)
    assert (tmp_path / "log").read_text() == "before\none\ntwo\n"
    assert read_log_tail(tmp_path / "log", line_count=2) == "one\ntwo"
    assert read_log_tail(tmp_path / "log", byte_limit=4) == "two"
    assert read_log_tail(tmp_path / "no-log") == ""


def test_cores_and_environment_are_those_that_were_given(tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    code = "import os; print(sorted(os.sched_getaffinity(0)), os.environ['GIVEN'], 'HOME' in os.environ)"
    child = ChildProcess([sys.executable, "-c", code], environment={"GIVEN": "x"}, log=tmp_path / "log", cores=[core])
    assert child.wait(LIMIT) == 0
    assert read_log_tail(tmp_path / "log") == f"[{core}] x False"


@pytest.mark.parametrize(("death_signal", "outlives"), [("signal.SIGKILL", False), ("None", True)])
def test_the_kernel_ends_a_process_whose_parent_was_killed(tmp_path: Path, death_signal: str, outlives: bool) -> None:
    code = textwrap.dedent(f"""
        import os, signal, time
        from pathlib import Path
        from merge_bench.cluster.supervisor import ChildProcess
        log = Path({str(tmp_path / "log")!r})
        child = ChildProcess(["sleep", "600"], environment=os.environ, log=log, death_signal={death_signal})
        print(child.pid, flush=True)
        time.sleep(600)
    """)
    parent = start(tmp_path, sys.executable, "-c", code, stdout=subprocess.PIPE)
    left = psutil.Process(int(parent.stdout.readline()))
    os.kill(parent.pid, signal.SIGKILL)  # not its session
    parent.wait(LIMIT)
    try:
        assert bool(psutil.wait_procs([left], timeout=2 if outlives else LIMIT)[1]) == outlives
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.kill()
        parent.end_session()

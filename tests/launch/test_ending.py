"""Processes that are killed together leave no named semaphore behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from merge_bench.launch import ending
from merge_bench.launch.ending import kill_sessions

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


@pytest.fixture
def session(tmp_path: Path) -> subprocess.Popen[str]:
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    return subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True, start_new_session=True)


def semaphore(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path("/dev/shm") / f"sem.{process.stdout.readline().strip().removeprefix('/')}"


def test_the_semaphores_of_killed_processes_are_gone(session: subprocess.Popen[str]) -> None:
    left = semaphore(session)
    assert left.exists()
    started = psutil.Process(session.pid).children(recursive=True)
    assert len(started) == 2  # the child and the resource tracker
    kill_sessions([session.pid])
    session.wait()
    assert not left.exists()
    assert psutil.wait_procs(started, timeout=10)[1] == []


def test_a_tracker_that_does_not_end_is_killed(session: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "TIDY_SECONDS", 0.3)
    left = semaphore(session)
    (tracker,) = [
        each for each in psutil.Process(session.pid).children() if "resource_tracker" in " ".join(each.cmdline())
    ]
    tracker.suspend()
    kill_sessions([session.pid])
    session.wait()
    assert psutil.wait_procs([tracker], timeout=10)[1] == []
    left.unlink(missing_ok=True)


def test_processes_without_a_tracker_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "TIDY_SECONDS", 60.0)
    sleepers = [subprocess.Popen(["sh", "-c", "sleep 600 & wait"], start_new_session=True) for _ in range(2)]
    while len(psutil.Process(sleepers[1].pid).children()) < 1:
        time.sleep(0.01)
    started = [child for each in sleepers for child in psutil.Process(each.pid).children()]
    before = time.monotonic()
    kill_sessions([each.pid for each in sleepers])
    assert time.monotonic() - before < 30
    for each in sleepers:
        assert each.wait() == -9
    assert psutil.wait_procs(started, timeout=10)[1] == []

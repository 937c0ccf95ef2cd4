"""What other processes use of this host's cores, with a real process that is busy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from merge_bench.host import other_load
from merge_bench.host.other_load import BUSY, BusyProcess, OtherLoad, measure


@pytest.fixture(scope="module", autouse=True)
def _quiet_host() -> None:
    """Here the real functions look, which other tests replace."""


def test_a_process_that_keeps_a_core_busy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_load, "_SHOWN", 1000)  # on a busy machine three others may use more
    words = [sys.executable, "-c", "print(flush=True)\nwhile True: pass", "--preload", "merge_bench.cluster.preload"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            busy.stdout.readline()  # it runs
            found = measure(1.0)
        finally:
            busy.kill()
    (name,) = [each.name for each in found.processes if each.pid == busy.pid]
    assert name.startswith("another merge_bench (")
    assert 0.2 < found.busy <= found.cores


def test_what_this_process_uses_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([10.0, 11.0])  # the cores worked for a second, and this process did all of it
    monkeypatch.setattr("merge_bench.host.other_load._busy_seconds", lambda cores: next(ticks))
    mine = iter([5.0, 6.0])
    monkeypatch.setattr("merge_bench.host.other_load._own_seconds", lambda earlier: next(mine))
    assert measure(0.01).busy == 0.0


def test_what_an_ended_child_used_is_our_own() -> None:
    before = other_load._own_seconds()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert other_load._own_seconds() - before >= 0.3


def test_a_look_that_has_lasted_long_enough_takes_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    clock = iter([100.0, 100.2, 100.5, 200.0, 201.0, 201.0])
    # Not `time.monotonic` itself: other threads of this process ask for the time, too.
    played = SimpleNamespace(sleep=slept.append, monotonic=clock.__next__, process_time=time.process_time)
    monkeypatch.setattr(other_load, "time", played)
    other_load.begin_measuring(0.5)()
    other_load.begin_measuring(0.5)()
    assert slept == [pytest.approx(0.3), 0.0]


@pytest.mark.parametrize(("busy", "quiet"), [(BUSY * 4 - 0.01, True), (BUSY * 4, False)])
def test_a_quarter_of_the_cores_is_busy(busy: float, quiet: bool) -> None:
    assert OtherLoad(busy, 4).quiet is quiet


def test_the_text_names_cores_and_processes_and_says_if_none_can_be_seen() -> None:
    assert str(OtherLoad(1.94, 2, (BusyProcess(71, "yes", 1.0),))) == "1.9 of 2 cores busy (pid 71 yes)"
    assert "not visible" in str(OtherLoad(1.94, 2))
    assert str(OtherLoad(0.02, 2)) == "0.0 of 2 cores busy"


def test_what_this_process_starts_during_a_look_is_its_own() -> None:
    """A launch looks while it starts its processes: they, and what they start, are no neighbours."""
    words = "import subprocess, sys, time\nwork = 'import time\\nend = time.process_time() + 0.4\\n"
    words += "while time.process_time() < end: pass\\nprint(1, flush=True)\\ntime.sleep(60)'\n"
    words += "subprocess.run([sys.executable, '-c', work])"
    before = other_load._own_seconds()
    child = subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        alive = other_load._own_seconds() - before
        assert other_load._own_seconds(other_load._descendants()) - before < 0.3
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert alive >= 0.4

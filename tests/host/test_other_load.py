"""What other processes use of this host's cores, with a real process that is busy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection
from dataclasses import replace

import psutil
import pytest

from merge_bench.host.other_load import (
    BUSY,
    BusyProcess,
    CpuSecondsReading,
    OtherProcessLoad,
    begin_load_measurement,
    read_cpu_seconds,
    starts_merge_bench,
)


@pytest.fixture(scope="module", autouse=True)
def _quiet_host() -> None:
    """Here the real functions look, which other tests replace."""


def test_a_process_that_keeps_a_core_busy_is_named() -> None:
    words = [sys.executable, "-c", "print(flush=True)\nwhile True: pass", "--preload", "merge_bench.cluster.preload"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as busy:

        def read_of_it(cores: Collection[int], earlier: Collection[int]) -> CpuSecondsReading:
            """Without other processes: on a busy machine three others may use more."""
            found = read_cpu_seconds(cores, earlier)
            return replace(
                found, by_process={key: used for key, used in found.by_process.items() if key[0] == busy.pid}
            )

        try:
            assert busy.stdout is not None
            busy.stdout.readline()  # it runs
            found = begin_load_measurement(1.0, read_counters=read_of_it)()
        finally:
            busy.kill()
    (process,) = found.processes
    assert process.pid == busy.pid
    assert process.name.startswith("another merge_bench (")
    assert 0.2 < found.busy <= found.cores


@pytest.mark.parametrize(
    ("command_line", "expected"),
    [
        ("/venv/bin/python -P -m merge_bench run --chunk 1e6", True),
        ("python3.12 -X dev -Pm merge_bench.command.warden", True),
        ("/venv/bin/python /venv/bin/merge-bench tune", True),
        ("python /src/merge_bench/__main__.py", True),
        ("/venv/bin/python -P -m dask worker --preload merge_bench.cluster.preload", True),
        ("/venv/bin/python /venv/bin/mypy --strict merge_bench", False),
        ("/venv/bin/python -m mypy -m merge_bench", False),
        ("/src/merge_bench/.venv/bin/python -m pytest tests -k merge_bench", False),
        ("python -c pass merge_bench", False),
        ("rg merge_bench /src/merge_bench", False),
        ("vim /src/merge_bench", False),
        ("", False),
    ],
)
def test_only_a_command_line_that_starts_this_program_is_another_merge_bench(command_line: str, expected: bool) -> None:
    assert starts_merge_bench(command_line.split()) is expected


def measured(seconds: float, *readings: CpuSecondsReading) -> OtherProcessLoad:
    """What a look of so many seconds finds between two readings."""
    now, left = 100.0, iter(readings)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    return begin_load_measurement(seconds, read_counters=lambda *_: next(left), clock=lambda: now, sleep=sleep)()


def test_what_this_process_uses_does_not_count() -> None:
    begin = CpuSecondsReading(busy=10.0, own=5.0, by_process={(os.getpid(), "python"): 5.0, (71, "yes"): 1.0})
    alone = CpuSecondsReading(busy=11.0, own=6.0, by_process={(os.getpid(), "python"): 6.0, (71, "yes"): 1.0})
    assert (measured(2.0, begin, alone).busy, measured(2.0, begin, alone).processes) == (0.0, ())
    shared = CpuSecondsReading(busy=11.5, own=6.0, by_process={(os.getpid(), "python"): 6.0, (71, "yes"): 1.5})
    assert measured(2.0, begin, shared).busy == pytest.approx(0.25)
    assert [each.cores for each in measured(2.0, begin, shared).processes] == [pytest.approx(0.25)]


def own_seconds(earlier: Collection[int] = ()) -> float:
    return read_cpu_seconds([], earlier).own


def test_what_an_ended_child_used_is_our_own() -> None:
    before = own_seconds()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert own_seconds() - before >= 0.3


def test_a_look_that_has_lasted_long_enough_takes_no_more_time() -> None:
    slept: list[float] = []
    clock = iter([100.0, 100.2, 100.5, 200.0, 201.0, 201.0])
    for _ in range(2):
        begin_load_measurement(0.5, clock=clock.__next__, sleep=slept.append)()
    assert slept == [pytest.approx(0.3), 0.0]


@pytest.mark.parametrize(("busy", "quiet"), [(BUSY * 4 - 0.01, True), (BUSY * 4, False)])
def test_a_quarter_of_the_cores_is_busy(busy: float, quiet: bool) -> None:
    assert OtherProcessLoad(busy, 4).is_quiet is quiet


def test_the_text_names_cores_and_processes_and_says_if_none_can_be_seen() -> None:
    assert str(OtherProcessLoad(1.94, 2, (BusyProcess(71, "yes", 1.0),))) == "1.9 of 2 cores busy (pid 71 yes)"
    assert "not visible" in str(OtherProcessLoad(1.94, 2))
    assert str(OtherProcessLoad(0.02, 2)) == "0.0 of 2 cores busy"


def test_what_this_process_starts_during_a_look_is_its_own() -> None:
    """A launch looks while it starts its processes: they, and what they start, are no neighbours."""
    words = "import subprocess, sys, time\nwork = 'import time\\nend = time.process_time() + 0.4\\n"
    words += "while time.process_time() < end: pass\\nprint(1, flush=True)\\ntime.sleep(60)'\n"
    words += "subprocess.run([sys.executable, '-c', work])"
    before = own_seconds()
    child = subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        alive = own_seconds() - before
        descendants = {each.pid for each in psutil.Process().children(recursive=True)}
        assert own_seconds(descendants) - before < 0.3
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert alive >= 0.4

"""Processes that one process forks: children of this process, named as if started alone, and never left behind."""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from merge_bench.cluster.base import START_DASK, ProcessCommand
from merge_bench.cluster.forked_processes import ForkedProcesses
from merge_bench.cluster.supervisor import adopt_orphans, end_child_processes
from tests.helpers.runs import ROOT

pytestmark = pytest.mark.cluster
LIMIT = 60.0


def commands(scheduler_file: Path, variables: Mapping[str, str] | None = None) -> list[ProcessCommand]:
    found = ("--scheduler-file", str(scheduler_file), "--no-dashboard", "--dashboard-address", "127.0.0.1:0")
    scheduler = (*START_DASK, "dask_scheduler", *found, "--host", "127.0.0.1", "--port", "0")
    worker = (*START_DASK, "dask_worker", *found, "--host", "127.0.0.1", "--name", "a-name", "--no-nanny")
    argvs = {"scheduler": scheduler, "worker-0": worker}
    return [ProcessCommand(role, "here", argv, variables or {}) for role, argv in argvs.items()]


def forked(tmp_path: Path, site: str = "", *, workers_merge: bool = False) -> ForkedProcesses:
    (tmp_path / "sitecustomize.py").write_text(site)
    logs = [tmp_path / "scheduler.log", tmp_path / "worker.log"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    return ForkedProcesses(commands(tmp_path / "scheduler.json"), logs, environment, workers_merge=workers_merge)


def wait_until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def set_subreaper(enabled: bool) -> None:
    ctypes.CDLL(None).prctl(36, int(enabled))


def is_subreaper() -> bool:
    now = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(now))
    return bool(now.value)


def shows(process: psutil.Process, argv: Sequence[str]) -> bool:
    return " ".join(process.cmdline()).strip() == " ".join(argv)


def descendants() -> set[int]:
    return {each.pid for each in psutil.Process().children(recursive=True)}


def test_each_is_a_child_with_a_session_a_log_and_a_command_line_of_its_own(tmp_path: Path) -> None:
    before = descendants()
    processes = forked(tmp_path, workers_merge=True)
    wait_until(lambda: processes.status is not None, "all forked")
    status, children = processes.status, processes.end()
    try:
        assert status == 0
        assert list(children) == ["scheduler", "worker-0"]
        for command, child in zip(commands(tmp_path / "scheduler.json"), children.values(), strict=True):
            process = psutil.Process(child.pid)
            assert process.ppid() == os.getpid()
            assert os.getsid(child.pid) == child.pid
            wait_until(functools.partial(shows, process, command.argv), "its command line")
            loaded = {Path(each.path).name for each in process.memory_maps()}
            assert ("libllvmlite.so" in loaded) is (command.role == "worker-0")
        log = tmp_path / "worker.log"
        wait_until(lambda: "Registered to" in log.read_text(), "a worker at the scheduler")
        assert "Registered to" not in (tmp_path / "scheduler.log").read_text()
        os.kill(children["worker-0"].pid, signal.SIGTERM)
        assert children["worker-0"].wait(LIMIT) is not None
        assert children["scheduler"].poll() is None
    finally:
        assert end_child_processes(children.values(), LIMIT) == []
    assert children["scheduler"].poll() == -signal.SIGKILL
    assert descendants() <= before


@pytest.mark.parametrize("moment", [0.0, 0.3, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.6, 2.0])
def test_whenever_it_ends_nothing_is_left(tmp_path: Path, moment: float) -> None:
    before = descendants()
    processes = forked(tmp_path, workers_merge=moment >= 1)
    time.sleep(moment)
    end_child_processes(processes.end().values(), LIMIT)
    wait_until(lambda: descendants() <= before, "nothing left")


def test_a_process_that_cannot_import_dask_is_reported_with_what_it_wrote(tmp_path: Path) -> None:
    processes = forked(tmp_path, "import sys; sys.modules['distributed'] = None")
    wait_until(lambda: processes.status is not None, "its end")
    assert processes.status == 1
    assert processes.end() == {}
    assert "ModuleNotFoundError" in (tmp_path / "scheduler.log").read_text()


@pytest.mark.parametrize("before", [False, True])
def test_orphans_are_adopted_in_the_blocks_alone(before: bool) -> None:
    was = is_subreaper()
    set_subreaper(before)
    try:
        first, second = adopt_orphans(), adopt_orphans()
        assert first.__enter__()
        assert second.__enter__()
        first.__exit__(None, None, None)  # the blocks of two threads need not be one within the other
        assert is_subreaper()
        second.__exit__(None, None, None)
        assert is_subreaper() is before
    finally:
        set_subreaper(was)


def test_what_a_library_prints_while_dask_is_imported_is_in_the_log(tmp_path: Path) -> None:
    """And where a library of merges cannot be imported, it is a worker that says so."""
    site = "print('7 loading\\n1', flush=True); import sys; sys.modules['numba'] = None"
    processes = forked(tmp_path, site, workers_merge=True)
    wait_until(lambda: processes.status is not None, "all forked")
    children = processes.end()
    assert end_child_processes(children.values(), LIMIT) == []
    assert list(children) == ["scheduler", "worker-0"]
    assert "7 loading\n1" in (tmp_path / "scheduler.log").read_text()


def test_a_log_that_cannot_be_opened_is_a_failure_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "worker.log").symlink_to(tmp_path / "elsewhere")
    processes = forked(tmp_path)
    wait_until(lambda: processes.status is not None, "its end")
    assert processes.status == 1
    assert end_child_processes(processes.end().values(), LIMIT) == []
    assert "worker.log" in (tmp_path / "scheduler.log").read_text()
    assert not (tmp_path / "elsewhere").exists()


def test_the_log_of_many_workers_fits_on_a_command_line(tmp_path: Path) -> None:
    many = commands(tmp_path / "scheduler.json")[1:] * 600
    assert sum(len(word) for each in many for word in each.argv) > 128 << 10  # of one argument
    processes = ForkedProcesses(many, [tmp_path / "log"] * len(many), os.environ)
    assert end_child_processes(processes.end().values(), LIMIT) == []


def test_processes_that_differ_in_more_than_their_arguments_are_not_forked(tmp_path: Path) -> None:
    first, second = commands(tmp_path / "file")
    assert ForkedProcesses.can_start([first, second])
    assert not ForkedProcesses.can_start([first, second._replace(environment={"A": "1"})])
    assert not ForkedProcesses.can_start([first, second._replace(cores=[0])])
    assert not ForkedProcesses.can_start(
        [first, second._replace(argv=(sys.executable, "-m", "dask", "cuda", "worker"))]
    )

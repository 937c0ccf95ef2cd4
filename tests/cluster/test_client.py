"""Every wait for the scheduler has a limit, and looks at the processes meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import LocalCluster

from merge_bench.cluster import scheduler_client
from merge_bench.cluster.base import EndedProcess
from merge_bench.cluster.scheduler_client import call_on_each_host, count_running_workers
from merge_bench.cluster.worker_calls import LaunchedWorker, WorkerStepRunner
from merge_bench.errors import LaunchFailed, UsageError
from tests.helpers.clusters import scheduler_alone


@pytest.fixture
def mute() -> Iterator[str]:
    """The address of a server that accepts connections and never says a word, as a stopped scheduler's kernel does."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


def test_a_scheduler_that_never_answers_is_given_up(mute: str) -> None:
    with pytest.raises((OSError, TimeoutError)):
        scheduler_client.open_client(mute, None, seconds=1.0)


LATE_IMPORT = """
import sys, time

clock, late = time.monotonic, [0.0]

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "distributed":
            late[0] += 1000.0

sys.meta_path.insert(0, Slow())
time.monotonic = lambda: clock() + late[0]
from merge_bench.cluster.scheduler_client import close_client, open_client
assert not late[0]
close_client(open_client(sys.argv[1], None, seconds=60.0))
assert late[0]
"""


@pytest.mark.slow
def test_the_seconds_in_which_a_scheduler_must_answer_begin_after_the_import_of_its_client() -> None:
    with scheduler_alone() as address:
        subprocess.run([sys.executable, "-c", LATE_IMPORT, address], check=True)


def test_a_process_that_ends_meanwhile_ends_the_wait(mute: str) -> None:
    looked = 0

    def look() -> None:
        nonlocal looked
        looked += 1
        if looked > 3:
            raise LaunchFailed("the scheduler was killed")

    began = time.monotonic()
    with pytest.raises(LaunchFailed, match="was killed"):
        scheduler_client.open_client(mute, None, seconds=3600.0, check_processes=look)
    assert time.monotonic() - began < 600


@pytest.mark.slow
def test_a_running_cluster_that_never_answers_is_refused(mute: str) -> None:
    with pytest.raises(UsageError, match="no scheduler answers at"):
        count_running_workers(mute, None, seconds=1.0)
    with pytest.raises(UsageError, match="no scheduler answers at"):
        call_on_each_host(mute, None, lambda: None, seconds=1.0)


def test_the_loop_of_a_client_that_cannot_be_closed_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left running, it would print its errors after the result."""
    with LocalCluster(n_workers=0, processes=False, dashboard_address=None) as cluster:
        client = scheduler_client.open_client(cluster.scheduler_address, None, seconds=60.0)
        loop: Any = client.loop

        def too_busy(timeout: float) -> None:
            raise TimeoutError("Timeout")

        monkeypatch.setattr(client, "close", too_busy)
        scheduler_client.close_client(client)
        assert loop.asyncio_loop.is_closed()
        assert client.status == "closed"


def test_errors_that_nobody_took_are_in_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As of a wait that was cut short: freed with its client, so asyncio tells of it when memory is collected."""
    loop, log = asyncio.new_event_loop(), tmp_path / "driver.log"
    gc.disable()
    try:
        with scheduler_client.redirect_library_output(log):
            future: Any = loop.create_future()
            future.set_exception(TimeoutError("Timeout"))
            future.itself = [future]
            del future
        assert "TimeoutError: Timeout" in log.read_text()
    finally:
        gc.enable()
        loop.close()
    assert "Timeout" not in capfd.readouterr().err


def test_a_client_that_cannot_be_closed_is_left() -> None:
    never = threading.Event()
    stuck = SimpleNamespace(close=lambda timeout: never.wait())
    scheduler_client.close_client(stuck, seconds=0.1)
    never.set()


class Finished:
    """A future that is done, whose value has to be fetched from a worker that is gone."""

    status = "finished"
    released = False

    def done(self) -> bool:
        return True

    def add_done_callback(self, call: Any) -> None:
        call(self)

    def release(self) -> None:
        self.released = True


def test_fetching_results_from_a_worker_that_was_killed_ends() -> None:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    async def for_ever() -> None:
        await asyncio.Event().wait()

    client = SimpleNamespace(
        loop=SimpleNamespace(asyncio_loop=loop, add_callback=lambda *_: None),
        gather=lambda futures, asynchronous: for_ever(),
        run_on_scheduler=lambda *_: {"tcp://a": 0.0},
    )
    launcher = SimpleNamespace(
        ended_processes=lambda: [EndedProcess("worker-0", "here", 7, -9, "")],
        read_log_tail=lambda role: "",
        placed=dict,
    )
    calls = WorkerStepRunner(client, launcher, 15.0)
    calls.members = [LaunchedWorker(0, "tcp://a", "worker-0", "here", 7)]
    calls.watch.start_watching(calls.members)
    future = Finished()
    try:
        with pytest.raises(LaunchFailed, match=r"rank 0 .*signal 9"):
            calls.wait_for_results([future])
        assert future.released
    finally:
        calls.watch.stop_watching()
        loop.call_soon_threadsafe(loop.stop)


@pytest.mark.parametrize("text", ["", '{"type": "Sched', "[]", '{"address": null'])
def test_a_scheduler_file_that_names_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"scheduler\.json contained no scheduler address"):
        count_running_workers(None, str(file), seconds=0.5)
    with pytest.raises(UsageError, match=r"scheduler\.json contained no scheduler address"):
        call_on_each_host(None, str(file), lambda: None, seconds=0.5)


@pytest.mark.slow
def test_a_scheduler_file_that_is_being_written_is_waited_for(tmp_path: Path, mute: str) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text('{"addr')
    threading.Timer(0.3, lambda: file.write_text(json.dumps({"address": mute}))).start()
    with pytest.raises((OSError, TimeoutError)):
        scheduler_client.open_client(None, file, seconds=2.0)


def test_dasks_configuration_is_looked_for_without_a_home() -> None:
    """As in a container whose user has a number that no list of users has."""
    program = "import os; from merge_bench.cluster.scheduler_client import dask_requires_encryption as ask"
    code = f"{program}; os.getuid = lambda: 54321; print(ask())"
    kept = {name: text for name, text in os.environ.items() if name != "HOME" and not name.startswith("DASK_")}
    ended = subprocess.run([sys.executable, "-c", code], env=kept, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "False\n"), ended.stderr

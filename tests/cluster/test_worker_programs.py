"""ucx_perftest beside a worker: ports, ends on every way, and nothing left. Only Dask's worker is made up here."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest

from merge_bench.cluster import ucx_perftest, worker_programs
from merge_bench.cluster.ucx_perftest import Perftest
from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge import worker
from merge_bench.merge.exchange.base import ORPHANED_SECONDS
from tests.conftest import QUICK_HOOKS
from tests.helpers.dask_worker import DaskWorker, become_worker

SIZES = [8, 65536]
BATCH = ucx_perftest.batch_file_text(Perftest("tag", "lat"), SIZES, memory="host", count=20, error_handling=False)
ENDLESS = ucx_perftest.batch_file_text(
    Perftest("tag", "lat"), [4 << 20], memory="host", count=10**7, error_handling=False
)
LIMITS = [30.0, 30.0]


@pytest.fixture(params=[pytest.param("127.0.0.1", marks=pytest.mark.soak), "[::1]"])  # probes use the first
def address(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dask_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DaskWorker:
    monkeypatch.setenv(*QUICK_HOOKS)
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setenv("UCX_NET_DEVICES", "lo")
    return become_worker(monkeypatch, tmp_path)


@pytest.fixture
def plugin(dask_worker: DaskWorker, tmp_path: Path) -> Iterator[worker.MergeWorker]:
    yield dask_worker.plugin
    dask_worker.plugin.abort.abort_run("the test is over")
    until(lambda: not tools(tmp_path), "all tools ended")


def tools(folder: Path) -> list[psutil.Process]:
    """The processes whose batch lies in this folder."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE and any(str(folder) in word for word in process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline, f"never came to: {what}"
        time.sleep(0.01)


@pytest.mark.cluster
def test_a_client_and_a_server_measure_and_leave_nothing(
    dask_worker: DaskWorker, plugin: worker.MergeWorker, tmp_path: Path, address: str
) -> None:
    dask_worker.address = f"ucx://{address}:1234"
    server = worker_programs.start_perftest_server(BATCH)
    assert server.address == address.strip("[]")
    with ThreadPoolExecutor() as pool:
        served = pool.submit(worker_programs.wait_for_perftest_server, server)
        asked = worker_programs.run_perftest_client(server, BATCH, LIMITS)
        assert served.result().status == 0
    assert [each.size for each in ucx_perftest.median_figures(asked.text, SIZES)] == SIZES
    assert ucx_perftest.parse_ucx_log(asked.log, Perftest("tag", "lat")).lanes == ("tcp/lo",)
    assert plugin.children == {}
    assert list(tmp_path.iterdir()) == []
    until(lambda: not [t for t in threading.enumerate() if t.name == "perftest-watch"], "no watching thread")


@pytest.mark.cluster
def test_ports_that_another_program_or_server_took_meanwhile_are_not_the_end(
    plugin: worker.MergeWorker, tmp_path: Path
) -> None:
    """Two servers start at once and are offered the same port; the loser is then offered another program's."""
    both = threading.Barrier(2)
    with socket.create_server(("127.0.0.1", 0)) as other:
        same, taken = worker_programs.find_free_port("127.0.0.1"), other.getsockname()[1]
        offered = [taken, same, same]

        def offer(address: str) -> int:
            port = offered.pop() if offered else worker_programs.find_free_port(address)
            if port == same:
                both.wait(20)
            return port

        with ThreadPoolExecutor() as pool:  # the kernel ends a program with the thread that started it
            servers = list(pool.map(partial(worker_programs.start_perftest_server, find_port=offer), [BATCH, BATCH]))
            assert offered == []
            ports = {server.port for server in servers}
            assert same in ports
            assert taken not in ports
            assert len(ports) == len(plugin.children) == len(tools(tmp_path)) == 2
            for server in servers:
                worker_programs.run_perftest_client(server, BATCH, LIMITS)
                assert worker_programs.wait_for_perftest_server(server).status == 0
    assert plugin.children == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
def test_ports_that_are_all_taken_are_a_failure(plugin: worker.MergeWorker, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(RunFailed, match="the ucx_perftest server ended with status 255"):
            worker_programs.start_perftest_server(BATCH, find_port=lambda address: int(other.getsockname()[1]))
    assert plugin.children == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.cluster
@pytest.mark.parametrize("how", ["aborted", "the driver is gone"])
def test_a_server_whose_client_never_came_is_ended(plugin: worker.MergeWorker, tmp_path: Path, how: str) -> None:
    server = worker_programs.start_perftest_server(BATCH)
    (tool,) = tools(tmp_path)
    if how == "aborted":
        plugin.abort.abort_run("interrupted")
    else:
        plugin.abort.last_heartbeat -= ORPHANED_SECONDS
    until(lambda: has_ended(tool), "the server's end")
    until(lambda: list(tmp_path.iterdir()) == [], "no folder")
    assert plugin.children == {}
    with pytest.raises(RunFailed):
        worker_programs.wait_for_perftest_server(server)


def has_ended(tool: psutil.Process) -> bool:
    try:
        return bool(tool.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.cluster
def test_an_abort_ends_both_sides_at_once_with_its_own_reason(plugin: worker.MergeWorker, tmp_path: Path) -> None:
    server = worker_programs.start_perftest_server(ENDLESS)
    with ThreadPoolExecutor() as pool:
        waiting = [
            pool.submit(worker_programs.wait_for_perftest_server, server),
            pool.submit(worker_programs.run_perftest_client, server, ENDLESS, LIMITS),
        ]
        until(lambda: len(tools(tmp_path)) == 2 and not plugin.children, "a step that waits for each side")
        plugin.abort.abort_run("interrupted by SIGINT")
        for each in waiting:
            with pytest.raises(RunFailed, match="interrupted by SIGINT"):
                each.result(timeout=5)
    until(lambda: not tools(tmp_path) and not list(tmp_path.iterdir()), "nothing left")


def test_an_abort_before_a_step_waits_for_the_server_has_its_own_reason(plugin: worker.MergeWorker) -> None:
    plugin.abort.abort_run("interrupted by SIGINT")
    with pytest.raises(RunFailed, match="interrupted by SIGINT"):
        worker_programs.wait_for_perftest_server(worker_programs.PerftestServer("127.0.0.1", 1, pid=1))


@pytest.fixture
def system_ucx(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the programs of the UCX that this host has; there is no ucx_perftest."""
    programs = tmp_path_factory.mktemp("bin")
    write_program(programs / "ucx_info", "exit 0")
    monkeypatch.setenv("MERGE_BENCH_UCX", "system")
    monkeypatch.setenv("PATH", str(programs))
    return programs


def write_program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.cluster
@pytest.mark.parametrize("end", ["exit 1", "kill -s PIPE $$"])
def test_a_side_that_ended_because_of_its_peer_leaves_it_to_the_peer_to_say_why(
    end: str, plugin: worker.MergeWorker, system_ucx: Path
) -> None:
    write_program(system_ucx / "ucx_perftest", end)
    later = threading.Timer(0.3, lambda: plugin.abort.abort_run("the peer was killed"))
    later.start()
    with pytest.raises(RunFailed, match="the peer was killed"):
        worker_programs.start_perftest_server(BATCH)
    later.join()


@pytest.mark.cluster
def test_a_side_that_failed_by_itself_is_the_failure(plugin: worker.MergeWorker, system_ucx: Path) -> None:
    write_program(system_ucx / "ucx_perftest", "kill -s KILL $$")
    with pytest.raises(RunFailed, match="the ucx_perftest server was killed by signal 9"):
        worker_programs.start_perftest_server(BATCH)


@pytest.mark.cluster
def test_the_next_run_ends_and_forgets_what_an_earlier_one_left(plugin: worker.MergeWorker, tmp_path: Path) -> None:
    plugin.abort.abort_run("an earlier run ended")
    plugin.abort.note_heartbeat()
    assert worker_programs.find_perftest_origin() in ("wheel", "system")
    plugin.abort.raise_if_aborted()
    worker_programs.start_perftest_server(BATCH)
    assert len(tools(tmp_path)) == 1
    worker_programs.find_perftest_origin()
    assert tools(tmp_path) == []
    assert plugin.children == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("plugin")
def test_a_host_without_the_tool_is_named(system_ucx: Path) -> None:
    missing = f"{socket.gethostname()}: ucx_perftest is not in the folder of {system_ucx / 'ucx_info'}"
    with pytest.raises(UsageError, match=f"^{re.escape(missing)}"):
        worker_programs.find_perftest_origin()


@pytest.mark.cluster
def test_a_client_whose_server_fell_silent_ends_in_time(plugin: worker.MergeWorker, tmp_path: Path) -> None:
    server = worker_programs.start_perftest_server(ENDLESS)
    (tool,) = tools(tmp_path)
    tool.suspend()
    try:
        with pytest.raises(RunFailed, match="printed nothing for"):
            worker_programs.run_perftest_client(server, ENDLESS, [0.5])
        assert [each.pid for each in tools(tmp_path)] == [tool.pid]  # before it wakes: it ends once its client is gone
    finally:
        tool.resume()

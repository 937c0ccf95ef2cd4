"""Questions and network measurements on somebody's running cluster: it answers them all, and is left as it was.

Puts, and tools that are killed, are tested here rather than in clusters of their own: nothing but them is started.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from merge_bench.cli import cli
from merge_bench.cluster.dask_commands import WORKER
from merge_bench.host.doctor import CHECKS
from tests.helpers.clusters import dask_cluster
from tests.helpers.runs import LIMIT, Finished, command, environment
from tests.probe.polling import polls

pytestmark = pytest.mark.cluster

SILENCE = 120  # seconds that a worker may be silent: what is stuck ends by itself only after that
AT_ONCE = SILENCE / 2


class Running:
    """A cluster of three workers that speak TCP, and the commands that measure on it."""

    def __init__(self, folder: Path, scheduler_file: Path) -> None:
        self.folder, self.temp, self.file = folder, folder / "cluster" / "tmp", scheduler_file
        until(lambda: len(self.processes(WORKER[-1])) == 3, "three workers")
        self.started: list[subprocess.Popen[str]] = []
        self.workers = sorted(self.processes(WORKER[-1]), key=lambda process: process.cmdline()[-1])

    def processes(self, word: str) -> list[psutil.Process]:
        """Those below this test that have `word` on their command line, or as their program's name."""
        found = []
        for process in psutil.Process().children(recursive=True):
            try:
                if process.status() != psutil.STATUS_ZOMBIE and any(
                    Path(part).name == word for part in process.cmdline()
                ):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A probe in a process of its own, to be interrupted."""
        places = ("--results", str(self.folder / "results"), "--scheduler-file", str(self.file))
        words = ("-m", "merge_bench", "probe", *arguments, "--json", *places, "--timeout", str(SILENCE))
        process = subprocess.Popen(
            [sys.executable, "-P", *words],
            env=environment(self.temp),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )
        self.started.append(process)
        return process

    def ask(self, *arguments: str) -> Finished:
        """A whole probe."""
        return command(self.folder, *arguments[1:], "--scheduler-file", self.file, verb=("probe", arguments[0]))

    def probe(self, *arguments: str) -> list[dict[str, Any]]:
        """The rows of a probe that succeeds."""
        finished = self.ask(*arguments)
        assert finished.status == 0, finished.errors
        rows: list[dict[str, Any]] = finished.document["rows"]
        return rows

    def interrupt(self, process: subprocess.Popen[str], number: signal.Signals) -> None:
        process.send_signal(number)
        since = time.monotonic()
        _, errors = process.communicate(timeout=LIMIT)
        assert time.monotonic() - since < AT_ONCE
        assert process.returncode == 3, errors
        assert f"interrupted by {number.name}" in errors

    def check_measures(self) -> None:
        """It measures, in one launch, although three are the default elsewhere."""
        assert [row["launches"] for row in self.probe("p2p", "--sizes", "8", "--iterations", "20")] == [1, 1]

    def tools(self) -> list[psutil.Process]:
        """The client and the server of a ``ucx_perftest``, once both measure."""
        until(lambda: len(self.processes("ucx_perftest")) == 2, "a client and a server")
        return sorted(self.processes("ucx_perftest"), key=lambda process: process.cmdline()[1] == "-p")


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not reached():
        assert time.monotonic() < deadline, f"never came to: {what}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("running")
    with dask_cluster(folder / "cluster", 3, {"UCX_TLS": "tcp"}) as file:
        yield Running(folder, file)


@pytest.fixture(autouse=True)
def _every_command_ends(cluster: Running) -> Iterator[None]:
    """A command that a failed test left behind would keep the workers of the next one busy."""
    yield
    while cluster.started:
        with cluster.started.pop() as process:
            process.kill()


@pytest.fixture(scope="module")
def puts(cluster: Running) -> list[dict[str, Any]]:
    """Rows of puts; from then on the loops are compiled."""
    return cluster.probe("rma", "--sizes", "8,65536", "--iterations", "40")


def test_doctor_asks_each_host_once(cluster: Running) -> None:
    done = CliRunner().invoke(cli, ["doctor", "--scheduler-file", str(cluster.file), "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert len(document["findings"]) == len(CHECKS)
    assert len({each["worker"] for each in document["bindings"]}) == 3
    assert all(each["problems"] == [] for each in document["bindings"])


def test_every_pair_is_measured_with_active_messages_and_streams(cluster: Running) -> None:
    rows = cluster.probe(
        "p2p", "--placement", "every-pair", "--tests", "am,stream", "--sizes", "64", "--iterations", "20"
    )
    tests = ("ucp_am_lat", "ucp_am_bw", "stream_lat", "stream_bw")
    assert sorted((tuple(row["ranks"]), row["test"]) for row in rows) == sorted(
        (pair, test) for pair in ((0, 1), (0, 2), (1, 2)) for test in tests
    )


def test_puts_arrive_whole_with_one_flush_and_with_many(puts: list[dict[str, Any]]) -> None:
    by_key = {(row["test"], row["size"]): row for row in puts}
    assert set(by_key) == {(t, s) for t in ("put-overlapping", "put-non-overlapping") for s in (8, 65536)}
    assert all(row["wrong"] == 0 for row in puts)
    assert all(row["selected_transports"] == ["tcp/lo"] for row in puts)
    assert all(row["launches"] == 1 for row in puts)
    assert all(0 < row["seconds_range"][0] <= row["seconds"] <= row["seconds_range"][1] for row in puts)


def test_puts_over_a_stalled_link_end_at_once_and_leave_the_workers_well(
    cluster: Running, puts: list[dict[str, Any]]
) -> None:
    source, target, _ = cluster.workers
    process = cluster.start("rma", "--sizes", "8M", "--iterations", "1000000")
    until(lambda: polls(source.pid) and polls(target.pid), "putting")
    target.suspend()
    try:
        time.sleep(1)
        cluster.interrupt(process, signal.SIGTERM)
        until(lambda: not polls(source.pid), "the source's end of putting")
    finally:
        target.resume()
    assert [row["wrong"] for row in cluster.probe("rma", "--sizes", "8,8M", "--iterations", "20")] == [0] * 4
    assert all(worker.is_running() for worker in cluster.workers)


@pytest.mark.soak  # the tool of a killed peer is ended below, an interrupted measurement in ranks in test_mpi_runs.py
def test_an_interrupted_p2p_leaves_no_tool_and_the_next_one_measures(cluster: Running) -> None:
    process = cluster.start("p2p", "--sizes", "4M", "--iterations", "1000000")
    cluster.tools()
    cluster.interrupt(process, signal.SIGINT)
    until(lambda: not cluster.processes("ucx_perftest") and not list(cluster.temp.rglob("perftest-*")), "nothing left")
    cluster.check_measures()


@pytest.mark.parametrize("side", [pytest.param("client", marks=pytest.mark.soak), "server"])
def test_a_killed_peer_is_named_long_before_the_line_of_the_other_is_overdue(cluster: Running, side: str) -> None:
    process = cluster.start("p2p", "--sizes", "8,4M", "--iterations", "1000000")
    tool = dict(zip(("client", "server"), cluster.tools(), strict=True))[side]
    os.kill(tool.pid, signal.SIGKILL)
    killed = time.monotonic()
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 3, errors
    assert time.monotonic() - killed < AT_ONCE
    assert re.search(f"ucx_perftest {side} was killed by signal 9", errors)
    assert json.loads(output)["error"]["code"] == "run-failed"
    until(lambda: not cluster.processes("ucx_perftest"), "nothing left")


def test_workers_answer_themselves_whether_they_have_a_gpu_and_a_refusal_leaves_them_well(cluster: Running) -> None:
    asked = cluster.ask("p2p", "--memory", "cuda", "--sizes", "8", "--iterations", "20")
    assert asked.status == 2, asked.errors
    assert "engine cudf needs" in asked.errors  # no GPU, or no package to use it
    assert "Traceback" not in asked.errors
    cluster.check_measures()

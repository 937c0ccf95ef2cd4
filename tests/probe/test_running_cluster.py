"""Network measurements on somebody's running cluster: interrupted in the middle, they leave it as it was."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.helpers.clusters import dask_cluster
from tests.helpers.runs import LIMIT, environment
from tests.probe.polling import polls

pytestmark = pytest.mark.cluster

AT_ONCE = 5.0  # seconds from a signal to the end of the command


class Running:
    """A cluster of two workers that speak TCP, and the commands that measure on it."""

    def __init__(self, folder: Path, scheduler_file: Path) -> None:
        self.folder, self.temp, self.file = folder, folder / "cluster" / "tmp", scheduler_file
        until(lambda: len(self.processes("worker")) == 2, "two workers")
        self.started: list[subprocess.Popen[str]] = []
        self.workers = sorted(self.processes("worker"), key=lambda process: process.cmdline()[-1])

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
        process = subprocess.Popen(
            [
                sys.executable, "-P", "-m", "merge_bench", "probe", *arguments, "--json", "--results",
                str(self.folder / "results"), "--scheduler-file", str(self.file),
            ],
            env=environment(self.temp), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, cwd=self.folder,
        )  # fmt: skip
        self.started.append(process)
        return process

    def probe(self, *arguments: str) -> dict[str, Any]:
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, errors
        document = json.loads(output)
        assert isinstance(document, dict)
        return document

    def interrupt(self, process: subprocess.Popen[str], number: signal.Signals) -> None:
        process.send_signal(number)
        since = time.monotonic()
        _, errors = process.communicate(timeout=LIMIT)
        assert time.monotonic() - since < AT_ONCE
        assert process.returncode == 3, errors
        assert f"interrupted by {number.name}" in errors


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline, f"never came to: {what}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("running")
    with dask_cluster(folder / "cluster", 2, {"UCX_TLS": "tcp"}) as file:
        yield Running(folder, file)


@pytest.fixture(autouse=True)
def _every_command_ends(cluster: Running) -> Iterator[None]:
    """A command that a failed test left behind would keep the workers of the next one busy."""
    yield
    while cluster.started:
        with cluster.started.pop() as process:
            process.kill()


def test_an_interrupted_p2p_leaves_no_tool_and_the_next_one_measures(cluster: Running) -> None:
    process = cluster.start("p2p", "--sizes", "4M", "--iterations", "1000000")
    until(lambda: len(cluster.processes("ucx_perftest")) == 2, "a client and a server")
    cluster.interrupt(process, signal.SIGINT)
    until(lambda: not cluster.processes("ucx_perftest") and not list(cluster.temp.rglob("perftest-*")), "nothing left")
    rows = cluster.probe("p2p", "--sizes", "8", "--iterations", "20")["rows"]
    assert [row["launches"] for row in rows] == [1, 1]  # one launch, although three are the default elsewhere


def test_puts_over_a_stalled_link_end_at_once_and_leave_the_workers_well(cluster: Running) -> None:
    cluster.probe("rma", "--sizes", "8", "--iterations", "10")  # so that the loops are compiled
    source, target = cluster.workers
    process = cluster.start("rma", "--sizes", "8M", "--iterations", "1000000")
    until(lambda: polls(source.pid) and polls(target.pid), "putting")
    target.suspend()
    try:
        time.sleep(1)
        cluster.interrupt(process, signal.SIGTERM)
        until(lambda: not polls(source.pid), "the source's end of putting")
    finally:
        target.resume()
    rows = cluster.probe("rma", "--sizes", "8,8M", "--iterations", "20")["rows"]
    assert [row["wrong"] for row in rows] == [0] * 4
    assert all(worker.is_running() for worker in cluster.workers)
    assert len(cluster.probe("p2p", "--sizes", "8", "--iterations", "20")["rows"]) == 2


def test_workers_of_a_running_cluster_answer_themselves_whether_they_have_a_gpu(cluster: Running) -> None:
    process = cluster.start("p2p", "--memory", "cuda", "--sizes", "8", "--iterations", "20")
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 2, errors
    assert "engine cudf needs" in errors  # no GPU, or no package to use it
    assert "Traceback" not in errors
    assert len(cluster.probe("p2p", "--sizes", "8", "--iterations", "20")["rows"]) == 2

"""Fixtures: hosts made of namespaces, and a way to run merge_bench among them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from merge_bench.records.reader import read_campaign
from tests.conftest import QUICK_HOOKS
from tests.helpers.runs import LIMIT
from tests.hosts.make_hosts import Hosts, why_not
from tests.hosts.make_slurm import Slurm, why_no_slurm

ROOT = Path(__file__).resolve().parents[2]
HOST_COUNT = 3


@dataclass
class Outcome:
    """What a finished run left."""

    status: int
    seconds: float
    output: str
    errors: str
    document: dict[str, Any]
    campaign: Any
    folder: Path


class Run:
    """A run of merge_bench where it reaches the hosts, as a child process."""

    def __init__(
        self,
        hosts: Hosts,
        results: Path,
        *options: str,
        environment: dict[str, str] | None = None,
        command: tuple[str, ...] = ("run",),
    ) -> None:
        self.hosts, self.results = hosts, results
        self.started = time.monotonic()
        # A person's command reaches the hosts by itself.
        reach = () if command == ("exec",) else ("--ssh-config", str(hosts.ssh_config))
        line = hosts.command(
            sys.executable,
            "-P",
            "-m",
            "merge_bench",
            *command,
            "--json",
            "--results",
            str(results),
            *reach,
            *options,
        )
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("UCX", "MERGE_BENCH_"))}
        self.process = subprocess.Popen(
            line,
            env={**inherited, **dict([QUICK_HOOKS]), "PYTHONPATH": str(ROOT), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        hosts.drivers.append(self.process)

    def until_iterating(self, count: int = 2, seconds: float = LIMIT) -> None:
        """Wait until so many iterations, the warm-up included, are in the records."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = "".join(path.read_text() for path in self.results.glob("*/records.jsonl"))
            if found.count('"kind":"iteration"') >= count:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.process.kill()
        raise AssertionError(f"the run did not come to iterate: {self.process.communicate()}")

    def pid_on_host(self, words: str) -> int:
        """The process (its id outside) on any host whose command line holds these words."""
        for host in self.hosts.hosts:
            for pid, shown in host.processes().items():
                if words in shown:
                    return pid
        raise AssertionError(f"no process with {words!r} on any host")

    def finish(self, seconds: float = LIMIT) -> Outcome:
        """Wait for the end; a run that takes longer is killed, and the test fails."""
        try:
            output, errors = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"still running after {seconds} s: {self.process.communicate()}") from None
        folders = sorted(self.results.glob("*/records.jsonl"))
        campaign = read_campaign(folders[-1].parent) if folders else None
        with contextlib.suppress(ValueError):
            document = json.loads(output)
            return Outcome(
                self.process.returncode,
                time.monotonic() - self.started,
                output,
                errors,
                document,
                campaign,
                folders[-1].parent if folders else self.results,
            )
        raise AssertionError(f"no document: status {self.process.returncode}: {output}\n{errors}")


@pytest.fixture(scope="session")
def _root() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_hosts(_root: None) -> Iterator[Hosts]:
    with Hosts(HOST_COUNT) as made:
        yield made


@pytest.fixture
def hosts(shared_hosts: Hosts) -> Iterator[Hosts]:
    """Three hosts with links of 2 Gbit/s, shared by the tests; each leaves no process there, and links as they were."""
    yield shared_hosts
    for driver in shared_hosts.drivers:  # of a test that failed half-way
        driver.kill()
        driver.wait()
    shared_hosts.drivers.clear()
    for host in shared_hosts.hosts:
        shared_hosts.join(host)
        shared_hosts.shape(host, "2gbit")
    left = shared_hosts.left_over(patience=10.0)
    assert not left, f"processes were left behind: {left}"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


ADAPTER = """
device=$(readlink /sys/class/net/eth0)
mount -t tmpfs tmpfs /sys/class
mkdir -p /sys/class/net /sys/class/infiniband/mlx5_0/ports/1
ln -s "$device" /sys/class/net/eth0
echo "4: ACTIVE" > /sys/class/infiniband/mlx5_0/ports/1/state
"""


@pytest.fixture
def with_adapters(hosts: Hosts) -> Iterator[Hosts]:
    """Hosts whose /sys tells of an RDMA device that is up and belongs to no interface."""
    for host in hosts.hosts:
        host.inside("sh", "-ec", ADAPTER)
    yield hosts
    for host in hosts.hosts:
        host.inside("umount", "/sys/class")


def unused_rdma(*names: str) -> dict[str, str]:
    """The warning that a measurement over eth0 of such hosts gives."""
    return {
        "code": "rdma-unused",
        "message": f"UCX on {', '.join(names)} cannot use mlx5_0:1 (no interface), because it is limited to"
        " interface eth0, which has no RDMA device",
        "remedy": "set UCX_NET_DEVICES=mlx5_0:1,eth0 in the config",
    }


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    reason = why_no_slurm()
    if reason:
        pytest.skip(reason)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    with Slurm() as made:
        yield made

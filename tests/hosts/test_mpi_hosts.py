"""`probe mpi` and `probe reduce-scatter` across hosts: mpirun's own daemons, started over ssh with checked keys."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from merge_bench.records.schema import LaunchLine, ProbeLine
from tests.helpers.mpiruns import BOTH, OWN_ELSE_SOAK
from tests.helpers.runs import LIMIT
from tests.hosts.conftest import Outcome, Run, unused_rdma
from tests.hosts.make_hosts import SUBNET, Hosts

MPI, REDUCE_SCATTER = ("probe", "mpi"), ("probe", "reduce-scatter")
# Seconds; a launch is given up after twice that without a word. Faults that are noticed end it in half of that.
TIMEOUT, SHORT = 60, 5
DAEMON = re.compile(r"\S*/(orted|prted) ")
ENDLESS = (
    "--placement",
    "two-hosts",
    "--sizes",
    "1K",
    "--iterations",
    "1000000000",
    "--repetitions",
    "1",
    "--timeout",
    str(TIMEOUT),
)


def start(hosts: Hosts, results: Path, *options: str, verb: tuple[str, str] = MPI) -> Run:
    where = () if "--hosts" in options else ("--hosts", str(hosts.hosts_file))
    here = {"TMPDIR": str(results.parent)}  # a killed driver leaves an empty folder
    return Run(hosts, results, *where, *options, command=verb, environment=here)


def endless(hosts: Hosts, results: Path, *options: str) -> tuple[Run, list[int]]:
    """A ping-pong that goes on, and the ids, outside, of its ranks on the first and on the second host."""
    run = start(hosts, results, *ENDLESS, *options)
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and run.process.poll() is None:
        if any('"kind":"launch"' in path.read_text() for path in results.glob("*/records.jsonl")):
            time.sleep(0.3)
            found = [
                [pid for pid, shown in host.processes().items() if "probe.ranks.rank import" in shown]
                for host in hosts.hosts[:2]
            ]
            return run, [pids[0] for pids in found]
        time.sleep(0.05)
    run.process.kill()
    raise AssertionError(f"the ranks did not come up: {run.process.communicate()}")


def lines(outcome: Outcome, kind: type) -> list:
    launches = outcome.campaign.launches
    return [launch.line for launch in launches] if kind is LaunchLine else [p for each in launches for p in each.probes]


def check_failed(outcome: Outcome, *words: str) -> None:
    assert outcome.status == 3, outcome.errors
    assert "Traceback" not in outcome.errors
    for word in words:
        assert word in outcome.document["error"]["message"], outcome.document["error"]


@pytest.mark.parametrize("mpirun", OWN_ELSE_SOAK)
def test_both_placements(hosts: Hosts, results: Path, mpirun: str) -> None:
    for host in hosts.hosts:
        hosts.shape(host, "1gbit")  # so that the messages are more than the bursts that the shaping allows
    options = ("--sizes", "8,64K", "--iterations", "100", "--repetitions", "1", "--interface", "eth0")
    outcome = start(hosts, results, *options, "--mpirun", mpirun).finish()
    assert outcome.status == 0, outcome.errors
    rows = lines(outcome, ProbeLine)
    assert [(row.placement, tuple(row.ranks), tuple(row.hosts)) for row in rows] == [
        ("one-host", (0, 1), ("node1", "node1"))
    ] * 6 + [("two-hosts", (0, 2), ("node1", "node2"))] * 6
    assert {row.requested["UCX_NET_DEVICES"] for row in rows} == {"eth0"}
    for row in rows:
        near = row.placement == "one-host"
        assert all(lane.startswith("tcp/eth0") != near for lane in row.selected), row.selected
        assert row.selected
    (line,) = lines(outcome, LaunchLine)
    assert [worker.host for worker in line.workers] == ["node1", "node1", "node2"]
    # Pings and pongs together: 1 Gbit/s each way are 0.25 GB/s, a little more for the bursts.
    (far,) = [row for row in rows if row.placement == "two-hosts" and row.size == 65536 and row.test == "std"]
    assert far.bandwidth_bytes_per_second < 0.4e9


@pytest.mark.soak  # two hosts are measured above, and reduce-scatter on one in tests/probe/test_mpi_runs.py
def test_reduce_scatter_over_three_hosts_with_rdma_that_is_left_out(with_adapters: Hosts, results: Path) -> None:
    options = ("--counts", "30", "--iterations", "5", "--repetitions", "1")
    outcome = start(with_adapters, results, *options, verb=REDUCE_SCATTER).finish()
    assert outcome.status == 0, outcome.errors
    assert outcome.document["warnings"] == [unused_rdma("node1", "node2", "node3")]
    rows = lines(outcome, ProbeLine)
    assert [(row.test, row.count, row.wrong) for row in rows] == [("mpi", 30, 0), ("reduces", 30, 0)]
    assert {row.placement for row in rows} == {"3-hosts"}
    assert {lane for row in rows for lane in row.selected} == {"tcp/eth0"}
    assert {tuple(row.hosts) for row in rows} == {("node1", "node2", "node3")}


@pytest.mark.parametrize("mpirun", OWN_ELSE_SOAK)
def test_killed_rank(hosts: Hosts, results: Path, mpirun: str) -> None:
    run, ranks = endless(hosts, results, "--mpirun", mpirun)
    ours = [each.cmdline() for each in psutil.Process(run.process.pid).children(recursive=True)]
    assert any(f"if_include {SUBNET}.0/24 " in " ".join(line) for line in ours)  # although no --interface was given
    os.kill(ranks[1], signal.SIGKILL)
    killed = time.monotonic()
    outcome = run.finish()
    check_failed(outcome, "rank 1", "on node2", "was killed by signal 9")
    assert (outcome.document["error"]["host"], outcome.document["error"]["rank"]) == ("node2", 1)
    assert time.monotonic() - killed < TIMEOUT


@pytest.mark.soak
def test_link_down(hosts: Hosts, results: Path) -> None:
    run, _ = endless(hosts, results, "--timeout", str(SHORT))
    hosts.cut(hosts.hosts[1])
    outcome = run.finish()  # mpirun would take a quarter of an hour
    assert outcome.status == 3, outcome.errors
    # Nobody can reach the far side: its rank ends when its own loop has stood still for too long.
    assert not hosts.left_over(patience=LIMIT)


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGKILL])
def test_ended_driver_leaves_nothing(hosts: Hosts, results: Path, number: signal.Signals) -> None:
    run, _ = endless(hosts, results)
    run.process.send_signal(number)
    run.process.communicate(timeout=TIMEOUT)
    assert not hosts.left_over(patience=TIMEOUT)


@pytest.mark.parametrize("mpirun", OWN_ELSE_SOAK)
def test_killed_daemon(hosts: Hosts, results: Path, mpirun: str) -> None:
    run, _ = endless(hosts, results, "--mpirun", mpirun)
    daemons = [pid for pid, shown in hosts.hosts[1].processes().items() if DAEMON.match(shown)]
    assert daemons
    for pid in daemons:
        with contextlib.suppress(ProcessLookupError):  # it ended with the one before it
            os.kill(pid, signal.SIGKILL)
    check_failed(run.finish(), "cannot reach node2")


@pytest.mark.parametrize("mpirun", OWN_ELSE_SOAK)
def test_wrong_host_key(hosts: Hosts, results: Path, mpirun: str) -> None:
    known = (hosts.folder / "known_hosts").read_text().splitlines()
    names, keys = zip(*(line.split(maxsplit=1) for line in known), strict=True)
    swapped = hosts.folder / "mpi_swapped"
    swapped.write_text("".join(f"{name} {key}\n" for name, key in zip(names, (keys[0], keys[2], keys[1]), strict=True)))
    config = hosts.folder / "mpi_swapped_config"
    config.write_text(hosts.ssh_config.read_text().replace(str(hosts.folder / "known_hosts"), str(swapped)))
    outcome = start(hosts, results, "--ssh-config", str(config), "--mpirun", mpirun, *ENDLESS).finish()
    check_failed(outcome, "cannot reach node2", "Host key verification failed")


@pytest.mark.soak
@pytest.mark.parametrize("mpirun", BOTH)
def test_unreachable_host(hosts: Hosts, results: Path, mpirun: str) -> None:
    file = hosts.write_hosts(["node1", "10.213.0.99"], "mpi_unreachable.txt")
    outcome = start(hosts, results, "--hosts", str(file), "--mpirun", mpirun, *ENDLESS).finish()
    check_failed(outcome, "cannot reach 10.213.0.99", "No route")

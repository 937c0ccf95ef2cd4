"""What real clusters do to a run: a fault ends it in time, with a sentence that says where, and leaves nothing behind.

A slow link and a clock that is wrong are no faults of the run: it goes on, and ends well.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.runs import LIMIT
from tests.hosts.conftest import HOST_COUNT, Outcome, Run
from tests.hosts.make_hosts import Hosts

# Seconds that a run waits if it does not notice a fault: for silent workers, and for workers that do not start. Each
# fault has to be the recorded reason, and to end the run within half of that, which is ample on a busy machine.
TIMEOUT, START_TIMEOUT = 120, 240
NOTICED = TIMEOUT / 2
SHORT = 6  # where a test waits for the end of a time limit; a busy machine is silent for a few seconds by itself
LONG = (
    "--chunk",
    "2e5",
    "--iterations",
    "100000",
    "--link-rounds",
    "0",
    "--timeout",
    str(TIMEOUT),
    "--start-timeout",
    str(START_TIMEOUT),
)
WORKER_SAID = "distributed.worker - INFO"
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"


def check_failure(outcome: Outcome, *words: str, host: str | None, rank: int | None, log: str | None) -> None:
    """A failed run: its status, its sentence, its records; `log`: words of the last lines that it tells."""
    error = outcome.document["error"]
    assert outcome.status == 3, outcome.errors
    for word in (*words, *([host] if host else []), *([f"rank {rank}"] if rank is not None else [])):
        assert word in error["message"], error
    assert (error["host"], error["rank"]) == (host, rank)
    assert "Traceback" not in outcome.errors
    failures = outcome.campaign.runs[0].launches[0].failures
    assert [failure.message for failure in failures] == [error["message"]]
    if log is not None:
        told = failures[0].log_tail or ""
        assert log in told
        assert told.splitlines()[-1] in outcome.errors


def two_of(hosts: Hosts) -> str:
    """A hosts file for faults that a third host would not make harder to explain."""
    return str(hosts.write_hosts(["node1", "node2"], "two.txt"))


def unreachable(hosts: Hosts, results: Path) -> None:
    file = hosts.write_hosts(["node1", "10.213.0.99"], "unreachable.txt")
    outcome = Run(hosts, results, "--hosts", str(file), *LONG).finish()
    check_failure(outcome, "cannot be reached", "No route", host="10.213.0.99", rank=1, log="No route")
    assert outcome.seconds < START_TIMEOUT / 2


def wrong_host_key(hosts: Hosts, results: Path) -> None:
    known = (hosts.folder / "known_hosts").read_text().splitlines()
    names, keys = zip(*(line.split(maxsplit=1) for line in known), strict=True)
    swapped = hosts.folder / "swapped"
    swapped.write_text("".join(f"{name} {key}\n" for name, key in zip(names, (keys[0], keys[2], keys[1]), strict=True)))
    config = hosts.folder / "swapped_config"
    config.write_text(hosts.ssh_config.read_text().replace(str(hosts.folder / "known_hosts"), str(swapped)))
    run = Run(hosts, results, "--hosts", two_of(hosts), "--ssh-config", str(config), *LONG)
    outcome = run.finish()
    check_failure(outcome, "Host key verification failed", host="node2", rank=1, log="Host key verification")
    assert outcome.seconds < START_TIMEOUT / 2


def never_up(hosts: Hosts, results: Path) -> None:
    run = Run(hosts, results, "--hosts", two_of(hosts), *LONG, "--start-timeout", "8")
    deadline = time.monotonic() + LIMIT
    pid = 0
    while not pid and time.monotonic() < deadline:
        for found, shown in hosts.hosts[1].processes().items():
            if "--name worker-1" in shown:
                pid = found
    os.kill(pid, signal.SIGSTOP)
    # Stopped before its first word, it has no log.
    check_failure(run.finish(), "did not start: only 1 of 2 workers", "within 8 s", host="node2", rank=1, log=None)


def worker_killed(hosts: Hosts, results: Path) -> None:
    run = Run(hosts, results, "--hosts", two_of(hosts), *LONG)
    run.until_iterating()
    os.kill(run.pid_on_host("--name worker-1"), signal.SIGKILL)
    killed = time.monotonic()
    check_failure(run.finish(), "killed by signal 9", host="node2", rank=1, log=WORKER_SAID)
    assert time.monotonic() - killed < NOTICED


def link_down(hosts: Hosts, results: Path) -> None:
    run = Run(hosts, results, "--hosts", two_of(hosts), *LONG, "--timeout", str(SHORT))
    run.until_iterating()
    hosts.cut(hosts.hosts[1])
    outcome = run.finish()
    check_failure(outcome, "sent no heartbeat for", host="node2", rank=1, log=WORKER_SAID)
    (silent,) = re.findall(r"sent no heartbeat for (\d+) s", outcome.document["error"]["message"])
    assert int(silent) < NOTICED
    # The agent on the other side of the cut hears nothing, and ends what it started: by the run's limit, not its own of
    # a minute.
    assert not hosts.left_over(patience=30)


def scheduler_killed(hosts: Hosts, results: Path) -> None:
    run = Run(hosts, results, "--hosts", two_of(hosts), *LONG)
    run.until_iterating()
    os.kill(run.pid_on_host("dask_scheduler"), signal.SIGKILL)
    words = ("scheduler", "killed by signal 9")
    check_failure(run.finish(), *words, host="node1", rank=None, log="distributed.scheduler - INFO")


def driver_killed(hosts: Hosts, results: Path) -> None:
    run = Run(hosts, results, "--hosts", two_of(hosts), *LONG)
    run.until_iterating()
    run.process.kill()
    run.process.communicate()
    assert not hosts.left_over(patience=NOTICED)


def agent_killed(hosts: Hosts, results: Path) -> None:
    run = Run(hosts, results, "--hosts", two_of(hosts), *LONG)
    run.until_iterating()
    agents = [pid for pid, shown in hosts.hosts[1].processes().items() if "merge_bench.cluster.host_agent" in shown]
    os.kill(agents[0], signal.SIGKILL)
    check_failure(run.finish(), "cannot be reached: the connection", host="node2", rank=1, log=WORKER_SAID)


def full_disk(hosts: Hosts, results: Path) -> None:
    results.mkdir()
    assert hosts.switch is not None
    tmpfs = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(results)]
    subprocess.run(hosts.switch.enter(*tmpfs), check=True)
    seen = Path(f"/proc/{hosts.switch.pid}/root{results}")  # the disk as the driver sees it
    try:
        run = Run(hosts, results, "--hosts", two_of(hosts), *LONG)
        run.results = seen
        run.until_iterating()
        with (seen / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(bytes(4096)):
                pass
        full = time.monotonic()
        outcome = run.finish()
        assert time.monotonic() - full < NOTICED
        assert outcome.status == 3
        error = outcome.document["error"]
        assert (error["host"], error["rank"]) == (None, None)  # it is no host's fault: the driver's disk is full
        assert "No space left on device" in error["message"] + outcome.errors
        assert "Traceback" not in outcome.errors
        assert outcome.campaign.runs[0].launches[0].timed_iterations
    finally:
        subprocess.run(hosts.switch.enter("umount", "--lazy", str(results)), check=True)


FAILURES = [
    unreachable,
    wrong_host_key,
    never_up,
    worker_killed,
    link_down,
    scheduler_killed,
    driver_killed,
    agent_killed,
    full_disk,
]
SOAKED = (scheduler_killed, never_up, full_disk)
"""A killed scheduler and a full disk are named in tests/runs/test_faults.py, a worker that never opens UCX in
tests/runs/test_stuck_workers.py; what an agent says of a killed worker it says of all."""
USUAL = [fault for fault in FAILURES if fault not in SOAKED]
Fault = Callable[[Hosts, Path], None]


@pytest.mark.parametrize("fault", USUAL, ids=lambda fault: fault.__name__)
def test_fault_ends_the_run(hosts: Hosts, results: Path, fault: Fault) -> None:
    fault(hosts, results)


@pytest.fixture(scope="session")
def skewed_hosts(_root: None) -> Iterator[Hosts]:
    if not Path(FAKETIME).exists():
        pytest.skip("not installed: faketime")
    # All clocks of these hosts are ahead, the monotonic ones too: no two hosts agree about any of them.
    clocks = {
        "node2": {"LD_PRELOAD": FAKETIME, "FAKETIME": "+420"},
        "node3": {"LD_PRELOAD": FAKETIME, "FAKETIME": "+180"},
    }
    with Hosts(HOST_COUNT, environment=clocks) as made:
        yield made


def clock(hosts: Hosts, number: int) -> int:
    """The time of day on a host, in seconds."""
    asked = hosts.command("ssh", "-F", str(hosts.ssh_config), "-o", "BatchMode=yes", f"node{number}", "date +%s")
    return int(subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20).stdout)


def slow_link_and_wrong_clocks(hosts: Hosts, results: Path) -> None:
    first, second, third = (clock(hosts, number) for number in (1, 2, 3))
    assert 400 < second - first < 440
    assert 160 < third - first < 200  # what any two clocks differ by, and what times would be wrong by
    slow = ("--chunk", "5e5", "--iterations", "3", "--link-rounds", "0", "--timeout", str(TIMEOUT))
    timer = threading.Thread(target=lambda: hosts.shape(hosts.hosts[2], "100mbit"))
    run = Run(hosts, results, "--hosts", str(hosts.hosts_file), *slow)
    run.until_iterating(1)
    timer.start()
    outcome = run.finish()
    timer.join()
    assert outcome.status == 0, outcome.errors
    assert outcome.document["verified"] is True
    found = [w["message"] for w in outcome.document["warnings"] if w["code"] == "straggler"]
    text = r"rank 2 \(node3\) exchanges data at only .+ \(factor (\d+\.\d)\)"
    said = [re.fullmatch(text, message) for message in found]
    factors = [float(match[1]) for match in said if match]
    # A twentieth of the others' 2 Gbit/s, which both others share.
    assert len(factors) == 1, found
    assert 5 < factors[0] < 60, found
    assert outcome.document["wall_seconds"]["max"] < 80
    for iteration in outcome.campaign.runs[0].launches[0].timed_iterations:
        assert all(0 < pair.seconds < 80 for pair in iteration.pairs)


@pytest.mark.soak
def test_a_slow_link_is_no_dead_one_and_clocks_may_differ_by_minutes(skewed_hosts: Hosts, results: Path) -> None:
    slow_link_and_wrong_clocks(skewed_hosts, results)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("fault", FAILURES, ids=lambda fault: fault.__name__)
def test_fault_again(hosts: Hosts, results: Path, fault: Fault, number: int) -> None:
    fault(hosts, results)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(10))
def test_slow_link_and_wrong_clocks_again(skewed_hosts: Hosts, results: Path, number: int) -> None:
    skewed_hosts.shape(skewed_hosts.hosts[2], "2gbit")
    slow_link_and_wrong_clocks(skewed_hosts, results)

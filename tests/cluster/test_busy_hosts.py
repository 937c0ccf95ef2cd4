"""Hosts that other processes keep busy are named before their workers start."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from merge_bench.analysis.diagnostics import busy_host_warnings
from merge_bench.campaign import ProgressDisplay, cluster_session
from merge_bench.campaign.launch import make_launch
from merge_bench.cluster.start_on_hosts import RemoteLauncher
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import LaunchLine, WarningLine
from merge_bench.records.writer import CampaignWriter
from tests.helpers.interruptions import sweep
from tests.helpers.runs import SMALL, start

SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
[ "$host" = a ] && address=192.0.2.1 || address=192.0.2.2
exec unshare --map-root-user --net sh -c 'ip link add net0 type veth peer name peer0 &&
ip address add "$2"/24 dev net0 && ip link set lo up && ip link set net0 up &&
ip link set peer0 up && exec sh -c "$1"' sh "$1" "$address"
"""
"""Each has a network of its own, because two names of one host are refused."""


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[str, ...]:
    """Options for two hosts that are this machine."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "hosts").write_text("a\nb\n")
    return ("--hosts", str(tmp_path / "hosts"), "--interface", "net0")


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Every second core has something to do."""
    cores = (len(os.sched_getaffinity(0)) + 1) // 2
    working = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(cores)]
    try:
        yield
    finally:
        for each in working:
            each.kill()
            each.wait()


@pytest.mark.cluster
def test_each_busy_host_is_named_before_its_workers_start(tmp_path: Path, hosts: tuple[str, ...]) -> None:
    """The run is interrupted as soon as both are named."""
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    with busy():
        running = start(tmp_path, *hosts, *SMALL, environ=path)
        try:
            printed = running.temp / "stderr"  # without what `finish` leaves out of errors
            running.until(lambda: sum(isinstance(line, WarningLine) for line in running.lines()) == 2, "the warnings")
            running.process.send_signal(signal.SIGINT)
            done = running.finish().check_ended(3)
        finally:
            running.end()
    for host in "ab":
        assert printed.read_text().count(f"merge_bench: warning: busy-host: {host}: other processes keep ") == 1
    found = busy_host_warnings(read_campaign(done.folder))
    assert [(line.launch, line.message[:3]) for line in found] == [(0, "a: "), (0, "b: ")]
    assert done.of(LaunchLine) == []


def test_hosts_are_looked_at_before_the_first_launch_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        """A launch that starts nothing, and notes whether its launcher would look."""

        looked: ClassVar[list[bool]] = []

        def __init__(self, *_: object) -> None:
            self.launcher = RemoteLauncher("ssh", lambda *_: ())

        def start_cluster(self, **_: object) -> None:
            self.looked.append(self.launcher.checks_host_load)

        def end_processes(self, *, succeeded: bool) -> None:
            assert succeeded

    monkeypatch.setattr(cluster_session, "Session", Session)
    (job, *_) = sweep(configs="a", blocks=1).ordered_launches()
    with CampaignWriter.create(tmp_path, "x") as writer:
        assert [make_launch(job, writer, ProgressDisplay(), number, lambda session: None) for number in range(3)] == [
            0,
            0,
            0,
        ]
    assert Session.looked == [True, False, False]

"""Hosts that other processes keep busy are named before their workers start."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from merge_bench.analysis.host_load import busy_host
from merge_bench.records.reader import read_campaign
from tests.helpers.runs import SMALL, run

SSH = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift 2
exec sh -c "$1"
"""


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[str, ...]:
    """Options for two hosts that are this machine."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "hosts").write_text("a\nb\n")
    return ("--hosts", str(tmp_path / "hosts"), "--interface", "lo")


@pytest.fixture
def _busy() -> Iterator[None]:
    """Every core has something to do."""
    working = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in os.sched_getaffinity(0)]
    yield
    for each in working:
        each.kill()
        each.wait()


@pytest.mark.cluster
@pytest.mark.usefixtures("_busy")
def test_each_busy_host_is_named_before_the_first_launch_alone(tmp_path: Path, hosts: tuple[str, ...]) -> None:
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = run(tmp_path, *hosts, *SMALL, "--launches", "2", environ=path)
    assert done.status == 0, done.shown()
    printed = (tmp_path / "tmp" / "stderr").read_text()  # without what `run` leaves out of errors
    for host in "ab":
        assert printed.count(f"merge_bench: warning: busy-host: {host}: other processes keep ") == 1
    (folder,) = done.results.iterdir()
    found = busy_host(read_campaign(folder))
    assert [(line.launch, line.message[:3]) for line in found] == [(0, "a: "), (0, "b: ")]

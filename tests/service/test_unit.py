"""The systemd unit: systemd accepts it, and it starts the service with options that exist."""

from __future__ import annotations

import inspect
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from merge_bench.cli.service import serve
from merge_bench.service.runner import JobRunner
from tests.helpers.runs import ROOT

UNIT = (ROOT / "cluster/merge-bench.service").read_text()
PROGRAM = "/opt/merge_bench/.venv/bin/merge-bench"
LARGEST_EXPOSURE = 3  # of 10, by `systemd-analyze security`


def settings(name: str) -> list[str]:
    """The values of a setting of the unit."""
    return [line.partition("=")[2] for line in UNIT.splitlines() if line.startswith(f"{name}=")]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit_and_how_it_is_confined(tmp_path: Path) -> None:
    unit = tmp_path / "merge-bench.service"
    unit.write_text(UNIT.replace(PROGRAM, sys.executable))
    for words in (
        ["verify", "--man=no", str(unit)],
        ["security", "--offline=yes", f"--threshold={10 * LARGEST_EXPOSURE}", str(unit)],
    ):
        found = subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stderr) == (0, "")  # a setting that does not exist is only a warning


def test_the_unit_starts_the_service_with_options_that_it_has() -> None:
    (start,) = settings("ExecStart")
    program, command, *words = shlex.split(start)
    assert (program, command) == (PROGRAM, "serve")
    assert serve.make_context("serve", [word for word in words if word != "$OPTIONS"]).params["results"]


def test_the_unit_gives_a_job_the_time_to_clean_up_that_the_service_gives_it() -> None:
    (seconds,), (mode,) = settings("TimeoutStopSec"), settings("KillMode")
    grace = inspect.signature(JobRunner).parameters["grace_seconds"].default
    assert float(seconds) >= 2 * grace
    assert mode == "mixed"  # SIGTERM to all would end workers before their job is interrupted


def test_nothing_is_confined_that_measurements_need() -> None:
    names = {line.partition("=")[0] for line in UNIT.splitlines()}
    devices = {"PrivateDevices", "ProtectClock", "DevicePolicy", "DeviceAllow"}
    assert names & (devices | {"MemoryDenyWriteExecute", "PrivateNetwork", "PrivateUsers", "ProtectProc"}) == set()
    assert settings("LimitMEMLOCK") == ["infinity"]
    assert settings("OOMPolicy") == ["continue"]

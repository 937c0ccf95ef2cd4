"""The look at this host before the first launch, and the wait until it is quiet."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from merge_bench.analysis.diagnostics import BUSY_HOST
from merge_bench.campaign.run_campaign import IN_A_ROW, warn_if_host_busy
from merge_bench.cluster.base import ClusterSettings
from merge_bench.host.other_load import BusyProcess, OtherProcessLoad
from merge_bench.records.schema import WarningLine
from merge_bench.records.writer import CampaignWriter
from tests.helpers.strict_records import validate

QUIET, BUSY = OtherProcessLoad(0.1, 2), OtherProcessLoad(1.9, 2, (BusyProcess(71, "yes", 1.0),))


def looking(loads: Iterable[OtherProcessLoad]) -> tuple[Callable[[], OtherProcessLoad], Callable[[], float]]:
    """A look that finds these, and a clock on which each look takes a second."""
    left, seconds = iter(loads), itertools.count()
    now = [0.0]

    def look() -> OtherProcessLoad:
        now[0] = float(next(seconds))
        return next(left)

    return look, lambda: now[0]


def checked(
    tmp_path: Path, loads: Iterable[OtherProcessLoad], *, wait: float | None = None, launcher: str = "local"
) -> list[WarningLine]:
    look, clock = looking(loads)
    with CampaignWriter.create(tmp_path, "x") as writer:
        warn_if_host_busy(
            ClusterSettings({}, tmp_path, launcher=launcher), writer, wait_seconds=wait, measure_load=look, clock=clock
        )
        lines = [validate(line) for line in writer.records.read_bytes().splitlines()]
    return [line for line in lines if isinstance(line, WarningLine)]


def test_a_busy_host_is_named_once_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = checked(tmp_path, [BUSY])
    assert line.code == BUSY_HOST
    assert "1.9 of 2 cores" in line.message
    assert "pid 71 yes" in line.message
    assert capsys.readouterr().err == f"merge_bench: warning: {BUSY_HOST}: {line.message}\n  → {line.remedy}\n"


def test_nothing_is_said_of_a_quiet_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path, [QUIET], wait=60.0) == []
    assert capsys.readouterr().err == ""


def test_the_wait_ends_when_the_host_is_quiet_for_some_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path, [BUSY, BUSY, QUIET, BUSY, *[QUIET] * IN_A_ROW], wait=60.0) == []
    waiting, ended = capsys.readouterr().err.splitlines()
    assert "at most 60 seconds" in waiting
    assert "pid 71 yes" in waiting
    assert ended.endswith("quiet after 6 seconds")


def test_a_host_that_stays_busy_is_measured_with_the_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = checked(tmp_path, itertools.repeat(BUSY), wait=5.0)
    assert line.code == BUSY_HOST
    assert "after 5 seconds" in capsys.readouterr().err


def test_hosts_of_other_launchers_are_not_looked_at(tmp_path: Path) -> None:
    assert checked(tmp_path, [], launcher="ssh") == []

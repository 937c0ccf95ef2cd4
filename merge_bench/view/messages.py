"""Warnings and log lines on standard error; where a launch failed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from merge_bench.errors import Caution, visible, warn
from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.schema import FailureLine
from merge_bench.records.writer import LOGS
from merge_bench.units import plural


def say_warnings(warnings: Iterable[Caution]) -> None:
    """Print each warning once on standard error, before the run."""
    for caution in dict.fromkeys(warnings):
        warn(caution)


def say_log(tail: str | None) -> None:
    """Print the last lines of a process's log on standard error."""
    if tail:
        print("  the log's last lines:", file=sys.stderr)
        for line in tail.splitlines():
            print(f"  | {visible(line)}", file=sys.stderr)


def place_of_failure(failure: FailureLine, campaign: Campaign) -> str:
    """Where a failure happened: ``launch 3, tcp, after 4 timed iterations, rank 1, node0``, as far as recorded."""
    launch = next((each for each in campaign.launches if each.index == failure.launch), None)
    parts = [
        f"launch {failure.launch}" if failure.launch is not None else None,
        failure.config,
        _phase_reached(launch) if launch is not None else None,
        f"rank {failure.rank}" if failure.rank is not None else None,
        failure.host,
    ]
    return ", ".join(filter(None, parts))


def _phase_reached(launch: Launch) -> str:
    """How far a launch came: ``after 4 timed iterations``."""
    if launch.line is None:
        return "while the cluster started"
    if launch.link is not None or launch.memory is not None:
        return "after the last iteration"
    if launch.probes:
        return f"after {plural(len(launch.probes), 'measurement')}"
    if launch.timed:
        return f"after {plural(len(launch.timed), 'timed iteration')}"
    return "in the warm-up" if launch.iterations else "before the first iteration"


def logs_of_failure(failure: FailureLine, campaign: Campaign) -> Path | None:
    """The log files of the launch that failed, or else the folder of all logs; None if no logs are kept."""
    folder = campaign.folder / LOGS
    if failure.launch is not None and any(folder.glob(f"launch-{failure.launch:03d}-*")):
        return folder / f"launch-{failure.launch:03d}-*.log"
    return folder if folder.is_dir() else None

"""The processes of a cluster on this machine, by their roles."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from merge_bench.cluster import signals
from merge_bench.cluster.base import Command, Exited
from merge_bench.cluster.supervisor import Child, end_all, tail

STOP_SECONDS = 10.0  # for killed processes to be gone: much memory takes a while to be given back


@dataclass
class _Started:
    command: Command
    log: Path
    child: Child


class Processes:
    """What was started, and what became of it."""

    def __init__(self) -> None:
        self._started: list[_Started] = []

    def start(self, command: Command, base: Mapping[str, str], log: Path) -> int:
        """Start one; output goes to `log`. Returns its process id."""
        with signals.deferred():
            child = Child(command.argv, environment={**base, **command.environment}, log=log)
            self._started.append(_Started(command, log, child))
        return child.pid

    def exited(self) -> list[Exited]:
        """Those that have ended by themselves."""
        return [
            Exited(each.command.role, each.command.host, each.child.pid, status, tail(each.log))
            for each in self._started
            if (status := each.child.poll()) is not None
        ]

    def placed(self) -> dict[str, str]:
        """Host of each started process, by role."""
        return {each.command.role: each.command.host for each in self._started}

    def tail(self, role: str) -> str:
        """The last lines of a process's log; empty if there is none."""
        return next((tail(each.log) for each in self._started if each.command.role == role), "")

    def stop(self) -> None:
        """End all at once, children of theirs included, and return when they are gone, or after `STOP_SECONDS`.

        Workers hold nothing that a kill could spoil: data is in their memory and results are in the driver's files.
        """
        for child in end_all([each.child for each in self._started], STOP_SECONDS):
            print(f"merge_bench: process {child.pid} was killed and has not ended yet", file=sys.stderr)
        self._started = []

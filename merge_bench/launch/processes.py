"""Child processes that never outlive the run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from merge_bench.launch.base import Command, Exited

GENTLE_SECONDS = 2.0
TAIL_LINES = 15


@dataclass
class _Child:
    command: Command
    process: subprocess.Popen[bytes]
    log: Path


class Processes:
    """Started processes, each in a session of its own so that its own children end with it."""

    def __init__(self) -> None:
        self._children: list[_Child] = []

    def start(self, command: Command, base: Mapping[str, str], log: Path) -> int:
        """Start one; output goes to `log`. Returns its process id."""
        with log.open("ab") as output:
            process = subprocess.Popen(
                command.argv,
                env={**base, **command.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children.append(_Child(command, process, log))
        return process.pid

    def exited(self) -> list[Exited]:
        """Those that have ended."""
        return [
            Exited(child.command.role, child.command.host, child.process.pid, status, child.log)
            for child in self._children
            if (status := child.process.poll()) is not None
        ]

    def stop(self, *, gently: bool) -> None:
        """End all, children of theirs included. Returns when they are gone."""
        if gently:
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + GENTLE_SECONDS
            while time.monotonic() < deadline and any(c.process.poll() is None for c in self._children):
                time.sleep(0.01)
        self._signal(signal.SIGKILL)  # also ends processes that are stopped
        for child in self._children:
            child.process.wait()
        self._children = []

    def _signal(self, number: signal.Signals) -> None:
        for child in self._children:
            # The group lives as long as any process in it, so the number cannot have been taken by another one.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if child.process.poll() is None or number is signal.SIGKILL:
                    os.killpg(child.process.pid, number)


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16384))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""

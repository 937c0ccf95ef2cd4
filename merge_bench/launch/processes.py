"""Child processes that never outlive the run."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from merge_bench import signals
from merge_bench.launch.base import Command, Exited
from merge_bench.launch.ending import kill_sessions

TAIL_LINES = 15
STOP_SECONDS = 10.0  # for killed processes to be gone: much memory takes a while to be given back


_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl  # looked up here: between fork and exec only the call itself is safe


def die_with_parent(sent: int = signal.SIGKILL) -> None:
    """In the child, before it becomes another program: the kernel shall send it `sent` when this process ends.

    Strictly, when the thread ends that started it.
    """
    _prctl(_PR_SET_PDEATHSIG, sent)


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
        with log.open("ab") as output, signals.deferred():
            process = subprocess.Popen(
                command.argv,
                env={**base, **command.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
            self._children.append(_Child(command, process, log))
        return process.pid

    def exited(self) -> list[Exited]:
        """Those that have ended; they stay unreaped until `stop`, so that nobody else can get their numbers."""
        ended = []
        for child in self._children:
            state = os.waitid(os.P_PID, child.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if state is not None:
                status = state.si_status if state.si_code == os.CLD_EXITED else -state.si_status
                where = child.command
                ended.append(Exited(where.role, where.host, child.process.pid, status, tail(child.log)))
        return ended

    def placed(self) -> dict[str, str]:
        """Host of each started process, by role."""
        return {child.command.role: child.command.host for child in self._children}

    def tail(self, role: str) -> str:
        """The last lines of a process's log; empty if there is none."""
        return next((tail(child.log) for child in self._children if child.command.role == role), "")

    def stop(self) -> None:
        """End all at once, children of theirs included, and return when they are gone, or after `STOP_SECONDS`.

        Workers hold nothing that a kill could spoil: data is in their memory and results are in the driver's files.
        """
        kill_sessions([child.process.pid for child in self._children])
        deadline = time.monotonic() + STOP_SECONDS
        for child in self._children:
            try:
                child.process.wait(timeout=max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:  # in the kernel, as with a file server that does not answer
                print(f"merge_bench: process {child.process.pid} was killed and has not ended yet", file=sys.stderr)
        self._children = []


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16384))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""

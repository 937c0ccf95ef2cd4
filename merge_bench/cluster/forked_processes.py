"""The scheduler and the workers of one host, forked from one process that imports Dask for all of them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from merge_bench.cluster.base import FORK, START_DASK, ProcessCommand
from merge_bench.cluster.supervisor import ChildProcess, adopt_orphans

STOP_SECONDS = 10.0  # for a killed process to close a pipe
LOOK_SECONDS, PIPE_BYTES = 0.02, 4096


class ForkedProcesses:
    """Processes that `start_dask` forks: to import Dask in each of them takes longer than all else of their start.

    `pid`: the process that forks them. It and what it forked end with `end`; until then this process adopts orphans.
    """

    def __init__(
        self, commands: Sequence[ProcessCommand], logs: Sequence[Path], environment: Mapping[str, str]
    ) -> None:
        self._roles = [command.role for command in commands]
        words = [(command.argv[len(START_DASK) :], str(log)) for command, log in zip(commands, logs, strict=True)]
        self._adopting = contextlib.ExitStack()
        self._adopting.enter_context(adopt_orphans())
        self._process = ChildProcess(
            (*START_DASK, FORK, str(os.getpid()), json.dumps(words)),
            environment={**environment, **commands[0].environment},
            log=logs[0],
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid
        self._told = b""
        os.set_blocking(self._process.stdout.fileno(), False)

    @staticmethod
    def can_start(commands: Sequence[ProcessCommand]) -> bool:
        """Whether the commands start Dask's programs of CPUs, with the same variables and cores."""
        first = commands[0]
        return all(
            each.argv[: len(START_DASK)] == START_DASK
            and (each.environment, each.cores) == (first.environment, first.cores)
            for each in commands
        )

    @property
    def status(self) -> int | None:
        """The exit status of the process that forks, 0 once all are there; None before."""
        return self._process.poll() if self._read_told(0.0) else None

    def end(self) -> dict[str, ChildProcess]:
        """End the process that forks, and what it has not told of yet; returns the forked processes by their roles."""
        self._process.end_session()
        self._read_told(
            STOP_SECONDS
        )  # a process that leads its session by now was told of, and closes the pipe at once
        self._process.stdout.close()
        self._adopting.close()
        told = [line.split() for line in self._told.splitlines(keepends=True) if line.endswith(b"\n")]
        return {self._roles[int(number)]: ChildProcess.adopted(int(pid)) for number, pid in told}

    def _read_told(self, seconds: float) -> bool:
        """Read what was written about forked processes; returns whether it is all. Waits at most `seconds` for that."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                read = os.read(self._process.stdout.fileno(), PIPE_BYTES)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(LOOK_SECONDS)
            else:
                self._told += read
                if not read:
                    return True

"""The scheduler and the workers of one host, forked from one process that imports Dask for all of them."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from merge_bench.cluster import signals
from merge_bench.cluster.base import FORK, START_DASK, ProcessCommand
from merge_bench.cluster.supervisor import ChildProcess, adopt_orphans, end_child_processes
from merge_bench.errors import print_message

STOP_SECONDS = 10.0  # for a killed process to close a pipe
LOOK_SECONDS, PIPE_BYTES = 0.02, 4096


class ForkedProcesses:
    """Processes that `start_dask` forks: to import Dask in each of them takes longer than all else of their start.

    `workers_merge`: whether it imports what a merge needs, too, before it forks the workers. `pid`: the process that
    forks them. It and what it forked end with `end`; until then this process adopts orphans.
    """

    def __init__(
        self,
        commands: Sequence[ProcessCommand],
        logs: Sequence[Path],
        environment: Mapping[str, str],
        *,
        workers_merge: bool = False,
    ) -> None:
        self._roles = [command.role for command in commands]
        each = [(command.argv[len(START_DASK) :], str(log)) for command, log in zip(commands, logs, strict=True)]
        with contextlib.ExitStack() as opened:
            opened.enter_context(adopt_orphans())
            self._pipe, write = os.pipe()
            opened.callback(os.close, self._pipe)
            try:
                self._process = ChildProcess(
                    # One argument has at most 128 KiB.
                    (*START_DASK, FORK, str(os.getpid()), json.dumps(workers_merge), *map(json.dumps, each)),
                    environment={**environment, **commands[0].environment},
                    log=logs[0],
                    stdin=write,
                )
            finally:
                os.close(write)
            self._opened = opened.pop_all()
        self.pid = self._process.pid
        self._told = b""
        os.set_blocking(self._pipe, False)

    @staticmethod
    def can_start(commands: Sequence[ProcessCommand]) -> bool:
        """Whether the commands start Dask's programs of CPUs, with the same variables and cores, and may be adopted."""
        first = commands[0]
        with adopt_orphans() as allowed:
            pass
        return allowed and all(
            each.argv[: len(START_DASK)] == START_DASK
            and (each.environment, each.cores) == (first.environment, first.cores)
            for each in commands
        )

    @property
    def status(self) -> int | None:
        """The exit status of the process that forks, 0 once all are there; None before."""
        with undisturbed():
            return self._process.poll() if self._read_told(0.0) else None

    def end(self) -> dict[str, ChildProcess]:
        """End the process that forks, and what it has not told of yet; returns the forked processes by their roles.

        The caller has signals deferred or ignored.
        """
        for child in end_child_processes([self._process], STOP_SECONDS):
            print_message(f"process {child.pid} was killed and has not ended yet")
        # What leads a session of its own by now was told of, and closes the pipe at once. The rest was killed.
        reaped = _reap_group(self.pid, STOP_SECONDS)
        self._read_told(STOP_SECONDS)
        self._opened.close()
        told = [line.split() for line in self._told.splitlines()]
        pids = {self._roles[int(number)]: int(pid) for number, pid in told}
        return {role: ChildProcess.adopted(pid) for role, pid in pids.items() if pid not in reaped}

    def _read_told(self, seconds: float) -> bool:
        """Read what was written about forked processes; returns whether it is all. Waits at most `seconds` for that."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                read = os.read(self._pipe, PIPE_BYTES)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(LOOK_SECONDS)
            else:
                self._told += read
                if not read:
                    return True


def undisturbed() -> contextlib.AbstractContextManager[None]:
    """Defer an interruption, which only the main thread gets: what was read would be lost."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return signals.defer_interruption() if in_main_thread else contextlib.nullcontext()


def _reap_group(group: int, seconds: float) -> set[int]:
    """Reap the children of this process in a process group that was killed; returns their process numbers."""
    reaped, deadline = set(), time.monotonic() + seconds
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            pid, _ = os.waitpid(-group, os.WNOHANG)
            if pid:
                reaped.add(pid)
            else:
                time.sleep(LOOK_SECONDS)
    return reaped

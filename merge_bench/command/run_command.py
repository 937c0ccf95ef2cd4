"""Runs a command for one launch, in the care of a warden process, and ends everything that it started.

If the warden itself is killed, this process adopts what it watched, and ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from merge_bench.cluster import signals, supervisor
from merge_bench.cluster.base import exit_status_text
from merge_bench.cluster.supervisor import ChildProcess
from merge_bench.command.descendants import end_descendants, find_child_pids
from merge_bench.command.warden import NOT_STARTED
from merge_bench.config.installation import python_path_variables
from merge_bench.errors import LaunchFailed, MergeBenchError

COMMAND_FAILED = "command-failed"
HEAD_BYTES, TAIL_BYTES = 1 << 20, 63 << 20
"""How much of a stream is kept: its first and its last bytes."""
_STOP_SECONDS = 45.0
"""Time for a warden to end its command: with SIGTERM and a grace of 5 s, then with SIGKILL."""


@dataclass(frozen=True)
class CommandTask:
    """A command to run: its words, environment and output files; `stdin`: the file that it reads, None for no input.

    `timeout`: seconds after which it is ended; None: no limit. `grace`: seconds between SIGTERM and SIGKILL then.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    out: Path
    err: Path
    stdin: Path | None = None
    timeout: float | None = None
    grace: float = 5.0

    def encode_for_warden(self) -> bytes:
        """The task as JSON, as the warden reads it from its standard input."""
        task = {
            "argv": list(self.argv),
            "environment": dict(self.environment),
            "out": str(self.out.absolute()),
            "err": str(self.err.absolute()),
            "stdin": None if self.stdin is None else str(self.stdin.absolute()),
            "seconds": self.timeout,
            "grace": self.grace,
            "head": HEAD_BYTES,
            "tail": TAIL_BYTES,
        }
        return json.dumps(task).encode("ascii")


@dataclass(frozen=True)
class CommandResult:
    """How a command ended: its exit status, or the negative number of the signal that killed it, and its wall-clock.

    `reason`: as in `warden`; `left_out`: bytes of its output that were not kept; `problem`: why its output could not be
    kept whole; `unended`: processes that it started and that could not be ended.
    """

    reason: str
    status: int
    seconds: float
    left_out: int = 0
    problem: str = ""
    unended: Sequence[int] = ()


class LaunchProcesses:
    """The processes of one launch: runs one command after the other, and ends everything.

    `log`: the file for what a warden prints if it fails.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._warden: ChildProcess | None = None
        self._scratch_folders: list[Path] = []
        self._spared = find_child_pids()
        self._adopting = contextlib.ExitStack()
        self._adopting.enter_context(supervisor.adopt_orphans())

    def make_work_folder(self) -> Path:
        """Make an empty folder, which is removed at the end of the launch."""
        with signals.defer_interruption():
            self._scratch_folders.append(supervisor.make_scratch_folder("command"))
        work = self._scratch_folders[-1] / "work"
        work.mkdir()
        return work

    def run(self, task: CommandTask) -> CommandResult:
        """Run a command until it and everything that it started has ended.

        Raises LaunchFailed if it could not be started, or could not be watched to its end.
        """
        environment = {**os.environ, **python_path_variables(os.environ)}
        # -P: modules of the working folder are not imported.
        argv = [sys.executable, "-P", "-m", "merge_bench.command.warden"]
        with signals.defer_interruption():
            self._warden = warden = ChildProcess(
                argv,
                environment=environment,
                log=self._log,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                death_signal=signal.SIGTERM,
            )
        with contextlib.suppress(BrokenPipeError):
            warden.stdin.write(task.encode_for_warden())
            warden.stdin.close()
        answer = warden.stdout.readline()
        warden.stdout.close()
        if not answer.endswith(b"\n"):
            status = warden.end_session()
            self._end_adopted_processes()
            why = f"the process that watches it {exit_status_text(status)} (logs/{self._log.name})"
            raise LaunchFailed(f"the command was ended, because {why}", code=COMMAND_FAILED)
        warden.end_session()
        report = json.loads(answer)
        if report["reason"] == NOT_STARTED:
            raise LaunchFailed(f"the command cannot be started: {report['message']}", code=COMMAND_FAILED)
        names = ("reason", "status", "seconds", "left_out", "problem", "unended")
        return CommandResult(**{name: report[name] for name in names})

    def find_process_failure(self, error: Exception) -> MergeBenchError | None:
        """Return None: no error of a library is explained by the end of a process of a command."""
        return None

    def end_processes(self, *, succeeded: bool) -> None:
        """End everything that was started, and remove the work folders."""
        if self._warden is not None and not self._warden.is_reaped:
            self._warden.end_session(signal.SIGTERM, _STOP_SECONDS)
            self._warden.stdout.close()
            self._end_adopted_processes()
        self._adopting.close()
        while self._scratch_folders:
            supervisor.remove_scratch_folder(self._scratch_folders.pop())

    def _end_adopted_processes(self) -> None:
        """End the processes that a killed warden left to this process."""
        end_descendants(self._spared)


def find_program_path(argv: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The path of the program that a command starts, None if there is none."""
    return shutil.which(argv[0], path=environment.get("PATH", os.defpath))

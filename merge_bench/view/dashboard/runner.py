"""A run started from the view: the command that a person would type, in a process that ends with the view."""

from __future__ import annotations

import hmac
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from merge_bench.cluster.supervisor import Child
from merge_bench.config.reader import read_config
from merge_bench.config.shipped import find_shipped
from merge_bench.config.trust import refuse_code
from merge_bench.errors import UsageError
from merge_bench.probe import probes

GRACE_SECONDS = 15.0
"""For which a run that was interrupted may clean up, before it is killed when the view ends."""

_STARTER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")
"""Starts the processes: the kernel ends them with the thread that did, and this one lives as long as the program."""

_SAFE_PATH = "-P"
"""Python's option that keeps modules of the working folder from being imported; a person need not type it."""

_LOG_BYTES = 32 << 10
_LOG_LINES = 200
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
IDLE, GOING, STOPPING, OVER = "idle", "running", "stopping", "over"


_TABLES = ("left", "right", "on", "left_on", "right_on", "how", "engine")
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "run": ("configs", "chunk", *_TABLES, "workers", "iterations", "blocks"),
    "tune": ("configs", "chunk", *_TABLES, "workers", "iterations", "budget"),
    **{f"probe {name}": ("configs", "iterations") for name in probes()},
}
"""What can be started, and the fields of a `Request` that it takes."""


@dataclass(frozen=True)
class Request:
    """What to start: one of `COMMANDS`, and its options as text; empty: the default. Only the command checks them.

    `configs`: shipped ones, several only to compare them; `on`: the key columns of both tables, `left_on` and
    `right_on`: those of each, where their names differ.
    """

    command: str = "run"
    configs: tuple[str, ...] = ()
    chunk: str = ""
    left: str = ""
    right: str = ""
    on: str = ""
    left_on: str = ""
    right_on: str = ""
    how: str = ""
    engine: str = ""
    workers: str = ""
    iterations: str = ""
    blocks: str = ""
    budget: str = ""


@dataclass(frozen=True)
class State:
    """Of the run: `what` is one of the words above, `command` as one would type it, `log` its last lines."""

    what: str = IDLE
    command: str = ""
    status: int | None = None
    log: str = ""


@dataclass(frozen=True)
class Permission:
    """Who may start and stop runs: with a `refusal`, no one; with a `token`, who gives it; else everyone."""

    token: str | None = None
    refusal: str | None = None

    def granted(self, token: str) -> bool:
        """Whether runs may be started and stopped with this token."""
        if self.refusal is not None:
            return False
        return self.token is None or hmac.compare_digest(self.token.encode(), token.encode())


def arguments(request: Request, results: Path) -> list[str]:
    """The arguments of `python`: each value is one word with its option, so that none can become another option.

    Raises
    ------
    UsageError
        If there is no such command, or it takes one config and several are given.
    """
    if request.command not in COMMANDS:
        raise UsageError(f"the dashboard cannot start {request.command!r}; choose from {', '.join(COMMANDS)}")
    given = []
    for name in COMMANDS[request.command]:
        if name == "configs":
            given += config_words(request.command, request.configs)
        elif text := getattr(request, name).strip():
            given.append(f"--{name.replace('_', '-')}={text}")
    return ["-m", "merge_bench", *request.command.split(), *given, f"--results={results}"]


def config_words(command: str, configs: Sequence[str]) -> list[str]:
    """The configs as words: `tune` takes its baseline by its place, and only one; raises UsageError."""
    if command == "tune" and len(configs) > 1:
        raise UsageError("tune begins with one config; name only one")
    if command == "run" and len(configs) > 1:
        return [f"--configs={','.join(configs)}"]
    return [config if command == "tune" else f"--config={config}" for config in configs]


@dataclass
class _Run:
    """A run that was started; `command` as a person would type it."""

    process: Child
    command: str
    log: IO[bytes]
    stopping: bool = False

    def log_end(self) -> str:
        """The last lines of its log, without the codes that colour a terminal."""
        size = os.fstat(self.log.fileno()).st_size
        data = os.pread(self.log.fileno(), _LOG_BYTES, max(size - _LOG_BYTES, 0))
        return "\n".join(_ESCAPES.sub("", data.decode(errors="replace")).splitlines()[-_LOG_LINES:])


class Runner:
    """Runs one command at a time; safe to use from several threads."""

    def __init__(self, results: str | os.PathLike[str], command: Callable[[Request], list[str]] | None = None) -> None:
        self.results = Path(results)
        self._command = command or (lambda request: [sys.executable, _SAFE_PATH, *arguments(request, self.results)])
        self._run: _Run | None = None
        self._lock = threading.Lock()

    def start(self, request: Request) -> None:
        """Start a run.

        Raises
        ------
        UsageError
            If one is going on, or the config is none of the shipped ones or brings code: who asks may be anybody.
        """
        if "://" in request.on:
            raise UsageError("the dashboard runs merges on its own machine only")
        paths = [find_shipped(name, also=()) for name in request.configs]
        for path in paths:
            refuse_code(read_config(path, os.environ))
        request = replace(request, configs=tuple(map(str, paths)))
        words = self._command(request)
        if any("\0" in word for word in words):
            raise UsageError("an option cannot contain a null character")
        with self._lock:
            if self._going() is not None:
                raise UsageError("a run is in progress; stop it or wait for its end")
            self._forget()
            log = tempfile.TemporaryFile(prefix="merge-bench-", buffering=0)  # noqa: SIM115  # `_forget` closes it.
            process = _STARTER.submit(_start, words, log.fileno()).result()
            typed = ["python", *(word for word in words[1:] if word != _SAFE_PATH)]
            self._run = _Run(process, shlex.join(typed), log)

    def stop(self) -> None:
        """Interrupt the run as Ctrl-C does: it ends its processes, and what it measured is kept."""
        with self._lock:
            if run := self._going():
                run.stopping = True
                run.process.send(signal.SIGINT)

    def kill(self) -> None:
        """End the run at once. The kernel ends its processes with it."""
        with self._lock:
            if run := self._going():
                run.stopping = True
                run.process.kill()

    def state(self) -> State:
        """How the run is now."""
        with self._lock:
            if self._run is None:
                return State()
            status = self._run.process.poll()
            if status is not None:
                self._run.process.end()
            what = OVER if status is not None else STOPPING if self._run.stopping else GOING
            return State(what, self._run.command, status, self._run.log_end())

    def close(self) -> None:
        """Interrupt a run that goes on, and return when it is gone."""
        with self._lock:
            self._forget()

    def _going(self) -> _Run | None:
        return self._run if self._run is not None and self._run.process.poll() is None else None

    def _forget(self) -> None:
        """Make sure that the last run is gone, and its log."""
        if self._run is not None:
            self._run.process.end(signal.SIGINT, GRACE_SECONDS)
            self._run.log.close()
            self._run = None


def _start(words: list[str], log: int) -> Child:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "110", "NO_COLOR": "1"}
    # SIGTERM, so that a run whose view was killed ends its own processes.
    return Child(words, environment=environment, log=log, death_signal=signal.SIGTERM)

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
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from merge_bench.cluster.supervisor import Child
from merge_bench.config.reader import read_config
from merge_bench.config.shipped import config_names, find_shipped
from merge_bench.config.trust import refuse_code
from merge_bench.errors import UsageError

GRACE_SECONDS = 15.0
"""For which a run that was interrupted may clean up, before it is killed when the view ends."""

_STARTER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")
"""Starts the processes: the kernel ends them with the thread that did, and this one lives as long as the program."""

_LOG_BYTES = 32 << 10
_LOG_LINES = 200
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
IDLE, GOING, STOPPING, OVER = "idle", "running", "stopping", "over"


@dataclass(frozen=True)
class Request:
    """What to run, as text; empty: the command's default. Only the command checks it."""

    config: str = ""
    chunk: str = ""
    workers: str = ""
    iterations: str = ""


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
    """The arguments of `python`: each value is one word with its option, so that none can become another option."""
    given = [
        f"--{name}={value.strip()}"
        for name in ("config", "chunk", "workers", "iterations")
        if (value := getattr(request, name)).strip()
    ]
    return ["-m", "merge_bench", "run", *given, f"--results={results}"]


class Runner:
    """Runs one command at a time; safe to ask from several threads."""

    def __init__(self, results: str | os.PathLike[str], command: Callable[[Request], list[str]] | None = None) -> None:
        self.results = Path(results)
        self._command = command or (lambda request: [sys.executable, "-P", *arguments(request, self.results)])
        self._process: Child | None = None
        self._shown = ""
        self._log: int | None = None
        self._stopping = False
        self._lock = threading.Lock()

    def start(self, request: Request) -> None:
        """Start a run.

        Raises
        ------
        UsageError
            If one is going on, or the config is none of the shipped ones or brings code: who asks may be anybody.
        """
        if request.config and request.config not in config_names():
            raise UsageError("choose one of the shipped configs")
        if request.config:  # by its path: a file of the same name in the working folder is not meant
            path = find_shipped(request.config)
            refuse_code(read_config(path, os.environ))
            request = replace(request, config=str(path))
        words = self._command(request)
        if any("\0" in word for word in words):
            raise UsageError("an option cannot hold a null character")
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                raise UsageError("a run is going on; stop it first, or wait for its end")
            self._forget()
            self._log = _nameless_file()
            self._stopping = False
            self._shown = shlex.join(["python", *words[1:]])
            self._process = _STARTER.submit(_start, words, self._log).result()

    def stop(self) -> None:
        """Ask the run to end as Ctrl-C does: it ends its processes, and what it measured is kept."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._stopping = True
                self._process.send(signal.SIGINT)

    def kill(self) -> None:
        """End the run at once. The kernel ends its processes with it."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._stopping = True
                self._process.kill()

    def state(self) -> State:
        """How it is now."""
        with self._lock:
            if self._process is None:
                return State()
            status = self._process.poll()
            if status is not None:
                self._process.end()
            going = STOPPING if self._stopping else GOING
            return State(going if status is None else OVER, self._shown, status, self._tail())

    def close(self) -> None:
        """End a run that goes on, and return when it is gone."""
        self.stop()
        until = time.monotonic() + GRACE_SECONDS
        while self.state().what == STOPPING and time.monotonic() < until:
            time.sleep(0.05)
        with self._lock:
            self._forget()

    def _tail(self) -> str:
        if self._log is None:
            return ""
        size = os.fstat(self._log).st_size
        data = os.pread(self._log, _LOG_BYTES, max(size - _LOG_BYTES, 0))
        lines = _ESCAPES.sub("", data.decode(errors="replace")).splitlines()
        return "\n".join(lines[-_LOG_LINES:])

    def _forget(self) -> None:
        """Make sure that the last run is gone, and its log."""
        if self._process is not None:
            self._process.end()
            self._process = None
        if self._log is not None:
            os.close(self._log)
            self._log = None


def _start(words: list[str], log: int) -> Child:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "110", "NO_COLOR": "1"}
    # SIGTERM, so that a run whose view was killed ends its own processes.
    return Child(words, environment=environment, log=log, death_signal=signal.SIGTERM)


def _nameless_file() -> int:
    """A file that only its descriptor leads to, and that is gone with it; written at its end."""
    with tempfile.NamedTemporaryFile(prefix="merge-bench-") as named:
        return os.open(named.name, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)

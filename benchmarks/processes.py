"""Runs one command at a time with a time limit, and ends whatever it leaves behind, by process id."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from merge_bench.cluster.supervisor import ChildProcess, read_log_tail
from merge_bench.errors import RunFailed

ROOT = Path(__file__).resolve().parents[1]
GRACE_SECONDS = 8.0  # for a run to end its own cluster
_PR_SET_CHILD_SUBREAPER = 36
Document = Mapping[str, Any]


@dataclass(frozen=True)
class Ended:
    """How a command ended. `status`: its exit status, negative for a signal; `left_over`: processes killed.

    `output` and `errors`: the files that hold what it printed.
    """

    status: int
    seconds: float
    timed_out: bool
    left_over: int
    output: Path
    errors: Path

    @property
    def failure(self) -> str | None:
        """Why it failed, in a sentence; None if it did not."""
        if self.timed_out:
            return f"stopped after {self.seconds:.0f} s because it had not finished"
        return f"status {self.status}: {read_log_tail(self.errors, 1) or 'no error message'}" if self.status else None


def adopt_orphans() -> None:
    """Make orphans of this process's children its own children, so that `run_limited` finds all of them."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def surroundings(*without: str) -> dict[str, str]:
    """This process's environment with this checkout's packages first, less names that begin with one of `without`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])}


def run_limited(argv: Sequence[str], environment: Mapping[str, str], stem: Path, limit: float) -> Ended:
    """Run `argv` in a session of its own, for at most `limit` seconds; its output goes to ``<stem>.out`` and ``.err``.

    However this ends, also by Ctrl-C, the command and everything it started is gone afterwards.
    """
    before = {child.pid for child in psutil.Process().children()}
    start = time.monotonic()
    output, errors = (stem.with_name(f"{stem.name}.{kind}") for kind in ("out", "err"))
    with output.open("wb") as out, errors.open("wb") as err:
        child = ChildProcess(
            argv, environment=environment, log=err.fileno(), stdout=out.fileno(), cwd=ROOT, death_signal=signal.SIGTERM
        )
        try:
            timed_out = child.wait(limit) is None
        finally:
            for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, math.inf)):
                child.send_signal(number)
                child.wait(seconds)
            left_over = _end_descendants({*before, child.pid})
            status = child.end_session()
    return Ended(status, time.monotonic() - start, timed_out, left_over, output, errors)


def _end_descendants(others: set[int]) -> int:
    """Kill and reap all descendants but `others` and theirs; gives how many had not ended by themselves."""
    killed: set[int] = set()
    while True:
        alive = False
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
                if others & {child.pid, *(parent.pid for parent in child.parents())}:
                    continue
                if child.status() != psutil.STATUS_ZOMBIE:
                    alive = True
                    killed.add(child.pid)
                    child.kill()
                if child.ppid() == os.getpid():
                    os.waitpid(child.pid, 0)
        if not alive:
            return len(killed)


def options(**values: object) -> list[str]:
    """``chunk=5, check_link=True`` → ``--chunk 5 --check-link``; None and False are left out."""
    words: list[str] = []
    for name, value in values.items():
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


def run_merge_bench(
    chosen: Sequence[str],
    environment: Mapping[str, str],
    stem: Path,
    limit: float,
    *,
    verb: Sequence[str] = ("run",),
    hosts: Any = None,
) -> tuple[Document, Ended]:
    """Run ``merge_bench run --json`` with these options; gives the document that it printed.

    `verb`: another command than ``run``; `hosts`: test hosts to run on. The driver then runs at their switch. A command
    behind ``--`` reaches them by itself.

    Raises
    ------
    RunFailed
        If it did not end well; with its exit status, if it printed a document.
    """
    argv = [sys.executable, "-P", "-m", "merge_bench", *verb, "--json", *chosen]
    if hosts is not None:
        reach = [] if "--" in chosen else options(hosts=hosts.hosts_file, ssh_config=hosts.ssh_config)
        argv = hosts.command(*argv, *reach)
    ended = run_limited(argv, environment, stem, limit)
    try:
        document: Document = json.loads(ended.output.read_text())
    except ValueError:
        raise RunFailed(ended.failure or "the program printed no JSON document") from None
    errors = [run["error"]["message"] for run in document.get("runs", [document]) if run.get("error")]
    if errors or ended.failure:
        failed = RunFailed(errors[0] if errors else str(ended.failure))
        failed.exit_status = ended.status if ended.status > 0 else RunFailed.exit_status
        raise failed
    return document, ended

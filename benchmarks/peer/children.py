"""Runs one command at a time with a time limit, and ends whatever it leaves behind, by process id."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36
GRACE_SECONDS = 8.0  # for a run to take its own cluster down


@dataclass(frozen=True)
class Ended:
    """How a command ended: `status` as the shell counts it, negative for a signal; `left_over`: processes killed."""

    status: int
    seconds: float
    timed_out: bool
    left_over: int


def adopt_orphans() -> None:
    """Make orphans of this process's children children of its own, so that none of them can be lost sight of."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def run_limited(
    argv: Sequence[str], environment: Mapping[str, str], cwd: Path, output: Path, errors: Path, limit: float
) -> Ended:
    """Run `argv` in a process group of its own, for at most `limit` seconds.

    However this is left, Ctrl-C included, the command and everything it started is gone afterwards.
    """
    before = {child.pid for child in psutil.Process().children()}
    start = time.monotonic()
    timed_out = False
    with output.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            list(argv), env=dict(environment), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _end_orderly(process)
            left_over = _end_descendants(before)
    return Ended(process.returncode, time.monotonic() - start, timed_out, left_over)


def _end_orderly(process: subprocess.Popen[bytes]) -> None:
    """Ask the command to leave, which takes its own children along; it is gone afterwards in any case."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def _end_descendants(before: set[int]) -> int:
    """Kill and reap what is left; gives how many there were that had not ended by themselves."""
    killed: set[int] = set()
    while True:
        left = [child for child in psutil.Process().children(recursive=True) if not _is_or_under(child, before)]
        alive = [child for child in left if _alive(child)]
        for child in alive:
            killed.add(child.pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        mine = [child.pid for child in left if _parent(child) == os.getpid()]
        for pid in mine:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if not alive:
            return len(killed)


def _is_or_under(child: psutil.Process, pids: set[int]) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return child.pid in pids or any(parent.pid in pids for parent in child.parents())
    return False


def _alive(child: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(child.status() != psutil.STATUS_ZOMBIE)
    return False


def _parent(child: psutil.Process) -> int | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return int(child.ppid())
    return None

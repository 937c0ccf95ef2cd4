"""Finds the processes of jobs by a variable of their environment, which every process of a job inherits.

So they are found by a service that did not start them, whatever sessions they lead, and nobody else's is touched.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

from merge_bench.records.campaign import JOB

_POLL_SECONDS = 0.05


def mark(instance: str, number: int) -> str:
    """The value of the variable in processes of that job."""
    return f"{instance}-{number}"


def members(instance: str) -> list[int]:
    """Processes on this machine that belong to a job of the service named `instance`."""
    wanted = f"{JOB}={instance}-".encode()
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if b"\0" + wanted in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def end(instance: str, seconds: float) -> None:
    """Return when no process of a job is left; after `seconds` they are killed, as often as it takes."""
    deadline = time.monotonic() + seconds
    while left := members(instance):
        if time.monotonic() >= deadline:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)

"""Loaded by every scheduler and worker that a launcher starts, through Dask's `--preload`.

Ends the process when the one that started it dies, however it dies, and remembers the cores that it was started with.
Keeps the watch's questions, two a second, out of the log: its last lines are what a failed run shows.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1
CORES = frozenset(os.sched_getaffinity(0))  # as the launcher gave them: dask-cuda changes them later


def tie_to_parent() -> None:
    """Ask the kernel to kill this process when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if not os.path.exists(f"/proc/{os.environ['MERGE_BENCH_PARENT']}"):  # it died before the kernel knew
        sys.exit("the run that started this process is gone")


def keep_cores() -> None:
    """Give up cores that the launcher did not give: a plugin of dask-cuda takes all that are near a worker's GPU."""
    now = os.sched_getaffinity(0)
    if now <= CORES:
        return
    cores = (CORES & now) or CORES
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it may have ended
            os.sched_setaffinity(int(thread), cores)


def says_more_than_a_call(record: logging.LogRecord) -> bool:
    """Whether a line of Dask's log is more than the note of a function that was called from outside."""
    return not str(record.msg).startswith("Run out-of-band function")


def dask_setup(server: Any) -> None:
    """Called by Dask when the server starts."""


logging.getLogger("distributed.worker").addFilter(says_more_than_a_call)
if os.environ.get("MERGE_BENCH_PARENT"):
    tie_to_parent()

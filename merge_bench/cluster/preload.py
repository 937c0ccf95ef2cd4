"""Loaded by every scheduler and worker that a launcher starts, through Dask's `--preload`.

Ends the process when the one that started it dies, however it dies, and remembers the cores that it was started with.
Keeps the watch's questions, two a second, out of the log: its last lines are what a failed run shows.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import merge_bench.host.affinity  # noqa: F401  # it notes the cores of this process before dask-cuda changes them
from merge_bench.cluster.supervisor import die_with_parent


def tie_to_parent() -> None:
    """Ask the kernel to kill this process when its parent ends: a nanny's worker has another one than the nanny."""
    die_with_parent()
    if not os.path.exists(f"/proc/{os.environ['MERGE_BENCH_PARENT']}"):  # it died before the kernel knew
        sys.exit("the run that started this process is gone")


def says_more_than_a_call(record: logging.LogRecord) -> bool:
    """Whether a line of Dask's log is more than the note of a function that was called from outside."""
    return not str(record.msg).startswith("Run out-of-band function")


def dask_setup(server: Any) -> None:
    """Called by Dask when the server starts."""


logging.getLogger("distributed.worker").addFilter(says_more_than_a_call)
if os.environ.get("MERGE_BENCH_PARENT"):
    tie_to_parent()

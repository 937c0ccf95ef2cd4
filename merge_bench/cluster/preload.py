"""Loaded by every scheduler and worker that a launcher starts, through Dask's `--preload`.

Ends the process when the process that started it ends, for whatever reason, and notes the cores that it was started
with. Keeps the calls of the watch, two per second, out of the log: a failed run shows the log's last lines.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import merge_bench.host.affinity  # noqa: F401  # it notes the cores of this process before dask-cuda changes them
from merge_bench.cluster.supervisor import die_with_parent


def tie_to_parent() -> None:
    """Have the kernel kill this process when its parent ends; the parent of a nanny's worker is the nanny."""
    die_with_parent()
    if not os.path.exists(f"/proc/{os.environ['MERGE_BENCH_PARENT']}"):  # it ended before the call above
        sys.exit("the run that started this process is gone")


def is_no_call(record: logging.LogRecord) -> bool:
    """Whether a line of Dask's log reports something else than a function that a client called."""
    return not str(record.msg).startswith("Run out-of-band function")


def dask_setup(server: Any) -> None:
    """Called by Dask when the server starts."""


logging.getLogger("distributed.worker").addFilter(is_no_call)
if os.environ.get("MERGE_BENCH_PARENT"):
    tie_to_parent()

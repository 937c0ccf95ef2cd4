"""Loaded by every scheduler and worker that a launcher starts, through Dask's `--preload`.

Ends the process when the process that started it ends, for whatever reason, and notes the cores that it was started
with. Keeps the calls of the watch, two per second, out of the log: a failed run shows the log's last lines. Keeps the
objects of the libraries that are loaded by now out of garbage collections.
"""

from __future__ import annotations

import gc
import logging
import os
import sys

import merge_bench.host.machine  # noqa: F401  # it notes the cores of this process before dask-cuda changes them
from merge_bench.cluster.supervisor import die_with_parent

logging.getLogger("distributed.worker").addFilter(
    lambda record: not str(record.msg).startswith("Run out-of-band function")
)
gc.freeze()
if parent := os.environ.get("MERGE_BENCH_PARENT"):
    die_with_parent()  # the parent of a nanny's worker is the nanny
    if not os.path.exists(f"/proc/{parent}"):  # it ended before the call above
        sys.exit("the run that started this process has ended")

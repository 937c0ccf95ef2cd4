"""Keeps a process on the cores that it was started with."""

from __future__ import annotations

import contextlib
import os

CORES = frozenset(os.sched_getaffinity(0))
"""The cores of this process when this module was imported, which the preload of each worker does first."""


def keep_cores() -> None:
    """Give up cores that the launcher did not give: a plugin of dask-cuda takes all that are near a worker's GPU."""
    now = os.sched_getaffinity(0)
    if now <= CORES:
        return
    cores = (CORES & now) or CORES
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it may have ended
            os.sched_setaffinity(int(thread), cores)

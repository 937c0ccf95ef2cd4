"""Restricts a process to the cores that it was started with."""

from __future__ import annotations

import contextlib
import os

CORES = frozenset(os.sched_getaffinity(0))
"""The cores of this process when this module was imported, which the preload of each worker does first."""


def keep_cores() -> None:
    """Return to the launcher's cores: a plugin of dask-cuda binds a worker to all cores near its GPU."""
    now = os.sched_getaffinity(0)
    if now <= CORES:
        return
    cores = (CORES & now) or CORES
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # the thread may have ended
            os.sched_setaffinity(int(thread), cores)

"""Loaded by every scheduler and worker that a launcher starts, through Dask's `--preload`.

Ends the process when the one that started it dies, however it dies.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

_PR_SET_PDEATHSIG = 1


def tie_to_parent() -> None:
    """Ask the kernel to kill this process when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if not os.path.exists(f"/proc/{os.environ['MERGE_BENCH_PARENT']}"):  # it died before the kernel knew
        sys.exit("the run that started this process is gone")


def dask_setup(server: Any) -> None:
    """Called by Dask when the server starts."""


if os.environ.get("MERGE_BENCH_PARENT"):
    tie_to_parent()

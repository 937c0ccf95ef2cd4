"""Ends processes so that nothing of them is left, named semaphores included."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

TIDY_SECONDS = 2.0
"""For Python's resource trackers to remove what killed processes left in /dev/shm, and to end."""
_POLL_SECONDS = 0.02
_TRACKER = b"multiprocessing.resource_tracker"


def kill_sessions(leaders: Collection[int]) -> None:
    """Kill every process of the sessions that these lead. The leaders must be unreaped children of this process.

    On GPUs a worker is the child of a nanny, and their queues are named semaphores. Python's resource tracker, which is
    in the same session, removes them once all others are gone, and ends. So it is killed last, and only if it stays.
    """
    for _ in range(2):  # the second time those that were started meanwhile
        for pid in _members(leaders, trackers=False):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + TIDY_SECONDS
    while time.monotonic() < deadline and any(_members(leaders, trackers=True)):
        time.sleep(_POLL_SECONDS)
    for leader in leaders:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def _members(leaders: Collection[int], *, trackers: bool) -> Iterator[int]:
    """Processes of these sessions: either the resource trackers or all others."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                pid = int(entry.name)
                if os.getsid(pid) in leaders and (_TRACKER in (entry / "cmdline").read_bytes()) == trackers:
                    yield pid

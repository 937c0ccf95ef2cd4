"""The one way to make a waiting worker stop waiting."""

from __future__ import annotations

import threading
import time

from merge_bench.errors import RunFailed

ORPHANED_SECONDS = 60.0
"""Without a sign of life of the driver, after which work on a cluster that goes on living ends by itself."""


class Abort:
    """A flag that every wait of a worker looks at, and the time of the driver's last sign of life.

    The driver's calls reach the worker on Dask's event loop while the exchanging thread waits; both sides are
    thread-safe.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self._reason = ""
        self.last_heartbeat = time.monotonic()

    def set(self, reason: str) -> None:
        """Make every wait end with `RunFailed(reason)`."""
        if not self._event.is_set():
            self._reason = reason
            self._event.set()

    def clear(self) -> None:
        """Forget an earlier abort."""
        self._event.clear()
        self._reason = ""
        self.heartbeat()

    def heartbeat(self) -> None:
        """Note that the driver is there."""
        self.last_heartbeat = time.monotonic()

    def left_alone(self, seconds: float) -> bool:
        """Whether the run was aborted, or its driver gave no sign of life for this long."""
        return self._event.is_set() or time.monotonic() - self.last_heartbeat > seconds

    def check(self) -> None:
        """Raise `RunFailed` if the run was aborted."""
        if self._event.is_set():
            raise RunFailed(self._reason)

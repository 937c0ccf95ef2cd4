"""The flag that ends every wait of a worker."""

from __future__ import annotations

import threading
import time

from merge_bench.errors import RunFailed

ORPHANED_SECONDS = 60.0
"""Seconds without a heartbeat of the driver, after which work on a cluster that keeps running ends by itself."""


class Abort:
    """A flag that every wait of a worker checks, and the time of the driver's last heartbeat.

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
        """Note that the driver is alive."""
        self.last_heartbeat = time.monotonic()

    def left_alone(self, seconds: float) -> bool:
        """Whether the run was aborted, or its driver sent no heartbeat for this long."""
        return self._event.is_set() or time.monotonic() - self.last_heartbeat > seconds

    def check(self) -> None:
        """Raise `RunFailed` if the run was aborted."""
        if self._event.is_set():
            raise RunFailed(self._reason)

"""The flag that ends every wait of a worker."""

from __future__ import annotations

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
        self._reason: str | None = None
        self.last_heartbeat = time.monotonic()

    def set(self, reason: str) -> None:
        """Make every wait end with `RunFailed(reason)`."""
        if self._reason is None:
            self._reason = reason

    def clear(self) -> None:
        """Forget an earlier abort."""
        self._reason = None
        self.heartbeat()

    def heartbeat(self) -> None:
        """Note that the driver is alive."""
        self.last_heartbeat = time.monotonic()

    def left_alone(self, seconds: float) -> bool:
        """Whether the run was aborted, or its driver sent no heartbeat for this long."""
        return self._reason is not None or time.monotonic() - self.last_heartbeat > seconds

    def check(self) -> None:
        """Raise `RunFailed` if the run was aborted."""
        reason = self._reason
        if reason is not None:
            raise RunFailed(reason)

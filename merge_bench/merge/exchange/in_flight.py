"""Transfers in flight: how much at once, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WINDOW_BYTES = 16 << 20  # sends of a worker in flight at once: later pieces must not delay earlier ones
LEAST_SHARE = 64 << 10  # for each peer, however many there are: shorter messages cost more than they save
PAGE = 4096  # longer messages end at multiples of it


def share_bytes(workers: int) -> int:
    """Bytes that a worker may have in flight to one peer, the same on all workers.

    A peer that receives nothing blocks only its own share of the window, so it does not delay other peers.
    """
    return max(LEAST_SHARE, WINDOW_BYTES // max(1, workers - 1))


def longest_message(workers: int, message_bytes: int) -> int:
    """The length at which sender and receiver cut a parcel.

    It is half a share, so that one message is posted while another is in flight.

    `message_bytes`: the limit that the user set, 0 for none.
    """
    half = share_bytes(workers) // 2 // PAGE * PAGE
    return min(message_bytes or half, half)


@dataclass
class Flight:
    """One frame's transfers on one worker, in seconds of its own monotonic clock.

    `seconds`: length of the interval in which transfers were in flight; 0 if there were none. `arrived`: per source
    rank, bytes and seconds from the first receive posted to the last one completed. `batches`: if they were noted, the
    time at which each peer's messages were posted and that of the last one's completion, with their bytes; the key is
    the peer and whether they were received.
    """

    sent_bytes: int = 0
    seconds: float = 0.0
    arrived: dict[int, tuple[int, float]] = field(default_factory=dict)
    batches: dict[tuple[int, bool], tuple[float, float, int]] = field(default_factory=dict)


@dataclass
class Pending:
    """A posted message: UCXX's request, the rank it goes to or comes from, and its bytes."""

    request: Any
    peer: int
    receive: bool
    size: int


class Meter:
    """Seconds in which at least one transfer was in flight.

    `first` and `last`: when the first transfer began and the last one ended; None before.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.first: float | None = None
        self.last: float | None = None
        self._count, self._since = 0, 0.0

    def enter(self, now: float) -> None:
        """Count a transfer that begins."""
        if self.first is None:
            self.first = now
        if self._count == 0:
            self._since = now
        self._count += 1

    def leave(self, now: float) -> None:
        """Count a transfer that ends."""
        self._count -= 1
        self.last = now
        if self._count == 0:
            self.seconds += now - self._since

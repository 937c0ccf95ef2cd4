"""What is under way, how much of it at once, and what is told of it afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WINDOW_BYTES = 16 << 20  # sends of a worker that are under way at once: later pieces must not delay earlier ones
LEAST_SHARE = 64 << 10  # of it for a peer, however many there are: shorter messages cost more than they are worth
PAGE = 4096  # longer messages end at multiples of it


def share_bytes(workers: int) -> int:
    """Data that a worker may have under way to one of its peers, the same on all workers.

    A peer that takes nothing holds this much of the window and no more, so it delays nobody else.
    """
    return max(LEAST_SHARE, WINDOW_BYTES // max(1, workers - 1))


def longest_message(workers: int, message_bytes: int) -> int:
    """Where sender and receiver cut a parcel: half a share, so that one message is posted while another is under way.

    `message_bytes`: the longest that is asked for, 0 for no limit.
    """
    half = share_bytes(workers) // 2 // PAGE * PAGE
    return min(message_bytes or half, half)


@dataclass
class Flight:
    """One frame's transfers as one worker saw them, seconds on its own monotonic clock.

    `arrived`: per source rank, bytes and seconds from the first receive posted to the last one completed.
    """

    first_post: float
    last_completion: float
    sent_bytes: int = 0
    arrived: dict[int, tuple[int, float]] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Length of the interval in which transfers were in flight; 0 if there were none."""
        return self.last_completion - self.first_post


@dataclass
class Pending:
    """A message that was posted: UCXX's request, whom it goes to or comes from, and its bytes."""

    request: Any
    peer: int
    receive: bool
    size: int


class Meter:
    """Seconds in which something was under way, however many at once: the length of a union of intervals.

    `first` and `last`: when the first one began and the latest one ended, None before.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.first: float | None = None
        self.last: float | None = None
        self._count, self._since = 0, 0.0

    def enter(self, now: float) -> None:
        """One more is under way."""
        if self.first is None:
            self.first = now
        if self._count == 0:
            self._since = now
        self._count += 1

    def leave(self, now: float) -> None:
        """One fewer is."""
        self._count -= 1
        self.last = now
        if self._count == 0:
            self.seconds += now - self._since

"""What is under way, and what is told of it afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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

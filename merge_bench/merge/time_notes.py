"""Notes when phases, barriers and batches of messages begin and end on one worker, for the timeline of a launch.

While an iteration runs, a note is an entry in a dict or a list. Structures are made of them after its closing barrier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from merge_bench.records.timeline import MOST_EVENTS, MessageBatch, Span, WorkerTimeline

Key = tuple[int, int, bool]
"""The number of a piece, the peer, and whether it was received."""

_TRIALS, _NOTES = 9, 250


class TimeNotes:
    """The times that a worker notes in one iteration; `count`: how many notes it made."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, float, float]] = []
        self.count = 0
        self._batches: dict[Key, list[float]] = {}  # begin, end, bytes

    def begin_message(self, key: Key, now: float, size: int) -> None:
        """Note that a message of a batch is posted."""
        self.count += 1
        batch = self._batches.get(key)
        if batch is None:
            self._batches[key] = [now, now, size]
        else:
            batch[2] += size

    def end_message(self, key: Key, now: float) -> None:
        """Note that a message of a batch is complete."""
        self._batches[key][1] = now

    def add_batch(self, key: Key, begin: float, end: float, size: int) -> None:
        """Note when the messages of a batch began and ended, and their bytes."""
        self.count += 1
        self._batches[key] = [begin, end, size]

    def add_span(self, name: str, begin: float, end: float) -> None:
        """Note when a phase or a barrier began and ended."""
        self.count += 1
        self.spans.append((name, begin, end))

    def timeline(self, rank: int, sides: Sequence[str]) -> WorkerTimeline:
        """Make the record of all notes; `sides`: the side of each piece, by its number."""
        return WorkerTimeline(
            rank=rank,
            spans=[Span(name=name, begin=begin, end=end) for name, begin, end in self.spans],
            batches=[
                MessageBatch(
                    side=sides[piece], piece=piece, peer=peer, received=received, bytes=int(size), begin=begin, end=end
                )
                for (piece, peer, received), (begin, end, size) in self._batches.items()
            ],
        )


def note_seconds(clock: Callable[[], float] = time.perf_counter) -> float:
    """Measure the seconds that it takes to note one message of a batch, the dearest kind of note.

    The median of several trials: what other processes take of the core in one of them is no cost of a note.
    """
    return median(_trial_seconds(clock) for _ in range(_TRIALS))


def _trial_seconds(clock: Callable[[], float]) -> float:
    notes = TimeNotes()
    began = clock()
    for number in range(_NOTES):
        key = (number & 15, 1, True)
        notes.begin_message(key, clock(), 1)
        notes.end_message(key, clock())
    return (clock() - began) / _NOTES


class KeptTimelines:
    """The timelines of every `stride`-th iteration, which a worker keeps until the launch ends.

    `most`: events that it keeps at most. Once they would be more, it drops every second iteration, and goes on with
    twice the stride.
    """

    def __init__(self, workers: int, most: int = MOST_EVENTS) -> None:
        self.most = most // workers
        self.stride = 1
        self.iterations: dict[int, WorkerTimeline] = {}
        self.rounds: list[WorkerTimeline] = []

    def wants_iteration(self, index: int) -> bool:
        """Whether the timeline of iteration `index` is to be kept."""
        return index % self.stride == 0

    def keep_iteration(self, index: int, timeline: WorkerTimeline) -> None:
        """Keep the timeline of iteration `index`."""
        self.iterations[index] = timeline
        self._trim()

    def keep_round(self, timeline: WorkerTimeline) -> None:
        """Keep the timeline of a round of the link measurement; its events count towards `most` as well."""
        self.rounds.append(timeline)
        self._trim()

    def _trim(self) -> None:
        """Drop every second iteration while there are more events than `most`."""
        while self.iterations and _event_count([*self.iterations.values(), *self.rounds]) > self.most:
            self.stride *= 2
            self.iterations = {each: kept for each, kept in self.iterations.items() if each % self.stride == 0}
            if list(self.iterations) == [0] and _event_count([self.iterations[0], *self.rounds]) > self.most:
                self.iterations.clear()


def _event_count(timelines: Iterable[WorkerTimeline]) -> int:
    return sum(each.event_count for each in timelines)

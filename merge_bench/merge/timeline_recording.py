"""Notes for the timeline of a launch: begin and end of phases, barriers and batches of messages on one worker.

While an iteration runs, a note is an entry in a dict or a list. Structures are made of them after its closing barrier.
What notes cost decides whether there will be a timeline.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from msgspec.structs import replace

from merge_bench.records.schema import TimelineLine
from merge_bench.records.timeline import MOST_EVENTS, MessageBatch, Span, WorkerTimeline

Key = tuple[int, int, bool]
"""The number of a piece, the peer, and whether it was received."""

MOST_SHARE = 0.01
"""The largest share of an iteration that the timeline's notes may take with ``--timeline auto``."""
_TRIALS, _NOTES = 9, 250


class TimelineNotes:
    """The times that a worker notes during one iteration, for its timeline; `count`: how many notes it made."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, float, float]] = []
        self.count = 0
        self._batches: dict[Key, list[float]] = {}  # begin, end, bytes

    def note_message_posted(self, batch_key: Key, now: float, size: int) -> None:
        """Note that a message was posted; it belongs to the batch of one piece, peer and direction."""
        self.count += 1
        batch = self._batches.get(batch_key)
        if batch is None:
            self._batches[batch_key] = [now, now, size]
        else:
            batch[2] += size

    def note_message_completed(self, batch_key: Key, now: float) -> None:
        """Note that a message of a batch is complete."""
        self._batches[batch_key][1] = now

    def add_batch(self, batch_key: Key, begin: float, end: float, size: int) -> None:
        """Note when the messages of a batch began and ended, and how many bytes they have."""
        self.count += 1
        self._batches[batch_key] = [begin, end, size]

    def add_span(self, name: str, begin: float, end: float) -> None:
        """Note when a phase or a barrier, called `name`, began and ended."""
        self.count += 1
        self.spans.append((name, begin, end))

    def make_timeline(self, rank: int, piece_sides: Sequence[str]) -> WorkerTimeline:
        """Make the record of all notes; `piece_sides`: the side of each piece, by its number."""
        return WorkerTimeline(
            rank=rank,
            spans=[Span(name=name, begin=begin, end=end) for name, begin, end in self.spans],
            batches=[
                MessageBatch(
                    side=piece_sides[piece],
                    piece=piece,
                    peer=peer,
                    received=received,
                    bytes=int(size),
                    begin=begin,
                    end=end,
                )
                for (piece, peer, received), (begin, end, size) in self._batches.items()
            ],
        )


def measure_note_seconds(clock: Callable[[], float] = time.perf_counter) -> float:
    """Measure how many seconds one note of a message takes, the most expensive kind of note.

    The result is the median of several trials, because other processes may use the core in some of them.
    """
    return median(_seconds_per_note(clock) for _ in range(_TRIALS))


def _seconds_per_note(clock: Callable[[], float]) -> float:
    notes = TimelineNotes()
    began = clock()
    for number in range(_NOTES):
        key = (number & 15, 1, True)
        notes.note_message_posted(key, clock(), 1)
        notes.note_message_completed(key, clock())
    return (clock() - began) / _NOTES


class TimelineKeeper:
    """Keeps the timelines of every `stride`-th iteration of a worker until the launch ends.

    `most`: how many events all workers together keep at most. When there would be more, every second iteration is
    dropped, and the stride doubled.
    """

    def __init__(self, workers: int, most: int = MOST_EVENTS) -> None:
        self.most = most // workers
        self.stride = 1
        self.iterations: dict[int, WorkerTimeline] = {}
        self.rounds: list[WorkerTimeline] = []

    def wants_iteration(self, index: int) -> bool:
        """Whether the timeline of iteration `index` should be noted and kept."""
        return index % self.stride == 0

    def keep_iteration(self, index: int, timeline: WorkerTimeline) -> None:
        """Keep the timeline of iteration `index`."""
        self.iterations[index] = timeline
        self._drop_excess_iterations()

    def keep_link_round(self, timeline: WorkerTimeline) -> None:
        """Keep the timeline of one round of the link measurement; its events count towards `most` as well."""
        self.rounds.append(timeline)
        self._drop_excess_iterations()

    def _drop_excess_iterations(self) -> None:
        """Drop every second iteration while there are more events than `most`."""
        while self.iterations and _event_count([*self.iterations.values(), *self.rounds]) > self.most:
            self.stride *= 2
            self.iterations = {each: kept for each, kept in self.iterations.items() if each % self.stride == 0}
            if list(self.iterations) == [0] and _event_count([self.iterations[0], *self.rounds]) > self.most:
                self.iterations.clear()


def _event_count(timelines: Iterable[WorkerTimeline]) -> int:
    return sum(each.event_count for each in timelines)


@dataclass(frozen=True)
class TimelineCost:
    """The cost of a timeline's notes: most notes of an iteration, seconds of one note, and shortest iteration."""

    notes: int
    note_seconds: float
    iteration_seconds: float

    @property
    def iteration_share(self) -> float:
        """The largest share of the shortest iteration that notes can take."""
        return self.notes * self.note_seconds / self.iteration_seconds

    def with_iteration(self, notes: int, seconds: float) -> TimelineCost:
        """Return the cost with one more iteration, which took `seconds` and in which `notes` notes were made."""
        return TimelineCost(max(self.notes, notes), self.note_seconds, min(self.iteration_seconds, seconds))


def decide_timeline_recording(
    timeline_option: str, note_costs: Sequence[TimelineCost], launch_index: int = 0
) -> TimelineLine:
    """Decide whether to record a timeline of messages and phases; returns the decision with its reason.

    The share of an iteration that notes take decides: notes of an iteration × seconds of a note ÷ seconds of the
    iteration. The worker with the largest share decides for all, because the timeline needs both ends of a message.
    `timeline_option`: value of ``--timeline``. `note_costs`: each worker's, from the iterations so far; empty before
    the first one, which is recorded unless ``off``.
    """
    dearest = max(note_costs, key=lambda cost: cost.iteration_share, default=None)
    cheap = dearest is None or dearest.iteration_share <= MOST_SHARE
    recorded = timeline_option == "on" or (timeline_option == "auto" and cheap)
    because = "asked for" if timeline_option != "auto" else "cheap" if cheap else "expensive"
    line = TimelineLine(launch=launch_index, recorded=recorded, because=because)
    if dearest is None:
        return line
    return replace(line, notes=dearest.notes, note_seconds=dearest.note_seconds, share=dearest.iteration_share)


def largest_timeline_share(timeline_option: str, decision: TimelineLine) -> float | None:
    """The largest share of an iteration's time that recording the timeline may take; None: no timeline is recorded."""
    if not decision.recorded:
        return None
    return math.inf if timeline_option == "on" else MOST_SHARE

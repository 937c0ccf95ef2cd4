"""The file beside ``records.jsonl`` that says when each worker did what in a launch: ``timeline-<launch>.jsonl``.

Its first line is a `TimelineHeader`, each other line a `TimelineIteration` or a `TimelineRound`. Times are seconds of
the host's monotonic clock, which its processes share. The file is for drawing only: no figure is made of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import msgspec

from merge_bench.config.files import read_regular_file
from merge_bench.errors import UsageError

LARGEST = 256 << 20
"""Bytes of a file that are read at most."""

VERSION = 1
"""The version of the file. It rises only if an older reader would misunderstand the file; new fields do not count."""

MOST_EVENTS = 20_000
"""Spans and batches of a launch that a file holds at most, all workers together."""


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A worker's ``barrier``, ``filter``, ``partition``, ``exchange``, ``join`` or ``link``, from begin to end."""

    name: str
    begin: float
    end: float


class MessageBatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The messages of one piece of a frame between a worker and a peer.

    `begin`: the first one was posted; `end`: the last one was seen complete. `side`: ``left`` or ``right``; `piece`:
    the number that sender and receiver give the piece, so that a batch sent and the same batch received belong
    together.
    """

    side: str
    piece: int
    peer: int
    received: bool
    bytes: int
    begin: float
    end: float


class WorkerTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """The spans and message batches of one worker in an iteration, or in a round of the link measurement."""

    rank: int
    spans: list[Span]
    batches: list[MessageBatch] = []

    @property
    def event_count(self) -> int:
        """The number of spans and batches of the worker."""
        return len(self.spans) + len(self.batches)


class WorkerClock(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's host, and the seconds from the epoch to the zero of that host's monotonic clock."""

    rank: int
    host: str
    unix_seconds: float


class TimelineHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="timeline"):
    """The first line of a timeline's file.

    `skew_seconds`: the bound on the skew of a barrier, by which hosts are aligned.
    """

    version: int = VERSION
    launch: int
    clocks: list[WorkerClock]
    skew_seconds: float | None = None


class _TimelinePart(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    index: int
    workers: list[WorkerTimeline]


class TimelineIteration(_TimelinePart, frozen=True, kw_only=True, tag="iteration"):
    """A timed iteration, from the entry into its opening barrier to the exit from its closing one, by rank."""


class TimelineRound(_TimelinePart, frozen=True, kw_only=True, tag="link"):
    """A round of the link measurement: the timelines of its workers, by rank."""


Line: TypeAlias = TimelineHeader | TimelineIteration | TimelineRound

_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a timeline's file."""

    head: TimelineHeader
    iterations: list[TimelineIteration]
    rounds: list[TimelineRound]


def timeline_file_name(launch_index: int) -> str:
    """The name of the file that has the timeline of the launch of this index."""
    return f"timeline-{launch_index}.jsonl"


def encode_timeline(timeline: Timeline) -> bytes:
    """Encode a timeline as the contents of its file."""
    return msgspec.json.Encoder().encode_lines([timeline.head, *timeline.iterations, *timeline.rounds])


def read_timeline(file: Path) -> Timeline | None:
    """Read the timeline in a file; None if there is no such file.

    Raises UsageError if it is damaged, or a newer merge_bench wrote it; the message names the file.
    """
    try:
        lines = [_DECODER.decode(line) for line in read_regular_file(file, LARGEST).splitlines()]
    except FileNotFoundError:
        return None
    except RecursionError:
        raise UsageError(f"cannot read the timeline {file}: it is nested too deeply") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"cannot read the timeline {file}: {error}") from error
    head = lines[0] if lines else None
    if not isinstance(head, TimelineHeader):
        raise UsageError(f"{file} is not a timeline: its first line is of another kind")
    if head.version > VERSION:
        raise UsageError(f"{file} was written by a newer merge_bench (version {head.version} of timelines)")
    return Timeline(
        head=head,
        iterations=[line for line in lines if isinstance(line, TimelineIteration)],
        rounds=[line for line in lines if isinstance(line, TimelineRound)],
    )

"""``--format trace``: Chrome trace events, which https://ui.perfetto.dev opens.

A process is a host. A worker has a track of phases and barriers, and tracks of the batches of messages that it sends
and receives; what overlaps is on several. A flow leads from each batch sent to the same batch received.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from merge_bench.errors import UsageError
from merge_bench.view.export import Exporter

if TYPE_CHECKING:
    from merge_bench.analysis.timelines import AlignedTimeline
    from merge_bench.records.campaign import Campaign
    from merge_bench.records.timeline import TimelineIteration, WorkerTimeline

Event = dict[str, Any]

PHASES, SENT, RECEIVED = KINDS = "", " sends", " receives"
"""Kinds of tracks of a worker, each as what follows the rank in the track's name."""


def _encode_trace(campaigns: Sequence[Campaign]) -> bytes:
    import json

    from merge_bench.analysis.timelines import read_aligned_timelines
    from merge_bench.view.titles import result_source_lines

    if len(campaigns) > 1:
        raise UsageError("a trace shows one RESULT, because hosts and launches of several would share its tracks")
    campaign = campaigns[0]
    launches = list(read_aligned_timelines(campaign))
    if not launches:
        raise UsageError(
            f"{campaign.folder} contains no timeline; measure with --timeline on, and keep the files timeline-*.jsonl"
            " beside the records"
        )
    largest = f"{1e6 * max(aligned.error for aligned in launches):.1f} us"
    alignment = f"hosts are aligned at the barriers, for drawing only; error at most {largest}"
    about = {"result": result_source_lines([campaign]), "alignment": alignment}
    events = TraceEventBuilder(campaign, launches).make_trace_events()
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
    return json.dumps(document, separators=(",", ":")).encode()


class TraceEventBuilder:
    """Makes the trace events of a campaign, with times in nanoseconds from the first event."""

    def __init__(self, campaign: Campaign, launches: Sequence[AlignedTimeline]) -> None:
        self._campaign, self._launches = campaign, launches
        self._hosts = list(dict.fromkeys(host for aligned in launches for host in aligned.hosts))
        # Launches are apart by the wall-clock time, and precise to a nanosecond within.
        self._unix = [aligned.timeline.head.clocks[0].unix_seconds for aligned in launches]
        self._bases = [
            min(
                aligned.seconds_on_common_clock(worker.rank, begin)
                for line in (*aligned.timeline.iterations, *aligned.timeline.rounds)
                for worker in line.workers
                for begin in (*(span.begin for span in worker.spans), *(batch.begin for batch in worker.batches))
            )
            for aligned in launches
        ]
        self._first = self._bases[0] + self._unix[0]
        self._slices: list[Event] = []

    def make_trace_events(self) -> list[Event]:
        """Return all events, in microseconds: names of processes and tracks, then the others by time."""
        messages: list[tuple[Event, Event]] = []
        for number, aligned in enumerate(self._launches):
            for iteration in aligned.timeline.iterations:
                messages += self._add_iteration_slices(number, iteration)
            for measurement in aligned.timeline.rounds:
                for worker in measurement.workers:
                    self._add_phase_slices(number, worker, f"link measurement {measurement.index}")
        names = [*self._process_name_events(), *self._track_name_events()]
        others = [*self._slices, *_message_flow_events(messages), *self._warning_events()]
        others.sort(key=lambda event: (event["ts"], event["ph"] != "X", -event.get("dur", 0)))
        for event in others:
            event |= {key: event[key] / 1000 for key in ("ts", "dur") if key in event}
        return [*names, *others]

    def _add_iteration_slices(
        self, launch_position: int, iteration: TimelineIteration
    ) -> Iterator[tuple[Event, Event]]:
        """Add the slices of an iteration; returns the slices of each batch of messages as sent and as received."""
        from merge_bench.analysis.timelines import matched_message_batches

        batches: dict[int, Event] = {}
        for worker in iteration.workers:
            self._add_phase_slices(launch_position, worker, f"iteration {iteration.index}")
            for batch in worker.batches:
                kind, arrow = (RECEIVED, "from") if batch.received else (SENT, "to")
                name, args = f"{batch.side} {batch.piece} {arrow} rank {batch.peer}", {"bytes": batch.bytes}
                batches[id(batch)] = self._add_slice(
                    launch_position, worker.rank, kind, batch.begin, batch.end, name, args
                )
        return (
            (batches[id(sent)], batches[id(received)]) for _, sent, _, received in matched_message_batches(iteration)
        )

    def _add_phase_slices(self, launch_position: int, worker: WorkerTimeline, name: str) -> None:
        spans = worker.spans
        begin, end = min(span.begin for span in spans), max(span.end for span in spans)
        launch = self._launches[launch_position].launch
        args = {"launch": launch.index, "config": launch.line.config if launch.line is not None else ""}
        self._add_slice(launch_position, worker.rank, PHASES, begin, end, name, args)
        for span in spans:
            self._add_slice(launch_position, worker.rank, PHASES, span.begin, span.end, span.name, {})

    def _add_slice(
        self,
        launch_position: int,
        rank: int,
        track_kind: str,
        begin: float,
        end: float,
        name: str,
        args: dict[str, Any],
    ) -> Event:
        aligned = self._launches[launch_position]
        at, until = (
            self._nanoseconds_from_trace_start(launch_position, aligned.seconds_on_common_clock(rank, seconds))
            for seconds in (begin, end)
        )
        event = {
            "ph": "X",
            "name": name,
            "cat": "phase" if track_kind == PHASES else "message",
            "ts": at,
            "dur": max(until - at, 0),
            "pid": self._hosts.index(aligned.hosts[rank]) + 1,
            "track": (rank, track_kind),
            "args": args,
        }
        self._slices.append(event)
        return event

    def _nanoseconds_from_trace_start(self, launch_position: int, seconds: float) -> int:
        """Nanoseconds from the first event of the trace to `seconds` on the clock of rank 0's host in a launch."""
        base = self._bases[launch_position]
        return round((base + self._unix[launch_position] - self._first) * 1e9) + round((seconds - base) * 1e9)

    def _warning_events(self) -> Iterator[Event]:
        """Make an instant event for each warning, at its recorded time, or at the nearest end of the trace."""
        last = max((event["ts"] + event["dur"] for event in self._slices), default=0)
        own = [warning for aligned in self._launches for warning in aligned.launch.warnings]
        for warning in [*self._campaign.warnings, *own]:
            at = min(max(round((warning.time - self._first) * 1e9), 0), last)
            args = {"message": warning.message, "remedy": warning.remedy}
            same = {"cat": "warning", "ts": at, "pid": 1, "tid": 0, "args": args}
            yield {"ph": "i", "s": "g", "name": warning.code, **same}

    def _process_name_events(self) -> Iterator[Event]:
        for number, host in enumerate(self._hosts, 1):
            yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": host}}
            yield {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}

    def _track_name_events(self) -> Iterator[Event]:
        """Put every slice on a track, and make the events that name and order the tracks."""
        lanes: dict[tuple[int, int, int], list[list[int]]] = {}
        tracks: dict[int, tuple[int, int, int, int]] = {}
        for event in sorted(self._slices, key=lambda event: (event["ts"], -event["dur"])):
            rank, kind = event.pop("track")
            key = event["pid"], rank, KINDS.index(kind)
            end = event["ts"] + event["dur"]
            tracks[id(event)] = (
                *key,
                _choose_track_without_overlap(lanes.setdefault(key, []), event["ts"], end, may_nest=kind == PHASES),
            )
        numbers = {track: number for number, track in enumerate(sorted(set(tracks.values())), 1)}
        for event in self._slices:
            event["tid"] = numbers[tracks[id(event)]]
        for (process, rank, kind_number, lane), number in numbers.items():
            same = {"ph": "M", "pid": process, "tid": number}
            name = f"rank {rank}{KINDS[kind_number]}" + (f" ({lane + 1})" if lane else "")
            yield {"name": "thread_name", **same, "args": {"name": name}}
            yield {"name": "thread_sort_index", **same, "args": {"sort_index": number}}


def _message_flow_events(sent_and_received_slices: Sequence[tuple[Event, Event]]) -> Iterator[Event]:
    """Make the events of an arrow from each batch of messages as sent to the same batch as received.

    An arrow ends in the last nanosecond of the slice received, which has to be open then.
    """
    for number, (sent, received) in enumerate(sent_and_received_slices, 1):
        same = {"name": "message", "cat": "message", "id": number}
        yield {"ph": "s", "ts": sent["ts"], "pid": sent["pid"], **same, "tid": sent["tid"]}
        at = received["ts"] + max(received["dur"] - 1, 0)
        yield {"ph": "f", "bp": "e", "ts": at, "pid": received["pid"], **same, "tid": received["tid"]}


def _choose_track_without_overlap(tracks: list[list[int]], begin: int, end: int, *, may_nest: bool) -> int:
    """Put a slice of time on the first track on which it overlaps no other slice; returns the track's index.

    With `may_nest`, a slice may also lie within another one. Slices are given in the order of their begins; a track is
    a list of the ends of its open slices, the outermost first.
    """
    for number, ends in enumerate(tracks):
        while ends and ends[-1] <= begin:
            ends.pop()
        if not ends or (may_nest and end <= ends[-1]):
            ends.append(end)
            return number
    tracks.append([end])
    return len(tracks) - 1


EXPORTER = Exporter(
    "trace",
    help="the timelines as Chrome trace events, for Perfetto: phases, messages, link measurement, warnings",
    place=4,
    encode=_encode_trace,
)

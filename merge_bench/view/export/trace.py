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
    from merge_bench.analysis.timelines import Aligned
    from merge_bench.records.campaign import Campaign
    from merge_bench.records.timeline import TimelineIteration, WorkerTimeline

Event = dict[str, Any]

PHASES, SENT, RECEIVED = KINDS = "", " sends", " receives"
"""Of a worker's tracks: what follows its rank in their names."""


def _encode(campaigns: Sequence[Campaign]) -> bytes:
    import json

    from merge_bench.analysis.timelines import read_aligned

    if len(campaigns) > 1:
        raise UsageError("a trace shows one RESULT, because hosts and launches of several would share its tracks")
    campaign = campaigns[0]
    found = list(read_aligned(campaign))
    if not found:
        raise UsageError(
            f"{campaign.folder} contains no timeline; measure with --timeline on, and keep the files timeline-*.jsonl"
            " beside the records"
        )
    document = {
        "traceEvents": Trace(campaign, found).events(),
        "displayTimeUnit": "ms",
        "otherData": _about(campaign, found),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _about(campaign: Campaign, found: Sequence[Aligned]) -> dict[str, str]:
    """What the trace is of; `alignment`: how far times of different hosts may be off."""
    from merge_bench.view.plot.source import source_of

    largest = f"{1e6 * max(one.error for one in found):.1f} us"
    return {
        "result": source_of([campaign]),
        "alignment": f"hosts are aligned at the barriers, for drawing only; error at most {largest}",
    }


class Trace:
    """The events of a campaign. Times are whole nanoseconds from the first event, and microseconds in the events."""

    def __init__(self, campaign: Campaign, found: Sequence[Aligned]) -> None:
        self._campaign, self._found = campaign, found
        self._hosts = list(dict.fromkeys(host for one in found for host in one.hosts))
        # Launches are apart by the wall-clock time, and precise to a nanosecond within.
        self._unix = [one.timeline.head.clocks[0].unix_seconds for one in found]
        self._bases = [min(one.time(rank, begin) for rank, begin in _begins(one)) for one in found]
        self._first = self._bases[0] + self._unix[0]

    def events(self) -> list[Event]:
        """All of them: names of processes and tracks, then the others by time, a slice before those inside it."""
        slices: list[Event] = []
        flows: list[Event] = []
        for number, one in enumerate(self._found):
            for iteration in one.timeline.iterations:
                self._iteration(number, iteration, slices, flows)
            for each in one.timeline.rounds:
                for worker in each.workers:
                    self._phases(number, worker, slices, f"link measurement {each.index}")
        names = [*self._processes(), *self._tracks(slices)]
        last = max((event["ts"] + event["dur"] for event in slices), default=0)
        others = [*slices, *flows, *self._warnings(last)]
        others.sort(key=lambda event: (event["ts"], event["ph"] != "X", -event.get("dur", 0)))
        for event in others:
            if "of" in event:
                event["tid"] = event.pop("of")["tid"]
            event.pop("track", None)
            for key in ("ts", "dur"):
                if key in event:
                    event[key] = event[key] / 1000
        return [*names, *others]

    def _iteration(self, number: int, iteration: TimelineIteration, slices: list[Event], flows: list[Event]) -> None:
        from merge_bench.analysis.timelines import messages

        places: dict[int, Event] = {}
        for worker in iteration.workers:
            self._phases(number, worker, slices, f"iteration {iteration.index}")
            for batch in worker.batches:
                arrow = "from" if batch.received else "to"
                event = self._slice(
                    number, worker.rank, RECEIVED if batch.received else SENT, batch.begin, batch.end,
                    f"{batch.side} {batch.piece} {arrow} rank {batch.peer}", {"bytes": batch.bytes},
                )  # fmt: skip
                event["cat"] = "message"
                places[id(batch)] = event
                slices.append(event)
        for _, sent, _, received in messages(iteration):
            begin, end = places[id(sent)], places[id(received)]
            same = {"name": "message", "cat": "message", "id": len(flows) // 2 + 1}
            flows.append({"ph": "s", "ts": begin["ts"], "pid": begin["pid"], "of": begin, **same})
            # One nanosecond before the end, as the slice that it ends in has to be open still.
            at = end["ts"] + max(end["dur"] - 1, 0)
            flows.append({"ph": "f", "bp": "e", "ts": at, "pid": end["pid"], "of": end, **same})

    def _phases(self, number: int, worker: WorkerTimeline, slices: list[Event], name: str) -> None:
        """The whole, and its phases and barriers in it."""
        spans = worker.spans
        begin, end = min(span.begin for span in spans), max(span.end for span in spans)
        launch = self._found[number].launch
        config = launch.line.config if launch.line is not None else ""
        args = {"launch": launch.index, "config": config}
        slices.append(self._slice(number, worker.rank, PHASES, begin, end, name, args))
        slices += [self._slice(number, worker.rank, PHASES, each.begin, each.end, each.name, {}) for each in spans]

    def _slice(
        self, number: int, rank: int, kind: str, begin: float, end: float, name: str, args: dict[str, Any]
    ) -> Event:
        one = self._found[number]
        at, until = (self._nanoseconds(number, one.time(rank, seconds)) for seconds in (begin, end))
        return {
            "ph": "X", "name": name, "cat": "phase", "ts": at, "dur": max(until - at, 0),
            "pid": self._hosts.index(one.hosts[rank]) + 1, "track": (rank, kind), "args": args,
        }  # fmt: skip

    def _nanoseconds(self, number: int, seconds: float) -> int:
        """Of a time on the clock of rank 0's host in one launch."""
        base = self._bases[number]
        return round((base + self._unix[number] - self._first) * 1e9) + round((seconds - base) * 1e9)

    def _warnings(self, last: int) -> Iterator[Event]:
        """An instant for each warning, at the time of its line, or at the nearest end."""
        own = [warning for one in self._found for warning in one.launch.warnings]
        for warning in [*self._campaign.warnings, *own]:
            at = min(max(round((warning.time - self._first) * 1e9), 0), last)
            args = {"message": warning.message, "remedy": warning.remedy}
            yield {
                "ph": "i",
                "s": "g",
                "name": warning.code,
                "cat": "warning",
                "ts": at,
                "pid": 1,
                "tid": 0,
                "args": args,
            }

    def _processes(self) -> Iterator[Event]:
        for number, host in enumerate(self._hosts, 1):
            yield {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": host}}
            yield {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}

    def _tracks(self, slices: list[Event]) -> Iterator[Event]:
        """Give every slice its track, and name the tracks; those of a worker follow each other."""
        lanes: dict[tuple[int, int, int], list[list[int]]] = {}
        for event in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
            rank, kind = event["track"]
            key = event["pid"], rank, KINDS.index(kind)
            end = event["ts"] + event["dur"]
            event["track"] = (*key, _lane(lanes.setdefault(key, []), event["ts"], end, inside=kind == PHASES))
        numbers = {track: number for number, track in enumerate(sorted({event["track"] for event in slices}), 1)}
        for event in slices:
            event["tid"] = numbers[event["track"]]
        for (process, rank, kind_number, lane), number in numbers.items():
            same = {"ph": "M", "pid": process, "tid": number}
            name = f"rank {rank}{KINDS[kind_number]}" + (f" ({lane + 1})" if lane else "")
            yield {"name": "thread_name", **same, "args": {"name": name}}
            yield {"name": "thread_sort_index", **same, "args": {"sort_index": number}}


def _begins(one: Aligned) -> Iterator[tuple[int, float]]:
    for line in (*one.timeline.iterations, *one.timeline.rounds):
        for worker in line.workers:
            yield from ((worker.rank, span.begin) for span in worker.spans)
            yield from ((worker.rank, batch.begin) for batch in worker.batches)


def _lane(lanes: list[list[int]], begin: int, end: int, *, inside: bool) -> int:
    """The first lane in which a slice overlaps no other, or if `inside` lies wholly inside those that are open.

    Slices come by their begin. A lane is the ends of its open slices, the outermost first.
    """
    for number, ends in enumerate(lanes):
        while ends and ends[-1] <= begin:
            ends.pop()
        if not ends or (inside and end <= ends[-1]):
            ends.append(end)
            return number
    lanes.append([end])
    return len(lanes) - 1


EXPORTER = Exporter(
    "trace", help="the timelines as Chrome trace events, for Perfetto: phases, messages, link measurement, warnings",
    place=4, encode=_encode,
)  # fmt: skip

"""Timelines as workers note them, of merges that did not happen; and the rules of the trace-event format."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

from merge_bench.records.schema import TimelineLine
from merge_bench.records.timeline import (
    MessageBatch,
    Span,
    Timeline,
    TimelineHeader,
    TimelineIteration,
    TimelineRound,
    WorkerClock,
    WorkerTimeline,
    encode_timeline,
    timeline_file_name,
)
from merge_bench.records.writer import RECORDS, encode_record

MS = 1e-3


def worker(rank: int, workers: int, at: float, late: float = 0.0) -> WorkerTimeline:
    """An iteration that begins at `at` on the worker's clock; its barriers and phases take 5, 10, 20, 5 and 1 ms.

    `late`: how much later than the others it leaves the opening barrier.
    """
    begin = at + late
    spans = [("barrier", -5, 0), ("partition", 0, 10), ("exchange", 10, 30), ("join", 30, 35), ("barrier", 35, 36)]
    return WorkerTimeline(
        rank=rank,
        spans=[Span(name=name, begin=begin + b * MS, end=begin + e * MS) for name, b, e in spans],
        batches=[
            MessageBatch(
                side=side,
                piece=piece,
                peer=peer,
                received=received,
                bytes=1 << 20,
                begin=begin + (11 + 9 * piece) * MS,
                end=begin + (19 + 9 * piece + received * 0.5) * MS,
            )
            for piece, side in enumerate(("left", "right"))
            for peer in range(workers)
            if peer != rank
            for received in (False, True)
        ],
    )


def timeline(
    hosts: list[str],
    zeros: dict[str, float],
    *,
    launch: int = 0,
    iterations: int = 3,
    skew: float | None = 20e-6,
    late: float = 0.0,
) -> Timeline:
    """A launch on hosts whose clocks begin at `zeros`; an iteration begins every 100 ms.

    `late`: how much later the last rank leaves each opening barrier.
    """

    def part(index: int) -> list[WorkerTimeline]:
        return [
            worker(rank, len(hosts), zeros[host] + index * 0.1, late * (rank == len(hosts) - 1))
            for rank, host in enumerate(hosts)
        ]

    return Timeline(
        head=TimelineHeader(
            launch=launch,
            clocks=[
                WorkerClock(rank=rank, host=host, unix_seconds=1.7e9 + 10 * launch - zeros[host])
                for rank, host in enumerate(hosts)
            ],
            skew_seconds=skew,
        ),
        iterations=[TimelineIteration(index=index, workers=part(index)) for index in range(iterations)],
        rounds=[
            TimelineRound(
                index=0,
                workers=[
                    WorkerTimeline(rank=each.rank, spans=[Span(name="link", begin=first.begin, end=first.end)])
                    for each in part(iterations)
                    for first in each.spans[:1]
                ],
            )
        ],
    )


def add_timeline(folder: Path, found: Timeline) -> None:
    """Put a launch's timeline beside the records of a campaign, and its line behind the launch's line."""
    (folder / timeline_file_name(found.head.launch)).write_bytes(encode_timeline(found))
    line = TimelineLine(
        launch=found.head.launch,
        recorded=True,
        because="cheap",
        file=timeline_file_name(found.head.launch),
        iterations=[each.index for each in found.iterations],
    )
    records = folder / RECORDS
    lines = records.read_bytes().splitlines()
    ends = [number for number, each in enumerate(lines) if b'"launch_end"' in each]
    lines.insert(ends[found.head.launch], encode_record(line))
    records.write_bytes(b"\n".join(lines) + b"\n")


def check_trace(document: dict[str, Any], *, error: float = 0.0) -> None:
    """Whether a document keeps the rules of the trace-event format, as far as a trace of ours uses it.

    `error`: seconds by which hosts may be aligned wrongly; between two of them a flow may end so much before it begins.

    Every event has its fields; times are not negative and ascend; slices of a track lie apart or inside each other; a
    flow begins and ends once, each inside a slice of its track, and ends no earlier than it begins; every process and
    track with a slice has a name.
    """
    events = document["traceEvents"]
    names = [event for event in events if event["ph"] == "M"]
    others = events[len(names) :]
    assert all(event["ph"] in ("X", "s", "f", "i") for event in others)
    assert all(isinstance(event["pid"], int) and isinstance(event["tid"], int) for event in events)
    times = [event["ts"] for event in others]
    assert min(times) >= 0
    assert times == sorted(times)
    slices = [event for event in others if event["ph"] == "X"]
    assert all(event["dur"] >= 0 and event["name"] for event in slices)
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in slices:
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for found in tracks.values():
        for one, other in itertools.combinations(found, 2):
            (b, e), (c, d) = ((each["ts"], round(each["ts"] + each["dur"], 3)) for each in (one, other))
            assert e <= c or d <= b or (b <= c and d <= e) or (c <= b and e <= d), (one, other)
    labels = {(event["name"], event["pid"], event["tid"]) for event in names}
    assert len(labels) == len(names)
    assert {("process_name", pid, 0) for pid, _ in tracks} <= labels
    assert {("thread_name", *track) for track in tracks} == {each for each in labels if each[0] == "thread_name"}
    flows: dict[int, list[dict[str, Any]]] = {}
    for event in others:
        if event["ph"] in "sf":
            flows.setdefault(event["id"], []).append(event)
            around = tracks[event["pid"], event["tid"]]
            assert any(each["ts"] <= event["ts"] < each["ts"] + max(each["dur"], 1e-3) for each in around), event
    for ends in flows.values():
        assert Counter(event["ph"] for event in ends) == {"s": 1, "f": 1}, ends
        begin, end = sorted(ends, key=lambda event: str(event["ph"]), reverse=True)
        assert begin["ts"] <= end["ts"] + (0.0 if begin["pid"] == end["pid"] else 1e6 * error)
        assert end["bp"] == "e"

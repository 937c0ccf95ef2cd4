"""The timeline of an iteration as a chart: phases, barriers and messages of every worker."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from merge_bench.analysis.timelines import AlignedTimeline, iteration_to_draw, matched_batches, opening_exit_seconds
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign, Run
from merge_bench.records.timeline import TimelineIteration
from merge_bench.units import MIB
from merge_bench.view.plot.charts import rows_axis, with_unit
from merge_bench.view.plot.marks import Axis, Boxes, Chart, Group, Line, columns
from merge_bench.view.plot.style import GREY

MOST_ROWS = 32
"""Workers in a chart, at most."""
MOST_FLOWS = 200
"""Messages at most; of more, no lines from sender to receiver are drawn."""


@dataclass(frozen=True)
class _RowLook:
    """The label, look, place and height of spans or batches in a worker's row, whose middle is 0 and height 1."""

    label: str
    index: int
    at: float
    height: float


_SPANS = {
    "barrier": _RowLook("barrier", GREY, -0.24, 0.36),
    "partition": _RowLook("partition", 0, -0.24, 0.36),
    "filter": _RowLook("runtime filter", 4, -0.24, 0.36),
    "join": _RowLook("join", 3, -0.24, 0.36),
    "exchange": _RowLook("exchange", 2, 0.02, 0.12),
}
_BATCHES = {False: _RowLook("sends", 1, 0.17, 0.12), True: _RowLook("receives", 5, 0.33, 0.12)}


def timeline(campaign: Campaign, run: Run) -> Chart:
    """A chart of the iteration whose wall-clock time is nearest to the median; empty if no timeline was recorded.

    What began before the workers left the opening barrier is cut off.
    """
    recorded = None
    with suppress(UsageError):  # a damaged file: the report's figures do not need it
        recorded = iteration_to_draw(campaign, run)
    return iteration_chart(*recorded) if recorded else Chart(Axis(), Axis(), title="Timeline")


def iteration_chart(aligned: AlignedTimeline, iteration: TimelineIteration) -> Chart:
    """A chart of what each worker did in one iteration."""
    shown = iteration.workers[:MOST_ROWS]
    zero = min(aligned.time(worker.rank, opening_exit_seconds(worker)) for worker in iteration.workers)
    end = 1e3 * max(aligned.time(worker.rank, span.end) - zero for worker in shown for span in worker.spans)
    rows = {worker.rank: f"{worker.rank} {aligned.hosts[worker.rank]}" for worker in shown}
    return Chart(
        Axis("Time since the opening barrier (ms)", low=-0.02 * end, high=1.02 * end),
        rows_axis(rows, len(rows) - 1),
        tuple(_timeline_groups(aligned, iteration, zero, -0.02 * end)),
        40 + (64 if len(rows) <= 8 else 36 if len(rows) <= 16 else 22) * len(rows),
        f"Timeline of iteration {iteration.index}, launch {aligned.launch.index} (nearest to the median)",
        _timeline_note(aligned, len(iteration.workers), len(shown)),
    )


def _timeline_note(aligned: AlignedTimeline, workers: int, shown: int) -> str:
    """Sentences below a timeline; `workers`, `shown`: the numbers of all workers and of those in the chart."""
    sentences = ["Upper boxes: phases and barriers; lower boxes: exchange, and messages by peer."]
    if shown < workers:
        sentences.append(f"Shown: the first {shown} of {workers} workers.")
    if len(set(aligned.hosts)) > 1:
        error = f"at most {1e6 * aligned.error:,.0f} µs"
        sentences.append(f"Hosts are aligned at the barriers, for this drawing only; error: {error}.")
    return " ".join(sentences)


def _timeline_groups(
    aligned: AlignedTimeline, iteration: TimelineIteration, zero: float, least: float
) -> Iterator[Group]:
    """The groups of marks: one for each kind of span, then the messages.

    `zero`: seconds at 0 on the axis; `least`: milliseconds at its left end.
    """

    def at(rank: int, seconds: float) -> float:
        return max(1e3 * (aligned.time(rank, seconds) - zero), least)

    workers = iteration.workers[:MOST_ROWS]
    for name, look in _SPANS.items():
        spans = [(worker.rank, span) for worker in workers for span in worker.spans if span.name == name]
        boxes = [(rank, at(rank, span.begin), at(rank, span.end), name) for rank, span in spans]
        yield from _box_group(look, [box for box in boxes if box[2] > least])
    for received, look in _BATCHES.items():
        way = "from" if received else "to"
        boxes = [
            (
                worker.rank,
                at(worker.rank, batch.begin),
                at(worker.rank, batch.end),
                f"{batch.side} {batch.piece} {way} {batch.peer}: {batch.bytes / MIB:,.3g} MiB",
            )
            for worker in workers
            for batch in worker.batches
            if batch.received == received
        ]
        yield from _box_group(look, boxes)
    rows = {worker.rank for worker in workers}
    flows = [flow for flow in matched_batches(iteration) if flow[0] in rows and flow[2] in rows]
    if 0 < len(flows) <= MOST_FLOWS:
        x = [(at(sender, sent.begin), at(receiver, got.end), math.nan) for sender, sent, receiver, got in flows]
        y = [(sender + _BATCHES[False].at, receiver + _BATCHES[True].at, math.nan) for sender, _, receiver, _ in flows]
        yield Group(GREY, (Line(list(chain(*x)), list(chain(*y)), dashed=True, width=1),), "from sender to receiver")


def _box_group(look: _RowLook, boxes: Sequence[tuple[int, float, float, str]]) -> Iterator[Group]:
    """A group of boxes, each given as rank, begin and end in milliseconds, and text; none without boxes."""
    if boxes:
        ranks, begins, ends, what = columns(boxes, 4)
        details = {
            "rank": list(map(str, ranks)),
            "what": what,
            "begin": [with_unit(begin, "ms") for begin in begins],
            "length": [with_unit(end - begin, "ms") for _, begin, end, _ in boxes],
        }
        places = [rank + look.at for rank in ranks]
        mark = Boxes(places, begins, ends, width=look.height, fill=0.55, details=details)
        yield Group(look.index, (mark,), look.label)

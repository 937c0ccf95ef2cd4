"""Merges as charts: pure functions from runs, timelines and documents of ``compare`` to plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

from merge_bench.analysis import aggregate
from merge_bench.analysis.documents import CompareDocument, PairTransports
from merge_bench.analysis.statistics import median, median_interval, outlier_flags, quartiles
from merge_bench.analysis.timelines import (
    AlignedTimeline,
    iteration_to_draw,
    matched_message_batches,
    opening_barrier_exit_seconds,
)
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.timeline import TimelineIteration
from merge_bench.units import GIB, MIB
from merge_bench.view.plot import (
    GREY,
    Axis,
    Bar,
    Boxes,
    Cells,
    Chart,
    Line,
    Mark,
    MarkGroup,
    Points,
    Texts,
    Whiskers,
    bar_chart,
    bar_height_pixels,
    format_with_unit,
    stacked_bar_marks,
    thin_ticks,
    thinning_step,
    top_down_axis,
    transpose_rows,
)
from merge_bench.view.titles import option_text, recorded_workers

LEAST_MAPPED = 4
"""A map of worker pairs needs at least so many workers; for fewer, a table says more."""
MOST_PRINTED = 16
"""The values of a map are printed in it for at most so many workers."""
_LIGHT_BELOW = 0.47
"""Values below this part of the highest are printed in white, others in black: the letters have more contrast so."""
MOST_POINTS = 20_000
"""Iterations in one chart, by default."""
MOST_ROWS = 32
"""Workers in a chart, at most."""
MOST_FLOWS = 200
"""Messages at most; of more, no lines from sender to receiver are drawn."""

PARTS = ("partition alone", "partition and exchange at once", "exchange alone", "join", "other")


@dataclass(frozen=True, eq=False)
class LabelledRun:
    """A run with its label, the number of its look in all charts, and its campaign's letter (`part`)."""

    label: str
    look: int
    run: Run
    part: str = ""


@dataclass(frozen=True)
class Metric:
    """A metric that a chart shows for each launch; `scale`: the factor from bytes per second or a share to `unit`."""

    title: str
    value: aggregate.IterationFigure
    axis: str
    unit: str = "GiB/s"
    scale: float = 1 / GIB
    line: float | None = None

    def launch_values(self, run: Run) -> tuple[tuple[str, float], ...]:
        """The name and the value, in `unit`, of each launch of a run in which the metric was measured."""
        values = [(launch, aggregate.launch_median(launch, self.value)) for launch in aggregate.complete_launches(run)]
        return tuple((f"launch {launch.index}", value * self.scale) for launch, value in values if value is not None)


THROUGHPUT = Metric("Throughput", aggregate.throughput, axis="Throughput (GiB/s)")
BANDWIDTH = Metric("Bandwidth", aggregate.bandwidth, axis="Bandwidth (GiB/s)")
_OF_LINK = "Bytes of both frames ÷ seconds in flight ÷ link limit (%)"
OF_LINK = Metric("Fraction of the link limit", aggregate.link_fraction, _OF_LINK, "%", scale=100.0, line=100.0)


def rates_chart(
    metric: Metric, problems: Mapping[str, Sequence[LabelledRun]], published: Mapping[str, Sequence[Bar]]
) -> Chart:
    """Make a bar chart of a metric of every run, with the runs of one problem together.

    `problems`: the runs by the name of their problem. `published`: bars of published results by the name of a problem,
    which stand in groups of their own, below.
    """
    rows: dict[str, Sequence[Bar]] = {
        name: [_median_bar(labelled.label, labelled.look, metric.launch_values(labelled.run)) for labelled in runs]
        for name, runs in problems.items()
    }
    rows |= {f"{name}, published" if name in rows else name: others for name, others in published.items()}
    return bar_chart(
        _bar_rows(rows),
        title=f"{metric.title} by problem" if len(rows) > 1 else metric.title,
        axis=metric.axis,
        unit=metric.unit,
        line=metric.line,
        note="bars: median over launches; white bars: its 95 % interval; points: single launches",
    )


def _median_bar(series: str, index: int, points: Sequence[tuple[str, float]]) -> Bar:
    """Make a bar for the median over launches with its interval; `points`: the name and value of each launch."""
    values = [value for _, value in points]
    interval = median_interval(values)
    ends = (interval.low, interval.high) if interval else None
    return Bar(series, index, median(values) if values else None, ends, tuple(points) if len(points) > 1 else ())


def iterations_chart(runs: Sequence[LabelledRun], problem: str = "", *, most_points: int = MOST_POINTS) -> Chart:
    """Make a chart with a point for the throughput of every timed iteration of `runs` in GiB/s, by launch.

    `problem`: the name of what they merge, for the title, where there are charts of several problems. Of more
    iterations than `most_points`, some of each launch are left out, but never the slowest or fastest.
    Lines are the median and the quartiles of each launch, whether all its points are shown or not.
    """
    launches = {
        run: [
            launch
            for launch in aggregate.complete_launches(run.run)
            if aggregate.iteration_values([launch], aggregate.throughput)
        ]
        for run in runs
    }
    keys = sorted({(run.part, launch.index) for run in launches for launch in launches[run]})
    apart = len({part for part, _ in keys}) > 1
    places = {key: at if apart else key[1] for at, key in enumerate(keys)}
    names = {(part, index): f"{part} {index}".strip() if apart else str(index) for part, index in keys}
    step = thinning_step(
        sum(len(launch.timed_iterations) for each in launches.values() for launch in each), most_points
    )
    measured = [run for run in launches if launches[run]]
    groups = []
    for run in measured:
        placed = [((run.part, launch.index), launch) for launch in launches[run]]
        marks = tuple(_iteration_marks([(places[key], names[key], launch) for key, launch in placed], step))
        groups.append(MarkGroup(run.look, marks, run.label if len(measured) > 1 else ""))
    thinned = f"; shown: one of {step} iterations, plus the slowest and fastest of each launch" if step > 1 else ""
    return Chart(
        Axis("Launch", thin_ticks({places[key]: names[key] for key in keys}, 24), grid=False),
        Axis("Throughput (GiB/s)", low=0.0),
        tuple(groups),
        300,
        "Throughput of every iteration, in launch order" + (f": {problem}" if problem else ""),
        f"Points: iterations, left to right within a launch; lines: median and quartiles; hollow: outliers{thinned}.",
    )


def _iteration_marks(launches: Sequence[tuple[int, str, Launch]], step: int) -> Iterator[Mark]:
    """Make points for one of `step` iterations of each launch, and lines for its quartiles.

    `launches`: each with its place on the axis and its name.
    """
    points: list[tuple[float, float, bool, str, str]] = []
    lines: list[tuple[float, ...]] = []
    for place, name, launch in launches:
        marked = zip(
            launch.timed_iterations, outlier_flags([each.wall_seconds for each in launch.timed_iterations]), strict=True
        )
        rates = [(each.index, aggregate.throughput(launch, each), far) for each, far in marked]
        flagged = [(index, rate / GIB, far) for index, rate, far in rates if rate is not None]
        values = [value for _, value, _ in flagged]
        ends = {values.index(min(values)), values.index(max(values))}
        kept = [point for at, point in enumerate(flagged) if at % step == 0 or at in ends]
        last = max(index for index, _, _ in kept) or 1
        points += [(place - 0.35 + 0.7 * index / last, value, far, name, str(index)) for index, value, far in kept]
        lines.append((place - 0.38, place + 0.38, *quartiles(values)))
    x, y, far, names, indices = transpose_rows(points, 5)
    details = {"launch": names, "iteration": indices, "value": [format_with_unit(value, "GiB/s") for value in y]}
    yield Points(x, y, hollow=far, size=6, details=details)
    left, right, low, middle, high = transpose_rows(lines, 5)
    yield Whiskers(middle, left, right, width=3)
    for quartile in (low, high):
        yield Whiskers(quartile, left, right, width=1, dotted=True)


def worker_bandwidth_chart(run: Run) -> Chart:
    """Make a bar chart of every worker's bandwidth for the left and right frame in GiB/s; empty if not measured."""
    launches = aggregate.complete_launches(run)
    figures = [{worker.rank: worker.bandwidth for worker in aggregate.worker_figures([launch])} for launch in launches]

    def frame_bar(rank: int, index: int, frame: str) -> Bar:
        rates = [
            (f"launch {launch.index}", rate / GIB)
            for launch, of in zip(launches, figures, strict=True)
            if rank in of and (rate := getattr(of[rank], frame)) is not None
        ]
        return replace(_median_bar(f"{frame} frame", index, rates), interval=None)

    rows = [
        (
            f"{worker.rank} {worker.host}",
            (frame_bar(worker.rank, 0, "left"), frame_bar(worker.rank, 1, "right")),
        )
        for worker in aggregate.worker_figures(launches)
    ]
    measured = [each.value is not None for _, row in rows for each in row]
    lacking = "" if all(measured) else ", no bar: nothing was sent"
    return bar_chart(
        rows if any(measured) else [],
        title="Bandwidth of each worker",
        axis="Bandwidth: bytes sent to other workers ÷ seconds in flight (GiB/s)",
        unit="GiB/s",
        note=f"rows: rank and host{lacking}; bars: median over launches; points: single launches",
    )


def phases_chart(run: Run) -> Chart:
    """Make a chart of the milliseconds of every worker in each phase of an iteration; empty if not measured."""
    launches = aggregate.complete_launches(run)
    figures = aggregate.worker_figures(launches)
    rows = {f"{each.rank} {each.host}": parts for each in figures if (parts := phase_milliseconds(each))}
    ends, groups = stacked_bar_marks(PARTS, rows)
    there = {part for parts in rows.values() for part, ms in zip(PARTS, parts, strict=True) if ms}
    wall = 1e3 * (aggregate.run_median(launches, aggregate.wall_seconds) or 0.0)
    other = "; other: time of the worker outside these phases" if PARTS[-1] in there else ""
    return Chart(
        Axis("Time (ms)", low=0.0, high=1.05 * max([*ends, wall], default=1.0), rule=wall or None),
        top_down_axis(dict(enumerate(rows)), len(rows) - 1),
        tuple(group for group in groups if group.label in there),
        30 + int(1.4 * bar_height_pixels(len(rows)) * len(rows)),
        "Phases of each worker in an iteration",
        f"Each part is its own median, so that a bar need not end at the median wall-clock time (dashed line){other}.",
    )


def phase_milliseconds(worker: aggregate.WorkerFigures) -> tuple[float, ...] | None:
    """The milliseconds of a worker in each of `PARTS`, which follow each other; None if they were not measured."""
    partition, exchange, join = worker.partition, worker.exchange, worker.join
    if partition is None or exchange is None or join is None:
        return None
    both = worker.overlap or 0.0
    parts = [max(partition - both, 0.0), both, max(exchange - both - (worker.join_overlap or 0.0), 0.0), join]
    return tuple(1e3 * seconds for seconds in (*parts, max((worker.seconds or 0.0) - sum(parts), 0.0)))


def pair_rates_chart(run: Run, lanes: Sequence[PairTransports]) -> Chart:
    """Make a map of the rate from every worker to every other in GiB/s; `lanes`: the transports of each pair."""
    launches = aggregate.complete_launches(run)
    lane_of = {(lane.from_rank, lane.to_rank): lane for lane in lanes}
    return pair_rates_map(
        {
            pair: (flow.bytes, flow.seconds)
            for pair, flow in aggregate.worker_pair_figures(launches).items()
            if flow.seconds
        },
        {
            "lanes selected": {pair: ", ".join(lane.transports) for pair, lane in lane_of.items()},
            "placement": {pair: lane.placement for pair, lane in lane_of.items()},
        },
        {worker.rank: worker.host for worker in recorded_workers(launches)},
    )


def pair_rates_map(
    traffic: Mapping[tuple[int, int], tuple[float, float | None]],
    details: Mapping[str, Mapping[tuple[int, int], str | None]],
    hosts: Mapping[int, str],
    *,
    most_printed: int = MOST_PRINTED,
) -> Chart:
    """Make a square map of the rate from each rank to each other in GiB/s, senders from the top down.

    `traffic`: bytes and seconds in flight of each pair; `details`: further texts of each pair, by name. Rates stand
    in their cells for up to `most_printed` workers. Empty for fewer than `LEAST_MAPPED` workers.
    """
    ranks = sorted({rank for pair in traffic for rank in pair})
    if len(ranks) < LEAST_MAPPED:
        ranks, traffic = [], {}
    names = {rank: f"{rank} {hosts.get(rank, '?')}" for rank in ranks}
    rates = [sent / seconds / GIB if seconds else math.nan for sent, seconds in traffic.values()]
    shown: dict[str, Sequence[str]] = {
        "from": [names[sender] for sender, _ in traffic],
        "to": [names[receiver] for _, receiver in traffic],
        "value": [format_with_unit(rate, "GiB/s") for rate in rates],
        **{name: [texts.get(pair) or "not known" for pair in traffic] for name, texts in details.items()},
        "sent in an iteration": [f"{sent / MIB:,.1f} MiB" for sent, _ in traffic.values()],
    }
    x, y = [ranks.index(receiver) for _, receiver in traffic], [ranks.index(sender) for sender, _ in traffic]
    cells = Cells(x, y, rates, "GiB/s", shown)
    rows = thin_ticks(dict(enumerate(names.values())), 32)
    end = max(len(ranks), 1) - 0.5
    return Chart(
        Axis("to rank", {at: str(ranks[at]) for at in rows}, low=-0.5, high=end, grid=False),
        Axis("from rank", rows, low=end, high=-0.5, grid=False),
        (MarkGroup(0, (cells, _value_texts(cells) if len(ranks) <= most_printed else Texts((), (), (), ()))),),
        min(max(36 * len(ranks), 260), 720),
        "Rate of each pair of workers",
        "Bytes ÷ seconds in flight of that pair in GiB/s; rows send, columns receive.",
        square=True,
    )


def _value_texts(cells: Cells) -> Texts:
    """Make the texts of the values of a map; ``?`` where a value is not known."""
    _, high = cells.colour_limits
    digits = max(2 - math.floor(math.log10(high)), 0)
    texts = [f"{value:,.{digits}f}" if value == value else "?" for value in cells.values]
    return Texts(cells.x, cells.y, texts, [value < _LIGHT_BELOW * high for value in cells.values])


def speedup_chart(document: CompareDocument, metric: str, looks: Mapping[str, int]) -> Chart:
    """Make a bar chart of each config's speed-up over the baseline in a metric.

    `looks`: the number of each run's look, by the run's name in the document.
    """
    groups: dict[tuple[str, str], list[Bar]] = {}
    for comparison in document.comparisons:
        ratio, interval = comparison.ratio, comparison.interval
        if comparison.metric != metric or ratio is None:
            continue
        plan = ", ".join(option_text(name, value) for name, value in comparison.plan.items() if value is not None)
        first = Bar(comparison.baseline, looks.get(comparison.baseline, 0), 1.0, remark="the baseline")
        points = tuple((point.label, point.ratio) for point in comparison.points)
        number, name = looks.get(comparison.candidate, len(looks)), comparison.candidate
        ends, points = (interval.low, interval.high) if interval else None, points if len(points) > 1 else ()
        bar = Bar(name, number, ratio, ends, points, remark=comparison.verdict)
        groups.setdefault((comparison.baseline, plan), [first]).append(bar)
    return bar_chart(
        _bar_rows({plan: row for (_, plan), row in groups.items()}),
        title=f"Speed-up in {metric} over the baseline",
        axis=f"Speed-up in {metric} (1 = the baseline, more is better)",
        unit="×",
        line=1.0,
        note="bars: estimated speed-up; white bars: its interval; points: single blocks or launches",
    )


def _bar_rows(groups: Mapping[str, Sequence[Bar]]) -> list[tuple[str, Sequence[Bar]]]:
    """Make the rows of a bar chart: one for each group, or of a single group one for each bar."""
    if len(groups) == 1:
        return [(bar.series, (bar,)) for group in groups.values() for bar in group]
    return list(groups.items())


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


def timeline_chart(campaign: Campaign, run: Run) -> Chart:
    """Make a timeline of the iteration with nearly the median wall-clock time; empty if none was recorded.

    What began before the workers left the opening barrier is cut off.
    """
    with suppress(UsageError):  # a damaged file: the report's figures do not need it
        if recorded := iteration_to_draw(campaign, run):
            return _iteration_chart(*recorded)
    return Chart(Axis(), Axis(), title="Timeline")


def _iteration_chart(aligned: AlignedTimeline, iteration: TimelineIteration) -> Chart:
    shown, count = iteration.workers[:MOST_ROWS], len(iteration.workers)
    zero = min(
        aligned.seconds_on_common_clock(worker.rank, opening_barrier_exit_seconds(worker))
        for worker in iteration.workers
    )
    end = 1e3 * max(
        aligned.seconds_on_common_clock(worker.rank, span.end) - zero for worker in shown for span in worker.spans
    )
    rows = {worker.rank: f"{worker.rank} {aligned.hosts[worker.rank]}" for worker in shown}
    note = ["Upper boxes: phases and barriers; lower boxes: exchange, and messages by peer."]
    if len(shown) < count:
        note.append(f"Shown: the first {len(shown)} of {count} workers.")
    if len(set(aligned.hosts)) > 1:
        error = f"at most {1e6 * aligned.error:,.0f} µs"
        note.append(f"Hosts are aligned at the barriers, for this drawing only; error: {error}.")
    return Chart(
        Axis("Time since the opening barrier (ms)", low=-0.02 * end, high=1.02 * end),
        top_down_axis(rows, len(rows) - 1),
        tuple(_timeline_groups(aligned, iteration, zero, -0.02 * end)),
        40 + (64 if len(rows) <= 8 else 36 if len(rows) <= 16 else 22) * len(rows),
        f"Timeline of iteration {iteration.index}, launch {aligned.launch.index} (nearest to the median)",
        " ".join(note),
    )


def _timeline_groups(
    aligned: AlignedTimeline, iteration: TimelineIteration, zero: float, least: float
) -> Iterator[MarkGroup]:
    """Make the groups of marks of a timeline: one for each kind of span, then the messages.

    `zero`: seconds at 0 on the axis; `least`: milliseconds at its left end.
    """

    def at(rank: int, seconds: float) -> float:
        return max(1e3 * (aligned.seconds_on_common_clock(rank, seconds) - zero), least)

    workers = iteration.workers[:MOST_ROWS]
    for name, look in _SPANS.items():
        spans = [(worker.rank, span) for worker in workers for span in worker.spans if span.name == name]
        boxes = [(rank, at(rank, span.begin), at(rank, span.end), name) for rank, span in spans]
        yield from _box_group(look, [box for box in boxes if box[2] > least], fill=1.0)
    for received, look in _BATCHES.items():
        way, boxes = "from" if received else "to", []
        for worker in workers:
            for batch in (batch for batch in worker.batches if batch.received == received):
                what = f"{batch.side} {batch.piece} {way} {batch.peer}: {batch.bytes / MIB:,.3g} MiB"
                boxes.append((worker.rank, at(worker.rank, batch.begin), at(worker.rank, batch.end), what))
        yield from _box_group(look, boxes, fill=0.5)  # they lie over each other
    rows = {worker.rank for worker in workers}
    flows = [flow for flow in matched_message_batches(iteration) if flow[0] in rows and flow[2] in rows]
    if 0 < len(flows) <= MOST_FLOWS:
        x = [(at(sender, sent.begin), at(receiver, got.end), math.nan) for sender, sent, receiver, got in flows]
        y = [(sender + _BATCHES[False].at, receiver + _BATCHES[True].at, math.nan) for sender, _, receiver, _ in flows]
        yield MarkGroup(
            GREY, (Line(list(chain(*x)), list(chain(*y)), dashed=True, width=1),), "from sender to receiver"
        )


def _box_group(look: _RowLook, boxes: Sequence[tuple[int, float, float, str]], *, fill: float) -> Iterator[MarkGroup]:
    """Make a group of boxes, each given as rank, begin and end in milliseconds, and text; none without boxes."""
    if boxes:
        ranks, begins, ends, what = transpose_rows(boxes, 4)
        details = {
            "rank": list(map(str, ranks)),
            "what": what,
            "begin": [format_with_unit(begin, "ms") for begin in begins],
            "length": [format_with_unit(end - begin, "ms") for _, begin, end, _ in boxes],
        }
        places = [rank + look.at for rank in ranks]
        mark = Boxes(places, begins, ends, width=look.height, fill=fill, details=details)
        yield MarkGroup(look.index, (mark,), look.label)

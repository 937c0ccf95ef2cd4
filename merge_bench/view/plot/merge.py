"""Merges as charts: pure functions from runs, documents of ``compare`` and steps of tuning to plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from merge_bench.analysis import aggregate
from merge_bench.analysis.documents.compare import CompareDocument
from merge_bench.analysis.documents.run import Lane
from merge_bench.analysis.statistics import median, median_interval, outliers, quartiles
from merge_bench.records.campaign import Launch, Run
from merge_bench.records.schema import TuneLine
from merge_bench.tune.evaluator import NOISE
from merge_bench.tune.result import PHASE_NAMES, decision_of
from merge_bench.units import GIB, MIB
from merge_bench.view.plot.charts import Bar, bars, every, heat, rows_axis, stacked, with_unit
from merge_bench.view.plot.forest import Estimate, forest, levels_of
from merge_bench.view.plot.marks import Axis, Boxes, Chart, Group, Mark, Picture, Points, Whiskers
from merge_bench.view.plot.style import bar_height
from merge_bench.view.titles import option_of

LEAST_MAPPED = 4
"""Workers of a map of pairs; for fewer, a table says more."""
MOST_POINTS = 20_000
"""Of iterations in one chart; of more, some of each launch are left out, never the slowest and the fastest."""

PARTS = ("partition alone", "partition and exchange at once", "exchange alone", "join", "other")


@dataclass(frozen=True)
class Labelled:
    """A run with what it is called, its look in all charts, and its campaign's letter where there are several."""

    label: str
    index: int
    run: Run
    part: str = ""


@dataclass(frozen=True)
class Metric:
    """What launches have a value of: rates in bytes per second, or shares; `scale`: from that to `unit`."""

    title: str
    value: aggregate.Value
    axis: str
    unit: str = "GiB/s"
    scale: float = 1 / GIB
    line: float | None = None

    def points(self, run: Run) -> tuple[tuple[str, float], ...]:
        """The value of each launch, in `unit`, with the launch's name."""
        found = [(launch, aggregate.of_launch(launch, self.value)) for launch in aggregate.counted(run)]
        return tuple((f"launch {launch.index}", value * self.scale) for launch, value in found if value is not None)


THROUGHPUT = Metric("Throughput", aggregate.throughput, axis="Throughput (GiB/s)")
BANDWIDTH = Metric("Bandwidth", aggregate.bandwidth, axis="Bandwidth (GiB/s)")
_OF_LINK = "Bytes of both frames ÷ seconds in flight ÷ link limit (%)"
OF_LINK = Metric("Fraction of the link limit", aggregate.link_fraction, _OF_LINK, "%", scale=100.0, line=100.0)


def rates(
    metric: Metric, groups: Sequence[tuple[str, Sequence[Labelled]]], published: Mapping[str, Sequence[Bar]]
) -> Chart:
    """A metric of every run, the runs of one problem together.

    Parameters
    ----------
    metric
        `THROUGHPUT`, `BANDWIDTH` or `OF_LINK`.
    groups
        Each problem's name and its runs.
    published
        Bars of others' results by the name of a problem; they stand in groups of their own, below those of `groups`.
    """
    mine = {name: tuple(_bar(one.label, one.index, metric.points(one.run)) for one in runs) for name, runs in groups}
    rows = {**mine, **{f"{name}, published" if name in mine else name: bars for name, bars in published.items()}}
    return bars(
        _rows(rows),
        title=f"{metric.title} by problem" if len(rows) > 1 else metric.title,
        axis=metric.axis,
        unit=metric.unit,
        line=metric.line,
        note="bars: median over launches; thick lines: its 95 % interval; points: single launches",
    )


def _bar(series: str, index: int, points: Sequence[tuple[str, float]]) -> Bar:
    """The median of values, one a launch, with its interval."""
    values = [value for _, value in points]
    interval = median_interval(values)
    ends = (interval.low, interval.high) if interval else None
    return Bar(series, index, median(values) if values else None, ends, tuple(points) if len(points) > 1 else ())


def iterations(runs: Sequence[Labelled], problem: str = "") -> Chart:
    """The throughput of every timed iteration of `runs`, in GiB/s: a point each, by launch in the order made.

    `problem`: what the title calls their problem, where there are charts of several.
    Lines are the median and the quartiles of each launch, whether all its points are shown or not.
    """
    launches = [
        (one, [launch for launch in aggregate.counted(one.run) if aggregate.each([launch], aggregate.throughput)])
        for one in runs
    ]
    keys = sorted({(one.part, launch.index) for one, found in launches for launch in found})
    apart = len({part for part, _ in keys}) > 1
    places = {key: at if apart else key[1] for at, key in enumerate(keys)}
    names = {key: f"{key[0] if apart else ''} {key[1]}".strip() for key in keys}
    total = sum(len(launch.timed) for _, found in launches for launch in found)
    step = max(-(-total // MOST_POINTS), 1)
    several = sum(1 for _, found in launches if found) > 1
    groups: list[Group] = []
    for one, found in launches:
        placed = [(places[one.part, launch.index], names[one.part, launch.index], launch) for launch in found]
        groups += [Group(one.index, tuple(_strip(placed, step)), one.label * several)] if found else []
    note = "points: iterations, left to right within a launch; lines: median and quartiles; hollow: outliers"
    thinned = f"; shown: one of {step} iterations, plus the slowest and fastest of each launch" if step > 1 else ""
    ticks = {places[key]: names[key] for key in keys}
    return Chart(
        "Throughput of every iteration, in launch order" + f": {problem}" * bool(problem),
        Picture(Axis("Launch", every(ticks, 24), grid=False), Axis("Throughput (GiB/s)", low=0.0), tuple(groups), 300),
        _sentence(note + thinned),
    )


def _strip(launches: Sequence[tuple[int, str, Launch]], step: int) -> Iterator[Mark]:
    """One of `step` iterations of each of `launches`, which have a place and a name, and lines for all of them."""
    points: list[tuple[float, float, bool, str, str]] = []
    lines: list[tuple[float, ...]] = []
    for place, name, launch in launches:
        marked = zip(launch.timed, outliers([each.wall_seconds for each in launch.timed]), strict=True)
        found = [(each.index, aggregate.throughput(launch, each), far) for each, far in marked]
        flagged = [(index, rate / GIB, far) for index, rate, far in found if rate is not None]
        values = [value for _, value, _ in flagged]
        ends = {values.index(min(values)), values.index(max(values))}
        kept = [each for at, each in enumerate(flagged) if at % step == 0 or at in ends]
        last = max(index for index, _, _ in kept) or 1
        points += [(place - 0.35 + 0.7 * index / last, value, far, name, str(index)) for index, value, far in kept]
        lines.append((place - 0.38, place + 0.38, *quartiles(values)))
    x, y, far, names, indices = zip(*points, strict=True)
    details = {"launch": names, "iteration": indices, "value": [with_unit(value, "GiB/s") for value in y]}
    yield Points(x, y, hollow=far, size=6, details=details)
    left, right, low, middle, high = zip(*lines, strict=True)
    yield Whiskers(middle, left, right, width=3)
    for ends_of in (low, high):
        yield Whiskers(ends_of, left, right, width=1, dotted=True)


def workers(run: Run) -> Chart:
    """The bandwidth of every worker, left and right frame, in GiB/s; no bars where it was not measured."""
    launches = aggregate.counted(run)
    each = [{worker.rank: worker.bandwidth for worker in aggregate.worker_figures([launch])} for launch in launches]

    def bar(rank: int, index: int, frame: str) -> Bar:
        found = [(launch, getattr(of[rank], frame)) for launch, of in zip(launches, each, strict=True) if rank in of]
        points = [(f"launch {launch.index}", value / GIB) for launch, value in found if value is not None]
        return replace(_bar(f"{frame} frame", index, points), interval=None)

    rows = [
        (f"{worker.rank} {worker.host}", (bar(worker.rank, 0, "left"), bar(worker.rank, 1, "right")))
        for worker in aggregate.worker_figures(launches)
    ]
    lacking = ", no bar: nothing was sent" if any(each.value is None for _, mine in rows for each in mine) else ""
    return bars(
        rows if any(each.value is not None for _, mine in rows for each in mine) else [],
        title="Bandwidth of each worker",
        axis="Bandwidth: bytes sent to other workers ÷ seconds in flight (GiB/s)",
        unit="GiB/s",
        note=f"rows: rank and host{lacking}; bars: median over launches; points: single launches",
    )


def phases(run: Run) -> Chart:
    """The time of every worker in an iteration, by phase, in milliseconds; no rows where it was not measured."""
    launches = aggregate.counted(run)
    figures = aggregate.worker_figures(launches)
    rows = {f"{each.rank} {each.host}": parts for each in figures if (parts := parts_of(each))}
    ends, groups = stacked(PARTS, rows)
    groups = tuple(group for group in groups if any(_lengths(group)))
    wall = 1e3 * (aggregate.of_run(launches, aggregate.wall) or 0.0)
    axis = Axis("Time (ms)", low=0.0, high=1.05 * max([*ends, wall], default=1.0), rule=wall or None)
    other = "; other: time of the worker outside these phases"
    height = 30 + int(1.4 * bar_height(len(rows)) * len(rows))
    return Chart(
        "Phases of each worker in an iteration",
        Picture(axis, rows_axis(dict(enumerate(rows)), len(rows) - 1), groups, height),
        _sentence(
            "each part is its own median, so that a bar need not end at the median wall-clock time (dashed line)"
            f"{other * any(group.label == PARTS[-1] for group in groups)}"
        ),
    )


def _lengths(group: Group) -> list[float]:
    return [b - a for mark in group.marks if isinstance(mark, Boxes) for a, b in zip(mark.start, mark.end, strict=True)]


def parts_of(worker: aggregate.WorkerFigures) -> tuple[float, ...] | None:
    """Milliseconds of `PARTS`, which follow each other; None where they were not measured."""
    partition, exchange, join = worker.partition, worker.exchange, worker.join
    if partition is None or exchange is None or join is None:
        return None
    both = worker.overlap or 0.0
    parts = [max(partition - both, 0.0), both, max(exchange - both - (worker.join_overlap or 0.0), 0.0), join]
    return tuple(1e3 * seconds for seconds in (*parts, max((worker.seconds or 0.0) - sum(parts), 0.0)))


def pairs(run: Run, lanes: Sequence[Lane]) -> Chart:
    """Bytes ÷ seconds in flight from every worker to every other, in GiB/s; `lanes` as in ``run --json``."""
    launches = aggregate.counted(run)
    known = {(lane.from_rank, lane.to_rank): lane for lane in lanes}
    figures = {pair: each for pair, each in aggregate.pair_figures(launches).items() if each.seconds}
    return pair_map(
        {pair: (each.bytes, each.seconds) for pair, each in figures.items()},
        {
            "lanes selected": {pair: ", ".join(lane.transports) for pair, lane in known.items()},
            "placement": {pair: lane.placement for pair, lane in known.items()},
        },
        {worker.rank: worker.host for launch in launches if launch.line for worker in launch.line.workers},
    )


def pair_map(
    traffic: Mapping[tuple[int, int], tuple[float, float | None]],
    details: Mapping[str, Mapping[tuple[int, int], str | None]],
    hosts: Mapping[int, str],
) -> Chart:
    """The rate from rank to rank, by its bytes and seconds in flight; `details`: what else there is, by name.

    Empty for fewer than `LEAST_MAPPED` workers.
    """
    ranks = sorted({rank for pair in traffic for rank in pair})
    if len(ranks) < LEAST_MAPPED:
        ranks, traffic = [], {}
    texts = {name: [known.get(pair) or "not known" for pair in traffic] for name, known in details.items()}
    return heat(
        {pair: sent / seconds / GIB if seconds else math.nan for pair, (sent, seconds) in traffic.items()},
        {rank: f"{rank} {hosts.get(rank, '?')}" for rank in ranks},
        texts | {"sent in an iteration": [f"{sent / MIB:,.1f} MiB" for sent, _ in traffic.values()]},
        title="Rate of each pair of workers",
        unit="GiB/s",
        note=_sentence("bytes ÷ seconds in flight of that pair in GiB/s; rows send, columns receive"),
    )


def speedups(document: CompareDocument, metric: str, looks: Mapping[str, int]) -> Chart:
    """Figure 1 of the report of 2022: what each config makes of the baseline's throughput, or of another metric.

    Parameters
    ----------
    document
        As ``compare --json`` prints it.
    metric
        Which of its metrics.
    looks
        Which look each run has, by what the document calls it.
    """
    groups: dict[tuple[str, str], list[Bar]] = {}
    for each in document.comparisons:
        if each.metric != metric or each.ratio is None:
            continue
        plan = ", ".join(option_of(name, value) for name, value in each.plan.items() if value is not None)
        first = Bar(each.baseline, looks.get(each.baseline, 0), 1.0, remark="the baseline")
        mine = groups.setdefault((each.baseline, plan), [first])
        points = tuple((point.label, point.ratio) for point in each.points)
        interval = (each.interval.low, each.interval.high) if each.interval else None
        mine.append(
            Bar(
                each.candidate, looks.get(each.candidate, len(looks)), each.ratio, interval,
                points if len(points) > 1 else (), remark=each.verdict,
            )
        )  # fmt: skip
    return bars(
        _rows({name: mine for (_, name), mine in groups.items()}),
        title=f"Speed-up in {metric} over the baseline",
        axis=f"Speed-up in {metric} (1 = the baseline, more is better)",
        unit="×",
        line=1.0,
        note="bars: estimated speed-up; thick lines: its interval; points: single blocks or launches",
    )


def tunings(steps: Sequence[TuneLine], size_of: Callable[[int], str]) -> list[Chart]:
    """What each step makes of speed: a chart for each phase of tuning and each plan; `size_of`: a plan's name."""
    keys = dict.fromkeys((step.phase, step.plan) for step in steps)
    charts = [_tuning(steps, phase, plan, size_of(plan)) for phase, plan in keys]
    return [chart for chart in charts if not chart.empty]


def _tuning(steps: Sequence[TuneLine], phase: str, plan: int, size: str) -> Chart:
    found = [step for step in steps if step.phase == phase and step.plan == plan]
    noise = next((step for step in found if decision_of(step) == NOISE), None)
    estimates = [
        Estimate(
            step.setting or step.config, decision_of(step), step.ratio, step.low, step.high,
            f"{step.launches} launches each; {step.reason}",
        )
        for step in found
        if step is not noise
    ]  # fmt: skip
    chart = forest(
        {"": estimates},
        title=f"Tuning, {PHASE_NAMES.get(phase, phase)}, {size}: speed-up by setting",
        axis="Speed-up in throughput (1 = without the setting, more is better)",
        kinds=list(dict.fromkeys(each.kind for each in estimates)),
        noise=(noise.low, noise.high) if noise and noise.low is not None and noise.high is not None else None,
    )
    lines = levels_of(step.launches for step in found if step.low is not None)
    return replace(
        chart, note=_sentence(f"points: speed-up estimated from pairs in the same block; lines: its {lines}")
    )


def _rows(groups: Mapping[str, Sequence[Bar]]) -> list[tuple[str, Sequence[Bar]]]:
    """A row for each group; the bars of a single group have rows of their own."""
    if len(groups) == 1:
        return [(bar.series, (bar,)) for mine in groups.values() for bar in mine]
    return list(groups.items())


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."

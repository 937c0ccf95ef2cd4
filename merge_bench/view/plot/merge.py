"""Merges as charts: pure functions from runs, documents of ``compare`` and steps of tuning to plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from merge_bench.analysis import aggregate, metrics
from merge_bench.analysis.statistics import median, median_interval, outliers, quartiles
from merge_bench.records.campaign import Launch, Run
from merge_bench.records.schema import TuneLine
from merge_bench.units import GIB, MIB
from merge_bench.view.plot.charts import Bar, Bars, Heat, Row, Stack, StackRow, Strip, StripLaunch, StripSeries

MOST_POINTS = 20_000
"""Of iterations in one chart; of more, some of each launch are left out, never the slowest and the fastest."""

PARTS = ("partition alone", "partition and exchange at once", "exchange alone", "join", "rest")
_DIFFERENCE = "bars: median over launches; thick lines: its 95 % interval; points: one a launch"


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
    of_launch: Callable[[Launch], float | None]
    axis: str
    unit: str = "GiB/s"
    scale: float = 1 / GIB
    line: float | None = None

    def points(self, run: Run) -> tuple[tuple[str, float], ...]:
        """The value of each launch, in `unit`, with the launch's name."""
        found = [(launch, self.of_launch(launch)) for launch in aggregate.counted(run)]
        return tuple((f"launch {launch.index}", value * self.scale) for launch, value in found if value is not None)


def _share_of_link(launch: Launch) -> float | None:
    limit = launch.link.limit_bytes_per_second if launch.link is not None else None
    return aggregate.of_launch(launch, lambda iteration: metrics.link_fraction(iteration, limit))


THROUGHPUT = Metric(
    "Throughput", lambda launch: aggregate.middle(aggregate.throughputs(launch)), axis="Throughput (GiB/s)"
)
BANDWIDTH = Metric(
    "Bandwidth", lambda launch: aggregate.of_launch(launch, metrics.iteration_bandwidth), axis="Bandwidth (GiB/s)"
)
OF_LINK = Metric(
    "Fraction of the link limit", _share_of_link, "Bytes of both frames ÷ seconds in flight ÷ link limit (%)", "%",
    scale=100.0, line=100.0,
)  # fmt: skip


def rates(
    metric: Metric, groups: Sequence[tuple[str, Sequence[Labelled]]], published: Mapping[str, Sequence[Bar]]
) -> Bars:
    """A metric of every run, the runs of one problem together.

    Parameters
    ----------
    metric
        `THROUGHPUT`, `BANDWIDTH` or `OF_LINK`.
    groups
        Each problem's name and its runs.
    published
        Bars to stand beside those of a problem, by its name; a name that is not among `groups` gets a group.
    """
    mine = {name: tuple(_bar(one.label, one.index, metric.points(one.run)) for one in runs) for name, runs in groups}
    names = dict.fromkeys([*mine, *published])
    return Bars(
        title=f"{metric.title} by problem" if len(names) > 1 else metric.title,
        axis=metric.axis,
        unit=metric.unit,
        rows=_rows({name: (*mine.get(name, ()), *published.get(name, ())) for name in names}),
        line=metric.line,
        note=_sentence(_DIFFERENCE + ("; hatched: as published" if any(published.values()) else "")),
    )


def _bar(series: str, index: int, points: Sequence[tuple[str, float]]) -> Bar:
    """The median of values, one a launch, with its interval."""
    values = [value for _, value in points]
    interval = median_interval(values)
    ends = (interval.low, interval.high) if interval else None
    return Bar(series, index, median(values) if values else None, ends, tuple(points) if len(points) > 1 else ())


def iterations(runs: Sequence[Labelled]) -> Strip:
    """The throughput of every timed iteration of `runs`, in GiB/s."""
    launches = [
        (one, [launch for launch in aggregate.counted(one.run) if aggregate.throughputs(launch)]) for one in runs
    ]
    keys = sorted({(one.part, launch.index) for one, found in launches for launch in found})
    apart = len({part for part, _ in keys}) > 1
    places = {key: at if apart else key[1] for at, key in enumerate(keys)}
    total = sum(len(launch.timed) for _, found in launches for launch in found)
    every = max(-(-total // MOST_POINTS), 1)
    note = "points: iterations, left to right within a launch; lines: median and quartiles; hollow: far out"
    thinned = f"; one of {every} iterations is shown, and the slowest and fastest of each launch" if every > 1 else ""
    return Strip(
        title="Throughput of every iteration, by launch in the order made",
        axis="Throughput (GiB/s)",
        unit="GiB/s",
        series=tuple(
            StripSeries(
                one.label,
                one.index,
                tuple(
                    _strip(launch, every, places[one.part, launch.index], one.part if apart else "") for launch in found
                ),
            )
            for one, found in launches
            if found
        ),
        note=_sentence(note + thinned),
    )


def _strip(launch: Launch, every: int, place: int, part: str) -> StripLaunch:
    found = [
        (each.index, rate / GIB) for each in launch.timed if (rate := aggregate.throughput(launch, each)) is not None
    ]
    values = [value for _, value in found]
    far = outliers(values)
    low, middle, high = quartiles(values)
    ends = {values.index(min(values)), values.index(max(values))}
    kept = [at for at in range(len(values)) if at % every == 0 or at in ends]
    return StripLaunch(
        place=place,
        launch=f"{part} {launch.index}".strip(),
        iterations=tuple(found[at][0] for at in kept),
        values=tuple(values[at] for at in kept),
        flagged=tuple(far[at] for at in kept),
        median=middle,
        low=low,
        high=high,
    )


def workers(run: Run) -> Bars:
    """The bandwidth of every worker, left and right frame, in GiB/s; no bars where it was not measured."""
    launches = aggregate.counted(run)
    each = [{worker.rank: worker.bandwidth for worker in aggregate.worker_figures([launch])} for launch in launches]

    def bar(rank: int, index: int, frame: str) -> Bar:
        found = [(launch, getattr(of[rank], frame)) for launch, of in zip(launches, each, strict=True) if rank in of]
        points = [(f"launch {launch.index}", value / GIB) for launch, value in found if value is not None]
        return replace(_bar(f"{frame} frame", index, points), interval=None)

    rows = [
        Row(f"{worker.rank} {worker.host}", (bar(worker.rank, 0, "left"), bar(worker.rank, 1, "right")))
        for worker in aggregate.worker_figures(launches)
    ]
    return Bars(
        title="Bandwidth of each worker",
        axis="Bandwidth: bytes sent to other workers ÷ seconds in flight (GiB/s)",
        unit="GiB/s",
        rows=tuple(row for row in rows if any(bar.value is not None for bar in row.bars)),
        note=_sentence("rows: rank and host; bars: median over launches; points: one a launch"),
    )


def phases(run: Run) -> Stack:
    """The time of every worker in an iteration, by phase, in milliseconds; no rows where it was not measured."""
    figures = aggregate.worker_figures(aggregate.counted(run))
    return Stack(
        title="Phases of each worker in an iteration",
        axis="Time (ms)",
        unit="ms",
        parts=PARTS,
        rows=tuple(StackRow(f"{each.rank} {each.host}", parts) for each in figures if (parts := parts_of(each))),
        note=_sentence("medians over launches; rest: what the worker's own time is more than its phases"),
    )


def parts_of(worker: aggregate.WorkerFigures) -> tuple[float, ...] | None:
    """Milliseconds of `PARTS`, which follow each other; None where they were not measured."""
    partition, exchange, join = worker.partition, worker.exchange, worker.join
    if partition is None or exchange is None or join is None:
        return None
    both = worker.overlap or 0.0
    parts = [max(partition - both, 0.0), both, max(exchange - both - (worker.join_overlap or 0.0), 0.0), join]
    return tuple(1e3 * seconds for seconds in (*parts, max((worker.seconds or 0.0) - sum(parts), 0.0)))


def pairs(run: Run, lanes: Sequence[Mapping[str, Any]]) -> Heat:
    """Bytes ÷ seconds in flight from every worker to every other, in GiB/s; `lanes` as in ``run --json``."""
    launches = aggregate.counted(run)
    known = {(lane["from"], lane["to"]): lane for lane in lanes}
    figures = {pair: each for pair, each in aggregate.pair_figures(launches).items() if each.seconds}
    told = {pair: known.get(pair, {}) for pair in figures}
    return pair_map(
        {pair: (each.bytes, each.seconds) for pair, each in figures.items()},
        {
            "lanes selected": {pair: ", ".join(lane.get("transports", ())) for pair, lane in told.items()},
            "placement": {pair: lane.get("placement") for pair, lane in told.items()},
        },
        {worker.rank: worker.host for launch in launches if launch.line for worker in launch.line.workers},
    )


def pair_map(
    traffic: Mapping[tuple[int, int], tuple[float, float | None]],
    details: Mapping[str, Mapping[tuple[int, int], str | None]],
    hosts: Mapping[int, str],
) -> Heat:
    """The rate from rank to rank, by its bytes and seconds in flight; `details`: what else there is, by name."""
    place = {rank: at for at, rank in enumerate(sorted({rank for pair in traffic for rank in pair}))}
    told = {name: tuple([known.get(pair) or "not known" for pair in traffic]) for name, known in details.items()}
    return Heat(
        title="Rate of each pair of workers",
        unit="GiB/s",
        labels=tuple(f"{rank} {hosts.get(rank, '?')}" for rank in place),
        rows=tuple([place[sender] for sender, _ in traffic]),
        columns=tuple([place[receiver] for _, receiver in traffic]),
        values=tuple([sent / seconds / GIB if seconds else math.nan for sent, seconds in traffic.values()]),
        details=told | {"sent in an iteration": tuple([f"{sent / MIB:,.1f} MiB" for sent, _ in traffic.values()])},
        note=_sentence("bytes ÷ seconds in flight of that pair; rows send, columns receive"),
    )


def speedups(document: Mapping[str, Any], metric: str, looks: Mapping[str, int]) -> Bars:
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
    for each in document["comparisons"]:
        if each["metric"] != metric or each["ratio"] is None:
            continue
        plan = ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in each["plan"].items())
        bars = groups.setdefault((each["baseline"], plan), [])
        if not bars:
            bars.append(Bar(each["baseline"], looks.get(each["baseline"], 0), 1.0, remark="the baseline"))
        points = tuple((_point(point), point["ratio"]) for point in each["points"])
        interval = tuple(each["ci95"]) if each["ci95"] else None
        bars.append(
            Bar(
                each["candidate"], looks.get(each["candidate"], len(looks)), each["ratio"], interval,
                points if len(points) > 1 else (), remark=each["verdict"],
            )
        )  # fmt: skip
    return Bars(
        title=f"Speed-up in {metric} over the baseline",
        axis=f"Speed-up in {metric} (1 = the baseline, more is better)",
        unit="×",
        rows=_rows({name: bars for (_, name), bars in groups.items()}),
        line=1.0,
        note=_sentence("bars: estimate of compare; thick lines: its interval; points: one a block, or a launch"),
    )


def tuning(steps: Sequence[TuneLine], phase: str, plan: int, size: str) -> Bars:
    """The steps of one `phase` of tuning with one `plan`, called `size`: and what it makes of speed."""
    found = [step for step in steps if step.phase == phase and step.plan == plan]
    decisions = list(dict.fromkeys(step.decision for step in steps))
    rows = []
    for step in found:
        interval = (step.low, step.high) if step.low is not None and step.high is not None else None
        remark = f"{step.launches} launches each; {step.reason}"
        bar = Bar(step.decision, decisions.index(step.decision), step.ratio, interval, remark=remark)
        rows.append(Row(step.setting or step.config, (bar,)))
    return Bars(
        title=f"Tuning, {phase}, {size}: speed-up by setting",
        axis="Speed-up in throughput (1 = without it, more is better)",
        unit="×",
        rows=tuple(rows),
        line=1.0,
        note=_sentence("bars: estimates, paired by block; thick lines: their intervals"),
    )


def _rows(groups: Mapping[str, Sequence[Bar]]) -> tuple[Row, ...]:
    """A row for each group; the bars of a single group have rows of their own."""
    if len(groups) == 1:
        return tuple(Row(bar.series, (bar,)) for bars in groups.values() for bar in bars)
    return tuple(Row(name, tuple(bars)) for name, bars in groups.items())


def _point(point: Mapping[str, Any]) -> str:
    return next(f"{name} {value}" for name, value in point.items() if name != "ratio")


def _plain(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."

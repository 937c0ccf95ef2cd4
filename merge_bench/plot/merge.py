"""Merges as charts: pure functions from runs, documents of ``compare`` and steps of tuning to plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merge_bench import aggregate, metrics
from merge_bench.plot.charts import Bar, Bars, Cell, Heat, Row, Stack, StackRow, Strip, StripLaunch, StripSeries
from merge_bench.record.campaign import Launch, Run
from merge_bench.record.schema import TuneLine
from merge_bench.statistics import median, median_interval, outliers, quartiles
from merge_bench.units import GIB

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
    """A rate that launches have, in bytes per second."""

    title: str
    of_launch: Callable[[Launch], float | None]


THROUGHPUT = Metric("Throughput", lambda launch: aggregate.middle(aggregate.throughputs(launch)))
BANDWIDTH = Metric("Bandwidth", lambda launch: aggregate.of_launch(launch, metrics.iteration_bandwidth))


def rates(
    metric: Metric, groups: Sequence[tuple[str, Sequence[Labelled]]], published: Mapping[str, Sequence[Bar]]
) -> Bars:
    """A rate of every run in GiB/s, the runs of one problem together.

    Parameters
    ----------
    metric
        `THROUGHPUT` or `BANDWIDTH`.
    groups
        Each problem's name and its runs.
    published
        Bars to stand beside those of a problem, by its name; a name that is not among `groups` gets a group.
    """
    found = [(name, tuple(_rate(metric, one) for one in runs)) for name, runs in groups]
    names = dict.fromkeys([*(name for name, _ in found), *published])
    mine = dict(found)
    return Bars(
        title=f"{metric.title} by problem" if len(names) > 1 else f"{metric.title}",
        axis=f"{metric.title} (GiB/s)",
        unit="GiB/s",
        rows=_rows({name: (*mine.get(name, ()), *published.get(name, ())) for name in names}),
        note=_sentence(_DIFFERENCE + ("; hatched: as published" if any(published.values()) else "")),
    )


def _rate(metric: Metric, one: Labelled) -> Bar:
    launches = aggregate.counted(one.run)
    points = tuple(
        (f"launch {launch.index}", value / GIB)
        for launch in launches
        if (value := metric.of_launch(launch)) is not None
    )
    values = [value for _, value in points]
    interval = median_interval(values)
    return Bar(
        series=one.label,
        index=one.index,
        value=median(values) if values else None,
        interval=(interval.low, interval.high) if interval else None,
        points=points if len(points) > 1 else (),
    )


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
    each = [{w.rank: w.bandwidth for w in aggregate.worker_figures([launch])} for launch in launches]
    rows = []
    for worker in aggregate.worker_figures(launches):
        bars = []
        for index, frame in enumerate(("left", "right")):
            value: float | None = getattr(worker.bandwidth, frame)
            found = [
                (f"launch {launch.index}", getattr(known[worker.rank], frame))
                for launch, known in zip(launches, each, strict=True)
                if worker.rank in known
            ]
            points = tuple((name, rate / GIB) for name, rate in found if rate is not None)
            bars.append(
                Bar(f"{frame} frame", index, value / GIB, points=points if len(points) > 1 else ())
                if value is not None
                else Bar(f"{frame} frame", index, None)
            )
        rows.append(Row(f"{worker.rank} {worker.host}", tuple(bars)))
    return Bars(
        title="Bandwidth of each worker",
        axis="Bandwidth: bytes sent to other workers ÷ seconds in flight (GiB/s)",
        unit="GiB/s",
        rows=tuple(row for row in rows if any(bar.value is not None for bar in row.bars)),
        note=_sentence("rows: rank and host; bars: median over launches; points: one a launch"),
    )


def phases(run: Run) -> Stack:
    """The time of every worker in an iteration, by phase, in milliseconds; no rows where it was not measured."""
    rows = []
    for worker in aggregate.worker_figures(aggregate.counted(run)):
        partition, exchange, join = worker.partition, worker.exchange, worker.join
        if partition is None or exchange is None or join is None:
            continue
        both = worker.overlap or 0.0
        alone = exchange - both - (worker.join_overlap or 0.0)
        parts = [max(partition - both, 0.0), both, max(alone, 0.0), join]
        rest = max((worker.seconds or 0.0) - sum(parts), 0.0)
        rows.append(StackRow(f"{worker.rank} {worker.host}", tuple(seconds * 1e3 for seconds in (*parts, rest))))
    return Stack(
        title="Phases of each worker in an iteration",
        axis="Time (ms)",
        unit="ms",
        parts=PARTS,
        rows=tuple(rows),
        note=_sentence("medians over launches; rest: what the worker's own time is more than its phases"),
    )


def pairs(run: Run, lanes: Sequence[Mapping[str, Any]]) -> Heat:
    """Bytes ÷ seconds in flight from every worker to every other, in GiB/s; `lanes` as in ``run --json``."""
    launches = aggregate.counted(run)
    known = {(lane["from"], lane["to"]): lane for lane in lanes}
    figures = {pair: each for pair, each in aggregate.pair_figures(launches).items() if each.seconds}
    ranks = sorted({rank for pair in figures for rank in pair})
    hosts = {worker.rank: worker.host for launch in launches if launch.line for worker in launch.line.workers}
    place = {rank: at for at, rank in enumerate(ranks)}
    cells = []
    for (sender, receiver), each in figures.items():
        lane = known.get((sender, receiver), {})
        details = (", ".join(lane.get("transports", ())) or "not known", lane.get("placement") or "not known")
        rate = each.bytes / (each.seconds or 1.0) / GIB
        sent = f"{each.bytes / 2**20:,.1f} MiB"
        cells.append(Cell(place[sender], place[receiver], rate, (*details, sent)))
    return Heat(
        title="Rate of each pair of workers",
        unit="GiB/s",
        labels=tuple(f"{rank} {hosts.get(rank, '?')}" for rank in ranks),
        cells=tuple(cells),
        details=("lanes selected", "placement", "sent in an iteration"),
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

"""The figures of the Live tab: made once, with fixed sizes; afterwards only their data changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bokeh.models import BasicTicker, ColumnDataSource
from bokeh.models.annotations import Legend

from merge_bench.analysis.aggregate import WorkerFigures
from merge_bench.dashboard.live_data import Point
from merge_bench.records.schema import WorkerMemory
from merge_bench.report.workers import slowest_rank
from merge_bench.units import GIB
from merge_bench.view.plot.charts import stacked_bars, thin_ticks, with_unit
from merge_bench.view.plot.interactive import BokehChart, hover
from merge_bench.view.plot.marks import Axis, Boxes, Chart, Group, Mark, Whiskers
from merge_bench.view.plot.merge import PARTS, phase_milliseconds
from merge_bench.view.plot.style import GREY, look
from merge_bench.view.text import as_html, short, visible

HEIGHT = 270
_NAMED = 4
"""So many workers have room for more than their rank below their bars."""
_COLUMNS = ("number", "rate", "colour", "shape", "config", "launch", "iteration", "value", "wall")
"""Of each point in `Rates`; from ``config`` on they are shown under the pointer."""


def live(chart: Chart) -> BokehChart:
    """`chart` as a figure of the tab's size, without its legend, which would not grow with what is known."""
    drawn = BokehChart(chart)
    drawn.figure.update(frame_height=None, frame_width=None, height=HEIGHT, sizing_mode="stretch_width")
    drawn.figure.below = [part for part in drawn.figure.below if not isinstance(part, Legend)]
    return drawn


def legend_of(chart: Chart) -> str:
    """The colour of each series of `chart` that has a bar or line of any length, as HTML."""
    there = {
        group.label: f'<span style="color: {look(group.index).colour}">{"■" if isinstance(mark, Boxes) else "━"}</span>'
        for group, mark in chart.marks
        if group.label and (not isinstance(mark, Boxes) or _any_length(mark))
    }
    return _legend(there)


def _any_length(boxes: Boxes) -> bool:
    return any(end - start > 0 for start, end in zip(boxes.start, boxes.end, strict=True))


class Rates:
    """A rate of every iteration, in GiB/s, by the number of the iteration; `legend` names the configs, as HTML.

    Unlike a `Chart` it sends only new points: there may be very many. It has no legend of Bokeh's, because one that
    follows a column fails while the column is empty.
    """

    def __init__(self, field: str) -> None:
        self._field = field
        self._source = ColumnDataSource({name: [] for name in _COLUMNS})
        self._configs: dict[str, int] = {}
        self._highest, self._last = 0.0, 0
        self._drawn = live(self._axes())
        self.figure = self._drawn.figure
        self.figure.xaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
        points = self.figure.scatter(
            "number", "rate", source=self._source, marker="shape", size=7, color="colour", fill_alpha=0.8
        )
        self.figure.add_tools(hover(points, _COLUMNS[4:]))

    def _axes(self) -> Chart:
        x = Axis("Timed iteration, over all launches", low=0.5, high=max(self._last, 10) + 0.5)
        return Chart(x, _up_to("GiB/s", [self._highest]), (), HEIGHT)

    def add(self, points: Sequence[Point], *, anew: bool) -> None:
        """Add new points; `anew`: and remove all others."""
        known = [(point, rate / GIB) for point in points if (rate := getattr(point, self._field)) is not None]
        rows = [
            (
                point.number, rate, look(point.look).colour, look(point.look).shape, visible(point.config),
                point.launch, point.index, with_unit(rate, "GiB/s"), f"{point.wall_seconds * 1e3:,.2f} ms",
            )
            for point, rate in known
        ]  # fmt: skip
        columns: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(_COLUMNS)}
        if anew:
            self._source.data = columns
            self._highest, self._last, self._configs = 0.0, 0, {}
        elif known:
            self._source.stream(columns)
        self._highest = max([self._highest, *(rate for _, rate in known)])
        self._last = known[-1][0].number if known else self._last
        self._configs |= {point.config: point.look for point, _ in known}
        self._drawn.show(self._axes())

    @property
    def legend(self) -> str:
        """The colour and shape of each config."""
        looks = {config: look(number) for config, number in self._configs.items()}
        return _legend({name: f'<span style="color: {one.colour}">{one.symbol}</span>' for name, one in looks.items()})


def _legend(symbols: Mapping[str, str]) -> str:
    """Names with their symbols, which are HTML."""
    return " ".join(
        f'<span class="entry">{symbol} {as_html(short(name, 30))}</span>' for name, symbol in symbols.items()
    )


def workers(figures: Sequence[WorkerFigures], lacking: Mapping[int, str]) -> Chart:
    """The bandwidth of every worker, in the colour of no config; the slowest has a hatch and a remark.

    `lacking`: why workers have none, by rank; of few workers it stands in the place of the bar.
    """
    slowest = slowest_rank(figures)
    known = [(worker, rate / GIB) for worker in figures if (rate := worker.bandwidth.mean) is not None]
    groups = []
    for slow in (False, True):
        mine = [(worker, rate) for worker, rate in known if (worker.rank == slowest) == slow]
        details = {
            "worker": [_named(worker) + " (the slowest)" * slow for worker, _ in mine],
            "value": [with_unit(rate, "GiB/s") for _, rate in mine],
        }
        ranks, rates = [worker.rank for worker, _ in mine], [rate for _, rate in mine]
        bars = Boxes(ranks, [0.0] * len(ranks), rates, True, fill=0.8, hatched=slow, details=details)
        groups.append(Group(GREY, (bars,)))
    ticks = {worker.rank: str(worker.rank) for worker in figures}
    if len(figures) <= _NAMED:
        ticks |= {rank: f"{rank}: {why}" for rank, why in lacking.items()}
    return _by_rank("GiB/s", ticks, groups, [rate for _, rate in known])


def phases(figures: Sequence[WorkerFigures]) -> Chart:
    """The time of every worker in an iteration, by phase."""
    known = [(worker, parts) for worker in figures if (parts := phase_milliseconds(worker)) is not None]
    ranks = [worker.rank for worker, _ in known]
    ends, groups = stacked_bars(PARTS, {_named(worker): parts for worker, parts in known}, at=ranks, upright=True)
    groups = tuple(replace(group, marks=tuple(map(_without_nothing, group.marks))) for group in groups)
    return _by_rank("ms", {worker.rank: str(worker.rank) for worker in figures}, groups, ends)


def _without_nothing(mark: Mark) -> Mark:
    """Boxes without those of no height, whose edges would be seen."""
    if not isinstance(mark, Boxes):
        return mark
    ends = [end if end > start else float("nan") for start, end in zip(mark.start, mark.end, strict=True)]
    return replace(mark, end=ends)


def memory(figures: Sequence[WorkerMemory]) -> Chart:
    """The high-water marks of every worker; a line marks the size of its input."""
    ranks = [one.rank for one in figures]
    kinds = (
        ("peak_bytes", "peak", 5, 0.8), ("peak_above_imports_bytes", "above imports", 0, 0.55),
        ("device_peak_bytes", "on the GPU", 2, 0.25),
    )  # fmt: skip
    inputs = [_gib(one.input_bytes) for one in figures]
    groups, highest = [], list[float]()
    for name, label, index, width in kinds:
        values = [_gib(getattr(one, name)) for one in figures]
        details = {"rank": list(map(str, ranks)), label: [f"{value:,.3f} GiB" for value in values]}
        details["input"] = [f"{value:,.3f} GiB" for value in inputs]
        bars = Boxes(ranks, [0.0] * len(ranks), values, True, width=width, fill=0.7, details=details)
        groups.append(Group(index, (bars,), label))
        highest += values
    mark = Whiskers(inputs, [rank - 0.4 for rank in ranks], [rank + 0.4 for rank in ranks], width=3)
    return _by_rank(
        "GiB",
        dict(zip(ranks, map(str, ranks), strict=True)),
        [*groups, Group(1, (mark,), "its input")],
        highest + inputs,
    )


def _named(worker: WorkerFigures) -> str:
    return visible(f"{worker.rank} {worker.host}")


def _gib(value: float | None) -> float:
    return float("nan") if value is None else value / GIB


def _by_rank(unit: str, names: Mapping[int, str], groups: Sequence[Group], values: Iterable[float]) -> Chart:
    """`names`: of every worker, by rank."""
    x = Axis("Rank", thin_ticks(names, 32), min(names, default=0) - 0.5, max(names, default=0) + 0.5)
    return Chart(x, _up_to(unit, values), tuple(groups), HEIGHT)


def _up_to(unit: str, values: Iterable[float]) -> Axis:
    """From 0 to the highest of `values`, with some room."""
    high = max((value for value in values if value == value), default=0.0)
    return Axis(unit, low=0.0, high=1.08 * high if high > 0 else 1.0)

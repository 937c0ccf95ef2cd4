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
_MOST_EXPLAINED = 4
"""Up to so many workers have room for more than their rank below their bars."""
_COLUMNS = ("number", "rate", "colour", "shape", "config", "launch", "iteration", "value", "wall")
"""What each point in `Rates` has; the columns from ``config`` on are shown under the pointer."""


def live_figure(chart: Chart) -> BokehChart:
    """Draw `chart` in the tab's size, without its legend, which would not grow with new series."""
    drawn = BokehChart(chart)
    drawn.figure.update(frame_height=None, frame_width=None, height=HEIGHT, sizing_mode="stretch_width")
    drawn.figure.below = [part for part in drawn.figure.below if not isinstance(part, Legend)]
    return drawn


def legend_of(chart: Chart) -> str:
    """HTML of a legend of `chart`: the colour and name of each series that has a bar or line of any length."""
    symbols = {
        group.label: f'<span style="color: {look(group.index).colour}">{"■" if isinstance(mark, Boxes) else "━"}</span>'
        for group, mark in chart.marks
        if group.label and (not isinstance(mark, Boxes) or _has_length(mark))
    }
    return _legend_html(symbols)


def _has_length(boxes: Boxes) -> bool:
    return any(end - start > 0 for start, end in zip(boxes.start, boxes.end, strict=True))


class Rates:
    """A figure of a rate of every iteration, in GiB/s; `legend` names the configs, as HTML.

    Unlike a `Chart` it sends only new points: there may be very many. It has no legend of Bokeh's, because one that
    follows a column fails while the column is empty.
    """

    def __init__(self, field: str) -> None:
        self._field = field
        self._source = ColumnDataSource({name: [] for name in _COLUMNS})
        self._configs: dict[str, int] = {}
        self._highest, self._last = 0.0, 0
        self._drawn = live_figure(self._empty_chart())
        self.figure = self._drawn.figure
        self.figure.xaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
        points = self.figure.scatter(
            "number", "rate", source=self._source, marker="shape", size=7, color="colour", fill_alpha=0.8
        )
        self.figure.add_tools(hover(points, _COLUMNS[4:]))

    def _empty_chart(self) -> Chart:
        x = Axis("Timed iteration, over all launches", low=0.5, high=max(self._last, 10) + 0.5)
        return Chart(x, _axis_from_zero("GiB/s", [self._highest]), (), HEIGHT)

    def add(self, points: Sequence[Point], *, anew: bool) -> None:
        """Add new points; `anew`: remove all others before."""
        measured = [(point, rate / GIB) for point in points if (rate := getattr(point, self._field)) is not None]
        rows = [
            (
                point.number, rate, look(point.look).colour, look(point.look).shape, visible(point.config),
                point.launch, point.index, with_unit(rate, "GiB/s"), f"{point.wall_seconds * 1e3:,.2f} ms",
            )
            for point, rate in measured
        ]  # fmt: skip
        columns: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(_COLUMNS)}
        if anew:
            self._source.data = columns
            self._highest, self._last, self._configs = 0.0, 0, {}
        elif measured:
            self._source.stream(columns)
        self._highest = max([self._highest, *(rate for _, rate in measured)])
        self._last = measured[-1][0].number if measured else self._last
        self._configs |= {point.config: point.look for point, _ in measured}
        self._drawn.show(self._empty_chart())

    @property
    def legend(self) -> str:
        """HTML of a legend: the colour and shape of each config."""
        looks = ((config, look(number)) for config, number in self._configs.items())
        return _legend_html({name: f'<span style="color: {one.colour}">{one.symbol}</span>' for name, one in looks})


def _legend_html(symbols: Mapping[str, str]) -> str:
    """HTML of a legend: each name with its symbol, which is HTML already."""
    return " ".join(
        f'<span class="entry">{symbol} {as_html(short(name, 30))}</span>' for name, symbol in symbols.items()
    )


def worker_bandwidths(figures: Sequence[WorkerFigures], lacking: Mapping[int, str]) -> Chart:
    """A chart of the bandwidth of every worker, in the colour of no config; the slowest has a hatch and a remark.

    `lacking`: why workers have no bandwidth, by rank; if there are few, it stands below the place of the bar.
    """
    slowest = slowest_rank(figures)
    measured = [(worker, rate / GIB) for worker in figures if (rate := worker.bandwidth.mean) is not None]
    groups = []
    for slow in (False, True):
        drawn = [(worker, rate) for worker, rate in measured if (worker.rank == slowest) == slow]
        details = {
            "worker": [_worker_label(worker) + " (the slowest)" * slow for worker, _ in drawn],
            "value": [with_unit(rate, "GiB/s") for _, rate in drawn],
        }
        ranks, rates = [worker.rank for worker, _ in drawn], [rate for _, rate in drawn]
        bars = Boxes(ranks, [0.0] * len(ranks), rates, True, fill=0.8, hatched=slow, details=details)
        groups.append(Group(GREY, (bars,)))
    ticks = {worker.rank: str(worker.rank) for worker in figures}
    if len(figures) <= _MOST_EXPLAINED:
        ticks |= {rank: f"{rank}: {why}" for rank, why in lacking.items()}
    return _chart_by_rank("GiB/s", ticks, groups, [rate for _, rate in measured])


def phase_times(figures: Sequence[WorkerFigures]) -> Chart:
    """A chart of the time of every worker in an iteration, by phase."""
    measured = [(worker, parts) for worker in figures if (parts := phase_milliseconds(worker)) is not None]
    ranks = [worker.rank for worker, _ in measured]
    ends, groups = stacked_bars(
        PARTS, {_worker_label(worker): parts for worker, parts in measured}, at=ranks, upright=True
    )
    groups = tuple(replace(group, marks=tuple(map(_without_empty_boxes, group.marks))) for group in groups)
    return _chart_by_rank("ms", {worker.rank: str(worker.rank) for worker in figures}, groups, ends)


def _without_empty_boxes(mark: Mark) -> Mark:
    """The mark; of boxes without those of no height, whose edges would be seen."""
    if not isinstance(mark, Boxes):
        return mark
    ends = [end if end > start else float("nan") for start, end in zip(mark.start, mark.end, strict=True)]
    return replace(mark, end=ends)


def memory_peaks(figures: Sequence[WorkerMemory]) -> Chart:
    """A chart of the highest memory use of every worker; a line marks the size of the worker's input."""
    ranks = [one.rank for one in figures]
    kinds = (
        ("peak_bytes", "peak", 5, 0.8), ("peak_above_imports_bytes", "above imports", 0, 0.55),
        ("device_peak_bytes", "on the GPU", 2, 0.25),
    )  # fmt: skip
    inputs = [_gib_or_nan(one.input_bytes) for one in figures]
    groups, highest = [], list[float]()
    for name, label, index, width in kinds:
        values = [_gib_or_nan(getattr(one, name)) for one in figures]
        details = {"rank": list(map(str, ranks)), label: [f"{value:,.3f} GiB" for value in values]}
        details["input"] = [f"{value:,.3f} GiB" for value in inputs]
        bars = Boxes(ranks, [0.0] * len(ranks), values, True, width=width, fill=0.7, details=details)
        groups.append(Group(index, (bars,), label))
        highest += values
    mark = Whiskers(inputs, [rank - 0.4 for rank in ranks], [rank + 0.4 for rank in ranks], width=3)
    return _chart_by_rank(
        "GiB",
        dict(zip(ranks, map(str, ranks), strict=True)),
        [*groups, Group(1, (mark,), "its input")],
        highest + inputs,
    )


def _worker_label(worker: WorkerFigures) -> str:
    return visible(f"{worker.rank} {worker.host}")


def _gib_or_nan(value: float | None) -> float:
    return float("nan") if value is None else value / GIB


def _chart_by_rank(unit: str, names: Mapping[int, str], groups: Sequence[Group], values: Iterable[float]) -> Chart:
    """A chart with a place for every rank; `names`: what stands below each place; `values`: for the vertical axis."""
    x = Axis("Rank", thin_ticks(names, 32), min(names, default=0) - 0.5, max(names, default=0) + 0.5)
    return Chart(x, _axis_from_zero(unit, values), tuple(groups), HEIGHT)


def _axis_from_zero(unit: str, values: Iterable[float]) -> Axis:
    """An axis from 0 to a little more than the highest of `values`."""
    high = max((value for value in values if value == value), default=0.0)
    return Axis(unit, low=0.0, high=1.08 * high if high > 0 else 1.0)

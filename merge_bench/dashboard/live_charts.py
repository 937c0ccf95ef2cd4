"""The figures of the Live tab: made once, with fixed sizes; afterwards only their data change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from bokeh.models import BasicTicker, ColumnDataSource, HoverTool, LinearColorMapper, Range1d
from bokeh.models.annotations import ColorBar, Legend, LegendItem
from bokeh.plotting import figure

from merge_bench.dashboard.live import MemoryOf, PairNow, Point, WorkerNow
from merge_bench.dashboard.parts import said
from merge_bench.plot.merge import PARTS
from merge_bench.plot.style import HEAT, look, short, shown

HEIGHT = 270
_SLOW = look(1).colour
_USUAL = look(0).colour
_SHAPES = {
    "circle": "●", "square": "■", "triangle": "▲", "diamond": "◆", "inverted_triangle": "▼", "star": "★", "hex": "⬢",
    "plus": "✚",
}  # fmt: skip
_TOOLS = "pan,box_zoom,xwheel_zoom,reset,save"


class Rates:
    """A rate of every iteration, in GiB/s, by the number of the iteration; `legend` names the configs, as HTML."""

    def __init__(self, field: str) -> None:
        self._field = field
        names = ("number", "rate", "colour", "shape", "config", "launch", "iteration", "value", "wall")
        self._source = ColumnDataSource({name: [] for name in names})
        self.figure = _figure("Timed iteration, over all launches", "GiB/s")
        points = self.figure.scatter(
            "number", "rate", source=self._source, marker="shape", size=7, line_color="colour", fill_color="colour",
            fill_alpha=0.5,
        )  # fmt: skip
        self.figure.add_tools(_hover(points, ["config", "launch", "iteration", "value", "wall"]))
        # No legend of Bokeh's: one that follows a column fails while the column is empty.
        self._configs: dict[str, int] = {}
        self._highest = 0.0

    def add(self, points: Sequence[Point], *, anew: bool) -> None:
        """Add points that are new, or begin `anew` with them."""
        found = [(point, getattr(point, self._field)) for point in points]
        known = [(point, rate) for point, rate in found if rate is not None]
        columns: dict[str, Any] = {
            "number": [point.number for point, _ in known],
            "rate": [rate for _, rate in known],
            "colour": [look(point.look).colour for point, _ in known],
            "shape": [look(point.look).shape for point, _ in known],
            "config": [shown(point.config) for point, _ in known],
            "launch": [point.launch for point, _ in known],
            "iteration": [point.index for point, _ in known],
            "value": [f"{rate:,.4g} GiB/s" for _, rate in known],
            "wall": [f"{point.wall_seconds * 1e3:,.2f} ms" for point, _ in known],
        }
        if anew:
            self._source.data = columns
            self._highest, self._configs = 0.0, {}
        elif known:
            self._source.stream(columns)
        self._highest = max([self._highest, *(rate for _, rate in known)])
        self._configs |= {point.config: point.look for point, _ in known}
        _up_to(self.figure, [self._highest])
        last = known[-1][0].number if known else 1 if anew else self.figure.x_range.end - 0.5
        _stretch(self.figure.x_range, 0.5, max(last, 10) + 0.5)

    @property
    def legend(self) -> str:
        """Which colour and shape stands for which config."""
        named = (
            f'<span style="color: {look(number).colour}">{_SHAPES[look(number).shape]}</span> {said(short(config, 30))}'
            for config, number in self._configs.items()
        )
        return f'<div class="scroll">{" &ensp; ".join(named)}</div>'


class Workers:
    """The bandwidth of every worker; the slowest has another colour, a hatch, and says so."""

    def __init__(self) -> None:
        self._source = ColumnDataSource({name: [] for name in ("rank", "rate", "colour", "hatch", "worker", "value")})
        self.figure = _figure("Rank", "GiB/s")
        bars = self.figure.vbar(
            x="rank", top="rate", width=0.8, source=self._source, fill_color="colour", line_color="colour",
            fill_alpha=0.6, hatch_pattern="hatch", hatch_color="colour",
        )  # fmt: skip
        self.figure.add_tools(_hover(bars, ["worker", "value"]))

    def show(self, workers: Sequence[WorkerNow]) -> None:
        """Show these workers instead."""
        known = [(worker, worker.bandwidth) for worker in workers if worker.bandwidth is not None]
        slowest = slowest_of(workers)
        self._source.data = {
            "rank": [worker.rank for worker, _ in known],
            "rate": [rate for _, rate in known],
            "colour": [_SLOW if worker.rank == slowest else _USUAL for worker, _ in known],
            "hatch": ["right_diagonal_line" if worker.rank == slowest else "blank" for worker, _ in known],
            "worker": [_named(worker, slowest) for worker, _ in known],
            "value": [f"{rate:,.4g} GiB/s" for _, rate in known],
        }
        _ranks(self.figure, [worker.rank for worker, _ in known])
        _up_to(self.figure, [rate for _, rate in known])


class Phases:
    """The time of every worker in an iteration, by phase."""

    def __init__(self) -> None:
        self._source = ColumnDataSource({name: [] for name in ("rank", "worker", *PARTS)})
        self.figure = _figure("Rank", "ms")
        bars = self.figure.vbar_stack(
            list(PARTS), x="rank", width=0.8, source=self._source, alpha=0.75,
            color=[look(number).colour for number in range(len(PARTS))],
        )  # fmt: skip
        for part, drawn in zip(PARTS, bars, strict=True):
            tip = [("worker", "@worker"), (part, f"@{{{part}}}{{0,0.00}} ms")]
            self.figure.add_tools(HoverTool(renderers=[drawn], tooltips=tip, visible=False))
        items: list[Any] = [LegendItem(label=part, renderers=[drawn]) for part, drawn in zip(PARTS, bars, strict=True)]
        self.figure.add_layout(_legend(items, 5), "below")

    def show(self, workers: Sequence[WorkerNow]) -> None:
        """Show these workers instead."""
        known = [(worker, worker.parts) for worker in workers if worker.parts is not None]
        columns = {part: [parts[at] for _, parts in known] for at, part in enumerate(PARTS)}
        named: dict[str, Any] = {
            "rank": [worker.rank for worker, _ in known],
            "worker": [_named(worker, None) for worker, _ in known],
        }
        self._source.data = {**named, **columns}
        _ranks(self.figure, [worker.rank for worker, _ in known])
        _up_to(self.figure, [sum(parts) for _, parts in known])


class Pairs:
    """The rate of every ordered pair of workers in the last iteration."""

    def __init__(self) -> None:
        names = ("to", "from", "rate", "value", "sent", "lanes")
        self._source = ColumnDataSource({name: [] for name in names})
        self._mapper = LinearColorMapper(palette=HEAT, low=0.0, high=1.0, nan_color="#88888844")
        self.figure = _figure("to rank", "from rank")
        self.figure.grid.grid_line_color = None
        self.figure.yaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
        cells = self.figure.rect(
            x="to", y="from", width=1, height=1, source=self._source, line_color=None,
            fill_color={"field": "rate", "transform": self._mapper},
        )  # fmt: skip
        self.figure.add_tools(_hover(cells, ["from", "to", "value", "sent", "lanes"]))
        ticks = BasicTicker(desired_num_ticks=6)
        self.figure.add_layout(ColorBar(color_mapper=self._mapper, ticker=ticks, title="GiB/s", width=12), "right")
        _stretch(self.figure.y_range, 0.5, -0.5)
        self._shown: tuple[tuple[int, int, str], ...] = ()

    def show(self, pairs: Sequence[PairNow]) -> None:
        """Show these pairs instead; texts that are as before are not sent again."""
        rates = np.array([np.nan if pair.rate is None else pair.rate for pair in pairs], dtype=np.float32)
        known = rates[~np.isnan(rates)]
        values: dict[str, Any] = {
            "rate": rates,
            "value": [f"{pair.rate:,.4g} GiB/s" if pair.rate is not None else "not known" for pair in pairs],
            "sent": [f"{pair.sent:,.1f} MiB" for pair in pairs],
        }
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
        self._mapper.update(low=low if low < high else 0.0, high=high)
        places = tuple((pair.sender, pair.receiver, pair.lanes) for pair in pairs)
        if places == self._shown and pairs:
            self._source.patch({name: [(slice(len(pairs)), column)] for name, column in values.items()})
            return
        self._shown = places
        self._source.data = values | {
            "from": np.array([pair.sender for pair in pairs], dtype=np.int32),
            "to": np.array([pair.receiver for pair in pairs], dtype=np.int32),
            "lanes": [shown(pair.lanes) for pair in pairs],
        }
        ranks = [pair.sender for pair in pairs]
        _ranks(self.figure, ranks)
        _stretch(self.figure.y_range, max(ranks, default=0) + 0.5, -0.5)


class Memory:
    """The high-water marks of every worker; a line marks the size of its input."""

    def __init__(self) -> None:
        names = ("rank", "peak", "above", "device", "input", "worker")
        self._source = ColumnDataSource({name: [] for name in names})
        self.figure = _figure("Rank", "GiB")
        kinds = (("peak", "peak", 0.8), ("above", "above imports", 0.55), ("device", "on the GPU", 0.25))
        items: list[Any] = []
        for number, (name, label, width) in enumerate(kinds):
            colour = look((5, 0, 2)[number]).colour
            drawn = self.figure.vbar(x="rank", top=name, width=width, source=self._source, color=colour, alpha=0.7)
            tip = [("rank", "@rank"), (label, f"@{name}{{0,0.000}} GiB"), ("input", "@input{0,0.000} GiB")]
            self.figure.add_tools(HoverTool(renderers=[drawn], tooltips=tip, visible=False))
            items.append(LegendItem(label=label, renderers=[drawn]))
        mark = self.figure.scatter(
            "rank", "input", source=self._source, marker="dash", size=14, line_color=_SLOW, line_width=3
        )
        items.append(LegendItem(label="its input", renderers=[mark]))
        self.figure.add_layout(_legend(items, 4), "below")

    def show(self, memory: Sequence[MemoryOf]) -> None:
        """Show these marks instead."""
        gaps = {name: [getattr(one, name) for one in memory] for name in ("peak", "above", "device", "input")}
        columns: dict[str, Any] = {
            name: [np.nan if each is None else each for each in found] for name, found in gaps.items()
        }
        ranks = [one.rank for one in memory]
        self._source.data = columns | {"rank": ranks, "worker": [str(rank) for rank in ranks]}
        _ranks(self.figure, ranks)
        _up_to(self.figure, [value for found in gaps.values() for value in found])


def slowest_of(workers: Sequence[WorkerNow]) -> int | None:
    """The rank with the least bandwidth, if there are two that differ."""
    known = {worker.rank: worker.bandwidth for worker in workers if worker.bandwidth is not None}
    if len(set(known.values())) < 2:
        return None
    return min(known, key=lambda rank: known[rank])


def _named(worker: WorkerNow, slowest: int | None) -> str:
    return shown(f"{worker.rank} {worker.host}") + (" (the slowest)" if worker.rank == slowest else "")


def _figure(x_title: str, y_title: str) -> Any:
    plot: Any = figure(
        x_range=Range1d(start=0.0, end=1.0), y_range=Range1d(start=0.0, end=1.0), height=HEIGHT,
        sizing_mode="stretch_width", tools=_TOOLS, active_drag="box_zoom",
        x_axis_label=x_title, y_axis_label=y_title,
    )  # fmt: skip
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.xaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
    return plot


def _hover(drawn: Any, fields: Sequence[str]) -> HoverTool:
    return HoverTool(renderers=[drawn], tooltips=[(name, f"@{{{name}}}") for name in fields], visible=False)


def _ranks(plot: Any, ranks: Sequence[int]) -> None:
    _stretch(plot.x_range, min(ranks, default=0) - 0.5, max(ranks, default=0) + 0.5)


def _up_to(plot: Any, values: Iterable[float | None]) -> None:
    """From 0 to the highest of `values`, with some room."""
    high = max((value for value in values if value is not None), default=0.0)
    _stretch(plot.y_range, 0.0, 1.08 * high if high > 0 else 1.0)


def _stretch(axis: Range1d, low: float, high: float) -> None:
    """Ranges are set here and not found by the browser, which complains of figures that have no data yet."""
    if (axis.start, axis.end) != (low, high):
        axis.update(start=low, end=high, reset_start=low, reset_end=high)


def _legend(items: Sequence[Any], columns: int) -> Legend:
    return Legend(
        items=list(items), orientation="horizontal", border_line_color=None, label_text_font_size="9pt", ncols=columns,
        location="left", margin=0, spacing=12,
    )  # fmt: skip

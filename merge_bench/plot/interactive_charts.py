"""Charts of merges as Bokeh figures. Labels are canvas text and escaped hover fields, never markup.

Colours of text, axes and grounds are Bokeh's defaults, which a page changes with CSS variables (``--bk-…``).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.models import BasicTicker, ColumnDataSource, FixedTicker, HoverTool, LinearColorMapper
from bokeh.models.annotations import ColorBar, Legend, LegendItem, Span, Title
from bokeh.plotting import figure

from merge_bench.plot.charts import Bar, Bars, Chart, Heat, Stack, Strip, StripLaunch
from merge_bench.plot.style import GRID, HEAT, LEGEND, NEUTRAL, bar_height, legend_columns, look, plain, short

_LETTERS = 140
_TOOLS = "pan,box_zoom,xwheel_zoom,reset,save"


def draw_chart(chart: Chart, *, note: bool) -> Any:
    """`chart` as a Bokeh figure, as wide as there is room; with its `note` below it or without."""
    plot = _draw(chart)
    if note and chart.note:
        plot.add_layout(Title(text=plain(chart.note), text_font_size="9pt", text_font_style="normal"), "below")
    return plot


@singledispatch
def _draw(chart: Chart) -> Any:
    raise TypeError(f"{type(chart).__name__} is no chart")


@_draw.register
def _bars(chart: Bars) -> Any:
    places, ticks = _places(chart)
    thick = bar_height(len(places))
    plot = _figure(chart, 30 + thick * (len(places) + len(chart.rows) // 2))
    _rows_axis(plot, ticks, [row.label for row in chart.rows])
    renderers: dict[str, list[Any]] = {}
    for series, found in _by_series(places).items():
        renderers[series] = _draw_bars(plot, chart, found, thick)
    _values_from_zero(plot, [bar for bar, _ in places])
    if chart.line is not None:
        plot.add_layout(Span(location=chart.line, dimension="height", line_color=NEUTRAL, line_dash="dashed"))
    _legend(plot, renderers if chart.legend else {})
    return plot


def _places(chart: Bars) -> tuple[list[tuple[Bar, float]], list[float]]:
    """Where each bar lies, and each row's tick; a row is followed by half a bar of room."""
    at, bars, ticks = 0.0, [], []
    for row in chart.rows:
        bars += [(bar, at + number) for number, bar in enumerate(row.bars)]
        ticks.append(at + (len(row.bars) - 1) / 2)
        at += len(row.bars) + 0.5
    return bars, ticks


def _by_series(places: Sequence[tuple[Bar, float]]) -> dict[str, list[tuple[Bar, float]]]:
    found: dict[str, list[tuple[Bar, float]]] = {}
    for bar, at in places:
        found.setdefault(bar.series, []).append((bar, at))
    return found


def _draw_bars(plot: Any, chart: Bars, found: Sequence[tuple[Bar, float]], thick: int) -> list[Any]:
    names = {at: row.label for row, at in zip(chart.rows, _places(chart)[1], strict=True)}
    seen = look(found[0][0].index)
    known = [(bar, at, bar.value) for bar, at in found if bar.value is not None]
    source = ColumnDataSource(
        {
            "y": [at for _, at, _ in known],
            "x": [height for _, _, height in known],
            "row": [names.get(min(names, key=lambda tick: abs(tick - at)), "") for _, at, _ in known],
            "series": [bar.series for bar, _, _ in known],
            "value": [_shown(height, chart.unit) for _, _, height in known],
            "interval": [_interval(bar, chart.unit) for bar, _, _ in known],
            "remark": [bar.remark or "-" for bar, _, _ in known],
        }
    )
    hatch = {"hatch_pattern": value("right_diagonal_line"), "hatch_color": seen.colour} if found[0][0].published else {}
    bars = plot.hbar(
        y="y", right="x", left=0, height=0.8, source=source, fill_color=seen.colour,
        fill_alpha=0.2 if found[0][0].published else 0.5, line_color=seen.colour, **hatch,
    )  # fmt: skip
    plot.add_tools(_hover([bars], ["row", "series", "value", "interval", "remark"]))
    drawn = [bars]
    ends = [(at, *bar.interval) for bar, at, _ in known if bar.interval]
    if ends:
        at, low, high = zip(*ends, strict=True)
        drawn.append(plot.segment(low, at, high, at, line_color=seen.colour, line_width=max(thick // 4, 2)))
    points = [(at, number, name, point) for bar, at, _ in known for number, (name, point) in enumerate(bar.points)]
    if points:
        drawn.append(_draw_points(plot, points, chart.unit, seen.colour))
    return drawn


def _draw_points(plot: Any, points: Sequence[tuple[float, int, str, float]], unit: str, colour: str) -> Any:
    """Points on a bar, above and below its middle in turn, so that they hide each other less."""
    source = ColumnDataSource(
        {
            "y": np.array([at + (-0.16, 0.0, 0.16)[number % 3] for at, number, _, _ in points], dtype=np.float32),
            "x": np.array([point for *_, point in points], dtype=np.float32),
            "of": [name for _, _, name, _ in points],
            "value": [_shown(point, unit) for *_, point in points],
        }
    )
    drawn = plot.scatter("x", "y", source=source, size=5, fill_color="white", line_color=colour)
    plot.add_tools(_hover([drawn], ["of", "value"]))
    return drawn


@_draw.register
def _stack(chart: Stack) -> Any:
    thick = bar_height(len(chart.rows))
    plot = _figure(chart, 30 + int(thick * 1.4 * len(chart.rows)))
    _rows_axis(plot, [float(at) for at in range(len(chart.rows))], [row.label for row in chart.rows])
    starts = [0.0] * len(chart.rows)
    renderers: dict[str, list[Any]] = {}
    for number, part in enumerate(chart.parts):
        values = [row.values[number] for row in chart.rows]
        ends = [start + length for start, length in zip(starts, values, strict=True)]
        source = ColumnDataSource(
            {
                "y": list(range(len(values))),
                "left": starts,
                "right": ends,
                "row": [row.label for row in chart.rows],
                "part": [part] * len(values),
                "value": [_shown(length, chart.unit) for length in values],
            }
        )
        colour = look(number).colour
        bars = plot.hbar(y="y", left="left", right="right", height=0.8, source=source, color=colour, fill_alpha=0.7)
        plot.add_tools(_hover([bars], ["row", "part", "value"]))
        renderers[part] = [bars]
        starts = ends
    plot.x_range.start = 0
    _legend(plot, renderers)
    return plot


@_draw.register
def _strip(chart: Strip) -> Any:
    plot = _figure(chart, 300)
    renderers: dict[str, list[Any]] = {}
    for series in chart.series:
        seen = look(series.index)
        source = ColumnDataSource(_strip_columns(series.launches, chart.unit, seen.colour))
        points = plot.scatter(
            "x", "y", source=source, marker=seen.shape, size=6, line_color=seen.colour, fill_color="fill", alpha=0.85
        )
        plot.add_tools(_hover([points], ["launch", "iteration", "value"]))
        places = [launch.place for launch in series.launches]
        wide = {"line_color": seen.colour, "line_width": 3}
        left, right = [at - 0.38 for at in places], [at + 0.38 for at in places]
        medians = [launch.median for launch in series.launches]
        lines = [plot.segment(left, medians, right, medians, **wide)]
        for ends in ([each.low for each in series.launches], [each.high for each in series.launches]):
            lines.append(plot.segment(left, ends, right, ends, line_color=seen.colour, line_dash="dotted"))
        renderers[series.label] = [points, *lines]
    ticks = list(chart.ticks)
    plot.xaxis.ticker = FixedTicker(ticks=ticks[:: max(len(ticks) // 40, 1)])
    plot.xaxis.major_label_overrides = {place: plain(name) for place, name in chart.ticks.items()}
    plot.xaxis.axis_label, plot.yaxis.axis_label = "Launch", plain(chart.axis)
    plot.y_range.start = 0
    _legend(plot, renderers if len(chart.series) > 1 else {})
    return plot


def _strip_columns(launches: Sequence[StripLaunch], unit: str, colour: str) -> dict[str, Any]:
    x: list[float] = []
    for launch in launches:
        last = max(launch.iterations, default=0) or 1
        x += [launch.place - 0.35 + 0.7 * index / last for index in launch.iterations]
    values = list(itertools.chain.from_iterable(launch.values for launch in launches))
    flags = itertools.chain.from_iterable(launch.flagged for launch in launches)
    return {
        "x": np.array(x, dtype=np.float32),
        "y": np.array(values, dtype=np.float32),
        "fill": ["white" if far else colour for far in flags],
        "launch": [launch.launch for launch in launches for _ in launch.values],
        "iteration": [index for launch in launches for index in launch.iterations],
        "value": [_shown(each, unit) for each in values],
    }


@_draw.register
def _heat(chart: Heat) -> Any:
    count = len(chart.labels)
    side = min(max(28 * count, 200), 640)
    plot = _figure(chart, side, side)
    ticks = list(range(count))[:: -(-count // 32)]
    _rows_axis(plot, ticks, [chart.labels[at] for at in ticks])
    plot.y_range.start, plot.y_range.end = count - 0.5, -0.5
    plot.xaxis.ticker = FixedTicker(ticks=ticks)
    plot.xaxis.major_label_overrides = {at: plain(chart.labels[at].partition(" ")[0]) for at in ticks}
    plot.xaxis.axis_label, plot.yaxis.axis_label = "to rank", "from rank"
    values = [cell.value for cell in chart.cells]
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low == high:
        low = 0.0
    mapper = LinearColorMapper(palette=HEAT, low=low, high=high)
    source = ColumnDataSource(
        {
            "x": np.array([cell.column for cell in chart.cells], dtype=np.int32),
            "y": np.array([cell.row for cell in chart.cells], dtype=np.int32),
            "rate": np.array(values, dtype=np.float32),
            "from": [chart.labels[cell.row] for cell in chart.cells],
            "to": [chart.labels[cell.column] for cell in chart.cells],
            "value": [_shown(each, chart.unit) for each in values],
            **{name: [cell.details[at] for cell in chart.cells] for at, name in enumerate(chart.details)},
        }
    )
    cells = plot.rect(
        x="x", y="y", width=1, height=1, source=source, fill_color={"field": "rate", "transform": mapper},
        line_color=NEUTRAL if count <= 16 else None, line_width=0.5,
    )  # fmt: skip
    plot.add_tools(_hover([cells], ["from", "to", "value", *chart.details]))
    plot.grid.grid_line_color = None
    bar = ColorBar(
        color_mapper=mapper, ticker=BasicTicker(desired_num_ticks=6), title=chart.unit, width=14,
        title_text_color=LEGEND, major_label_text_color=LEGEND, background_fill_color=None,
    )  # fmt: skip
    plot.add_layout(bar, "right")
    return plot


def _figure(chart: Chart, height: int, width: int | None = None) -> Any:
    wide = {"frame_width": width} if width else {"sizing_mode": "stretch_width"}
    plot: Any = figure(frame_height=height, title=plain(chart.title), tools=_TOOLS, active_drag="box_zoom", **wide)
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.grid.grid_line_color = GRID
    if isinstance(chart, Bars | Stack):
        plot.xaxis.axis_label = plain(chart.axis)
        plot.ygrid.grid_line_color = None
    return plot


def _rows_axis(plot: Any, ticks: Sequence[float], labels: Sequence[str]) -> None:
    """Rows from the top down."""
    plot.y_range.start, plot.y_range.end = max(ticks, default=0) + 1, -1
    plot.yaxis.ticker = FixedTicker(ticks=list(ticks))
    plot.yaxis.major_label_overrides = {tick: plain(short(label)) for tick, label in zip(ticks, labels, strict=True)}
    plot.yaxis.minor_tick_line_color = None


def _values_from_zero(plot: Any, bars: Sequence[Bar]) -> None:
    found = [bar.value for bar in bars if bar.value is not None]
    found += [end for bar in bars if bar.interval for end in bar.interval]
    found += [point for bar in bars for _, point in bar.points]
    plot.x_range.start, plot.x_range.end = 0, 1.05 * max(found, default=1.0)


def _legend(plot: Any, renderers: Mapping[str, Sequence[Any]]) -> None:
    if not renderers:
        return
    items = [LegendItem(label=value(short(name)), renderers=list(drawn)) for name, drawn in renderers.items()]
    legend = Legend(
        items=items, click_policy="hide", location="left", orientation="horizontal", border_line_color=None,
        background_fill_color=None, label_text_color=LEGEND,
        ncols=legend_columns([short(name) for name in renderers], _LETTERS), label_text_font_size="9pt",
    )  # fmt: skip
    plot.add_layout(legend, "below")


def _hover(renderers: Sequence[Any], fields: Sequence[str]) -> HoverTool:
    return HoverTool(renderers=list(renderers), tooltips=[(name, f"@{{{name}}}") for name in fields], visible=False)


def _shown(number: float, unit: str) -> str:
    return f"{number:,.4g} {unit}"


def _interval(bar: Bar, unit: str) -> str:
    return f"{bar.interval[0]:,.4g} to {bar.interval[1]:,.4g} {unit}" if bar.interval else "-"

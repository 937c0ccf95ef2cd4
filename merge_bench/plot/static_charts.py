"""Charts of merges with Matplotlib, each on axes of its own. Labels are text, never mathematics."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from merge_bench.plot.charts import Bar, Bars, Chart, Heat, Stack, Strip, StripSeries
from merge_bench.plot.style import GRID, HEAT_STATIC, NEUTRAL, legend_columns, look, short, shown

_WIDTH = 7.2
_LETTERS = 86
_POINT_OFFSETS = (-0.16, 0.0, 0.16)


def draw_chart(chart: Chart) -> Figure:
    """`chart` as a figure as wide as a page's text; the caller sets how text is drawn (`static.SETTINGS`)."""
    rows, square = _size(chart)
    note = textwrap.fill(shown(chart.note), _LETTERS)
    height = 1.5 + rows + 0.2 * note.count("\n")
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.subplots()
    entries = _draw(chart, axes)
    axes.set_title(shown(chart.title))
    if not square:
        axes.grid(visible=True, axis="y" if isinstance(chart, Strip) else "x", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
    labels = [shown(short(name)) for name in entries]
    figure.legend(
        list(entries.values()), labels, loc="outside lower center", title=note, frameon=False, fontsize=9,
        title_fontsize=9, ncols=legend_columns(labels, _LETTERS) if labels else 1,
    )  # fmt: skip
    return figure


def _size(chart: Chart) -> tuple[float, bool]:
    """Inches of the axes, and whether they are a map."""
    match chart:
        case Bars():
            return 0.2 * sum(1 for _ in chart.bars) + 0.12 * len(chart.rows) + 0.5, False
        case Stack():
            return 0.26 * len(chart.rows) + 0.5, False
        case Heat():
            return min(2.4 + 0.2 * len(chart.labels), 6.5), True
    return 3.4, False


@singledispatch
def _draw(chart: Chart, axes: Axes) -> dict[str, Any]:
    """Draw `chart` on `axes`; gives what stands in the legend."""
    raise TypeError(f"{type(chart).__name__} is no chart")


@_draw.register
def _(chart: Bars, axes: Axes) -> dict[str, Any]:
    at, ticks = 0.0, []
    for row in chart.rows:
        for number, bar in enumerate(row.bars):
            _bar(axes, bar, at + number)
        ticks.append(at + (len(row.bars) - 1) / 2)
        at += len(row.bars) + 0.5
    _name_rows(axes, ticks, [row.label for row in chart.rows])
    if chart.line is not None:
        axes.axvline(chart.line, color=NEUTRAL, linestyle="--", linewidth=1)
    axes.set_xlabel(shown(chart.axis))
    axes.set_xlim(left=0)
    return {name: _patch(bar) for name, bar in chart.legend.items()}


def _patch(bar: Bar) -> Patch:
    colour = look(bar.index).colour
    return Patch(
        facecolor=(colour, 0.2 if bar.published else 0.5), edgecolor=colour, hatch="///" if bar.published else None
    )


def _bar(axes: Axes, bar: Bar, at: float) -> None:
    if bar.value is None:
        return
    colour, alpha = look(bar.index).colour, 0.2 if bar.published else 0.5
    axes.barh(at, bar.value, height=0.8, facecolor=(colour, alpha), edgecolor=colour, hatch="///" * bar.published)
    if bar.interval:
        axes.hlines(at, *bar.interval, color=colour, linewidth=3)
    if bar.points:
        places = [at + _POINT_OFFSETS[number % 3] for number in range(len(bar.points))]
        axes.plot(
            [point for _, point in bar.points], places, linestyle="", marker="o", markersize=3,
            markerfacecolor="white", markeredgecolor=colour,
        )  # fmt: skip


@_draw.register
def _(chart: Stack, axes: Axes) -> dict[str, Any]:
    starts = [0.0] * len(chart.rows)
    entries: dict[str, Any] = {}
    for number, part in enumerate(chart.parts):
        values = [row.values[number] for row in chart.rows]
        colour = look(number).colour
        axes.barh(range(len(values)), values, left=starts, height=0.8, facecolor=(colour, 0.7), edgecolor=colour)
        entries[part] = Patch(facecolor=(colour, 0.7), edgecolor=colour)
        starts = [start + length for start, length in zip(starts, values, strict=True)]
    _name_rows(axes, list(range(len(chart.rows))), [row.label for row in chart.rows])
    axes.set_xlabel(shown(chart.axis))
    axes.set_xlim(left=0)
    return entries


@_draw.register
def _(chart: Strip, axes: Axes) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for series in chart.series:
        _strip(axes, series)
        seen = look(series.index)
        entries[series.label] = Line2D([], [], color=seen.colour, marker=seen.marker, linestyle="-", markersize=5)
    ticks = list(chart.ticks)
    axes.xaxis.set_major_locator(FixedLocator(ticks[:: math.ceil(len(ticks) / 24) or 1]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: shown(chart.ticks.get(round(x), ""))))
    axes.set_xlabel("Launch")
    axes.set_ylabel(shown(chart.axis))
    axes.set_ylim(bottom=0)
    return entries if len(entries) > 1 else {}


def _strip(axes: Axes, series: StripSeries) -> None:
    seen = look(series.index)
    for hollow in (False, True):
        points = [
            (launch.place - 0.35 + 0.7 * index / (max(launch.iterations) or 1), value)
            for launch in series.launches
            for index, value, far in zip(launch.iterations, launch.values, launch.flagged, strict=True)
            if far == hollow
        ]
        axes.plot(
            [x for x, _ in points], [y for _, y in points], linestyle="", marker=seen.marker, markersize=3, alpha=0.7,
            markerfacecolor="white" if hollow else seen.colour, markeredgecolor=seen.colour, markeredgewidth=0.6,
        )  # fmt: skip
    left = [launch.place - 0.38 for launch in series.launches]
    right = [launch.place + 0.38 for launch in series.launches]
    axes.hlines([launch.median for launch in series.launches], left, right, color=seen.colour, linewidth=2)
    for ends in ([each.low for each in series.launches], [each.high for each in series.launches]):
        axes.hlines(ends, left, right, color=seen.colour, linewidth=1, linestyle=":")


@_draw.register
def _(chart: Heat, axes: Axes) -> dict[str, Any]:
    count = len(chart.labels)
    rates = [[math.nan] * count for _ in range(count)]
    for cell in chart.cells:
        rates[cell.row][cell.column] = cell.value
    known = [cell.value for cell in chart.cells]
    low = min(known, default=0.0) if len(set(known)) > 1 else 0.0
    image = axes.imshow(rates, cmap=matplotlib.colormaps[HEAT_STATIC], vmin=low, vmax=max(known, default=1.0))
    step = math.ceil(count / 32) or 1
    axes.xaxis.set_major_locator(FixedLocator(range(0, count, step)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _rank(chart.labels, x)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(FixedLocator(range(0, count, step)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: shown(short(_label(chart.labels, y), 24))))
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")
    bar = axes.figure.colorbar(image, ax=axes)
    bar.set_label(chart.unit)
    return {}


def _label(labels: Sequence[str], place: float) -> str:
    return labels[round(place)] if 0 <= round(place) < len(labels) else ""


def _rank(labels: Sequence[str], place: float) -> str:
    return shown(_label(labels, place).partition(" ")[0])


def _name_rows(axes: Axes, ticks: Sequence[float], labels: Sequence[str]) -> None:
    axes.set_yticks(ticks, [shown(short(label, 36)) for label in labels], fontsize=8)
    axes.set_ylim(max(ticks, default=0) + 0.9, -0.9)

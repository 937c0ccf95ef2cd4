"""Draws charts as PNG or SVG with Matplotlib, without a window or global state. Labels are never mathematics."""

from __future__ import annotations

import contextlib
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from merge_bench.view.plot import (
    GRID,
    HEAT_STATIC,
    LEGEND,
    NEUTRAL,
    Axis,
    BandMark,
    BoxMarks,
    Chart,
    HeatMapCells,
    LineMark,
    Mark,
    PointMarks,
    TextMarks,
    WhiskerMarks,
    logarithmic_ticks,
    style_of_series,
    thinning_step,
)
from merge_bench.view.text import mark_unprintable, shorten_middle

_SETTINGS: Any = {
    "text.parse_math": False,  # labels are data: a dollar sign is one
    "svg.hashsalt": "merge_bench",
    "font.size": 10,
    "axes.titlesize": 11,
    "figure.constrained_layout.w_pad": 0.12,
}
_CHART_INCHES, _BESIDE_INCHES = 7.2, 1.8
"""Inches of a chart's width, and of numbers beside the chart."""
_PIXELS_PER_INCH = 90
"""Pixels of an inch; heights of charts are in pixels."""
_POINTS_PER_PIXEL = 0.65
"""Points (1/72 inch) of a pixel in the sizes of markers and lines."""
_LEGEND_LETTERS = 86
"""Letters of a legend's line that is as wide as a chart."""
_SOURCE_LINE_INCHES = 0.17
"""Inches of a line that names a chart's results."""
_ROW_NAME_LETTERS = 36
"""Letters of a row's name, at most."""


def draw_charts_as_image(charts: Sequence[Chart], stream: IO[bytes], image_format: str) -> None:
    """Draw `charts` side by side with one legend into `stream`; `image_format`: ``png`` or ``svg``."""
    with _use_matplotlib_settings():
        figure = _draw_charts_side_by_side(charts)
        figure.savefig(stream, format=image_format, dpi=150, metadata={"Date": None} if image_format == "svg" else None)


def make_matplotlib_figure(chart: Chart) -> Figure:
    with _use_matplotlib_settings():
        return _draw_charts_side_by_side([chart])


@contextlib.contextmanager
def _use_matplotlib_settings() -> Iterator[None]:
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def _draw_charts_side_by_side(charts: Sequence[Chart]) -> Figure:
    """Draw charts side by side in a figure, with one legend and the lines that name their results."""
    width = len(charts) * max(map(_chart_width_inches, charts))
    letters = int(_LEGEND_LETTERS * width / _CHART_INCHES)
    note = _wrap_texts(dict.fromkeys(chart.note for chart in charts if chart.note), letters)
    source = _wrap_texts(dict.fromkeys(chart.source for chart in charts if chart.source), int(1.4 * letters))
    labels = {g.label: _wrap_texts([g.label], letters) for chart in charts for g in chart.groups if g.label}
    columns = max(1, min(len(labels), letters // (max(map(len, labels.values()), default=1) + 8)))
    lines = 1 + note.count("\n") + sum(1 + label.count("\n") for label in labels.values()) / columns
    height = 1.2 + max(chart.height for chart in charts) / _PIXELS_PER_INCH + 0.2 * lines
    below = _SOURCE_LINE_INCHES * (source.count("\n") + 1.5) if source else 0.0
    figure = Figure(figsize=(width, height + below), layout="constrained")
    part: Figure | SubFigure = figure
    if source:  # a part of its own: the layout leaves no room for a figure's texts
        part, last = figure.subfigures(2, 1, squeeze=False, height_ratios=(height, below))[:, 0]
        last.text(0.5, 0.5, source, ha="center", va="center", fontsize=7, color=LEGEND)
    entries: dict[str, Any] = {}  # all that is drawn of a group stands for it
    for number, (chart, axes) in enumerate(zip(charts, part.subplots(1, len(charts), squeeze=False)[0], strict=True)):
        axes.set_title(textwrap.fill(mark_unprintable(chart.title), 80))
        for group in chart.groups:
            drawn = [
                _draw_matplotlib_mark(axes, mark, group.index, f"panel-{number}-series-{group.index}")
                for mark in group.marks
            ]
            entries.setdefault(group.label, tuple(drawn[at] for at in group.mark_order_in_legend))
        axes.set_axisbelow(True)
        _set_up_axis(axes, chart.x, "x")
        _set_up_axis(axes, chart.y, "y")
    drawn = [entries[label] for label in labels]
    style: Any = {"ncols": columns, "frameon": False, "title_fontsize": 9, "fontsize": 9}
    part.legend(drawn, labels.values(), loc="outside lower center", title=note, **style)
    return figure


def _chart_width_inches(chart: Chart) -> float:
    """The width of a chart in inches; a square one is as wide as high, with room for labels and a colour scale."""
    wide = _CHART_INCHES + (_BESIDE_INCHES if chart.y.beside else 0.0)
    return max(wide, chart.height / _PIXELS_PER_INCH + 1.4 * _BESIDE_INCHES) if chart.square else wide


def _wrap_texts(texts: Iterable[str], line_length: int) -> str:
    """Wrap texts into lines of at most `line_length` characters; unprintable characters are made visible."""
    return "\n".join(textwrap.fill(mark_unprintable(line), line_length) for text in texts for line in text.split("\n"))


def _set_up_axis(axes: Axes, axis: Axis, dimension: str) -> None:
    drawn, set_limits = getattr(axes, f"{dimension}axis"), getattr(axes, f"set_{dimension}lim")
    drawn.set_label_text(mark_unprintable(axis.title))
    if axis.log:
        getattr(axes, f"set_{dimension}scale")("log", base=2 if axis.ticks else 10)
    set_limits(axis.low, axis.high)
    if axis.grid:
        drawn.grid(visible=True, color=GRID, linewidth=0.8)
    if axis.rule is not None:
        (axes.axvline if dimension == "x" else axes.axhline)(axis.rule, color=NEUTRAL, linestyle="--", linewidth=1)
    if axis.ticks is not None:
        labels = [mark_unprintable(shorten_middle(label, _ROW_NAME_LETTERS)) for label in axis.ticks.values()]
        room = 100 // (max(map(len, labels), default=0) + 1) if dimension == "x" else len(labels)
        step = thinning_step(len(labels), max(room, 1))
        drawn.set_ticks(list(axis.ticks)[::step], labels[::step], fontsize=8)
        drawn.set_minor_locator(NullLocator())
    elif axis.log or drawn.get_data_interval()[1] >= 1000:
        drawn.set_major_formatter(FuncFormatter(lambda at, _: f"{at:,.10g}"))
    if axis.ticks is None and axis.log:
        ticks = logarithmic_ticks(*getattr(axes.dataLim, f"interval{dimension}"))
        drawn.set_major_locator(FixedLocator(ticks))
        drawn.set_minor_formatter(NullFormatter())
        if len(ticks) < 4:
            set_limits(ticks[0], ticks[-1])
    if axis.beside:
        beside = axes.secondary_yaxis("right")
        beside.set_yticks(list(axis.beside), list(map(mark_unprintable, axis.beside.values())), fontsize=8)
        beside.tick_params(axis="y", length=0)


def _draw_matplotlib_mark(axes: Axes, mark: Mark, style_index: int, line_id: str) -> Any:
    """Draw a mark in style number `style_index`; returns the object of Matplotlib that stands for it in the legend."""
    mark_look = style_of_series(style_index)
    colour = mark_look.colour
    match mark:
        case PointMarks():
            hollow = np.array(mark.hollow or np.zeros(len(mark.x)), dtype=bool)
            order = np.argsort(hollow, kind="stable")  # the legend shows the first
            x, y, size = np.array(mark.x)[order], np.array(mark.y)[order], (_POINTS_PER_PIXEL * mark.size) ** 2
            fill: Any = "white" if mark.white else np.where(hollow[order], "white", colour).tolist()
            return axes.scatter(x, y, size, marker=mark_look.marker, linewidths=1, facecolors=fill, edgecolors=colour)
        case LineMark():
            style = "--" if mark.dashed else "-"
            return axes.plot(
                mark.x, mark.y, style, color=colour, linewidth=_POINTS_PER_PIXEL * mark.width, gid=line_id
            )[0]
        case BandMark():
            area: Any = {"facecolor": "none", "hatch": "///"} if mark.hatched else {"facecolor": (colour, 0.2)}
            return axes.fill_between(mark.x, mark.low, mark.high, linewidth=0, edgecolor=colour, **area)
        case WhiskerMarks():
            draw_lines, width = axes.vlines if mark.upright else axes.hlines, max(_POINTS_PER_PIXEL * mark.width, 1)
            line: Any = {"color": colour, "linestyle": ":" if mark.dotted else "-"}
            return draw_lines(mark.at, mark.start, mark.end, linewidth=width, **line)
        case BoxMarks():
            draw_bars, lengths = axes.bar if mark.upright else axes.barh, np.subtract(mark.end, mark.start)
            fill = "white" if mark.white else (colour, 0.2 if mark.hatched else mark.fill)
            area = {"facecolor": fill, "hatch": "///" if mark.hatched else None}
            return draw_bars(mark.at, lengths, mark.width, mark.start, edgecolor=colour, **area)
        case HeatMapCells():
            values = np.full((max(mark.y, default=0) + 1, max(mark.x, default=0) + 1), np.nan)
            values[list(mark.y), list(mark.x)] = mark.values
            low, high = mark.colour_scale_limits
            image = axes.imshow(values, cmap=matplotlib.colormaps[HEAT_STATIC], vmin=low, vmax=high)
            axes.figure.colorbar(image, ax=axes).set_label(mark.unit)
        case TextMarks():
            for x_at, y_at, text, light in zip(mark.x, mark.y, mark.texts, mark.light, strict=True):
                letters = "white" if light else "black"
                axes.text(x_at, y_at, mark_unprintable(text), ha="center", va="center", fontsize=7, color=letters)
    return None

"""Drawings as pictures, with Matplotlib: PNG or SVG. No window, no global state."""

from __future__ import annotations

import contextlib
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from merge_bench.plot import static_charts
from merge_bench.plot.charts import Chart
from merge_bench.plot.series import MANY, Panel, Series, caption
from merge_bench.plot.style import GRID, Look, legend_columns, look, size_ticks, tick_label, value_ticks

_SETTINGS: Any = {
    "text.parse_math": False,  # labels are data: a dollar sign is one
    "svg.hashsalt": "merge_bench",
    "font.size": 10,
    "axes.titlesize": 11,
    "figure.constrained_layout.w_pad": 0.12,
}
_WIDTH = 7.2
_LETTERS = 86
"""Of a legend on a line as wide as a panel."""


def draw(panels: Sequence[Panel], path: Path, form: str) -> None:
    """Draw `panels` side by side, with one legend for all below them, into `path` as `form` (``png`` or ``svg``)."""
    with _settings():
        _save(_side_by_side(panels), path, form)


def draw_one(drawing: Panel | Chart, path: Path, form: str) -> None:
    """Draw one panel or chart into `path` as `form` (``png`` or ``svg``)."""
    with _settings():
        _save(_figure(drawing), path, form)


def figure_of(drawing: Panel | Chart) -> Figure:
    """`drawing` as a figure of its own."""
    with _settings():
        return _figure(drawing)


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def _save(figure: Figure, path: Path, form: str) -> None:
    figure.savefig(path, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)


def _figure(drawing: Panel | Chart) -> Figure:
    return _side_by_side([drawing]) if isinstance(drawing, Panel) else static_charts.draw_chart(drawing)


def _side_by_side(panels: Sequence[Panel]) -> Figure:
    entries = _legend(panels)
    letters = _LETTERS * len(panels)
    columns = legend_columns(list(entries), letters)
    labels = [textwrap.fill(label, letters) for label in entries]
    title = textwrap.fill(caption(panels), letters)
    lines = 1 + title.count("\n") + sum(1 + label.count("\n") for label in labels) / columns
    height = 5.2 + 0.24 * lines
    figure = Figure(figsize=(_WIDTH * len(panels), height), layout="constrained")
    for number, axes in enumerate(figure.subplots(1, len(panels), squeeze=False)[0]):
        _panel(axes, panels[number], number)
    figure.legend(
        list(entries.values()), labels, loc="outside lower center", title=title, ncols=columns, frameon=False,
        title_fontsize=9, fontsize=9,
    )  # fmt: skip
    return figure


def _legend(panels: Sequence[Panel]) -> dict[str, Line2D]:
    """One entry a label, over all panels."""
    entries: dict[str, Line2D] = {}
    for series in (series for panel in panels for series in panel.series):
        seen = look(series.index)
        entries.setdefault(
            series.label, Line2D([], [], color=seen.colour, marker=seen.marker, linestyle=_line(series), markersize=6)
        )
    return entries


def _line(series: Series) -> Literal["-", "--"]:
    return "--" if series.source or series.forecast else "-"


def _panel(axes: Axes, panel: Panel, number: int) -> None:
    for series in panel.series:
        _draw_series(axes, series, look(series.index), f"panel-{number}-series-{series.index}")
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_title)
    axes.set_ylabel(panel.y_title)
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    sizes = [x for series in panel.series for x in series.x]
    if panel.log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        values = [value for series in panel.series for value in (*series.low, *series.high)]
        ticks = value_ticks(min(values), max(values))
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_minor_formatter(NullFormatter())
        if len(ticks) < 4:
            axes.set_ylim(ticks[0], ticks[-1])
    else:
        axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(FixedLocator(size_ticks(min(sizes), max(sizes), log=panel.log, most=12)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: tick_label(x, panel.x_unit)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.10g}"))
    axes.tick_params(axis="x", labelsize=8)


def _draw_series(axes: Axes, series: Series, seen: Look, name: str) -> None:
    many = len(series.x) > MANY
    (line,) = axes.plot(
        series.x, series.y, color=seen.colour, linestyle=_line(series), linewidth=1.4,
        marker="" if many else seen.marker, markersize=5,
    )  # fmt: skip
    line.set_gid(name)
    if series.spreads and many:
        axes.fill_between(series.x, series.low, series.high, color=seen.colour, alpha=0.2, linewidth=0)
    elif series.spreads:
        axes.vlines(series.x, series.low, series.high, color=seen.colour, linewidth=2.5, alpha=0.5)
    hollow = [(x, y) for x, y, one in zip(series.x, series.y, series.doubtful, strict=True) if one]
    if hollow:
        axes.plot(
            [x for x, _ in hollow], [y for _, y in hollow], linestyle="", marker=seen.marker, markersize=6,
            markerfacecolor="white", markeredgecolor=seen.colour,
        )  # fmt: skip

"""Charts as pictures, with Matplotlib: PNG or SVG. No window, no global state. Labels are text, never mathematics."""

from __future__ import annotations

import contextlib
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from typing import IO, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from merge_bench.view.plot import marks
from merge_bench.view.plot.style import (
    GRID,
    HEAT_STATIC,
    LEGEND,
    NEUTRAL,
    Look,
    legend_columns,
    look,
    step_of,
    value_ticks,
)
from merge_bench.view.text import short, visible

_SETTINGS: Any = {
    "text.parse_math": False,  # labels are data: a dollar sign is one
    "svg.hashsalt": "merge_bench",
    "font.size": 10,
    "axes.titlesize": 11,
    "figure.constrained_layout.w_pad": 0.12,
}
_WIDTH, _BESIDE = 7.2, 1.8
"""Inches of a chart, and of numbers beside it."""
_PIXELS = 90
"""Of an inch: heights of pictures are in pixels."""
_POINTS = 0.65
"""How large a pixel of a marker or a line is, in a printer's points."""
_LETTERS = 86
"""Of a legend on a line as wide as a chart."""
_LINE = 0.17
"""Inches of a line that names a picture's results."""
_LABEL = 36
"""Letters of a row's name."""


def draw(charts: Sequence[marks.Chart], stream: IO[bytes], form: str) -> None:
    """Draw `charts` side by side, with one legend for all below them, into `stream` as `form` (``png`` or ``svg``)."""
    with _settings():
        figure = _side_by_side(charts)
        figure.savefig(stream, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)


def figure_of(chart: marks.Chart) -> Figure:
    """`chart` as a figure of its own."""
    with _settings():
        return _side_by_side([chart])


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        yield


def _side_by_side(charts: Sequence[marks.Chart]) -> Figure:
    pictures = [chart.picture for chart in charts]
    width = len(charts) * max(_width(picture) for picture in pictures)
    letters = int(_LETTERS * width / _WIDTH)
    entries: dict[str, Patch | Line2D] = {}
    for group in (group for picture in pictures for group in picture.groups if group.label):
        entries.setdefault(textwrap.fill(visible(group.label), letters), _handle(group))
    note = textwrap.fill(visible(" ".join(dict.fromkeys(chart.note for chart in charts))), letters)
    columns = legend_columns(list(entries), letters)
    source = _wrapped("\n".join(dict.fromkeys(chart.source for chart in charts if chart.source)), int(letters * 1.4))
    lines = 1 + note.count("\n") + sum(1 + label.count("\n") for label in entries) / columns
    height = 1.2 + max(picture.height for picture in pictures) / _PIXELS + 0.2 * lines
    figure, part = _figure(width, height, source)
    for number, axes in enumerate(part.subplots(1, len(charts), squeeze=False)[0]):
        axes.set_title(textwrap.fill(visible(charts[number].title), 80))
        for group, mark in pictures[number].marks:
            _draw(axes, mark, look(group.index), f"panel-{number}-series-{group.index}")
        axes.set_axisbelow(True)
        _axis(axes, pictures[number].x, "x")
        _axis(axes, pictures[number].y, "y")
    part.legend(
        list(entries.values()), list(entries), loc="outside lower center", title=note, ncols=columns, frameon=False,
        title_fontsize=9, fontsize=9,
    )  # fmt: skip
    return figure


def _width(picture: marks.Picture) -> float:
    """Inches; a square is as wide as high, with room for labels and a colour scale."""
    wide = _WIDTH + _BESIDE * bool(picture.y.beside)
    return max(wide, picture.height / _PIXELS + 1.4 * _BESIDE) if picture.square else wide


def _figure(width: float, height: float, source: str) -> tuple[Figure, Figure | SubFigure]:
    """A figure, and its part for charts, of these inches; `source` stands below that."""
    if not source:
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure
    below = _LINE * (source.count("\n") + 1.5)
    figure = Figure(figsize=(width, height + below), layout="constrained")
    grid = figure.add_gridspec(2, 1, height_ratios=(height, below))
    figure.add_subfigure(grid[1]).text(0.5, 0.5, source, ha="center", va="center", fontsize=7, color=LEGEND)
    return figure, figure.add_subfigure(grid[0])


def _wrapped(text: str, letters: int) -> str:
    """`text` with its lines, which are made visible, broken where they are longer than `letters`."""
    return "\n".join(textwrap.fill(visible(line), letters) for line in text.split("\n"))


def _handle(group: marks.Group) -> Patch | Line2D:
    """What stands for `group` in the legend."""
    seen = look(group.index)
    for mark in group.marks:
        if isinstance(mark, marks.Boxes):
            return Patch(facecolor=(seen.colour, mark.fill), edgecolor=seen.colour, hatch="///" * mark.hatched)
    dashed = any(isinstance(mark, marks.Line) and mark.dashed for mark in group.marks)
    points = [mark for mark in group.marks if isinstance(mark, marks.Points)]
    hollow = any(points[0].hollow) and all(points[0].hollow) if points else False
    return Line2D(
        [], [], color=seen.colour, marker=seen.marker if points else "", linestyle="--" if dashed else "-",
        markersize=6, markerfacecolor="white" if hollow else seen.colour,
    )  # fmt: skip


def _axis(axes: Axes, axis: marks.Axis, which: str) -> None:
    drawn, set_limits = getattr(axes, f"{which}axis"), getattr(axes, f"set_{which}lim")
    drawn.set_label_text(visible(axis.title))
    if axis.log:
        getattr(axes, f"set_{which}scale")("log", base=2 if axis.ticks else 10)
    set_limits(axis.low, axis.high)
    if axis.grid:
        drawn.grid(visible=True, color=GRID, linewidth=0.8)
    if axis.rule is not None:
        (axes.axvline if which == "x" else axes.axhline)(axis.rule, color=NEUTRAL, linestyle="--", linewidth=1)
    if axis.ticks is not None:
        labels = [visible(short(label, _LABEL)) for label in axis.ticks.values()]
        room = 100 // (max(map(len, labels), default=0) + 1) if which == "x" else len(labels)
        every = step_of(len(labels), max(room, 1))
        drawn.set_ticks(list(axis.ticks)[::every], labels[::every], fontsize=8)
        drawn.set_minor_locator(NullLocator())
    elif axis.log or drawn.get_data_interval()[1] >= 1000:
        drawn.set_major_formatter(FuncFormatter(lambda at, _: f"{at:,.10g}"))
    if axis.ticks is None and axis.log:
        ticks = value_ticks(*getattr(axes.dataLim, f"interval{which}"))
        drawn.set_major_locator(FixedLocator(ticks))
        drawn.set_minor_formatter(NullFormatter())
        if len(ticks) < 4:
            set_limits(ticks[0], ticks[-1])
    if axis.beside:
        beside = axes.secondary_yaxis("right")
        beside.set_yticks(list(axis.beside), list(map(visible, axis.beside.values())), fontsize=8)
        beside.tick_params(axis="y", length=0)


def _draw(axes: Axes, mark: marks.Mark, seen: Look, name: str) -> None:
    colour = seen.colour
    match mark:
        case marks.Points():
            x, y, hollow = np.array(mark.x), np.array(mark.y), np.array(mark.hollow or [False] * len(mark.x))
            for some, fill in ((~hollow, colour), (hollow, "white")):
                axes.plot(
                    x[some], y[some], seen.marker, markersize=_POINTS * mark.size, alpha=0.85, markerfacecolor=fill,
                    markeredgecolor=colour,
                )  # fmt: skip
        case marks.Line():
            axes.plot(
                mark.x, mark.y, "--" if mark.dashed else "-", color=colour, linewidth=_POINTS * mark.width, gid=name
            )
        case marks.Band():
            area = axes.fill_between(mark.x, mark.low, mark.high, facecolor=(colour, 0.2), linewidth=0)
            if mark.hatched:
                area.set(facecolor="none", edgecolor=(colour, 0.4), hatch="///")
        case marks.Whiskers():
            (axes.vlines if mark.upright else axes.hlines)(
                mark.at, mark.start, mark.end, color=colour, linewidth=max(_POINTS * mark.width, 1), alpha=mark.alpha,
                linestyle=":" if mark.dotted else "-",
            )  # fmt: skip
        case marks.Boxes():
            lengths = np.subtract(mark.end, mark.start)
            style: Any = {"facecolor": (colour, mark.fill), "edgecolor": colour, "hatch": "///" * mark.hatched}
            (axes.bar if mark.upright else axes.barh)(mark.at, lengths, mark.width, mark.start, **style)
        case marks.Cells():
            values = np.full((max(mark.y, default=0) + 1, max(mark.x, default=0) + 1), np.nan)
            values[list(mark.y), list(mark.x)] = mark.values
            low, high = mark.limits
            image = axes.imshow(values, cmap=matplotlib.colormaps[HEAT_STATIC], vmin=low, vmax=high)
            axes.figure.colorbar(image, ax=axes).set_label(mark.unit)
        case marks.Texts():
            for x_at, y_at, text, light in zip(mark.x, mark.y, mark.texts, mark.light, strict=True):
                letters = "white" if light else "black"
                axes.text(x_at, y_at, visible(text), ha="center", va="center", fontsize=7, color=letters)

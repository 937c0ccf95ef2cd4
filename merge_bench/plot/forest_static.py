"""A forest of ratios as a picture, with Matplotlib: PNG or SVG. No window, no global state."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from merge_bench.plot.forest import KINDS, Forest, Point, limits, longest, shown
from merge_bench.plot.style import GRID, look
from merge_bench.plot.style import shown as printable

_SETTINGS: Any = {"text.parse_math": False, "svg.hashsalt": "merge_bench", "font.size": 10, "axes.titlesize": 11}
_WIDTH = 9.0
_MOST_LETTERS = 48


def draw(forest: Forest, path: Path, form: str) -> None:
    """Draw `forest` into `path` as `form` (``png`` or ``svg``)."""
    rows = forest.rows
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        figure = Figure(figsize=(_WIDTH, 1.7 + 0.27 * len(rows)), layout="constrained")
        axes = figure.subplots()
        _axes(axes, forest, rows)
        _legend(figure, forest)
        figure.savefig(path, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)


def _axes(axes: Axes, forest: Forest, rows: list[str | Point]) -> None:
    low, high = limits(forest)
    axes.set_xlim(low, high)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    if forest.noise:
        axes.axvspan(*forest.noise, color=GRID, alpha=0.6, linewidth=0)
    axes.axvline(1.0, color="black", linewidth=1.0)
    for at, row in enumerate(rows):
        if isinstance(row, Point):
            _point(axes, row, at)
    axes.set_title(textwrap.fill(printable(forest.title), 90), loc="left")
    axes.set_xlabel(forest.x_title)
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows], fontsize=9 if longest(rows) < 40 else 8)
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        if isinstance(row, str):
            tick.set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    numbers = axes.secondary_yaxis("right")
    numbers.set_yticks(range(len(rows)), ["" if isinstance(row, str) else shown(row) for row in rows], fontsize=8)
    numbers.tick_params(axis="y", length=0)
    for spine in ("top", "right", "left"):
        axes.spines[spine].set_visible(False)
    numbers.spines["right"].set_visible(False)


def _point(axes: Axes, point: Point, at: int) -> None:
    seen = look(KINDS.index(point.kind))
    if point.low is not None and point.high is not None:
        axes.hlines(at, point.low, point.high, color=seen.colour, linewidth=2.5, alpha=0.5)
    if point.ratio is not None:
        axes.plot([point.ratio], [at], marker=seen.marker, color=seen.colour, markersize=6, linestyle="")
    else:
        axes.annotate("not measured", (1.0, at), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8,
                      color=seen.colour)  # fmt: skip


def _label(row: str | Point) -> str:
    text = printable(row if isinstance(row, str) else row.label)
    return text if isinstance(row, str) or len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


def _legend(figure: Figure, forest: Forest) -> None:
    looks = {kind: look(KINDS.index(kind)) for kind in forest.kinds}
    lines = [Line2D([], [], color=seen.colour, marker=seen.marker, linestyle="-") for seen in looks.values()]
    labels = list(looks)
    if forest.noise:
        lines.append(Line2D([], [], color=GRID, linewidth=8))
        labels.append("the baseline against itself")
    figure.legend(lines, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)

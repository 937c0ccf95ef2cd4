"""A forest of ratios as a page, with Bokeh: one HTML file that holds all it needs and opens without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bokeh.core.properties import value
from bokeh.embed import file_html
from bokeh.models import ColumnDataSource, FixedTicker, HoverTool, Range1d
from bokeh.models.annotations import BoxAnnotation, Legend, LegendItem, Span
from bokeh.plotting import figure
from bokeh.resources import INLINE

from merge_bench.plot.forest import KINDS, Forest, Point, limits, shown
from merge_bench.plot.interactive import self_contained
from merge_bench.plot.style import GRID, look
from merge_bench.plot.style import shown as printable


def draw(forest: Forest, path: Path) -> None:
    """Write `forest` into the HTML file `path`; hovering tells ratio, interval and reason of a point."""
    rows = forest.rows
    low, high = limits(forest)
    plot: Any = figure(
        frame_height=60 + 24 * len(rows), sizing_mode="stretch_width", title=_plain(forest.title),
        x_axis_label=forest.x_title, x_range=Range1d(start=low, end=high),
        y_range=Range1d(start=len(rows) - 0.4, end=-0.6),
        tools="pan,box_zoom,wheel_zoom,reset,save", active_drag="box_zoom",
    )  # fmt: skip
    plot.toolbar.logo = None
    plot.grid.grid_line_color = GRID
    plot.ygrid.grid_line_color = None
    plot.yaxis.ticker = FixedTicker(ticks=list(range(len(rows))))
    plot.yaxis.major_label_overrides = {at: _label(row) for at, row in enumerate(rows)}
    if forest.noise:
        plot.add_layout(BoxAnnotation(left=forest.noise[0], right=forest.noise[1], fill_color=GRID, fill_alpha=0.6))
    plot.add_layout(Span(location=1.0, dimension="height", line_color="black"))
    items = [_kind(plot, kind, rows) for kind in forest.kinds]
    plot.add_layout(Legend(items=items, orientation="horizontal", border_line_color=None), "below")
    path.write_text(self_contained(file_html(plot, INLINE, _plain(forest.title))), encoding="utf-8")


def _kind(plot: Any, kind: str, rows: list[str | Point]) -> LegendItem:
    seen = look(KINDS.index(kind))
    points = [(at, row) for at, row in enumerate(rows) if isinstance(row, Point) and row.kind == kind]
    data = ColumnDataSource({
        "y": [at for at, _ in points],
        "x": [float("nan") if point.ratio is None else point.ratio for _, point in points],
        "low": [float("nan") if point.low is None else point.low for _, point in points],
        "high": [float("nan") if point.high is None else point.high for _, point in points],
        "setting": [point.label for _, point in points],
        "speed-up": [shown(point) or "not measured" for _, point in points],
        "why": [point.detail for _, point in points],
    })  # fmt: skip
    whiskers = plot.segment("low", "y", "high", "y", source=data, color=seen.colour, line_width=4, alpha=0.4)
    dots = plot.scatter("x", "y", source=data, marker=seen.shape, size=10, color=seen.colour)
    fields = [(name, f"@{{{name}}}") for name in ("setting", "speed-up", "why")]
    plot.add_tools(HoverTool(renderers=[dots], tooltips=fields, visible=False))
    return LegendItem(label=value(kind), renderers=[dots, whiskers])


def _label(row: str | Point) -> str:
    return _plain(row.upper() if isinstance(row, str) else row.label)


def _plain(text: str) -> str:
    """`text` without what Bokeh would take for mathematics."""
    return printable(text).replace("$$", "$ $").replace("\\(", "\\ (").replace("\\[", "\\ [")

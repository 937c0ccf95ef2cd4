"""Drawings as Bokeh figures, and as a page: one HTML file that holds all it needs and opens without a network.

Labels are data. Bokeh writes text on a canvas and escapes hover fields, and nothing here makes markup of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from bokeh.core.properties import value
from bokeh.embed import file_html
from bokeh.layouts import column
from bokeh.models import (
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    NumeralTickFormatter,
)
from bokeh.models.annotations import Legend, LegendItem, Title
from bokeh.models.labeling import NoOverlap
from bokeh.plotting import figure
from bokeh.resources import INLINE

from merge_bench.plot import interactive_charts
from merge_bench.plot.charts import Chart
from merge_bench.plot.series import MANY, Panel, Series, caption
from merge_bench.plot.style import GRID, LEGEND, binary, legend_columns, look, plain, size_ticks, tick_label

_LETTERS = 140
_ELSEWHERE = re.compile(r"<script\b[^>]*\ssrc=[^>]*>\s*</script>")


def self_contained(page: str) -> str:
    """The page without scripts from elsewhere: all it needs is in it, but Panel, once loaded, adds some of its own."""
    return _ELSEWHERE.sub("", page)


def draw(panels: Sequence[Panel], path: Path, title: str) -> None:
    """Write `panels`, one below the other, into the HTML file `path`; a click on a legend hides a series in all."""
    drawn = [_panel(panel) for panel in panels]
    for _, items in drawn:
        for _, others in drawn:
            if others is not items:
                _hide_together(items, others)
    page = column(*(plot for plot, _ in drawn), sizing_mode="stretch_width")
    path.write_text(self_contained(file_html(page, INLINE, title)), encoding="utf-8")


def figure_of(drawing: Panel | Chart, *, note: bool = True) -> Any:
    """`drawing` as a Bokeh figure, as wide as there is room; `note`: say below it what bars and points are."""
    return (
        _panel(drawing, note=note)[0]
        if isinstance(drawing, Panel)
        else interactive_charts.draw_chart(drawing, note=note)
    )


def _hide_together(items: Sequence[Any], others: Sequence[Any]) -> None:
    by_name = {item.name: item for item in others}
    for item in items:
        twin = by_name.get(item.name)
        if twin is not None and item.renderers and twin.renderers:
            for renderer in twin.renderers:
                item.renderers[0].js_link("visible", renderer, "visible")


def _panel(panel: Panel, *, note: bool = True) -> tuple[Any, list[Any]]:
    axis: Literal["log", "linear"] = "log" if panel.log else "linear"
    plot: Any = figure(
        frame_height=400, sizing_mode="stretch_width", x_axis_type=axis, y_axis_type=axis, title=plain(panel.title),
        x_axis_label=panel.x_title, y_axis_label=panel.y_title,
        tools="pan,box_zoom,wheel_zoom,reset,save", active_drag="box_zoom",
    )  # fmt: skip
    plot.toolbar.logo = None
    sizes = [x for series in panel.series for x in series.x]
    _size_axis(plot, panel, min(sizes), max(sizes))
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[000000]")
    if not panel.log:
        plot.y_range.start = 0
    items: list[Any] = [_draw_series(plot, panel, series) for series in panel.series]
    columns = legend_columns([series.label for series in panel.series], _LETTERS)
    legend = Legend(
        items=items, click_policy="hide", location="left", orientation="horizontal", border_line_color=None,
        background_fill_color=None, label_text_color=LEGEND,
        ncols=columns, spacing=20 if columns > 1 else 4, label_text_font_size="9pt",
    )  # fmt: skip
    plot.add_layout(legend, "below")
    if note:
        said = f"{caption([panel])} A click on the legend hides a series."
        plot.add_layout(Title(text=said, text_font_size="9pt", text_font_style="normal"), "below")
    return plot, items


def _size_axis(plot: Any, panel: Panel, low: float, high: float) -> None:
    ticks = size_ticks(low, high, log=panel.log, most=32 if panel.log else 16)
    plot.xaxis.ticker = FixedTicker(ticks=ticks)
    plot.xaxis.major_label_overrides = {tick: tick_label(tick, panel.x_unit) for tick in ticks}
    plot.xaxis.major_label_policy = NoOverlap(min_distance=2)
    plot.grid.grid_line_color = GRID
    if not panel.log:
        plot.xgrid.grid_line_color = None


def _draw_series(plot: Any, panel: Panel, series: Series) -> LegendItem:
    seen = look(series.index)
    many = len(series.x) > MANY
    data = ColumnDataSource(_columns(panel, series, seen.colour))
    line = {"line_dash": "dashed"} if series.source or series.forecast else {}
    renderers = [plot.line("x", "y", source=data, color=seen.colour, line_width=2, **line)]
    if series.spreads:
        renderers.append(
            plot.varea("x", "low", "high", source=data, color=seen.colour, alpha=0.2)
            if many
            else plot.segment("x", "low", "x", "high", source=data, color=seen.colour, line_width=4, alpha=0.4)
        )
    points = plot.scatter(
        "x", "y", source=data, marker=seen.shape, size=4 if many else 9, line_color=seen.colour, fill_color="fill"
    )
    renderers.append(points)
    fields = ["series", "size" if panel.x_unit else panel.counted, "value", "range", *series.details]
    tooltips = [(name, f"@{{{name}}}") for name in fields]
    plot.add_tools(HoverTool(renderers=[points], tooltips=tooltips, visible=False))
    return LegendItem(label=value(series.label), renderers=renderers, name=series.label)


def _columns(panel: Panel, series: Series, colour: str) -> dict[str, Any]:
    ranges = zip(series.low, series.high, strict=True)
    return {
        "x": series.x,
        "y": series.y,
        "low": series.low,
        "high": series.high,
        "fill": ["white" if hollow else colour for hollow in series.doubtful or [False] * len(series.x)],
        "series": [series.label] * len(series.x),
        "size" if panel.x_unit else panel.counted: [_exact(x, panel.x_unit) for x in series.x],
        "value": [f"{y:,.6g} {panel.y_unit}" for y in series.y],
        "range": [f"{low:,.6g} to {high:,.6g} {panel.y_unit} {panel.spread}" for low, high in ranges],
        **{name: list(values) for name, values in series.details.items()},
    }


def _exact(count: float, unit: str) -> str:
    return f"{count:,.0f} {unit} ({binary(count, unit)})" if count >= 1024 else f"{count:,.0f} {unit}".strip()

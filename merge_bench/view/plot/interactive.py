"""Charts as Bokeh figures, and as a page: one HTML file that holds all it needs and opens without a network.

Labels are data. Bokeh writes text on a canvas and escapes hover fields, and nothing here makes markup of them. Colours
of text, axes and grounds are Bokeh's defaults, which a page changes with CSS variables (``--bk-…``).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from bokeh import models
from bokeh.core.properties import value
from bokeh.embed import file_html
from bokeh.layouts import column
from bokeh.models.annotations import ColorBar, Legend, LegendItem, Span, Title
from bokeh.plotting import figure
from bokeh.resources import INLINE

from merge_bench.view.plot import (
    GRID,
    HEAT,
    LEGEND,
    NEUTRAL,
    Axis,
    BandMark,
    BoxMarks,
    Chart,
    HeatMapCells,
    LineMark,
    Mark,
    MarkGroup,
    PointMarks,
    TextMarks,
    Ticks,
    WhiskerMarks,
    logarithmic_ticks,
    style_of_series,
)
from merge_bench.view.text import escape_for_canvas, shorten_middle

_NARROW_PIXELS = 700
"""The width of a figure in a narrow window."""
_LETTER_PIXELS = 6.0
"""The width of a letter of labels, and of the text below a figure."""
_AXIS_PIXELS, _LEAST_LETTERS, _TITLE_LETTERS = 25, 30, 90
_LEGEND_LETTERS = 140
"""Letters of a name in a legend, at most."""
# Entries go on in the next line where there is no room, and follow the page's colours whenever these change.
_LEGEND_STYLE = f"""
:host {{ max-width: 100%; }}
.bk-grid {{ display: flex; flex-wrap: wrap; width: auto; gap: 2px 14px !important; }}
.bk-label {{ color: var(--bk-label-text-color, {LEGEND}) !important; white-space: normal; }}
"""
_EXTERNAL_LINK = re.compile(r"<script\b[^>]*\ssrc=[^>]*>\s*</script>|<link\b[^>]*\shref=[^>]*>")
_SCALE = "scale"
"""Bokeh's name for the range of a heat map's values."""
_NUMBER_FIELDS = ("x", "y", "low", "high", "at", "start", "end", "values")


def render_html_page(charts: Sequence[Chart]) -> str:
    """Render `charts` as an HTML page, one below the other; a click on a legend hides a series in all."""
    figures = [make_bokeh_figure(chart) for chart in charts]
    synchronize_hidden_series(figures)
    whole = file_html(column(*figures, sizing_mode="stretch_width"), INLINE, escape_for_canvas(charts[0].title))
    return _EXTERNAL_LINK.sub("", whole)  # Panel adds links to other servers, though none is needed


def make_bokeh_figure(chart: Chart, *, with_note: bool = True, width_pixels: int = _NARROW_PIXELS) -> Any:
    """Make a Bokeh figure of `chart`, as wide as its page.

    `with_note`: whether a text below says what its marks mean; `width_pixels`: how wide the figure is at least, for the
    lines of its texts.
    """
    plot = BokehChart(chart).figure
    letters = _characters_per_line(chart, width_pixels)
    if with_note and chart.note:
        text = chart.note + (" Click a legend entry to hide its series." if plot.legend else "")
        _add_text_below_figure(plot, text, letters, text_font_size="9pt")
    if chart.source:
        _add_text_below_figure(plot, chart.source, letters, text_font_size="8pt")
    return plot


def _characters_per_line(chart: Chart, width_pixels: int) -> int:
    """The number of characters that fit into a line of text below a figure that is `width_pixels` wide."""
    if chart.square:
        return (chart.height + 90) // 6
    left, right = (
        max((len(shorten_middle(label)) for label in (labels or {}).values()), default=0)
        for labels in (chart.y.ticks, chart.y.beside)
    )
    room = width_pixels - 2 * _AXIS_PIXELS - _LETTER_PIXELS * (max(left, 6) + right)
    return max(int(room / _LETTER_PIXELS), _LEAST_LETTERS)


def _add_text_below_figure(plot: Any, text: str, characters_per_line: int, **title_properties: Any) -> None:
    """Add `text` below a figure; lines longer than `characters_per_line` are broken."""
    lines = [textwrap.fill(escape_for_canvas(line), characters_per_line) for line in text.split("\n")]
    plot.add_layout(Title(text="\n".join(lines), text_font_style="normal", **title_properties), "below")


def synchronize_hidden_series(figures: Sequence[Any]) -> None:
    """Link Bokeh `figures` so that a series hidden in one of them is hidden in all."""
    items = [(plot, item) for plot in figures for legend in plot.legend for item in legend.items]
    for plot, item in items:
        for other, twin in items:
            if other is not plot and twin.name == item.name:
                for renderer in twin.renderers:
                    item.renderers[0].js_link("visible", renderer, "visible")


class BokehChart:
    """A Bokeh `figure` of a chart, which can show another chart with the same groups of marks instead."""

    def __init__(self, chart: Chart) -> None:
        tools = f"pan,box_zoom,{'xwheel_zoom' if chart.y.ticks else 'wheel_zoom'},reset,save"
        wide: dict[str, Any] = {"frame_width": chart.height} if chart.square else {"sizing_mode": "stretch_width"}
        self.figure: Any = figure(
            title=textwrap.fill(escape_for_canvas(chart.title), _TITLE_LETTERS),
            frame_height=chart.height,
            tools=tools,
            active_drag="box_zoom",
            x_axis_type="log" if chart.x.log else "linear",
            y_axis_type="log" if chart.y.log else "linear",
            x_range=_axis_range(chart.x),
            y_range=_axis_range(chart.y),
            **wide,
        )
        self.figure.toolbar.update(logo=None, autohide=True)
        self._chart = chart
        self._renderers: list[Any] = []
        self._set_up_axis(chart.x, "x")
        self._set_up_axis(chart.y, "y")
        if items := [item for item in map(self._draw_mark_group, chart.groups) if item.name]:
            legend = Legend(
                items=items,
                click_policy="hide",
                location="left",
                orientation="horizontal",
                border_line_color=None,
                background_fill_color=None,
                label_text_font_size="9pt",
                stylesheets=[_LEGEND_STYLE],
            )
            self.figure.add_layout(legend, "below")

    def replace_chart(self, chart: Chart) -> None:
        """Show another chart, which has the same groups of marks; only changed columns are sent."""
        for renderer, (group, mark) in zip(self._renderers, chart.marks_with_groups, strict=True):
            source, columns = renderer.data_source, _data_source_columns(mark, style_of_series(group.index).colour)
            if isinstance(mark, TextMarks):
                columns = _pad_text_columns(columns, len(source.data["text"]))
            changed = {
                name: values for name, values in columns.items() if not _values_are_equal(values, source.data[name])
            }
            if any(len(values) != len(source.data[name]) for name, values in changed.items()):
                source.data = columns
            elif changed:
                source.patch({name: [(slice(len(values)), values)] for name, values in changed.items()})
            if isinstance(mark, HeatMapCells):
                low, high = mark.colour_scale_limits
                self.figure.right[0].color_mapper.update(low=low, high=high)
                self.figure.extra_y_ranges[_SCALE].update(start=low, end=high)
        for which in ("x", "y"):
            axis: Axis = getattr(chart, which)
            self._set_axis_limits(axis, which)
            if axis.ticks is not None and axis.ticks != getattr(self._chart, which).ticks:
                _set_axis_ticks(getattr(self.figure, f"{which}axis")[0], axis.ticks)
        self._chart = chart

    def _set_up_axis(self, axis: Axis, dimension: str) -> None:
        drawn = getattr(self.figure, f"{dimension}axis")[0]
        drawn.axis_label = escape_for_canvas(axis.title)
        getattr(self.figure, f"{dimension}grid").update(grid_line_color=GRID, visible=axis.grid)
        self._set_axis_limits(axis, dimension)
        if axis.ticks is None:
            drawn.formatter = models.NumeralTickFormatter(format="0,0.[000000]")
            if axis.log and (ends := self._positive_value_range(dimension)):
                drawn.ticker = models.FixedTicker(ticks=logarithmic_ticks(*ends))
        else:
            _set_axis_ticks(drawn, axis.ticks)
            drawn.major_label_policy = models.NoOverlap(min_distance=2 if dimension == "x" else 0)
        if axis.rule is not None:
            line = Span(location=axis.rule, dimension="height" if dimension == "x" else "width")
            line.update(line_color=NEUTRAL, line_dash="dashed")
            self.figure.add_layout(line)
        if axis.beside:
            beside = models.LinearAxis(axis_line_color=None, major_tick_line_color=None)
            _set_axis_ticks(beside, axis.beside)
            self.figure.add_layout(beside, "right")

    def _positive_value_range(self, dimension: str) -> tuple[float, float] | None:
        """The least and the greatest positive value of points and bars along an axis; None if there are none."""
        names = ("x",) if dimension == "x" else ("y", "low", "high", "start", "end")
        values = [
            at
            for _, mark in self._chart.marks_with_groups
            for name in names
            for at in getattr(mark, name, ())
            if at > 0
        ]
        return (float(min(values)), float(max(values))) if values else None

    def _set_axis_limits(self, axis: Axis, dimension: str) -> None:
        limits = getattr(self.figure, f"{dimension}_range")
        if axis.high is not None:
            limits.update(start=axis.low, end=axis.high, reset_start=axis.low, reset_end=axis.high)
        elif axis.low is not None:
            limits.start = axis.low

    def _draw_mark_group(self, group: MarkGroup) -> LegendItem:
        renderers = []
        for mark in group.marks:
            source = models.ColumnDataSource(_data_source_columns(mark, style_of_series(group.index).colour))
            renderers.append(_draw_bokeh_mark(self.figure, mark, group.index, source))
            if details := getattr(mark, "details", None):
                self.figure.add_tools(make_hover_tool(renderers[-1], details))
        self._renderers += renderers
        in_legend = [renderers[at] for at in group.mark_order_in_legend]
        return LegendItem(
            label=value(shorten_middle(escape_for_canvas(group.label), _LEGEND_LETTERS)),
            name=group.label,
            renderers=in_legend,
        )


def make_hover_tool(renderer: Any, fields: Iterable[str]) -> models.HoverTool:
    return models.HoverTool(renderers=[renderer], tooltips=[(name, f"@{{{name}}}") for name in fields], visible=False)


def _axis_range(axis: Axis) -> models.Range1d | models.DataRange1d:
    """Make the range of an axis: fixed if the upper end is known, else from the data."""
    return models.DataRange1d() if axis.high is None else models.Range1d()


def _set_axis_ticks(bokeh_axis: Any, ticks: Ticks) -> None:
    bokeh_axis.ticker = models.FixedTicker(ticks=list(ticks))
    bokeh_axis.major_label_overrides = {at: escape_for_canvas(shorten_middle(label)) for at, label in ticks.items()}
    bokeh_axis.minor_tick_line_color = None


def _data_source_columns(mark: Mark, colour: str) -> dict[str, Any]:
    """Make the columns of a mark's Bokeh source: numbers as arrays, which reach a page as bytes, and texts as lists."""
    numbers = [name for name in _NUMBER_FIELDS if hasattr(mark, name)]
    columns: dict[str, Any] = {name: np.array(getattr(mark, name), dtype=np.float32) for name in numbers}
    if isinstance(mark, PointMarks) and mark.hollow:
        columns["fill"] = ["transparent" if hollow else colour for hollow in mark.hollow]
    if isinstance(mark, TextMarks):
        columns["text"] = list(map(escape_for_canvas, mark.texts))
        columns["colour"] = ["#FFFFFF" if light else "#000000" for light in mark.light]
    return columns | {name: list(texts) for name, texts in getattr(mark, "details", {}).items()}


def _pad_text_columns(columns: dict[str, Any], row_count: int) -> dict[str, Any]:
    """Lengthen the columns of text marks to `row_count` rows, with empty texts that have no position.

    Bokeh fails where there are fewer texts than before, as it takes new colours for the old ones; nothing on the page
    that waits for it goes on then, and Panel's table waits in an endless loop.
    """
    more = max(row_count - len(columns["text"]), 0)
    places = {name: np.append(columns[name], np.full(more, np.nan, np.float32)) for name in ("x", "y")}
    return {**places, "text": columns["text"] + [""] * more, "colour": columns["colour"] + ["#000000"] * more}


def _values_are_equal(new: Any, old: Any) -> bool:
    return np.array_equal(new, old, equal_nan=True) if isinstance(new, np.ndarray) else bool(new == old)


def _draw_bokeh_mark(plot: Any, mark: Mark, style_index: int, source: models.ColumnDataSource) -> Any:
    colour = style_of_series(style_index).colour
    common: dict[str, Any] = {"source": source, "color": colour}
    if getattr(mark, "hatched", False):
        common |= {"hatch_pattern": value("right_diagonal_line"), "hatch_color": colour}
    match mark:
        case PointMarks():
            common["fill_color"] = "white" if mark.white else "fill" if mark.hollow else colour
            return plot.scatter("x", "y", **common, marker=style_of_series(style_index).shape, size=mark.size)
        case LineMark():
            return plot.line("x", "y", **common, line_width=mark.width, line_dash="dashed" if mark.dashed else "solid")
        case BandMark():
            return plot.varea("x", "low", "high", **common, fill_alpha=0.0 if mark.hatched else 0.2, hatch_alpha=0.35)
        case WhiskerMarks():
            ends = ("at", "start", "at", "end") if mark.upright else ("start", "at", "end", "at")
            dash = "dotted" if mark.dotted else "solid"
            return plot.segment(*ends, **common, line_width=mark.width, line_dash=dash)
        case BoxMarks():
            common |= {"fill_alpha": 0.2 if mark.hatched else mark.fill}
            common |= {"fill_color": "white"} if mark.white else {}
            if mark.upright:
                return plot.vbar(x="at", bottom="start", top="end", width=mark.width, **common)
            return plot.hbar(y="at", left="start", right="end", height=mark.width, **common)
        case HeatMapCells():
            low, high = mark.colour_scale_limits
            scale = models.LinearColorMapper(palette=HEAT, low=low, high=high, nan_color=GRID)
            # Letters of a colour bar do not follow a page's style sheet, and those of an axis do.
            bar = ColorBar(color_mapper=scale, ticker=models.FixedTicker(ticks=[]), width=14, padding=0)
            plot.extra_y_ranges[_SCALE] = models.Range1d(start=low, end=high)
            axis = models.LinearAxis(
                y_range_name=_SCALE,
                ticker=models.BasicTicker(desired_num_ticks=6),
                axis_label=mark.unit,
                axis_line_color=None,
                minor_tick_line_color=None,
            )
            plot.add_layout(bar, "right")
            plot.add_layout(axis, "right")
            line = NEUTRAL if 0 < len(mark.x) <= 256 else None
            colours = {"field": "values", "transform": scale}
            return plot.rect("x", "y", 1, 1, source=source, line_width=0.5, line_color=line, fill_color=colours)
        case TextMarks():
            place = {"text_align": value("center"), "text_baseline": value("middle"), "text_font_size": value("8pt")}
            return plot.text("x", "y", "text", source=source, text_color="colour", **place)

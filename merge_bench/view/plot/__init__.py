"""Charts as plain data, two axes and groups of marks, and how they look; bar charts. Other files draw or make them.

Each drawing library draws the data in its own way, so a page and a printed figure show the same. Labels are data, never
markup.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from merge_bench.view.text import capitalize, format_with_binary_prefix

Values = Sequence[float]
Ticks = Mapping[Any, str]
"""Labels of an axis by their places."""
Details = Mapping[str, Sequence[str]]
"""What is shown when the pointer rests on a mark: by name, a text for each mark."""


@dataclass(frozen=True)
class PointMarks:
    """Markers at (`x`, `y`); `size`: in pixels.

    `hollow`: for each marker, whether it is not filled; `white`: whether all are filled white, to be seen on bars of
    their colour.
    """

    x: Values
    y: Values
    hollow: Sequence[bool] = ()
    white: bool = False
    size: int = 9
    details: Details = field(default_factory=dict)


@dataclass(frozen=True)
class LineMark:
    """A line through points, with a gap at NaN; `width`: in pixels."""

    x: Values
    y: Values
    dashed: bool = False
    width: int = 2


@dataclass(frozen=True)
class BandMark:
    """The pale area between two lines, from `low` to `high` at each `x`; its `edge_lines` are these lines."""

    x: Values
    low: Values
    high: Values
    hatched: bool = False

    @property
    def edge_lines(self) -> tuple[LineMark, LineMark]:
        return LineMark(self.x, self.low, width=1), LineMark(self.x, self.high, width=1)


@dataclass(frozen=True)
class WhiskerMarks:
    """Lines from `start` to `end` at the positions `at`, for intervals and medians.

    `upright`: whether they are vertical; `width`: in pixels.
    """

    at: Values
    start: Values
    end: Values
    upright: bool = False
    width: int = 2
    dotted: bool = False


@dataclass(frozen=True)
class BoxMarks:
    """Bars from `start` to `end` at the positions `at`.

    `upright`: whether they are vertical; `fill`: the opacity of their areas; `white`: whether the areas are white, to
    be seen on other bars of the same colour.
    """

    at: Values
    start: Values
    end: Values
    upright: bool = False
    width: float = 0.8
    fill: float = 1.0
    hatched: bool = False
    white: bool = False
    details: Details = field(default_factory=dict)


@dataclass(frozen=True)
class HeatMapCells:
    """Squares of a heat map with side 1 around (`x`, `y`), coloured by `values`, which may be NaN, in `unit`."""

    x: Sequence[int]
    y: Sequence[int]
    values: Values
    unit: str
    details: Details = field(default_factory=dict)

    @property
    def colour_scale_limits(self) -> tuple[float, float]:
        """The values at the ends of the colour scale: 0, and the highest value."""
        return 0.0, max((value for value in self.values if value == value), default=0.0) or 1.0


@dataclass(frozen=True)
class TextMarks:
    """Texts centred on (`x`, `y`), never read as markup; `light`: for each, whether it stands on a dark colour."""

    x: Values
    y: Values
    texts: Sequence[str]
    light: Sequence[bool]


Mark = PointMarks | LineMark | BandMark | WhiskerMarks | BoxMarks | HeatMapCells | TextMarks


@dataclass(frozen=True)
class MarkGroup:
    """Marks with the colour and marker of series number `index`; a `label` gives them an entry in the legend."""

    index: int
    marks: tuple[Mark, ...]
    label: str = ""

    @property
    def mark_order_in_legend(self) -> list[int]:
        """The indexes of the marks in the order in which a legend draws them: white ones first."""
        return sorted(range(len(self.marks)), key=lambda at: not getattr(self.marks[at], "white", False))


@dataclass(frozen=True)
class Axis:
    """One axis of a chart; its title has the unit.

    `ticks`: labels by position; None lets the library choose. `low`, `high`: the values at the left or lower end, and
    at the other; None: from the marks. `rule`: a value at which a dashed line is drawn. `beside`: labels on the
    opposite side, by position.
    """

    title: str = ""
    ticks: Ticks | None = None
    low: float | None = None
    high: float | None = None
    log: bool = False
    grid: bool = True
    rule: float | None = None
    beside: Ticks = field(default_factory=dict)


@dataclass(frozen=True)
class Chart:
    """Marks on two axes. Labels are data, never markup.

    `height`: of the area, in pixels; `square`: whether the width is the same. `note`: sentences that say what the marks
    mean; `source`: a line for each result that the chart shows, with host, date and UCX.
    """

    x: Axis
    y: Axis
    groups: tuple[MarkGroup, ...] = ()
    height: int = 300
    title: str = ""
    note: str = ""
    source: str = ""
    square: bool = False

    @property
    def marks_with_groups(self) -> Iterator[tuple[MarkGroup, Mark]]:
        return ((group, mark) for group in self.groups for mark in group.marks)

    @property
    def is_empty(self) -> bool:
        return not any(
            mark.at if isinstance(mark, WhiskerMarks | BoxMarks) else mark.x for _, mark in self.marks_with_groups
        )


def transpose_rows(rows: Iterable[Sequence[Any]], column_count: int) -> Sequence[Sequence[Any]]:
    """Turn rows into `column_count` columns, which are empty if there are no rows."""
    return tuple(zip(*rows, strict=True)) or ((),) * column_count


_COLOURS = ("#0866C9", "#B54006", "#0DA85B", "#B182B1", "#D17C03", "#3F92DC", "#777777")
"""The hues of Okabe and Ito's palette (https://jfly.uni-koeln.de/color/, 2008) without its yellow, and grey.

Each colour has a contrast of 3 or more to a white page and to a dark one. Within that they are those that people with
any of the three kinds of colour blindness, as Machado, Oliveira & Fernandes (2009) simulate them, tell apart best.
"""
_MARKERS = "os^Dv*hP"
_SHAPES = ("circle", "square", "triangle", "diamond", "inverted_triangle", "star", "hex", "plus")
_SYMBOLS = "●■▲◆▼★⬢✚"
GRID = "#DDDDDD"
NEUTRAL = "#888888"
"""The colour of lines that belong to no series, on white and on black."""
LEGEND = "#6E7781"
"""The colour of a legend's letters, which ignore a page's style sheet: readable on white and on black."""
HEAT, HEAT_STATIC = "Cividis256", "cividis"
"""Palettes from dark blue to yellow, made for colour-blind people (Nuñez, Anderton & Renslow 2018)."""
_INTERVAL_HEIGHT = 0.24
"""The height of an interval's bar; bars of values have 0.8."""
GREY = -1
"""The number of the style of marks that belong to no series."""


@dataclass(frozen=True)
class SeriesStyle:
    """The colour and marker of a series: `marker` for Matplotlib, `shape` for Bokeh, `symbol` as a character."""

    colour: str
    marker: str
    shape: str
    symbol: str


def style_of_series(index: int) -> SeriesStyle:
    """Return the style of series number `index`: a colour and a marker, whose combination repeats after 56 series."""
    which = index % len(_MARKERS)
    return SeriesStyle(_COLOURS[index % len(_COLOURS)], _MARKERS[which], _SHAPES[which], _SYMBOLS[which])


def size_tick_label(size: float, unit: str = "B") -> str:
    """The label of a tick of an axis of sizes: ``1``, ``32``, ``1 KiB``."""
    return f"{size:.4g}" if size < 1024 else format_with_binary_prefix(size, unit)


def size_ticks(low: float, high: float, *, log: bool, most_ticks: int) -> list[int]:
    """Choose at most `most_ticks` ticks of an axis of sizes: powers of two, or multiples of one if not `log`."""
    if log:
        first, last = max(int(low), 1).bit_length() - 1, max(int(high) - 1, 1).bit_length()
        return [1 << power for power in range(first, last + 1, thinning_step(last - first + 1, most_ticks))]
    step = 1
    while high / step > most_ticks - 1:
        step *= 2
    return list(range(0, int(high) + step, step))


def logarithmic_ticks(low: float, high: float) -> list[float]:
    """Choose ticks of a logarithmic axis that enclose `low` to `high`: powers of ten, and steps between."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    parts = (1, 2, 3, 4, 5, 6, 8) if high / low < 10 else (1, 2, 5) if high / low < 1000 else (1,)
    ticks = [part * 10.0**power for power in range(first, last + 1) for part in parts]
    below = max((tick for tick in ticks if tick <= low), default=ticks[0])
    above = min((tick for tick in ticks if tick >= high), default=ticks[-1])
    return [tick for tick in ticks if below <= tick <= above]


def thinning_step(item_count: int, most_items: int) -> int:
    """The step at which to take every so-many-th of `item_count` items, so that there are at most `most_items`."""
    return max(-(-item_count // most_items), 1)


def bar_height_pixels(bar_count: int) -> int:
    return 22 if bar_count <= 16 else 14 if bar_count <= 48 else 9


@dataclass(frozen=True)
class Bar:
    """One bar of a bar chart, with values in the chart's unit.

    `index`: the number of its series' style, the same in every chart. `value`: None if nothing was measured; then there
    is no bar. `interval`: of the value, if there are enough launches. `points`: names and values of single launches.
    `remark`: shown when the pointer rests on the bar. `published`: whether the value is a published number; such a bar
    is hatched.
    """

    series: str
    index: int
    value: float | None
    interval: tuple[float, float] | None = None
    points: tuple[tuple[str, float], ...] = ()
    remark: str = ""
    published: bool = False


def bar_chart(
    rows: Sequence[tuple[str, Sequence[Bar]]],
    *,
    title: str,
    axis_title: str,
    unit: str,
    reference_value: float | None = None,
    note: str,
) -> Chart:
    """Make a chart of horizontal bars from 0, with half a bar of room below each row.

    Parameters
    ----------
    rows
        Bars that share a name on the axis, with that name.
    axis_title, unit
        The title of the axis of values, with the unit, which stands beside single values.
    reference_value
        Where a line is drawn across: 1 for a speed-up.
    note
        What rows, bars, white bars and points are, with semicolons between them; what is not drawn is left out.
    """
    at, ticks = 0.0, {}
    series: dict[str, list[tuple[float, str, Bar]]] = {}
    for label, row in rows:
        for number, bar in enumerate(row):
            series.setdefault(bar.series, []).append((at + number, label, bar))
        ticks[at + (len(row) - 1) / 2] = label
        at += len(row) + 0.5
    drawn = [bar for _, row in rows for bar in row]
    ends = [end for bar in drawn for end in (bar.value, *(bar.interval or ()), *dict(bar.points).values()) if end]
    thick = bar_height_pixels(len(drawn))
    in_legend = any(bar.series != label for label, row in rows for bar in row)  # rows say it otherwise
    return Chart(
        Axis(axis_title, low=0.0, high=1.05 * max(ends, default=1.0), rule=reference_value),
        top_down_axis(ticks, at - 1.5),
        tuple(
            MarkGroup(placed[0][2].index, tuple(_bar_marks(placed, unit)), name if in_legend else "")
            for name, placed in series.items()
        ),
        30 + thick * (len(drawn) + len(rows) // 2),
        title,
        _bar_chart_note(note, drawn),
    )


def _bar_chart_note(phrases: str, bars: Sequence[Bar]) -> str:
    """Make the note of a bar chart from `phrases`, without those about marks that no bar in `bars` has."""
    absent = {"white bars"} if not any(bar.interval for bar in bars) else set()
    absent |= {"points"} if not any(bar.points for bar in bars) else set()
    kept = [part for part in phrases.split("; ") if part.partition(":")[0] not in absent]
    kept += ["hatched: as published"] if any(bar.published for bar in bars) else []
    return f"{capitalize('; '.join(kept))}." if any(kept) else ""


def _bar_marks(placed_bars: Sequence[tuple[float, str, Bar]], unit: str) -> Iterator[Mark]:
    """Make the marks of one series: bars, intervals, and points, which are shifted up or down to hide each other less.

    `placed_bars`: each bar with its position and its row's name.
    """
    measured = [(at, bar.value, row, bar) for at, row, bar in placed_bars if bar.value is not None]
    at, values, rows, drawn = transpose_rows(measured, 4)
    details = {
        "row": rows,
        "series": [bar.series for bar in drawn],
        "value": [format_with_unit(value, unit) for value in values],
        "interval": [f"{e[0]:,.4g} to {format_with_unit(e[1], unit)}" if (e := bar.interval) else "-" for bar in drawn],
        "remark": [bar.remark or "-" for bar in drawn],
    }
    yield BoxMarks(at, [0.0] * len(at), values, hatched=placed_bars[0][2].published, details=details)
    if ends := [(place, *bar.interval) for place, _, _, bar in measured if bar.interval]:
        at, low, high = transpose_rows(ends, 3)
        yield BoxMarks(at, low, high, width=_INTERVAL_HEIGHT, white=True)
    if points := [
        (value, place + (-0.16, 0.0, 0.16)[number % 3], name)
        for place, _, _, bar in measured
        for number, (name, value) in enumerate(bar.points)
    ]:
        x, y, names = transpose_rows(points, 3)
        details = {"of": names, "value": [format_with_unit(value, unit) for value in x]}
        yield PointMarks(x, y, white=True, size=5, details=details)


def stacked_bar_marks(
    part_names: Sequence[str],
    rows: Mapping[str, Sequence[float]],
    *,
    positions: Sequence[float] = (),
    upright: bool = False,
) -> tuple[Sequence[float], tuple[MarkGroup, ...]]:
    """Make stacked bars; returns the end of each bar in milliseconds, and a group of marks for each part.

    `rows`: milliseconds of each of `part_names`, by the row's name; `positions`: those of the rows, by default 0, 1, …;
    `upright`: vertical, and without boxes of no height, whose edges would be seen.
    """
    ends, groups = [0.0] * len(rows), []
    for number, part in enumerate(part_names):
        values = [row[number] for row in rows.values()]
        starts, ends = ends, [end + value for end, value in zip(ends, values, strict=True)]
        details = {
            "row": list(rows),
            "part": [part] * len(rows),
            "value": [format_with_unit(ms, "ms") for ms in values],
        }
        seen = [end if end > start else math.nan for start, end in zip(starts, ends, strict=True)] if upright else ends
        boxes = BoxMarks(positions or range(len(rows)), starts, seen, upright, details=details)
        groups.append(MarkGroup(number, (boxes,), part))
    return ends, tuple(groups)


def top_down_axis(ticks: Ticks, last_position: float, right_ticks: Ticks | None = None) -> Axis:
    """Make the vertical axis of rows from the top down.

    `last_position`: that of the last bar or point; `right_ticks`: labels on the right side.
    """
    return Axis(ticks=ticks, low=last_position + 0.9, high=-0.9, grid=False, beside=right_ticks or {})


def thin_ticks(ticks: Ticks, most_ticks: int) -> Ticks:
    """Return `ticks`, or at most `most_ticks` of them, evenly chosen."""
    return dict(list(ticks.items())[:: thinning_step(len(ticks), most_ticks)])


def format_with_unit(value: float, unit: str) -> str:
    """Format a value with its unit, to be shown beside the pointer; ``not known`` for NaN."""
    return f"{value:,.4g} {unit}" if value == value else "not known"

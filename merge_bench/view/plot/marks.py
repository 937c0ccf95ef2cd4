"""Charts as plain data, two axes and groups of marks, which each drawing library draws in its own way; and their looks.

So a page and a printed figure show the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from merge_bench.view.text import binary

Values = Sequence[float]
Ticks = Mapping[Any, str]
"""Labels of an axis by their places."""
Details = Mapping[str, Sequence[str]]
"""What is shown when the pointer rests on a mark: by name, a text for each mark."""


@dataclass(frozen=True)
class Points:
    """Markers at (`x`, `y`); `size`: in pixels; `hollow`: for each, whether it is not filled."""

    x: Values
    y: Values
    hollow: Sequence[bool] = ()
    size: int = 9
    details: Details = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """A line through points, with a gap at NaN; `width`: in pixels."""

    x: Values
    y: Values
    dashed: bool = False
    width: int = 2


@dataclass(frozen=True)
class Band:
    """The area between two lines, from `low` to `high` at each `x`."""

    x: Values
    low: Values
    high: Values
    hatched: bool = False


@dataclass(frozen=True)
class Whiskers:
    """Lines from `start` to `end` at the places `at`: intervals, medians. `upright`: along y; `width`: in pixels."""

    at: Values
    start: Values
    end: Values
    upright: bool = False
    width: int = 4
    alpha: float = 1.0
    dotted: bool = False


@dataclass(frozen=True)
class Boxes:
    """Bars from `start` to `end` at the places `at`. `upright`: along y; `fill`: the opacity of their areas."""

    at: Values
    start: Values
    end: Values
    upright: bool = False
    width: float = 0.8
    fill: float = 0.5
    hatched: bool = False
    details: Details = field(default_factory=dict)


@dataclass(frozen=True)
class Cells:
    """Squares of side 1 about (`x`, `y`), coloured by `values`, which may be NaN; `unit` stands at the colour scale."""

    x: Sequence[int]
    y: Sequence[int]
    values: Values
    unit: str
    details: Details = field(default_factory=dict)

    @property
    def limits(self) -> tuple[float, float]:
        """The values at the ends of the colour scale: 0, and the highest value."""
        return 0.0, max((value for value in self.values if value == value), default=0.0) or 1.0


@dataclass(frozen=True)
class Texts:
    """Texts centred on (`x`, `y`), as data and never as markup; `light`: for each, whether it stands on dark."""

    x: Values
    y: Values
    texts: Sequence[str]
    light: Sequence[bool]


Mark = Points | Line | Band | Whiskers | Boxes | Cells | Texts


@dataclass(frozen=True)
class Group:
    """Marks with the same look, number `index` of `look`; a `label` gives them an entry in the legend."""

    index: int
    marks: tuple[Mark, ...]
    label: str = ""


@dataclass(frozen=True)
class Axis:
    """One axis; its title has the unit.

    `ticks`: labels by place; None lets the library choose. `low`, `high`: the values at the left or lower end, and at
    the other; None: from the marks. `rule`: a value that a dashed line marks. `beside`: labels on the opposite side.
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
    groups: tuple[Group, ...] = ()
    height: int = 300
    title: str = ""
    note: str = ""
    source: str = ""
    square: bool = False

    @property
    def marks(self) -> Iterator[tuple[Group, Mark]]:
        return ((group, mark) for group in self.groups for mark in group.marks)

    @property
    def empty(self) -> bool:
        return not any(mark.at if isinstance(mark, Whiskers | Boxes) else mark.x for _, mark in self.marks)


def columns(rows: Iterable[Sequence[Any]], count: int) -> Sequence[Sequence[Any]]:
    """Rows turned into `count` columns, which are empty if there are no rows."""
    return tuple(zip(*rows, strict=True)) or ((),) * count


_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#777777")
"""Okabe and Ito's palette, which colour-blind people can tell apart (https://jfly.uni-koeln.de/color/, 2008), without
its yellow, which is faint on white, and with grey for its black, which a dark page would hide."""
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
GREY = -1
"""The number of the look of marks that belong to no series."""


@dataclass(frozen=True)
class Look:
    """A series' colour, and its marker: Matplotlib's name, Bokeh's name, and the character."""

    colour: str
    marker: str
    shape: str
    symbol: str


def look(index: int) -> Look:
    """The look of series number `index`: a colour and a marker, whose combination repeats after 56 series."""
    which = index % len(_MARKERS)
    return Look(_COLOURS[index % len(_COLOURS)], _MARKERS[which], _SHAPES[which], _SYMBOLS[which])


def tick_label(count: float, unit: str = "B") -> str:
    """`count` with a binary prefix, and the unit only if there is one: ``1``, ``32``, ``1 KiB``."""
    return f"{count:.4g}" if count < 1024 else binary(count, unit)


def size_ticks(low: float, high: float, *, log: bool, most: int) -> list[int]:
    """At most `most` ticks of an axis of sizes: powers of two, or without `log` multiples of a power of two from 0."""
    if log:
        first, last = max(int(low), 1).bit_length() - 1, max(int(high) - 1, 1).bit_length()
        return [1 << power for power in range(first, last + 1, thinning_step(last - first + 1, most))]
    step = 1
    while high / step > most - 1:
        step *= 2
    return list(range(0, int(high) + step, step))


def value_ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis that enclose `low` to `high`: powers of ten, and steps between if these are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    parts = (1, 2, 3, 4, 5, 6, 8) if high / low < 10 else (1, 2, 5) if high / low < 1000 else (1,)
    ticks = [part * 10.0**power for power in range(first, last + 1) for part in parts]
    below = max((tick for tick in ticks if tick <= low), default=ticks[0])
    above = min((tick for tick in ticks if tick >= high), default=ticks[-1])
    return [tick for tick in ticks if below <= tick <= above]


def thinning_step(count: int, most: int) -> int:
    """The step at which items are taken, so that at most `most` of `count` are left."""
    return max(-(-count // most), 1)


def bar_height_pixels(bars: int) -> int:
    return 22 if bars <= 16 else 14 if bars <= 48 else 9

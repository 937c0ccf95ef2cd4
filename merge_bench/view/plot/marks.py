"""Charts as plain data, two axes and groups of marks, which each drawing library draws in its own way.

So a page and a printed figure show the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Values = Sequence[float]
Ticks = Mapping[Any, str]
"""Labels of an axis by their places."""
Details = Mapping[str, Sequence[str]]
"""What is shown when the pointer rests on a mark: by name, a text for each mark."""


@dataclass(frozen=True)
class Points:
    """Markers at (`x`, `y`); `size`: in pixels.

    `hollow`: for each, whether it is not filled; `white`: all are filled white, to be seen on bars of their colour.
    """

    x: Values
    y: Values
    hollow: Sequence[bool] = ()
    white: bool = False
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
    """The area between two lines, from `low` to `high` at each `x`; it is pale, and its `edges` are the lines."""

    x: Values
    low: Values
    high: Values
    hatched: bool = False

    @property
    def edges(self) -> tuple[Line, Line]:
        return Line(self.x, self.low, width=1), Line(self.x, self.high, width=1)


@dataclass(frozen=True)
class Whiskers:
    """Lines from `start` to `end` at the places `at`: intervals, medians. `upright`: along y; `width`: in pixels."""

    at: Values
    start: Values
    end: Values
    upright: bool = False
    width: int = 2
    dotted: bool = False


@dataclass(frozen=True)
class Boxes:
    """Bars from `start` to `end` at the places `at`. `upright`: along y; `fill`: the opacity of their areas.

    `white`: the area is white, to be seen on other bars of the same colour.
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

    @property
    def legend_order(self) -> list[int]:
        """The places of the marks as a legend draws them, one over the other: white ones below."""
        return sorted(range(len(self.marks)), key=lambda at: not getattr(self.marks[at], "white", False))


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

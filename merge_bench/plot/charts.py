"""What is drawn of merges, as plain data: bars, stacks, strips of points, heat maps. Labels are data, never markup."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """One bar, in the chart's unit.

    Attributes
    ----------
    series : str
        What its colour stands for.
    index : int
        Which look of `style.look`; the same thing has the same one in every chart.
    value : float or None
        None: not measured; there is no bar.
    interval : tuple of float or None
        Of `value`; None where there are too few launches.
    points : tuple of (str, float)
        What the value was made of, each with its name: ``launch 3``, ``block 0``.
    remark : str
        What else is to be told of it.
    published : bool
        Whether it is another's number; drawn hatched.
    """

    series: str
    index: int
    value: float | None
    interval: tuple[float, float] | None = None
    points: tuple[tuple[str, float], ...] = ()
    remark: str = ""
    published: bool = False


@dataclass(frozen=True)
class Row:
    """Bars that share a name on the axis."""

    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Bars:
    """Horizontal bars from 0, row below row.

    Attributes
    ----------
    title, axis, unit : str
        `axis` is the title of the axis of values, with the unit; `unit` stands beside single values.
    rows : tuple of Row
    line : float or None
        Where a line is drawn across: 1 for a speed-up.
    note : str
        What bars, lines and points are.
    """

    title: str
    axis: str
    unit: str
    rows: tuple[Row, ...]
    line: float | None = None
    note: str = ""

    @property
    def bars(self) -> Iterator[Bar]:
        """All of them, in order."""
        return (bar for row in self.rows for bar in row.bars)

    @property
    def legend(self) -> dict[str, Bar]:
        """The first bar of each series, where rows do not name them already."""
        if all(bar.series == row.label for row in self.rows for bar in row.bars):
            return {}
        found: dict[str, Bar] = {}
        for bar in self.bars:
            found.setdefault(bar.series, bar)
        return found

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return all(bar.value is None for bar in self.bars)


@dataclass(frozen=True)
class StackRow:
    """One row of a stack: a value for each of its parts."""

    label: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Stack:
    """Horizontal bars made of parts that follow each other."""

    title: str
    axis: str
    unit: str
    parts: tuple[str, ...]
    rows: tuple[StackRow, ...]
    note: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.rows


@dataclass(frozen=True)
class StripLaunch:
    """The values of one launch, by iteration, and what they come to.

    Attributes
    ----------
    place : int
        Where it stands on the axis.
    launch : str
        Its index in the campaign, behind the campaign's letter where there are several.
    iterations : tuple of int
        Of each value.
    values : tuple of float
    flagged : tuple of bool
        Which values lie far out.
    median, low, high : float
        The median and the quartiles of all values, shown or not.
    """

    place: int
    launch: str
    iterations: tuple[int, ...]
    values: tuple[float, ...]
    flagged: tuple[bool, ...]
    median: float
    low: float
    high: float


@dataclass(frozen=True)
class StripSeries:
    """The launches of one config."""

    label: str
    index: int
    launches: tuple[StripLaunch, ...]


@dataclass(frozen=True)
class Strip:
    """Every iteration as a point, by launch in the order in which they were made, and within a launch by iteration."""

    title: str
    axis: str
    unit: str
    series: tuple[StripSeries, ...]
    note: str = ""

    @property
    def ticks(self) -> dict[int, str]:
        """The launches by their places, in order."""
        found = {launch.place: launch.launch for series in self.series for launch in series.launches}
        return dict(sorted(found.items()))

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.series


@dataclass(frozen=True)
class Cell:
    """One cell of a heat map: row and column as positions, and a text for each of the map's details."""

    row: int
    column: int
    value: float
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Heat:
    """A square map of values by sender (row) and receiver (column); cells that are missing stay empty."""

    title: str
    unit: str
    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    details: tuple[str, ...] = ()
    note: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.cells


Chart = Bars | Stack | Strip | Heat

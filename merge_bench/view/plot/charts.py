"""Kinds of charts, as plain data: bars, stacks, strips of points, heat maps. Labels are data, never markup.

Each kind makes its picture of marks; the two drawing libraries know marks alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from merge_bench.view.plot.marks import Axis, Boxes, Cells, Details, Group, Mark, Picture, Points, Ticks, Whiskers
from merge_bench.view.plot.style import bar_height, step_of


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
        Further text for a pointer that rests on it.
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
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return all(bar.value is None for bar in self.bars)

    def picture(self) -> Picture:
        """A group for each series, and half a bar of room below each row."""
        at, ticks = 0.0, {}
        series: dict[str, list[tuple[float, str, Bar]]] = {}
        for row in self.rows:
            for number, bar in enumerate(row.bars):
                series.setdefault(bar.series, []).append((at + number, row.label, bar))
            ticks[at + (len(row.bars) - 1) / 2] = row.label
            at += len(row.bars) + 0.5
        count = sum(map(len, series.values()))
        thick = bar_height(count)
        named = any(bar.series != row.label for row in self.rows for bar in row.bars)  # rows say it otherwise
        ends = [end for bar in self.bars for end in (bar.value, *(bar.interval or ()), *(x for _, x in bar.points))]
        groups = [
            Group(found[0][2].index, tuple(self._marks(found, thick)), name if named else "")
            for name, found in series.items()
        ]
        return Picture(
            Axis(self.axis, low=0.0, high=1.05 * max((end for end in ends if end), default=1.0), rule=self.line),
            rows_axis(ticks, at - 1.5), tuple(groups), 30 + thick * (count + len(self.rows) // 2),
        )  # fmt: skip

    def _marks(self, found: Sequence[tuple[float, str, Bar]], thick: int) -> Iterator[Mark]:
        """Bars with their intervals, and points in turn above and below the middle, to hide each other less."""
        known = [(at, bar.value, row, bar) for at, row, bar in found if bar.value is not None]
        at, values, rows, bars = zip(*known, strict=True) if known else ((), (), (), ())
        details = {
            "row": rows,
            "series": [bar.series for bar in bars],
            "value": [with_unit(value, self.unit) for value in values],
            "interval": [_interval(bar.interval, self.unit) for bar in bars],
            "remark": [bar.remark or "-" for bar in bars],
        }
        hatched = found[0][2].published
        yield Boxes(at, [0.0] * len(at), values, fill=0.2 if hatched else 0.5, hatched=hatched, details=details)
        if ends := [(place, *bar.interval) for place, _, _, bar in known if bar.interval]:
            at, low, high = zip(*ends, strict=True)
            yield Whiskers(at, low, high, width=max(thick // 4, 2))
        if points := [
            (value, place + (-0.16, 0.0, 0.16)[number % 3], name)
            for place, _, _, bar in known
            for number, (name, value) in enumerate(bar.points)
        ]:
            x, y, names = zip(*points, strict=True)
            details = {"of": names, "value": [with_unit(value, self.unit) for value in x]}
            yield Points(x, y, hollow=[True] * len(x), size=5, details=details)


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

    def picture(self) -> Picture:
        """A group for each part, which begins where the one before it ends."""
        places, names = range(len(self.rows)), [row.label for row in self.rows]
        ends, groups = [0.0] * len(self.rows), []
        for number, part in enumerate(self.parts):
            values = [row.values[number] for row in self.rows]
            starts, ends = ends, [end + value for end, value in zip(ends, values, strict=True)]
            details = {
                "row": names,
                "part": [part] * len(names),
                "value": [with_unit(one, self.unit) for one in values],
            }
            groups.append(Group(number, (Boxes(places, starts, ends, fill=0.7, details=details),), part))
        return Picture(
            Axis(self.axis, low=0.0, high=1.05 * max(ends, default=1.0)),
            rows_axis(dict(enumerate(names)), len(names) - 1), tuple(groups),
            height=30 + int(1.4 * bar_height(len(names)) * len(names)),
        )  # fmt: skip


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

    def picture(self) -> Picture:
        """A group for each config: its iterations, and lines for the median and the quartiles of each launch."""
        several = len(self.series) > 1
        return Picture(
            Axis("Launch", ticks=every(self.ticks, 24), grid=False), Axis(self.axis, low=0.0),
            tuple(Group(one.index, tuple(self._marks(one.launches)), one.label * several) for one in self.series), 300,
        )  # fmt: skip

    def _marks(self, launches: Sequence[StripLaunch]) -> Iterator[Mark]:
        found = [
            (launch.place - 0.35 + 0.7 * index / (max(launch.iterations) or 1), value, far, launch.launch, str(index))
            for launch in launches
            for index, value, far in zip(launch.iterations, launch.values, launch.flagged, strict=True)
        ]
        x, y, far, names, indices = zip(*found, strict=True)
        details = {"launch": names, "iteration": indices, "value": [with_unit(value, self.unit) for value in y]}
        yield Points(x, y, hollow=far, size=6, details=details)
        left, right = [launch.place - 0.38 for launch in launches], [launch.place + 0.38 for launch in launches]
        yield Whiskers([launch.median for launch in launches], left, right, width=3)
        for ends in ([launch.low for launch in launches], [launch.high for launch in launches]):
            yield Whiskers(ends, left, right, width=1, dotted=True)


@dataclass(frozen=True)
class Heat:
    """A square map of values by sender and receiver; cells that are missing stay empty.

    Attributes
    ----------
    title, unit : str
    labels : tuple of str
        Of rows and of columns.
    rows, columns : tuple of int
        Where each cell lies.
    values : tuple of float
        Of each cell; NaN: not known.
    details : mapping of str to tuple of str
        Further texts for a pointer that rests on a cell, by name.
    note : str
        What the values are.
    """

    title: str
    unit: str
    labels: tuple[str, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    values: tuple[float, ...]
    details: Details = field(default_factory=dict)
    note: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.values

    def picture(self) -> Picture:
        """Rows from the top down; labels of columns are what stands before the first space."""
        end = max(len(self.labels), 1) - 0.5
        rows = every(dict(enumerate(self.labels)), 32)
        details: dict[str, Sequence[str]] = {
            "from": [self.labels[at] for at in self.rows],
            "to": [self.labels[at] for at in self.columns],
            "value": [with_unit(value, self.unit) for value in self.values],
        }
        return Picture(
            Axis("to rank", {at: name.partition(" ")[0] for at, name in rows.items()}, low=-0.5, high=end, grid=False),
            Axis("from rank", rows, low=end, high=-0.5, grid=False),
            (Group(0, (Cells(self.columns, self.rows, self.values, self.unit, {**details, **self.details}),)),),
            height=min(max(28 * len(self.labels), 260), 640),
            square=True,
        )


def rows_axis(ticks: Ticks, last: float, beside: Ticks | None = None) -> Axis:
    """Rows from the top down; `last`: where the last bar or point lies."""
    return Axis(ticks=ticks, low=last + 0.9, high=-0.9, grid=False, beside=beside or {})


def every(ticks: Ticks, most: int) -> Ticks:
    """`ticks`, or so many of them, evenly."""
    return dict(list(ticks.items())[:: step_of(len(ticks), most)])


def with_unit(value: float, unit: str) -> str:
    """A single value as a pointer is shown it; NaN: not known."""
    return f"{value:,.4g} {unit}" if value == value else "not known"


def _interval(ends: tuple[float, float] | None, unit: str) -> str:
    return f"{ends[0]:,.4g} to {with_unit(ends[1], unit)}" if ends else "-"

"""Curves over sizes or counts: series, and the charts that they share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from merge_bench.view.numbers import binary
from merge_bench.view.plot.marks import Axis, Band, Chart, Group, Line, Mark, Picture, Points, Whiskers
from merge_bench.view.plot.style import size_ticks, tick_label

MANY = 60
"""Points of a series; more get a band instead of whiskers, and small markers or none."""
_APART = 0.012
"""Between the bars of two series, of the length of the axis."""


@dataclass(frozen=True)
class Series:
    """One line of a panel.

    Attributes
    ----------
    label : str
        As the legend has it. Data: never markup.
    index : int
        Which look of `style.look`; the same thing has the same one in every panel.
    points : tuple of (float, float, float, float)
        By x: x, y, and the least and the greatest value there; all but x in the panel's unit.
    source : str or None
        Where published numbers come from; drawn dashed.
    doubtful : tuple of bool
        Points that are not what was asked for; drawn hollow.
    details : mapping of str to tuple of str
        Further texts for a pointer that rests on a point, by name.
    """

    label: str
    index: int
    points: tuple[tuple[float, float, float, float], ...]
    source: str | None = None
    doubtful: tuple[bool, ...] = ()
    details: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """What its points are."""
        return "as published" if self.source else "medians over launches"

    @property
    def spreads(self) -> bool:
        """Whether least and greatest differ anywhere."""
        return any(low != high for _, _, low, high in self.points)

    @property
    def many(self) -> bool:
        """Whether it has too many points for a bar each."""
        return len(self.points) > MANY


def panel(
    series: Sequence[Series], *, title: str, x_title: str, y_title: str, x_unit: str, y_unit: str, spread: str,
    log: bool, counted: str = "elements",
) -> Chart:  # fmt: skip
    """Series over a common axis of sizes in bytes, or of counts: a group for each.

    Parameters
    ----------
    title, x_title, y_title
        With units in the titles of axes.
    x_unit, y_unit
        For single values: ``B`` or nothing; ``µs``, ``MB/s``, ….
    spread
        What lies between the least and the greatest value.
    log
        Both axes; else both are linear and begin at 0.
    counted
        What x counts where it has no unit.
    """
    sizes = [x for one in series for x, *_ in one.points]
    ticks = size_ticks(min(sizes, default=1), max(sizes, default=1), log=log, most=12)
    picture = Picture(
        x=Axis(x_title, {at: tick_label(at, x_unit) for at in ticks}, log=log, grid=log),
        y=Axis(y_title, low=None if log else 0.0, log=log),
        groups=tuple(
            Group(one.index, tuple(_marks(one, x, x_unit, y_unit, spread, counted)), one.label)
            for one, x in zip(series, _side_by_side(series, log=log), strict=True)
        ),
        height=400,
    )
    return Chart(title, picture, _note(series, spread))


def _side_by_side(series: Sequence[Series], *, log: bool) -> Iterator[list[float]]:
    """Where the points of each of `series` are drawn: the bars of several series at one x would hide each other."""
    barred = [one for one in series if one.spreads and not one.many]
    places = sorted({math.log2(x) if log else x for one in barred for x, *_ in one.points})
    step = 0.0
    if len(barred) > 1:
        gap = min((right - left for left, right in itertools.pairwise(places)), default=1.0)
        step = min(_APART * ((places[-1] - places[0]) or gap), gap / 2 / len(barred))
    for one in series:
        shift = (barred.index(one) - (len(barred) - 1) / 2) * step if one in barred else 0.0
        yield [x * 2**shift if log else x + shift for x, *_ in one.points]


def _note(series: Sequence[Series], spread: str) -> str:
    """What points, bars and hollow points are."""
    text = f"Points: {', or '.join(sorted({one.origin for one in series}, reverse=True))}"
    if any(one.spreads for one in series):
        drawn = {one.many for one in series if one.spreads}
        names = " and ".join(name for name, many in (("bars", False), ("bands", True)) if many in drawn)
        text += f"; {names}: minimum to maximum {spread}"
    if any(any(one.doubtful) for one in series):
        return f"{text}. Hollow: other transports than requested, or a wrong result."
    return f"{text}."


def _marks(one: Series, x: Sequence[float], x_unit: str, y_unit: str, spread: str, counted: str) -> Iterator[Mark]:
    """The marks of a series, drawn at `x`."""
    sizes, y, low, high = zip(*one.points, strict=True) if one.points else ((), (), (), ())
    yield Line(x, y, dashed=bool(one.source))
    if one.spreads:
        yield Band(x, low, high) if one.many else Whiskers(x, low, high, upright=True, alpha=0.5)
    details: dict[str, Sequence[str]] = {
        "series": [one.label] * len(x),
        "size" if x_unit else counted: [_exact(at, x_unit) for at in sizes],
        "value": [f"{value:,.6g} {y_unit}" for value in y],
        "range": [f"{least:,.6g} to {most:,.6g} {y_unit} {spread}" for _, _, least, most in one.points],
    }
    yield Points(x, y, one.doubtful, size=4 if one.many else 9, details=details | one.details)


def _exact(count: float, unit: str) -> str:
    text = f"{count:,.0f} {unit}".strip()
    return f"{text} ({binary(count, unit)})" if count >= 1024 else text

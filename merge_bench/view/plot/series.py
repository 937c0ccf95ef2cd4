"""Curves over sizes or counts, as plain data: series, and the panels that they share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from merge_bench.view.numbers import binary
from merge_bench.view.plot.marks import Axis, Band, Group, Line, Mark, Picture, Points, Whiskers
from merge_bench.view.plot.style import size_ticks, tick_label

MANY = 60
"""Points of a series; more get a band instead of whiskers, and small markers or none."""


@dataclass(frozen=True)
class Series:
    """One line of a panel.

    Attributes
    ----------
    label : str
        As the legend has it. Data: never markup.
    index : int
        Which look of `style.look`; the same thing has the same one in every panel.
    x, y : tuple of float
        The points, by x; `y` in the panel's unit.
    low, high : tuple of float
        The least and the greatest value at each point.
    source : str or None
        Where published numbers come from; drawn dashed.
    doubtful : tuple of bool
        Points that are not what was asked for; drawn hollow.
    details : mapping of str to tuple of str
        Further texts for a pointer that rests on a point, by name.
    forecast : bool
        Whether the points were computed and not measured; drawn dashed.
    """

    label: str
    index: int
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    source: str | None = None
    doubtful: tuple[bool, ...] = ()
    details: dict[str, tuple[str, ...]] = field(default_factory=dict)
    forecast: bool = False

    @property
    def origin(self) -> str:
        """What its points are."""
        return "forecasts" if self.forecast else "as published" if self.source else "medians over launches"

    @property
    def spreads(self) -> bool:
        """Whether least and greatest differ anywhere."""
        return self.low != self.high


@dataclass(frozen=True)
class Panel:
    """Series over a common axis of sizes in bytes, or of counts.

    Attributes
    ----------
    title, x_title, y_title : str
        With units in the titles of axes.
    x_unit, y_unit : str
        For single values: ``B`` or nothing; ``µs``, ``MB/s``, ….
    spread : str
        What lies between `low` and `high`.
    log : bool
        Both axes; else both are linear and begin at 0.
    counted : str
        What `x` counts where it has no unit.
    """

    title: str
    x_title: str
    y_title: str
    x_unit: str
    y_unit: str
    spread: str
    log: bool
    series: tuple[Series, ...]
    counted: str = "elements"

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.series

    @property
    def note(self) -> str:
        """What points, bars and hollow points are."""
        origins = {one.origin for one in self.series}
        said = f"Points: {', or '.join(sorted(origins, reverse=True))}"
        if any(one.spreads for one in self.series):
            drawn = {len(one.x) > MANY for one in self.series if one.spreads}
            names = " and ".join(name for name, many in (("bars", False), ("bands", True)) if many in drawn)
            least = "" if any(one.forecast for one in self.series) else "least to greatest "
            said += f"; {names}: {least}{self.spread}"
        hollow = " Hollow: not as asked for, or wrong." if any(any(one.doubtful) for one in self.series) else ""
        return f"{said}.{hollow}"

    def picture(self) -> Picture:
        """A group for each series."""
        sizes = [x for one in self.series for x in one.x]
        ticks = size_ticks(min(sizes), max(sizes), log=self.log, most=32 if self.log else 16)
        return Picture(
            x=Axis(self.x_title, {at: tick_label(at, self.x_unit) for at in ticks}, log=self.log, grid=self.log),
            y=Axis(self.y_title, low=None if self.log else 0.0, log=self.log),
            groups=tuple(Group(one.index, tuple(self._marks(one)), one.label) for one in self.series),
            height=400,
        )

    def _marks(self, one: Series) -> Iterator[Mark]:
        many = len(one.x) > MANY
        yield Line(one.x, one.y, dashed=bool(one.source) or one.forecast)
        if one.spreads:
            yield (
                Band(one.x, one.low, one.high) if many else Whiskers(one.x, one.low, one.high, upright=True, alpha=0.5)
            )
        ranges = zip(one.low, one.high, strict=True)
        details: dict[str, Sequence[str]] = {
            "series": [one.label] * len(one.x),
            "size" if self.x_unit else self.counted: [_exact(x, self.x_unit) for x in one.x],
            "value": [f"{y:,.6g} {self.y_unit}" for y in one.y],
            "range": [f"{low:,.6g} to {high:,.6g} {self.y_unit} {self.spread}" for low, high in ranges],
        }
        yield Points(one.x, one.y, one.doubtful, size=4 if many else 9, details=details | one.details)


def _exact(count: float, unit: str) -> str:
    return f"{count:,.0f} {unit} ({binary(count, unit)})" if count >= 1024 else f"{count:,.0f} {unit}".strip()

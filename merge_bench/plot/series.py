"""What is drawn, as plain data: series, and the panels that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
        What else is to be told of each point, by name.
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
        """What points and bars are."""
        return caption([self])


def caption(panels: Sequence[Panel]) -> str:
    """What points, bars and hollow points of `panels` are, as sentences."""
    series = [series for panel in panels for series in panel.series]
    origins = {one.origin for one in series}
    said = f"Points: {', or '.join(sorted(origins, reverse=True))}"
    if any(one.spreads for one in series):
        bars = " and ".join(
            name for name, is_so in (("bars", False), ("bands", True))
            if any(one.spreads and (len(one.x) > MANY) == is_so for one in series)
        )  # fmt: skip
        ends = "" if any(one.forecast for one in series) else "least to greatest "
        said += f"; {bars}: {ends}" + " / ".join(dict.fromkeys(panel.spread for panel in panels))
    hollow = " Hollow: not as asked for, or wrong." if any(any(one.doubtful) for one in series) else ""
    return f"{said}.{hollow}"

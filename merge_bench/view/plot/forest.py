"""Ratios with their intervals about a line at 1: one below the other, and over the time at which they were decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.view.numbers import with_interval
from merge_bench.view.plot.charts import rows_axis
from merge_bench.view.plot.marks import Axis, Boxes, Group, Picture, Points, Whiskers
from merge_bench.view.plot.style import GREY


@dataclass(frozen=True)
class Estimate:
    """A ratio and its interval, ``None`` where nothing was measured; `kind`: what was decided; `detail`: why."""

    label: str
    kind: str
    ratio: float | None
    low: float | None
    high: float | None
    detail: str

    @property
    def shown(self) -> str:
        """The ratio with its interval."""
        return with_interval(self.ratio, self.low, self.high)


@dataclass(frozen=True)
class Section:
    """Estimates that belong together, under a title."""

    title: str
    estimates: tuple[Estimate, ...]


@dataclass(frozen=True)
class Forest:
    """Estimates in rows.

    Attributes
    ----------
    title, axis : str
        `axis`: of the ratios.
    sections : tuple of Section
    kinds : tuple of str
        What may have been decided; each has its colour and its marker.
    noise : tuple of float or None
        The interval of what is compared with itself, drawn as a band.
    note : str
        What bars and points are.
    """

    title: str
    axis: str
    sections: tuple[Section, ...]
    kinds: tuple[str, ...]
    noise: tuple[float, float] | None = None
    note: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.sections

    def picture(self) -> Picture:
        """A row for each title of a section and for each estimate, which has its numbers on the right."""
        rows: list[str | Estimate] = []
        for section in self.sections:
            rows += [section.title.upper(), *section.estimates]
        found = {at: row for at, row in enumerate(rows) if isinstance(row, Estimate)}
        ends = [end for row in found.values() for end in (row.ratio, row.low, row.high) if end is not None]
        low, high = min([1.0, *ends, *(self.noise or ())]), max([1.0, *ends, *(self.noise or ())])
        room = 0.06 * max(high - low, 0.02)
        groups = _groups(list(found), list(found.values()), self.kinds)
        if self.noise:
            band = Boxes([len(rows) / 2], [self.noise[0]], [self.noise[1]], width=len(rows) + 2, fill=0.25)
            groups.insert(0, Group(GREY, (band,), "the baseline against itself"))
        names = {at: row.label if isinstance(row, Estimate) else row for at, row in enumerate(rows)}
        return Picture(
            Axis(self.axis, low=max(low - room, 0.0), high=high + room, rule=1.0),
            rows_axis(names, len(rows) - 1, {at: row.shown for at, row in found.items()}),
            tuple(groups),
            height=30 + 24 * len(rows),
        )


@dataclass(frozen=True)
class Race:
    """Estimates by the `minutes` after which they were decided; `kinds`: as in a forest."""

    title: str
    minutes: tuple[float, ...]
    estimates: tuple[Estimate, ...]
    kinds: tuple[str, ...]
    note: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.estimates

    def picture(self) -> Picture:
        """A group for each decision."""
        return Picture(
            Axis("Minutes since the campaign began"),
            Axis("Speed-up (×)", rule=1.0),
            tuple(_groups(self.minutes, self.estimates, self.kinds, upright=True)),
            height=280,
        )


def _groups(
    places: Sequence[float], estimates: Sequence[Estimate], kinds: Sequence[str], *, upright: bool = False
) -> list[Group]:
    """The estimates of each kind that occurs; `upright`: ratios go upwards, and their places to the right."""
    groups = []
    for index, kind in enumerate(kinds):
        at = [place for place, row in zip(places, estimates, strict=True) if row.kind == kind]
        rows = [row for row in estimates if row.kind == kind]
        if not rows:
            continue
        ratios, low, high = (
            [float("nan") if each is None else each for each in (getattr(row, name) for row in rows)]
            for name in ("ratio", "low", "high")
        )
        details = {
            "setting": [row.label for row in rows],
            "speed-up": [row.shown for row in rows],
            "why": [row.detail for row in rows],
        }
        points = Points(at, ratios, details=details) if upright else Points(ratios, at, details=details)
        groups.append(Group(index, (Whiskers(at, low, high, upright, alpha=0.5), points), kind))
    return groups

"""Ratios with their intervals, about a line at 1: what is drawn, as plain data, and where it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KINDS = ("kept", "dropped", "failed")
"""What may have been decided; each has its colour and its marker."""


@dataclass(frozen=True)
class Point:
    """A ratio and its interval, ``None`` where nothing was measured; `kind`: of `KINDS`; `detail`: why, for people."""

    label: str
    kind: str
    ratio: float | None
    low: float | None
    high: float | None
    detail: str


@dataclass(frozen=True)
class Section:
    """Points that belong together, under a title."""

    title: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Forest:
    """A drawing. `noise`: the interval of what is compared with itself, drawn as a band."""

    title: str
    x_title: str
    sections: tuple[Section, ...]
    noise: tuple[float, float] | None = None

    @property
    def kinds(self) -> list[str]:
        """Those that occur, in their order."""
        seen = {point.kind for section in self.sections for point in section.points}
        return [kind for kind in KINDS if kind in seen]

    @property
    def rows(self) -> list[str | Point]:
        """From top to bottom: titles of sections, and their points."""
        found: list[str | Point] = []
        for section in self.sections:
            found += [section.title, *section.points]
        return found


def draw(forest: Forest, path: Path, form: Path) -> None:
    """Draw into the file `path`, in the form that the name `form` says (`draw.check_form`)."""
    extension = form.suffix.lower()
    if extension == ".html":
        from merge_bench.plot import forest_interactive

        forest_interactive.draw(forest, path)
    else:
        from merge_bench.plot import forest_static

        forest_static.draw(forest, path, extension.removeprefix("."))


def limits(forest: Forest) -> tuple[float, float]:
    """Of the axis: everything that was measured and 1, with some room."""
    points = [point for section in forest.sections for point in section.points]
    found = [value for point in points for value in (point.ratio, point.low, point.high) if value is not None]
    found += [1.0, *(forest.noise or ())]
    room = 0.06 * max(max(found) - min(found), 0.02)
    return max(min(found) - room, 0.0), max(found) + room


def shown(point: Point) -> str:
    """``1.471 (1.412 to 1.553)``; empty where nothing was measured."""
    if point.ratio is None:
        return ""
    interval = f" ({point.low:.3f} to {point.high:.3f})" if point.low is not None and point.high is not None else ""
    return f"{point.ratio:.3f}{interval}"


def longest(rows: Sequence[str | Point]) -> int:
    """Letters of the longest label."""
    return max((len(row.label) for row in rows if isinstance(row, Point)), default=0)

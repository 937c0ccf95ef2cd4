"""Ratios with their intervals about a line at 1: one below the other, and step after step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from merge_bench.tune.head_to_head import level
from merge_bench.units import plural
from merge_bench.view.numbers import with_interval
from merge_bench.view.plot.charts import every, rows_axis
from merge_bench.view.plot.marks import Axis, Boxes, Chart, Group, Picture, Points, Whiskers
from merge_bench.view.plot.style import DECISIONS, GREY

_ENOUGH = 6
"""Blocks whose interval has a level of 95 %; a confirmation at several sizes asks for more than that."""


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


def forest(
    sections: Mapping[str, Sequence[Estimate]], *, title: str, axis: str, kinds: Sequence[str],
    noise: tuple[float, float] | None,
) -> Chart:  # fmt: skip
    """A row for each title of a section and for each estimate, which has its numbers on the right.

    Parameters
    ----------
    sections
        Estimates that belong together, by their title, which may be empty; those that are empty are left out.
    title, axis
        `axis`: of the ratios.
    kinds
        What may have been decided, in the order of the legend.
    noise
        The interval of what is compared with itself, drawn as a band.
    """
    rows: list[str | Estimate] = []
    for name, estimates in sections.items():
        rows += [*([name.upper()] if name else []), *estimates] if estimates else []
    found = {at: row for at, row in enumerate(rows) if isinstance(row, Estimate)}
    ends = [end for row in found.values() for end in (row.ratio, row.low, row.high) if end is not None]
    low, high = min([1.0, *ends, *(noise or ())]), max([1.0, *ends, *(noise or ())])
    room = 0.06 * max(high - low, 0.02)
    groups = _groups(list(found), list(found.values()), kinds)
    if noise and rows:
        band = Boxes([len(rows) / 2], [noise[0]], [noise[1]], width=len(rows) + 2, fill=0.25)
        groups.insert(0, Group(GREY, (band,), "the baseline compared with itself"))
    names = {at: row.label if isinstance(row, Estimate) else row for at, row in enumerate(rows)}
    picture = Picture(
        Axis(axis, low=max(low - room, 0.0), high=high + room, rule=1.0),
        rows_axis(names, len(rows) - 1, {at: row.shown for at, row in found.items()}),
        tuple(groups),
        height=30 + 24 * len(rows),
    )
    return Chart(title, picture)


def levels_of(blocks: Iterable[int]) -> str:
    """``interval (75 % from 3 blocks, 95 % or more from 6 or more)``: the levels from so many blocks."""
    counts = sorted({min(count, _ENOUGH) for count in blocks if count > 1})
    levels = [f"{100 * (1 - level(each)):.4g} % from {plural(each, 'block')}" for each in counts if each < _ENOUGH]
    levels += ["95 % or more from 6 or more blocks"] * (_ENOUGH in counts)
    return f"interval ({', '.join(levels)})" if levels else "interval"


def race(estimates: Mapping[int, Estimate], *, title: str, note: str = "") -> Chart:
    """Estimates by the numbers of their steps."""
    kinds = list(dict.fromkeys(row.kind for row in estimates.values()))
    groups = tuple(_groups(list(estimates), list(estimates.values()), kinds, upright=True))
    last = max(estimates, default=0)
    ticks = every({number: str(number) for number in range(1, last + 1)}, 24)
    axis = Axis("Step", ticks, low=0.5, high=last + 0.5, grid=False)
    return Chart(title, Picture(axis, Axis("Speed-up (×)", rule=1.0), groups, height=280), note)


def _groups(
    places: Sequence[float], estimates: Sequence[Estimate], kinds: Sequence[str], *, upright: bool = False
) -> list[Group]:
    """The estimates of each kind that occurs; `upright`: ratios go upwards, and their places to the right."""
    groups = []
    for kind in kinds:
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
        groups.append(Group(DECISIONS.get(kind, GREY), (Whiskers(at, low, high, upright, alpha=0.5), points), kind))
    return groups

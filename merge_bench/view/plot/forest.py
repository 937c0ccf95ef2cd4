"""Ratios with their intervals about a line at 1: one below the other, and step after step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from merge_bench.records.schema import TuneLine
from merge_bench.tune.head_to_head import level
from merge_bench.units import plural
from merge_bench.view.numbers import with_interval
from merge_bench.view.plot.charts import rows_axis, thin_ticks
from merge_bench.view.plot.marks import Axis, Boxes, Chart, Group, Points, Whiskers, columns
from merge_bench.view.plot.style import GREY

_LOOKS = {
    "gained": 2,
    "kept": 2,
    "accepted": 0,
    "dropped": 4,
    "rejected": 1,
    "failed": 3,
    "undecided": 5,
    "no gain seen": 6,
    "not decided yet": 5,
}
"""Of a tuning's decisions, the same in every chart; those of others are grey."""
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
    sections: Mapping[str, Sequence[Estimate]],
    *,
    title: str,
    axis: str,
    kinds: Sequence[str],
    noise: TuneLine | None,
) -> Chart:
    """A row for each title of a section and for each estimate, which has its numbers on the right.

    Parameters
    ----------
    sections
        Estimates that belong together, by their title, which may be empty; those that are empty are left out.
    axis
        The title of the axis of ratios.
    kinds
        What may have been decided, in the order of the legend.
    noise
        The step that compared the baseline with itself; its interval is drawn as a band.
    """
    rows: list[str | Estimate] = []
    for name, estimates in sections.items():
        rows += [*([name.upper()] if name else []), *estimates] if estimates else []
    placed = {at: row for at, row in enumerate(rows) if isinstance(row, Estimate)}
    ends = [end for row in placed.values() for end in (row.ratio, row.low, row.high) if end is not None]
    groups = _groups(placed, kinds)
    if noise and noise.low is not None and noise.high is not None and rows:
        band = Boxes([len(rows) / 2], [noise.low], [noise.high], width=len(rows) + 2, fill=0.25)
        groups = (Group(GREY, (band,), "the baseline compared with itself"), *groups)
        ends += [noise.low, noise.high]
    low, high = min([1.0, *ends]), max([1.0, *ends])
    room = 0.06 * max(high - low, 0.02)
    names = {at: row.label if isinstance(row, Estimate) else row for at, row in enumerate(rows)}
    return Chart(
        Axis(axis, low=max(low - room, 0.0), high=high + room, rule=1.0),
        rows_axis(names, len(rows) - 1, {at: row.shown for at, row in placed.items()}),
        groups,
        30 + 24 * len(rows),
        title,
    )


def levels_of(blocks: Iterable[int]) -> str:
    """``interval (75 % from 3 blocks, 95 % or more from 6 or more)``: the levels from so many blocks."""
    counts = sorted({min(count, _ENOUGH) for count in blocks if count > 1})
    levels = [f"{100 * (1 - level(count)):.4g} % from {plural(count, 'block')}" for count in counts if count < _ENOUGH]
    levels += ["95 % or more from 6 or more blocks"] if _ENOUGH in counts else []
    return f"interval ({', '.join(levels)})" if levels else "interval"


def race(estimates: Mapping[int, Estimate], *, title: str, note: str = "") -> Chart:
    """Estimates by the numbers of their steps."""
    kinds = list(dict.fromkeys(row.kind for row in estimates.values()))
    last = max(estimates, default=0)
    ticks = thin_ticks({number: str(number) for number in range(1, last + 1)}, 24)
    axis = Axis("Step", ticks, low=0.5, high=last + 0.5, grid=False)
    groups = _groups(estimates, kinds, upright=True)
    return Chart(axis, Axis("Speed-up (×)", rule=1.0), groups, 280, title, note)


def _groups(estimates: Mapping[int, Estimate], kinds: Sequence[str], *, upright: bool = False) -> tuple[Group, ...]:
    """Estimates, by their places, of each kind that occurs; `upright`: ratios go upwards, and places to the right."""
    groups = []
    for kind in kinds:
        rows = {at: row for at, row in estimates.items() if row.kind == kind}
        if not rows:
            continue
        values = [
            [float("nan") if end is None else end for end in (row.ratio, row.low, row.high)] for row in rows.values()
        ]
        ratios, low, high = columns(values, 3)
        details = {
            "setting": [row.label for row in rows.values()],
            "speed-up": [row.shown for row in rows.values()],
            "why": [row.detail for row in rows.values()],
        }
        at = list(rows)
        points = Points(at, ratios, details=details) if upright else Points(ratios, at, details=details)
        groups.append(Group(_LOOKS.get(kind, GREY), (Whiskers(at, low, high, upright, alpha=0.5), points), kind))
    return tuple(groups)

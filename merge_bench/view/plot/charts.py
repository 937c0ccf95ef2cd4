"""Bars and stacks: functions that make charts of values with labels. Labels are data, never markup."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from merge_bench.view.plot.marks import (
    Axis,
    Boxes,
    Chart,
    Group,
    Mark,
    Points,
    Ticks,
    Whiskers,
    columns,
)
from merge_bench.view.plot.style import bar_height, step_of
from merge_bench.view.text import capitalized


@dataclass(frozen=True)
class Bar:
    """One bar, in the chart's unit.

    `index`: the look of its series, the same in every chart. `value`: None where nothing was measured; there is no bar.
    `interval`: of the value, if there are launches enough. `points`: what the value was made of, by name: ``launch 3``.
    `remark`: for a pointer that rests on it. `published`: another's number; drawn hatched.
    """

    series: str
    index: int
    value: float | None
    interval: tuple[float, float] | None = None
    points: tuple[tuple[str, float], ...] = ()
    remark: str = ""
    published: bool = False


def bars(
    rows: Sequence[tuple[str, Sequence[Bar]]], *, title: str, axis: str, unit: str, line: float | None = None, note: str
) -> Chart:
    """Horizontal bars from 0, row below row: a group for each series, and half a bar of room below each row.

    Parameters
    ----------
    rows
        Bars that share a name on the axis, with that name.
    axis, unit
        The title of the axis of values, with the unit, which stands beside single values.
    line
        Where a line is drawn across: 1 for a speed-up.
    note
        What rows, bars, thick lines and points are, with semicolons between them; what is not drawn is left out.
    """
    at, ticks = 0.0, {}
    series: dict[str, list[tuple[float, str, Bar]]] = {}
    for label, row in rows:
        for number, bar in enumerate(row):
            series.setdefault(bar.series, []).append((at + number, label, bar))
        ticks[at + (len(row) - 1) / 2] = label
        at += len(row) + 0.5
    drawn = [bar for _, row in rows for bar in row]
    ends = [end for bar in drawn for end in (bar.value, *(bar.interval or ()), *dict(bar.points).values()) if end]
    thick = bar_height(len(drawn))
    named = any(bar.series != label for label, row in rows for bar in row)  # rows say it otherwise
    return Chart(
        Axis(axis, low=0.0, high=1.05 * max(ends, default=1.0), rule=line),
        rows_axis(ticks, at - 1.5),
        tuple(
            Group(placed[0][2].index, tuple(_bar_marks(placed, unit, thick)), name if named else "")
            for name, placed in series.items()
        ),
        30 + thick * (len(drawn) + len(rows) // 2),
        title,
        _note(note, drawn),
    )


def _note(parts: str, drawn: Sequence[Bar]) -> str:
    """A sentence of those of `parts` that bars have."""
    absent = {"thick lines"} if not any(bar.interval for bar in drawn) else set()
    absent |= {"points"} if not any(bar.points for bar in drawn) else set()
    kept = [part for part in parts.split("; ") if part.partition(":")[0] not in absent]
    kept += ["hatched: as published"] if any(bar.published for bar in drawn) else []
    return f"{capitalized('; '.join(kept))}." if any(kept) else ""


def _bar_marks(placed: Sequence[tuple[float, str, Bar]], unit: str, thick: int) -> Iterator[Mark]:
    """Bars with their intervals, and points in turn above and below the middle, to hide each other less."""
    measured = [(at, bar.value, row, bar) for at, row, bar in placed if bar.value is not None]
    at, values, rows, drawn = columns(measured, 4)
    details = {
        "row": rows,
        "series": [bar.series for bar in drawn],
        "value": [with_unit(value, unit) for value in values],
        "interval": [
            f"{bar.interval[0]:,.4g} to {with_unit(bar.interval[1], unit)}" if bar.interval else "-" for bar in drawn
        ],
        "remark": [bar.remark or "-" for bar in drawn],
    }
    hatched = placed[0][2].published
    yield Boxes(at, [0.0] * len(at), values, fill=0.2 if hatched else 0.5, hatched=hatched, details=details)
    if ends := [(place, *bar.interval) for place, _, _, bar in measured if bar.interval]:
        at, low, high = columns(ends, 3)
        yield Whiskers(at, low, high, width=max(thick // 4, 2))
    if points := [
        (value, place + (-0.16, 0.0, 0.16)[number % 3], name)
        for place, _, _, bar in measured
        for number, (name, value) in enumerate(bar.points)
    ]:
        x, y, names = columns(points, 3)
        details = {"of": names, "value": [with_unit(value, unit) for value in x]}
        yield Points(x, y, hollow=[True] * len(x), size=5, details=details)


def stacked(
    parts: Sequence[str], rows: Mapping[str, Sequence[float]], *, at: Sequence[float] = (), upright: bool = False
) -> tuple[Sequence[float], tuple[Group, ...]]:
    """Bars of parts that follow each other: where the last part of each ends, and a group for each part.

    `rows`: milliseconds of each of `parts`, by the row's name; `at`: the places of rows, else 0, 1, ….
    """
    ends, groups = [0.0] * len(rows), []
    for number, part in enumerate(parts):
        values = [row[number] for row in rows.values()]
        starts, ends = ends, [end + value for end, value in zip(ends, values, strict=True)]
        details = {"row": list(rows), "part": [part] * len(rows), "value": [with_unit(ms, "ms") for ms in values]}
        boxes = Boxes(at or range(len(rows)), starts, ends, upright, fill=0.7, details=details)
        groups.append(Group(number, (boxes,), part))
    return ends, tuple(groups)


def rows_axis(ticks: Ticks, last: float, beside: Ticks | None = None) -> Axis:
    """Rows from the top down; `last`: where the last bar or point lies."""
    return Axis(ticks=ticks, low=last + 0.9, high=-0.9, grid=False, beside=beside or {})


def thin_ticks(ticks: Ticks, most: int) -> Ticks:
    """`ticks`, or so many of them, evenly."""
    return dict(list(ticks.items())[:: step_of(len(ticks), most)])


def with_unit(value: float, unit: str) -> str:
    """A single value as a pointer is shown it; NaN: not known."""
    return f"{value:,.4g} {unit}" if value == value else "not known"

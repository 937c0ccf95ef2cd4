"""Bars, stacks and heat maps: functions that make charts of values with labels. Labels are data, never markup."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from merge_bench.view.plot.marks import (
    Axis,
    Boxes,
    Cells,
    Chart,
    Details,
    Group,
    Mark,
    Picture,
    Points,
    Texts,
    Ticks,
    Whiskers,
)
from merge_bench.view.plot.style import bar_height, step_of

MOST_PRINTED = 16
"""Rows of a map whose values are printed."""


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


def bars(
    rows: Sequence[tuple[str, Sequence[Bar]]], *, title: str, axis: str, unit: str, line: float | None = None, note: str
) -> Chart:
    """Horizontal bars from 0, row below row: a group for each series, and half a bar of room below each row.

    Parameters
    ----------
    rows
        Bars that share a name on the axis, with that name.
    title, axis, unit
        `axis` is the title of the axis of values, with the unit; `unit` stands beside single values.
    line
        Where a line is drawn across: 1 for a speed-up.
    note
        What rows, bars, thick lines and points are, with semicolons between them; what is not drawn is left out.
    """
    at, ticks = 0.0, {}
    ends: list[float] = []
    series: dict[str, list[tuple[float, str, Bar]]] = {}
    for label, mine in rows:
        for number, bar in enumerate(mine):
            series.setdefault(bar.series, []).append((at + number, label, bar))
            ends += [end for end in (bar.value, *(bar.interval or ()), *(value for _, value in bar.points)) if end]
        ticks[at + (len(mine) - 1) / 2] = label
        at += len(mine) + 0.5
    count = sum(map(len, series.values()))
    thick = bar_height(count)
    named = any(bar.series != label for label, mine in rows for bar in mine)  # rows say it otherwise
    groups = [
        Group(found[0][2].index, tuple(_bar_marks(found, unit, thick)), name if named else "")
        for name, found in series.items()
    ]
    picture = Picture(
        Axis(axis, low=0.0, high=1.05 * max(ends, default=1.0), rule=line),
        rows_axis(ticks, at - 1.5), tuple(groups), 30 + thick * (count + len(rows) // 2),
    )  # fmt: skip
    return Chart(title, picture, _note(note, [bar for _, mine in rows for bar in mine]))


def _note(parts: str, bars: Sequence[Bar]) -> str:
    """A sentence of those of `parts` that `bars` have."""
    absent = ["thick lines"] * (not any(bar.interval for bar in bars)) + ["points"] * (
        not any(bar.points for bar in bars)
    )
    kept = [part for part in parts.split("; ") if part.partition(":")[0] not in absent]
    kept += ["hatched: as published"] * any(bar.published for bar in bars)
    text = "; ".join(kept)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _bar_marks(found: Sequence[tuple[float, str, Bar]], unit: str, thick: int) -> Iterator[Mark]:
    """Bars with their intervals, and points in turn above and below the middle, to hide each other less."""
    known = [(at, bar.value, row, bar) for at, row, bar in found if bar.value is not None]
    at, values, rows, bars = zip(*known, strict=True) if known else ((), (), (), ())
    details = {
        "row": rows,
        "series": [bar.series for bar in bars],
        "value": [with_unit(value, unit) for value in values],
        "interval": [
            f"{bar.interval[0]:,.4g} to {with_unit(bar.interval[1], unit)}" if bar.interval else "-" for bar in bars
        ],
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
        details = {"of": names, "value": [with_unit(value, unit) for value in x]}
        yield Points(x, y, hollow=[True] * len(x), size=5, details=details)


def stacked(
    parts: Sequence[str],
    rows: Mapping[str, Sequence[float]],
    *,
    at: Sequence[float] = (),
    upright: bool = False,
) -> tuple[Sequence[float], tuple[Group, ...]]:
    """Bars of parts that follow each other: where the last part of each ends, and a group for each part.

    `rows`: milliseconds of each of `parts`, by the row's name; `at`: the places of rows, else 0, 1, ….
    """
    places, ends, groups = at or range(len(rows)), [0.0] * len(rows), []
    for number, part in enumerate(parts):
        values = [row[number] for row in rows.values()]
        starts, ends = ends, [end + value for end, value in zip(ends, values, strict=True)]
        details = {"row": list(rows), "part": [part] * len(rows), "value": [with_unit(one, "ms") for one in values]}
        groups.append(Group(number, (Boxes(places, starts, ends, upright, fill=0.7, details=details),), part))
    return ends, tuple(groups)


def heat(
    cells: Mapping[tuple[int, int], float], labels: Mapping[int, str], details: Details, *, title: str, unit: str,
    note: str,
) -> Chart:  # fmt: skip
    """A square map of values by sender and receiver, rows from the top down; cells that are missing stay empty.

    Values stand in their cells, up to `MOST_PRINTED` rows: in more, there is no room for them.

    Parameters
    ----------
    cells
        Each value by its ranks, NaN: not known.
    labels
        Of rows and of columns, by rank; columns are labelled with what stands before the first space.
    details
        Further texts for a pointer that rests on a cell, by name.
    """
    place = {rank: at for at, rank in enumerate(labels)}
    end = max(len(labels), 1) - 0.5
    rows = every(dict(enumerate(labels.values())), 32)
    texts: dict[str, Sequence[str]] = {
        "from": [labels[sender] for sender, _ in cells],
        "to": [labels[receiver] for _, receiver in cells],
        "value": [with_unit(value, unit) for value in cells.values()],
    }
    x, y = [place[receiver] for _, receiver in cells], [place[sender] for sender, _ in cells]
    coloured = Cells(x, y, list(cells.values()), unit, {**texts, **details})
    picture = Picture(
        Axis("to rank", {at: name.partition(" ")[0] for at, name in rows.items()}, low=-0.5, high=end, grid=False),
        Axis("from rank", rows, low=end, high=-0.5, grid=False),
        (Group(0, (coloured, _printed(coloured if len(labels) <= MOST_PRINTED else Cells((), (), (), unit)))),),
        height=min(max(36 * len(labels), 260), 720),
        square=True,
    )
    return Chart(title, picture, note)


def _printed(cells: Cells) -> Texts:
    """The values of cells, the highest in three digits or more; ``?`` where one is not known."""
    _, high = cells.limits
    digits = max(2 - math.floor(math.log10(high)), 0)
    texts = [f"{value:,.{digits}f}" if value == value else "?" for value in cells.values]
    return Texts(cells.x, cells.y, texts, [value < 0.55 * high for value in cells.values])


def rows_axis(ticks: Ticks, last: float, beside: Ticks | None = None) -> Axis:
    """Rows from the top down; `last`: where the last bar or point lies."""
    return Axis(ticks=ticks, low=last + 0.9, high=-0.9, grid=False, beside=beside or {})


def every(ticks: Ticks, most: int) -> Ticks:
    """`ticks`, or so many of them, evenly."""
    return dict(list(ticks.items())[:: step_of(len(ticks), most)])


def with_unit(value: float, unit: str) -> str:
    """A single value as a pointer is shown it; NaN: not known."""
    return f"{value:,.4g} {unit}" if value == value else "not known"

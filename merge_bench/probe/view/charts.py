"""The rows of network measurements as panels: latency, bandwidth and throughput over size, bus bandwidth over count."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from merge_bench.probe.shared import (
    ALL_TO_ALL,
    COLLECTIVE,
    LATENCY_TEST,
    PING_PONG,
    RATE_TEST,
    Measure,
    family_of_test,
    placement_text,
)
from merge_bench.probe.shared.stored_rows import kind_of_test, measure_of
from merge_bench.records.campaign import Campaign, Range, Row
from merge_bench.view.plot import (
    Axis,
    Band,
    Chart,
    Line,
    Mark,
    MarkGroup,
    Points,
    Whiskers,
    size_ticks,
    tick_label,
    transpose_rows,
)
from merge_bench.view.text import visible, with_binary_prefix
from merge_bench.view.titles import source_lines

MANY = 60
"""Points of a series; more get a band instead of whiskers, and small markers or none."""
_APART = 0.012
"""Distance between the bars of two series, as a part of the length of the axis."""
_UNITS = {"MB/s": "MB/s, 1 MB = 10⁶ B", "GB/s": "GB/s, 1 GB = 10⁹ B"}
Label = Callable[[Row], str]


class _Series:
    """One series of a panel: the rows that share a label, by x, with their values in the panel's unit.

    `index`: number of its color and marker, the same in every panel. `spreads`: whether the least and the greatest
    value of any point differ. `has_many_points`: too many to draw a bar at each. `doubtful`: for each point whether it
    used other transports than requested, or its result was wrong.
    """

    def __init__(self, label: str, index: int, points: Sequence[tuple[float, Range, Row]]) -> None:
        self.label, self.index = label, index
        self.x, self.values, self.rows = zip(*sorted(points, key=lambda point: point[0]), strict=True)
        self.spreads = any(value.low != value.high for value in self.values)
        self.has_many_points = len(self.x) > MANY
        self.doubtful = [row.as_requested is False or bool(row.wrong) for row in self.rows]


def panels_of(rows: Sequence[Row]) -> tuple[Chart, ...]:
    """The panels that `rows` fill: latency, bandwidth, throughput of a ping-pong, bus bandwidth, all-to-all.

    A panel has one quantity. Axes are logarithmic, except those of a ping-pong whose sizes go up in equal steps: they
    are linear and there is a panel for each placement, because one is many times the other. Rows without a value are
    left out.
    """
    return tuple(chart for chart, _ in _panels_with_rows(rows))


def panels_of_results(
    labelled: Sequence[tuple[Campaign, Row]], others: Sequence[Row] = (), among: Sequence[Campaign] = ()
) -> tuple[Chart, ...]:
    """The panels of rows with their campaigns, and of published rows; each names the campaigns whose rows it shows.

    `among`: all results of the report.
    """
    campaigns = {id(row): campaign for campaign, row in labelled}
    panels = []
    for chart, rows in _panels_with_rows([*(row for _, row in labelled), *others]):
        shown = {id(campaign): campaign for row in rows if (campaign := campaigns.get(id(row))) is not None}
        panels.append(replace(chart, source=source_lines(list(shown.values()), among)))
    return tuple(panels)


def _panels_with_rows(rows: Sequence[Row]) -> Iterator[tuple[Chart, Sequence[Row]]]:
    """Each panel with the rows that it shows."""
    linear = _sizes_in_equal_steps(rows)
    label = _label_maker(rows, apart=linear)
    order = list(dict.fromkeys(map(label, rows)))
    for kind in (LATENCY_TEST, RATE_TEST, PING_PONG, COLLECTIVE, ALL_TO_ALL):
        of_kind = [row for row in rows if kind_of_test(row) == kind]
        apart = linear and kind == PING_PONG
        for measure, placement in dict.fromkeys((measure_of(row), row.placement if apart else "") for row in of_kind):
            drawn = [row for row in of_kind if measure_of(row) == measure and placement in ("", row.placement)]
            if lines := _series_by_label(drawn, label, order, log=not apart):
                shown = [row for row in drawn if measure.value_in(row) is not None]
                yield _make_panel(drawn, lines, measure, placement, log=not apart), shown


def _sizes_in_equal_steps(rows: Sequence[Row]) -> bool:
    """Whether each series of a ping-pong has 8 sizes or more in equal steps; sizes below 1 KiB do not count."""
    lines: dict[object, list[int]] = {}
    for row in rows:
        if kind_of_test(row) == PING_PONG and row.size >= 1024:
            lines.setdefault((row.series, row.source), []).append(row.size)
    return bool(lines) and all(
        len(sizes) >= 8 and len({b - a for a, b in itertools.pairwise(sorted(sizes))}) == 1 for sizes in lines.values()
    )


def _label_maker(rows: Sequence[Row], *, apart: bool) -> Label:
    """Returns the function that labels a row's series: its config, and what else differs between `rows`.

    `apart`: ping-pongs have a panel for each placement, so that labels do not name it.
    """

    def several(of: Callable[[Row], object]) -> bool:
        return len({of(row) for row in rows if of(row)}) > 1

    tests, placements = several(lambda row: family_of_test(row.test)), several(lambda row: row.placement)
    memories, together = several(lambda row: row.memory), (COLLECTIVE, ALL_TO_ALL)
    pairs = {(row.placement, row.ranks) for row in rows if row.ranks and kind_of_test(row) not in together}
    groups = several(lambda row: len(row.ranks) if kind_of_test(row) == ALL_TO_ALL else 0)
    ranks = len(pairs) > len({placement for placement, _ in pairs})

    def label(row: Row) -> str:
        parts = [
            row.config,
            family_of_test(row.test) if tests else "",
            placement_text(row.placement) if placements and not (apart and kind_of_test(row) == PING_PONG) else "",
            "→".join(map(str, row.ranks)) if ranks and len(row.ranks) in (1, 2) else "",
            f"{len(row.ranks)} ranks" if groups and kind_of_test(row) == ALL_TO_ALL else "",
            f"{row.memory} memory" if memories else "",
        ]
        source = "" if row.source is None else f" ({row.source})" if row.from_file else f" (published: {row.source})"
        return visible(", ".join(filter(None, parts)) + source)

    return label


def _series_by_label(rows: Sequence[Row], label: Label, order: Sequence[str], *, log: bool) -> list[_Series]:
    """A series for each label, without the rows that have no value."""
    points: dict[str, list[tuple[float, Range, Row]]] = {}
    for row in rows:
        value = range_of_row(row)
        if value is not None and (value.low > 0 or not log):
            at = row.count if kind_of_test(row) == COLLECTIVE and row.count is not None else row.size
            points.setdefault(label(row), []).append((at, value, row))
    return [_Series(name, order.index(name), line) for name, line in points.items()]


def range_of_row(row: Row) -> Range | None:
    """Median, least and greatest value of a row in the unit of `measure_of`; None if nothing was measured.

    The extremes are over ranks where those are known, which include the extremes over launches.
    """
    measure = measure_of(row)
    value = measure.value_in(row)
    least, most = row.bandwidth_ranks
    if value is None or kind_of_test(row) != COLLECTIVE or least is None or most is None:
        return value
    return Range(value.median, least / measure.scale, most / measure.scale)


def _make_panel(rows: Sequence[Row], lines: Sequence[_Series], measure: Measure, placement: str, *, log: bool) -> Chart:
    """The panel of the series `lines` of `rows`; `log`: both axes are logarithmic, else linear from 0."""
    tests = list(dict.fromkeys(row.test for row in rows if measure.value_in(row) is not None))
    absent = [test for test in dict.fromkeys(row.test for row in rows) if test not in tests]
    over_ranks = kind_of_test(rows[0]) == COLLECTIVE
    title = ", ".join(filter(None, (measure.title, placement and placement_text(placement))))
    named = f"{rows[0].probe} ({', '.join(tests)})" if over_ranks else ", ".join(tests)
    extremes = "over ranks and launches" if over_ranks else "over launches"
    note = _points_note(lines, extremes)
    if absent:
        note += f" Not drawn, because they have no {measure.title.lower()}: {visible(', '.join(absent))}."
    x_title, x_unit = ("Elements of the whole vector", "") if over_ranks else ("Message size (B)", "B")
    sizes = [x for line in lines for x in line.x]
    ticks = size_ticks(min(sizes), max(sizes), log=log, most=12)
    groups = [
        MarkGroup(line.index, tuple(_marks_of_series(line, x, x_unit, measure.unit, extremes)), line.label)
        for line, x in zip(lines, _shifted_x(lines, log=log), strict=True)
    ]
    return Chart(
        Axis(x_title, {at: tick_label(at, x_unit) for at in ticks}, log=log, grid=log),
        Axis(f"{measure.title} ({_UNITS.get(measure.unit, measure.unit)})", low=None if log else 0.0, log=log),
        tuple(groups),
        400,
        f"{title}: {visible(named)}",
        note,
    )


def _shifted_x(lines: Sequence[_Series], *, log: bool) -> Iterator[list[float]]:
    """The x of the points of each series, shifted so that the bars of several at one x do not hide each other."""
    barred = [line for line in lines if line.spreads and not line.has_many_points]
    places = sorted({math.log2(x) if log else x for line in barred for x in line.x})
    step = 0.0
    if len(barred) > 1:
        gap = min((right - left for left, right in itertools.pairwise(places)), default=1.0)
        step = min(_APART * ((places[-1] - places[0]) or gap), gap / 2 / len(barred))
    for line in lines:
        shift = (barred.index(line) - (len(barred) - 1) / 2) * step if line in barred else 0.0
        yield [x * 2**shift if log else x + shift for x in line.x]


def _points_note(lines: Sequence[_Series], extremes: str) -> str:
    """The note below a panel: what its points, bars and hollow points are."""
    origins = {"as published" if line.rows[0].source else "medians over launches" for line in lines}
    text = f"Points: {', or '.join(sorted(origins, reverse=True))}"
    if drawn := {line.has_many_points for line in lines if line.spreads}:
        names = " and ".join(name for name, many in (("bars", False), ("bands", True)) if many in drawn)
        text += f"; {names}: minimum to maximum {extremes}"
    if any(any(line.doubtful) for line in lines):
        text += ". Hollow: other transports than requested, or a wrong result"
    return f"{text}."


def _marks_of_series(line: _Series, x: Sequence[float], x_unit: str, unit: str, extremes: str) -> Iterator[Mark]:
    """The marks of the series `line`, drawn at `x`."""
    y, low, high = transpose_rows([(value.median, value.low, value.high) for value in line.values], 3)
    yield Line(x, y, dashed=bool(line.rows[0].source))
    if line.spreads:
        band = Band(x, low, high)
        yield from (band, *band.edges) if line.has_many_points else [Whiskers(x, low, high, upright=True)]
    texts = [_details_of_row(row) for row in line.rows]
    details = {
        "series": [line.label] * len(x),
        "size" if x_unit else "elements": [_exact_text(at, x_unit) for at in line.x],
        "value": [f"{value:,.6g} {unit}" for value in y],
        "range": [f"{value.low:,.6g} to {value.high:,.6g} {unit} {extremes}" for value in line.values],
    }
    details |= {key: [text[key] for text in texts] for key in texts[0] if any(text[key] for text in texts)}
    yield Points(x, y, line.doubtful, size=4 if line.has_many_points else 9, details=details)


def _exact_text(count: float, unit: str) -> str:
    text = f"{count:,.0f} {unit}".strip()
    return f"{text} ({with_binary_prefix(count, unit)})" if count >= 1024 else text


def _details_of_row(row: Row) -> dict[str, str]:
    remarks = ["used other transports than requested"] if row.as_requested is False else []
    remarks += [f"{row.wrong} wrong elements"] if row.wrong else []
    remarks += [row.note] if row.note else []
    texts: dict[str, Any] = {
        "test": row.test,
        "method": row.method,
        "lanes": ", ".join(row.selected) or "not known",
        "protocol": row.protocol or "not known",
        "launches": ("not stated" if row.from_file else "published") if row.source else row.launches,
        "remark": "; ".join(remarks),
    }
    return {name: visible(str(text)) for name, text in texts.items()}

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
    OPERATION,
    PING_PONG,
    RATE_TEST,
    RowQuantity,
    placement_text,
    test_family_name,
)
from merge_bench.probe.shared.stored_rows import row_quantity, row_test_kind
from merge_bench.records.campaign import Campaign
from merge_bench.records.probe_rows import MedianAndRange, ProbeRow
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
from merge_bench.view.text import mark_unprintable, with_binary_prefix
from merge_bench.view.titles import source_lines

MANY = 60
"""Points of a series; more get a band instead of whiskers, and small markers or none."""
_APART = 0.012
"""Distance between the bars of two series, as a part of the length of the axis."""
_UNITS = {"MB/s": "MB/s, 1 MB = 10⁶ B", "GB/s": "GB/s, 1 GB = 10⁹ B"}
Label = Callable[[ProbeRow], str]


class _Series:
    """One series of a panel: the rows that share a label, by x, with their values in the panel's unit.

    `index`: number of its color and marker, the same in every panel. `spreads`: whether the least and the greatest
    value of any point differ. `has_many_points`: too many to draw a bar at each. `doubtful`: for each point whether it
    used other transports than requested, or its result was wrong.
    """

    def __init__(self, label: str, index: int, points: Sequence[tuple[float, MedianAndRange, ProbeRow]]) -> None:
        self.label, self.index = label, index
        self.x, self.values, self.rows = zip(*sorted(points, key=lambda point: point[0]), strict=True)
        self.spreads = any(value.low != value.high for value in self.values)
        self.has_many_points = len(self.x) > MANY
        self.doubtful = [row.as_requested is False or bool(row.wrong) for row in self.rows]


def make_panels(rows: Sequence[ProbeRow]) -> tuple[Chart, ...]:
    """Return a chart for each quantity of `rows`: latency, bandwidth, throughput, bus bandwidth, all-to-all.

    A panel has one quantity. Axes are logarithmic, except those of a ping-pong whose sizes go up in equal steps: they
    are linear and there is a panel for each placement, because one is many times the other. Rows without a value are
    left out.
    """
    return tuple(chart for chart, _ in _panels_with_rows(rows))


def make_panels_of_results(
    labelled: Sequence[tuple[Campaign, ProbeRow]], others: Sequence[ProbeRow] = (), among: Sequence[Campaign] = ()
) -> tuple[Chart, ...]:
    """Return the charts of measured and of published rows; each names the campaigns whose rows it shows.

    `among`: all results of the report.
    """
    campaigns = {id(row): campaign for campaign, row in labelled}
    panels = []
    for chart, rows in _panels_with_rows([*(row for _, row in labelled), *others]):
        shown = {id(campaign): campaign for row in rows if (campaign := campaigns.get(id(row))) is not None}
        panels.append(replace(chart, source=source_lines(list(shown.values()), among)))
    return tuple(panels)


def _panels_with_rows(rows: Sequence[ProbeRow]) -> Iterator[tuple[Chart, Sequence[ProbeRow]]]:
    """Yield each chart with the rows that it shows."""
    linear = _has_sizes_in_equal_steps(rows)
    label = _make_label_function(rows, apart=linear)
    order = list(dict.fromkeys(map(label, rows)))
    for kind in (LATENCY_TEST, RATE_TEST, PING_PONG, COLLECTIVE, ALL_TO_ALL, OPERATION):
        of_kind = [row for row in rows if row_test_kind(row) == kind]
        apart = linear and kind == PING_PONG
        for quantity, placement in dict.fromkeys(
            (row_quantity(row), row.placement if apart else "") for row in of_kind
        ):
            drawn = [row for row in of_kind if row_quantity(row) == quantity and placement in ("", row.placement)]
            if all_series := _series_by_label(drawn, label, order, log=not apart):
                shown = [row for row in drawn if quantity.value_range(row) is not None]
                yield _make_panel(drawn, all_series, quantity, placement, log=not apart), shown


def _has_sizes_in_equal_steps(rows: Sequence[ProbeRow]) -> bool:
    """Return whether each series of a ping-pong has 8 sizes or more in equal steps, without those below 1 KiB."""
    all_series: dict[object, list[int]] = {}
    for row in rows:
        if row_test_kind(row) == PING_PONG and row.size >= 1024:
            all_series.setdefault((row.series_key, row.source), []).append(row.size)
    return bool(all_series) and all(
        len(sizes) >= 8 and len({b - a for a, b in itertools.pairwise(sorted(sizes))}) == 1
        for sizes in all_series.values()
    )


def _make_label_function(rows: Sequence[ProbeRow], *, apart: bool) -> Label:
    """Return a function that gives the label of a row's series: its config, and what else differs between `rows`.

    `apart`: ping-pongs have a panel for each placement, so that labels do not name it.
    """

    def has_several(of: Callable[[ProbeRow], object]) -> bool:
        return len({of(row) for row in rows if of(row)}) > 1

    tests, placements = has_several(lambda row: test_family_name(row.test)), has_several(lambda row: row.placement)
    memories, together = has_several(lambda row: row.memory), (COLLECTIVE, ALL_TO_ALL, OPERATION)
    pairs = {(row.placement, row.ranks) for row in rows if row.ranks and row_test_kind(row) not in together}
    groups = has_several(lambda row: len(row.ranks) if row_test_kind(row) == ALL_TO_ALL else 0)
    ranks = len(pairs) > len({placement for placement, _ in pairs})

    def label(row: ProbeRow) -> str:
        parts = [
            row.config,
            test_family_name(row.test) if tests else "",
            placement_text(row.placement) if placements and not (apart and row_test_kind(row) == PING_PONG) else "",
            "→".join(map(str, row.ranks)) if ranks and len(row.ranks) in (1, 2) else "",
            f"{len(row.ranks)} ranks" if groups and row_test_kind(row) == ALL_TO_ALL else "",
            f"{row.memory} memory" if memories else "",
        ]
        source = (
            "" if row.source is None else f" ({row.source})" if row.is_from_user_file else f" (published: {row.source})"
        )
        return mark_unprintable(", ".join(filter(None, parts)) + source)

    return label


def _series_by_label(rows: Sequence[ProbeRow], label: Label, order: Sequence[str], *, log: bool) -> list[_Series]:
    """Group rows into a series for each label, without the rows that have no value."""
    points: dict[str, list[tuple[float, MedianAndRange, ProbeRow]]] = {}
    for row in rows:
        value = row_value_range(row)
        at = row.count if row_test_kind(row) == COLLECTIVE and row.count is not None else row.size
        if value is not None and ((value.low > 0 and at > 0) or not log):
            points.setdefault(label(row), []).append((at, value, row))
    return [_Series(name, order.index(name), series) for name, series in points.items()]


def row_value_range(row: ProbeRow) -> MedianAndRange | None:
    """Return median, least and greatest value of a row in the displayed unit of its quantity; None if not measured.

    The extremes are over ranks where those are known, which include the extremes over launches.
    """
    quantity = row_quantity(row)
    value = quantity.value_range(row)
    least, most = row.bandwidth_ranks
    if value is None or row_test_kind(row) != COLLECTIVE or least is None or most is None:
        return value
    return MedianAndRange(value.median, least / quantity.scale, most / quantity.scale)


def _make_panel(
    rows: Sequence[ProbeRow], all_series: Sequence[_Series], quantity: RowQuantity, placement: str, *, log: bool
) -> Chart:
    """Return the chart of all series of `rows`; `log`: both axes are logarithmic, else linear from 0."""
    tests = list(dict.fromkeys(row.test for row in rows if quantity.value_range(row) is not None))
    absent = [test for test in dict.fromkeys(row.test for row in rows) if test not in tests]
    over_ranks = row_test_kind(rows[0]) == COLLECTIVE
    title = ", ".join(filter(None, (quantity.title, placement and placement_text(placement))))
    named = f"{rows[0].probe} ({', '.join(tests)})" if over_ranks else ", ".join(tests)
    extremes = "over ranks and launches" if over_ranks else "over launches"
    note = _points_note_text(all_series, extremes)
    if absent:
        note += f" Not drawn, because they have no {quantity.title.lower()}: {mark_unprintable(', '.join(absent))}."
    x_title, x_unit = ("Elements of the whole vector", "") if over_ranks else ("Message size (B)", "B")
    sizes = [x for series in all_series for x in series.x]
    ticks = size_ticks(min(sizes), max(sizes), log=log, most=12)
    groups = [
        MarkGroup(series.index, tuple(_marks_of_series(series, x, x_unit, quantity.unit, extremes)), series.label)
        for series, x in zip(all_series, _shifted_x_values(all_series, log=log), strict=True)
    ]
    return Chart(
        Axis(x_title, {at: tick_label(at, x_unit) for at in ticks}, log=log, grid=log),
        Axis(f"{quantity.title} ({_UNITS.get(quantity.unit, quantity.unit)})", low=None if log else 0.0, log=log),
        tuple(groups),
        400,
        f"{title}: {mark_unprintable(named)}",
        note,
    )


def _shifted_x_values(all_series: Sequence[_Series], *, log: bool) -> Iterator[list[float]]:
    """Yield the x values of each series, shifted so that the bars of several series do not hide each other."""
    barred = [series for series in all_series if series.spreads and not series.has_many_points]
    places = sorted({math.log2(x) if log else x for series in barred for x in series.x})
    step = 0.0
    if len(barred) > 1:
        gap = min((right - left for left, right in itertools.pairwise(places)), default=1.0)
        step = min(_APART * ((places[-1] - places[0]) or gap), gap / 2 / len(barred))
    for series in all_series:
        shift = (barred.index(series) - (len(barred) - 1) / 2) * step if series in barred else 0.0
        yield [x * 2**shift if log else x + shift for x in series.x]


def _points_note_text(all_series: Sequence[_Series], extremes: str) -> str:
    """Return the note below a chart about its points, bars and hollow points."""
    origins = {"as published" if series.rows[0].source else "medians over launches" for series in all_series}
    text = f"Points: {', or '.join(sorted(origins, reverse=True))}"
    if drawn := {series.has_many_points for series in all_series if series.spreads}:
        names = " and ".join(name for name, many in (("bars", False), ("bands", True)) if many in drawn)
        text += f"; {names}: minimum to maximum {extremes}"
    if any(any(series.doubtful) for series in all_series):
        text += ". Hollow: other transports than requested, or a wrong result"
    return f"{text}."


def _marks_of_series(series: _Series, x: Sequence[float], x_unit: str, unit: str, extremes: str) -> Iterator[Mark]:
    """Yield the marks of a series, drawn at `x`."""
    y, low, high = transpose_rows([(value.median, value.low, value.high) for value in series.values], 3)
    yield Line(x, y, dashed=bool(series.rows[0].source))
    if series.spreads:
        band = Band(x, low, high)
        yield from (band, *band.edges) if series.has_many_points else [Whiskers(x, low, high, upright=True)]
    texts = [_details_of_row(row) for row in series.rows]
    details = {
        "series": [series.label] * len(x),
        "size" if x_unit else "elements": [_exact_count_text(at, x_unit) for at in series.x],
        "value": [f"{value:,.6g} {unit}" for value in y],
        "range": [f"{value.low:,.6g} to {value.high:,.6g} {unit} {extremes}" for value in series.values],
    }
    details |= {key: [text[key] for text in texts] for key in texts[0] if any(text[key] for text in texts)}
    yield Points(x, y, series.doubtful, size=4 if series.has_many_points else 9, details=details)


def _exact_count_text(count: float, unit: str) -> str:
    text = f"{count:,.0f} {unit}".strip()
    return f"{text} ({with_binary_prefix(count, unit)})" if count >= 1024 else text


def _details_of_row(row: ProbeRow) -> dict[str, str]:
    remarks = ["used other transports than requested"] if row.as_requested is False else []
    remarks += [f"{row.wrong} wrong elements"] if row.wrong else []
    remarks += [row.note] if row.note else []
    texts: dict[str, Any] = {
        "test": row.test,
        "method": row.method,
        "lanes": ", ".join(row.selected) or "not known",
        "protocol": row.protocol or "not known",
        "launches": ("not stated" if row.is_from_user_file else "published") if row.source else row.launches,
        "remark": "; ".join(remarks),
    }
    return {name: mark_unprintable(str(text)) for name, text in texts.items()}

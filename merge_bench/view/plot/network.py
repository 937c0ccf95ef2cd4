"""The rows of network measurements as panels: latency, bandwidth and throughput over size, bus bandwidth over count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from merge_bench.probe.shared.base import (
    ALL_TO_ALL,
    COLLECTIVE,
    LATENCY_TEST,
    PING_PONG,
    RATE_TEST,
    Measure,
    family,
    kind_of,
    measure_of,
    placed,
)
from merge_bench.records.campaign import Campaign
from merge_bench.records.probe_rows import Range, Row
from merge_bench.view.plot.marks import Chart
from merge_bench.view.plot.series import Series, panel
from merge_bench.view.plot.source import source_of
from merge_bench.view.plot.style import evenly_spaced
from merge_bench.view.text import visible

_UNITS = {"µs": "µs", "MB/s": "MB/s, 1 MB = 10⁶ B", "GB/s": "GB/s, 1 GB = 10⁹ B"}
Label = Callable[[Row], str]


def panels_of(rows: Sequence[Row]) -> tuple[Chart, ...]:
    """The panels that `rows` fill: latency, bandwidth, throughput of a ping-pong, bus bandwidth, all-to-all.

    A panel has one quantity. Axes are logarithmic, except those of a ping-pong whose sizes go up in equal steps: they
    are linear and there is a panel for each placement, because one is many times the other. Rows without a value are
    left out.
    """
    return tuple(chart for chart, _ in _panels(rows))


def panels_of_results(
    labelled: Sequence[tuple[Campaign, Row]], others: Sequence[Row] = (), among: Sequence[Campaign] = ()
) -> tuple[Chart, ...]:
    """The panels of rows with their campaigns, and of published rows; each names the campaigns whose rows it shows.

    `among`: all results of the report.
    """
    campaigns = {id(row): campaign for campaign, row in labelled}
    panels = []
    for chart, rows in _panels([*(row for _, row in labelled), *others]):
        shown = {id(found): found for row in rows if (found := campaigns.get(id(row))) is not None}
        panels.append(replace(chart, source=source_of(list(shown.values()), among)))
    return tuple(panels)


def _panels(rows: Sequence[Row]) -> Iterator[tuple[Chart, Sequence[Row]]]:
    """Each panel with the rows that it shows."""
    stepped = [sizes for sizes in _sizes([row for row in rows if kind_of(row) == PING_PONG]) if sizes]
    linear = bool(stepped) and all(map(evenly_spaced, stepped))
    label = _labels(rows, apart=linear)
    order = list(dict.fromkeys(label(row) for row in rows))
    for kind in (LATENCY_TEST, RATE_TEST, PING_PONG, COLLECTIVE, ALL_TO_ALL):
        found = [row for row in rows if kind_of(row) == kind]
        apart = linear and kind == PING_PONG
        for measure, placement in dict.fromkeys((measure_of(row), row.placement if apart else "") for row in found):
            drawn = [row for row in found if measure_of(row) == measure and placement in ("", row.placement)]
            if series := _all_series(drawn, label, order, log=not apart):
                shown = [row for row in drawn if measure.of(row) is not None]
                yield _panel(drawn, series, measure, placement, log=not apart), shown


def _sizes(rows: Sequence[Row]) -> list[list[int]]:
    """The sizes of each line of a drawing, those below 1 KiB aside: they are for the latency."""
    lines = dict.fromkeys((row.series, row.source) for row in rows)
    return [sorted(row.size for row in rows if (row.series, row.source) == line and row.size >= 1024) for line in lines]


def _labels(rows: Sequence[Row], *, apart: bool) -> Label:
    """The labels of lines: config, and what else differs; `apart`: ping-pongs have a panel for each placement."""

    def several(of: Callable[[Row], object]) -> bool:
        return len({of(row) for row in rows if of(row)}) > 1

    tests, placements = several(lambda row: family(row.test)), several(lambda row: row.placement)
    memories = several(lambda row: row.memory)
    pairs = {(row.placement, row.ranks) for row in rows if row.ranks and kind_of(row) not in (COLLECTIVE, ALL_TO_ALL)}
    groups = several(lambda row: len(row.ranks) if kind_of(row) == ALL_TO_ALL else 0)
    ranks = len(pairs) > len({placement for placement, _ in pairs})

    def label(row: Row) -> str:
        parts = [
            row.config,
            family(row.test) if tests else "",
            placed(row.placement) if placements and not (apart and kind_of(row) == PING_PONG) else "",
            "→".join(map(str, row.ranks)) if ranks and len(row.ranks) == 2 else "",
            f"{len(row.ranks)} ranks" if groups and kind_of(row) == ALL_TO_ALL else "",
            f"{row.memory} memory" if memories else "",
        ]
        source = "" if row.source is None else f" ({row.source})" if row.from_file else f" (published: {row.source})"
        return visible(", ".join(part for part in parts if part) + source)

    return label


def _panel(rows: Sequence[Row], series: Sequence[Series], measure: Measure, placement: str, *, log: bool) -> Chart:
    tests = list(dict.fromkeys(row.test for row in rows if measure.of(row) is not None))
    absent = [test for test in dict.fromkeys(row.test for row in rows) if test not in tests]
    title, unit = measure.title, measure.unit
    over_ranks = kind_of(rows[0]) == COLLECTIVE
    named = visible(f"{rows[0].probe} ({', '.join(tests)})" if over_ranks else ", ".join(tests))
    chart = panel(
        series,
        title=f"{title}{', ' * bool(placement)}{placed(placement)}: {named}",
        x_title="Elements of the whole vector" if over_ranks else "Message size (B)",
        y_title=f"{title} ({_UNITS.get(unit, unit)})",
        x_unit="" if over_ranks else "B",
        y_unit=unit,
        spread="over ranks and launches" if over_ranks else "over launches",
        log=log,
    )
    if absent:
        note = f"{chart.note} Not drawn, because they have no {title.lower()}: {visible(', '.join(absent))}."
        chart = replace(chart, note=note)
    return chart


def _all_series(rows: Sequence[Row], label: Label, order: Sequence[str], *, log: bool) -> list[Series]:
    """One for each label, without the rows that have no value."""
    found: dict[str, list[tuple[tuple[float, float, float, float], Row]]] = {}
    for row in rows:
        value = spread(row)
        if value is not None and (value.low > 0 or not log):
            at = row.count if kind_of(row) == COLLECTIVE and row.count is not None else row.size
            point = (at, value.median, value.low, value.high)
            found.setdefault(label(row), []).append((point, row))
    series = []
    for name, each in found.items():
        points, mine = zip(*sorted(each, key=lambda one: one[0][0]), strict=True)
        doubtful = tuple(row.as_requested is False or bool(row.wrong) for row in mine)
        texts = [_details(row) for row in mine]
        details = {key: tuple(one[key] for one in texts) for key in texts[0] if any(one[key] for one in texts)}
        series.append(Series(name, order.index(name), points, mine[0].source, doubtful, details))
    return series


def spread(row: Row) -> Range | None:
    """The median in the unit of `measure_of`, with the extremes over ranks where they are known: those over launches
    lie within them. None if nothing was measured.
    """
    measure = measure_of(row)
    value = measure.of(row)
    least, most = row.bandwidth_ranks
    if value is None or kind_of(row) != COLLECTIVE or least is None or most is None:
        return value
    return Range(value.median, least / measure.scale, most / measure.scale)


def _details(row: Row) -> dict[str, str]:
    known: dict[str, Any] = {
        "test": row.test,
        "method": row.method,
        "lanes": ", ".join(row.selected) or "not known",
        "protocol": row.protocol or "not known",
        "launches": ("not stated" if row.from_file else "published") if row.source else row.launches,
        "remark": _remark(row),
    }
    return {name: visible(str(value)) for name, value in known.items()}


def _remark(row: Row) -> str:
    remarks = ["used other transports than requested"] if row.as_requested is False else []
    remarks += [f"{row.wrong} wrong elements"] if row.wrong else []
    return "; ".join([*remarks, *([row.note] if row.note else [])])

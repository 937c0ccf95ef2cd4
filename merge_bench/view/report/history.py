"""A history for people: for each series its level, and each shift with what differs; with details, every result."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TextIO

from merge_bench.analysis.documents.history import HistoryDocument, HistorySeries, LevelShift
from merge_bench.analysis.history.document import LEAST
from merge_bench.analysis.verification_state import UNVERIFIED
from merge_bench.view.numbers import cell
from merge_bench.view.report.comparison import UNITS
from merge_bench.view.report.layout import Page, by_row, page_on
from merge_bench.view.text import plural, short, visible
from merge_bench.view.titles import short_time

_MOST = 4
"""Differences that stand beside a shift."""
_LETTERS = 40


def print_history(
    document: HistoryDocument, *, details: bool = False, file: TextIO | None = None, width: int | None = None
) -> None:
    """Print the document of ``history`` on `file` (standard output)."""
    judged = [series for series in document.series if series.judged]
    with page_on(file, width) as page:
        page.heading("merge_bench · history")
        for series in judged or document.series[:1]:
            page.line(sentence(document, series), "bold")
            for shift in series.shifts:
                _shift(page, series, shift)
            if details:
                _details(page, document, series)
        few = len(document.series) - len(judged)
        if few:
            page.line(f"{few} series with fewer than {LEAST} results: too few to find a shift", "dim")
        page.paragraphs("Notes", document.notes)


def sentence(document: HistoryDocument, series: HistorySeries) -> str:
    """``throughput of default: 1,000,000 rows per chunk, 2 workers over 61 results: level 2.31 GiB/s since 12 Nov``."""
    unit, form = UNITS[document.unit]
    noise = f", noise {100 * series.noise:.1f} %" if len(series.results) - series.since > 2 else ""
    parts = [
        f"level {form(series.level)} {unit} since {day(series, series.since)}{noise}",
        plural(len(series.shifts), "shift") if series.judged else f"{LEAST} results are needed to find a shift",
    ]
    if series.noise_floor is not None:
        parts.append(f"A/A noise floor {100 * series.noise_floor:.1f} %")
    if series.wrong_results:
        parts.append(f"{plural(series.wrong_results, 'wrong result')} left out")
    unverified = UNVERIFIED if not all(result.verified for result in series.results) else ""
    counted = plural(len(series.results), "result")
    named = f"{document.metric} of {title(series.series, [each.series for each in document.series])} over {counted}"
    return f"{named}: {'; '.join(filter(None, (*parts, unverified)))}"


def title(series: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> str:
    """The config and the size, and what else tells a series from the others."""
    own = dict(series)
    config, rows, workers = (own.pop(name, None) for name in ("config", "rows_per_chunk", "workers"))
    parts = [f"{rows} rows per chunk"] if rows else []
    parts += [f"{workers} worker{'s' * (workers != '1')}"] if workers else []
    for name, value in own.items():
        if any(other.get(name) != value for other in others):
            parts.append(f"{name.replace('_', ' ')} {short(value)}")
    return visible(f"{config}: {', '.join(parts)}")


def _shift(page: Page, series: HistorySeries, shift: LevelShift) -> None:
    style = "green" if shift.better else "red"
    page.unbroken(f"  {100 * shift.change:+.1f} % on {day(series, shift.result)} at {near(shift.path)}", style)
    found = [short(visible(text), 2 * _LETTERS) for text in shift.differs]
    more = len(found) - _MOST if found else len(shift.differences)
    shown = found[:_MOST] or ["nothing in the records differs from the result before"]
    shown += [f"{more} more {'' if found else 'one result away '}(--details)"] * (more > 0)
    page.line("; ".join(shown), indent=4)


def _details(page: Page, document: HistoryDocument, series: HistorySeries) -> None:
    unit, form = UNITS[document.unit]
    names = [os.path.basename(result.path) for result in series.results]
    rows = [
        (day(series, at), form(each.value), form(each.level), str(len(each.launches)), names[at])
        for at, each in enumerate(series.results)
    ]
    heads = ("Started\n(UTC)", f"Value\n({unit})", f"Level\n({unit})", "Launches", "Result")
    page.table(*by_row(heads, rows, (0, 4)))
    found = [
        [short(visible(cell(text)), _LETTERS) for text in (each.kind, each.name, each.before, each.after)]
        + [names[each.result]]
        for shift in series.shifts
        for each in shift.differences
    ]
    if found:
        page.line("")
        page.table(*by_row(("Differs", "", "Before", "From here", "Result"), found, range(5)))


def day(series: HistorySeries, at: int) -> str:
    """``12 Nov``, with the year if the series has several."""
    day, year, _ = short_time(series.results[at].started)
    ends = {short_time(series.results[end].started)[1] for end in (0, -1)}
    return f"{day} {year}" if len(ends) > 1 else day


def near(path: str) -> str:
    """`path` from here, where that is shorter."""
    return visible(min(path, os.path.relpath(path), key=len))

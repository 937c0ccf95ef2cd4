"""A history for people: for each series its level, and each shift with what differs; with details, every result."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TextIO

from merge_bench.analysis.compare.properties import SIZE
from merge_bench.analysis.verification_state import UNVERIFIED
from merge_bench.history.accepted import Series
from merge_bench.history.document import BY_NAME, LEAST
from merge_bench.history.series_document import HistoryDocument, HistorySeries, LevelShift, SeriesFinding
from merge_bench.history.shifts import DRIFTS, FIRST
from merge_bench.units import plural
from merge_bench.view.comparison import UNITS, noise_floor_text
from merge_bench.view.content import Page, by_row
from merge_bench.view.numbers import cell
from merge_bench.view.terminal import page_on
from merge_bench.view.text import short, visible
from merge_bench.view.titles import option_text, short_times

_MOST = 4
"""Differences that stand beside a shift."""
_LETTERS = 40


def print_history(
    document: HistoryDocument, *, details: bool = False, file: TextIO | None = None, width: int | None = None
) -> None:
    """Print the document of ``history`` on `file` (standard output)."""
    shown = [series for series in document.series if series.judged] or document.series[:1]
    few = [series for series in document.series if series not in shown]
    with page_on(file, width) as page:
        page.heading("merge_bench · history")
        for series in shown:
            page.line(sentence(document, series), "bold")
            for shift in _named_once(series.shifts):
                _shift(page, series, shift)
            for finding in series.findings:
                page.line(finding_sentence(series, finding), indent=2)
            if waits := waiting(document, series):
                page.line(waits, indent=2)
            if details:
                _details(page, document, series)
        if few:
            more = ":" if details else " (--details lists them)"
            page.line(f"{len(few)} more series with fewer than {LEAST} results, too few to find a shift{more}", "dim")
        for series in few if details else ():
            page.line(f"{named(document, series)}: {plural(len(series.results), 'result')}", indent=2)
        page.paragraphs("Notes", document.notes)


def sentence(document: HistoryDocument, series: HistorySeries) -> str:
    """``throughput of default: 1,000,000 rows per chunk, 2 workers over 61 results: level 2.31 GiB/s since 12 Nov``."""
    unit, form = UNITS[document.unit]
    varies = f", noise {100 * series.noise:.1f} %" if len(series.results) - series.since > 2 else ""
    parts = [
        f"level {form(series.level)} {unit} since {day(series, series.since)}{varies}",
        plural(len(series.shifts), "shift") if series.judged else f"{LEAST} results are needed to find a shift",
        f"A/A {noise_floor_text(series.noise_floor)}" if series.noise_floor is not None else "",
        f"{plural(series.wrong_results, 'wrong result')} left out" if series.wrong_results else "",
        "" if all(result.verified for result in series.results) else UNVERIFIED,
    ]
    what = f"{document.metric} of {named(document, series)} over {plural(len(series.results), 'result')}"
    return f"{what}: {'; '.join(filter(None, parts))}"


def named(document: HistoryDocument, series: HistorySeries) -> str:
    """The title of a series among those of the document."""
    return title(series.series, [each.series for each in document.series])


def title(series: Series, others: Iterable[Series]) -> str:
    """The config and the size, and what else tells a series from the others."""
    own = [name for name, value in series.items() if any(other.get(name) != value for other in others)]
    names = dict.fromkeys((*SIZE, *own))
    parts = [short(option_text(name, series[name])) for name in names if name in series and name != "config"]
    return visible(f"{series['config']}: {', '.join(parts)}")


def finding_sentence(series: HistorySeries, finding: SeriesFinding) -> str:
    """``drifts: -3.2 % since 8 Nov, without a shift``."""
    began, change = day(series, finding.since), 100 * finding.change
    if finding.kind == DRIFTS:
        return f"drifts: {change:+.1f} % since {began}, little by little"
    return f"noise changed: {change:+.0f} % since {began}"


def waiting(document: HistoryDocument, series: HistorySeries) -> str:
    """That the gate compares with an earlier, better level, and how to accept the present one; empty if it does not."""
    if series.reference is None or not series.reference_results:
        return ""
    if len(series.results) - 1 in series.reference_results or document.metric != "throughput":
        return ""
    unit, form = UNITS[document.unit]
    level = f"{form(series.reference)} {unit}"
    if (series.level > series.reference) == BY_NAME[document.metric].higher_is_better:
        return f"--against history compares with {level} until the better level has {FIRST} results"
    return f"--against history compares with {level}, until somebody accepts the loss: history --accept REASON"


def _named_once(shifts: Sequence[LevelShift]) -> list[LevelShift]:
    """The shifts; of a gradual change only the first."""
    before = [None, *(each.ramp for each in shifts)]
    return [each for each, ramp in zip(shifts, before, strict=False) if each.ramp is None or each.ramp != ramp]


def what(series: HistorySeries, shifts: Sequence[LevelShift], shift: LevelShift) -> str:
    """``-4.9 % on 8 Nov, until 14 Nov``: the change and its nights."""
    if shift.ramp is not None:
        parts = [each for each in shifts if each.ramp == shift.ramp]
        first, last = parts[0].before, parts[-1].after
        change = last / first - 1.0 if first and last else shift.change
        return (
            f"{100 * change:+.1f} % little by little, from {day(series, shift.ramp[0])} to {day(series, shift.ramp[1])}"
        )
    text = f"{100 * shift.change:+.1f} % on {day(series, shift.result)}"
    if shift.ended is not None:
        text += f", for {plural(shift.ended - shift.result, 'result')}, until {day(series, shift.ended - 1)}"
    return text + (", back at an earlier level" if shift.returns else "")


def _shift(page: Page, series: HistorySeries, shift: LevelShift) -> None:
    style = "green" if shift.better else "red"
    page.unbroken(f"  {what(series, series.shifts, shift)} at {near(shift.path)}", style)
    if shift.accepted is not None:
        page.line(f"accepted by {visible(shift.accepted.by)}: {visible(shift.accepted.reason)}", indent=4)
    reasons = [short(visible(text), 2 * _LETTERS) for text in shift.differs]
    more = len(reasons) - _MOST if reasons else len(shift.differences)
    shown = reasons[:_MOST] or ["nothing in the records differs from the result before"]
    if more > 0:
        shown.append(f"{more} more {'' if reasons else 'one result away '}(--details)")
    page.line("; ".join(shown), indent=4)


def _details(page: Page, document: HistoryDocument, series: HistorySeries) -> None:
    unit, form = UNITS[document.unit]
    names = [os.path.basename(result.path) for result in series.results]
    days = short_times(result.started for result in series.results)
    figures = ((form(each.value), form(each.level), str(len(each.launches))) for each in series.results)
    rows = [(day, *each, name) for day, each, name in zip(days, figures, names, strict=True)]
    heads = ("Started\n(UTC)", f"Value\n({unit})", f"Level\n({unit})", "Launches", "Result")
    page.table(*by_row(heads, rows, (0, 4)))
    differences = [
        [short(visible(cell(text)), _LETTERS) for text in (each.kind, each.name, each.before, each.after)]
        + [names[each.result]]
        for shift in series.shifts
        for each in shift.differences
    ]
    if differences:
        page.line("")
        page.table(*by_row(("Differs", "", "Before", "From here", "Result"), differences, range(5)))


def day(series: HistorySeries, at: int) -> str:
    """``12 Nov``: when that result began."""
    return short_times(result.started for result in series.results)[at]


def near(path: str) -> str:
    """`path` from here, where that is shorter."""
    return visible(min(path, os.path.relpath(path), key=len))

"""A history for people: for each series its level, and each shift with what differs; with details, every result.

As charts: a point for each result, in their order, and a line for each level.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TextIO

from merge_bench.analysis.aggregate import UNVERIFIED
from merge_bench.regressions.document import LEAST, DriftOrNoiseFinding, HistoryDocument, HistorySeries, LevelShift
from merge_bench.regressions.index import Series
from merge_bench.regressions.shifts import DRIFTS, FIRST
from merge_bench.units import count_with_noun
from merge_bench.view.comparison import noise_floor_text
from merge_bench.view.content import PageBuilder, columns_from_rows
from merge_bench.view.plot import GREY, Axis, Chart, LineMark, MarkGroup, PointMarks
from merge_bench.view.terminal import print_page_at_exit
from merge_bench.view.text import (
    DisplayUnit,
    capitalize,
    evenly_spread_indexes,
    format_cell,
    mark_unprintable,
    shorten_middle,
    shorten_path,
)
from merge_bench.view.titles import date_text, plan_option_text, short_time_texts

_MOST_CHARTS = 8
_NOTE = "Points: medians over launches, in order; lines: levels, medians over results; squares: first of a new level."

_MOST_DIFFERENCES = 4
"""How many differences are printed with a shift."""
_MOST_LISTED = 20
"""How many series with too few results for a shift are printed, those with most results first."""
_WORKLOAD = "workload "
"""The begin of the names of values that describe tables."""
_TABLES = "tables"
_TABLES_LETTERS, _FINGERPRINT_LETTERS = 96, 8
_LETTERS = 40


def print_history(
    document: HistoryDocument, *, details: bool = False, file: TextIO | None = None, width: int | None = None
) -> None:
    """Print the document of ``history`` on `file` (standard output)."""
    judged = [series for series in document.series if series.judged]
    few = sorted((each for each in document.series if not each.judged), key=lambda each: -len(each.results))
    shown, listed = (judged, few) if judged or len(few) > 1 else (few, [])
    with print_page_at_exit(file, width) as page:
        page.add_heading("merge_bench · history")
        for series in shown:
            page.add_paragraph(series_sentence(document, series), "bold")
            ramps = [None, *(shift.ramp for shift in series.shifts)]
            for shift, ramp_before in zip(series.shifts, ramps, strict=False):
                if shift.ramp is None or shift.ramp != ramp_before:  # else it continues a gradual change
                    _write_shift(page, series, shift)
            for finding in series.findings:
                page.add_paragraph(drift_or_noise_sentence(series, finding), indent=2)
            if waits := reference_level_sentence(series):
                page.add_paragraph(waits, indent=2)
            if details:
                _write_results_table(page, series)
        if listed:
            count = f"{len(listed)} {'more ' if shown else ''}series with fewer than {LEAST} results"
            page.add_paragraph(f"{count}, too few to find a shift:", "dim")
        for series in listed if details else listed[:_MOST_LISTED]:
            page.add_paragraph(short_series_sentence(document, series), indent=2)
            if details:
                _write_results_table(page, series)
        if len(listed) > _MOST_LISTED and not details:
            page.add_paragraph(f"{len(listed) - _MOST_LISTED} more series with `history --details`", "dim", indent=2)
        page.add_paragraphs("Notes", document.notes)


def series_sentence(document: HistoryDocument, series: HistorySeries) -> str:
    """Describe a series: ``throughput of default: …, 2 workers over 61 results: level 2.31 GiB/s since 12 Nov``."""
    unit = DisplayUnit.for_recorded_unit(series.unit)
    varies = f", noise {100 * series.noise:.1f} %" if len(series.results) - series.since > 2 else ""
    parts = [
        f"level {unit.format_value(series.level, with_unit=True)} since {day_of_result(series, series.since)}{varies}",
        count_with_noun(len(series.shifts), "shift")
        if series.judged
        else f"{LEAST} results are needed to find a shift",
        f"A/A {noise_floor_text(series.noise_floor)}" if series.noise_floor is not None else "",
        f"{count_with_noun(series.wrong_results, 'wrong result')} left out" if series.wrong_results else "",
        "" if all(result.verified for result in series.results) else UNVERIFIED,
    ]
    what = f"{series.metric} of {series_label(document, series)} over {count_with_noun(len(series.results), 'result')}"
    return f"{what}: {'; '.join(filter(None, parts))}"


def short_series_sentence(document: HistoryDocument, series: HistorySeries) -> str:
    """Describe a series that is too short for a shift: ``default: …, 2 workers: 3 results, throughput 2.31 GiB/s``."""
    level = DisplayUnit.for_recorded_unit(series.unit).format_value(series.level, with_unit=True)
    parts = [
        count_with_noun(len(series.results), "result"),
        f"{series.metric} {level}",
        f"{count_with_noun(series.wrong_results, 'wrong result')} left out" if series.wrong_results else "",
        "" if all(result.verified for result in series.results) else UNVERIFIED,
    ]
    return f"{series_label(document, series)}: {', '.join(filter(None, parts))}"


def metric_title(series: HistorySeries) -> str:
    """The name of a series' metric for the begin of a text: capitalized, unless a person named it for a command."""
    return series.metric if "command" in series.series else capitalize(series.metric)


def series_label(document: HistoryDocument, series: HistorySeries) -> str:
    """The title of a series, with the values that distinguish it from the other series of the document."""
    return series_title(series.series, series.tables, [(each.series, each.tables) for each in document.series])


def series_title(series: Series, tables: str, other_series: Iterable[tuple[Series, str]]) -> str:
    """The title of a series: config, command or problem, and values that distinguish it from others with the same ones.

    `tables`: the text of its tables of files; each of `other_series` has its own.
    """
    alike = [other for other, text in other_series if _common_values(other, text) == _common_values(series, tables)]
    differing = [name for name, value in series.items() if any(other.get(name) != value for other in alike)]
    values = _common_values(series, tables) | {name: series[name] for name in differing}
    parts = [_series_value_text(name, value) for name, value in values.items() if name != "config"]
    return mark_unprintable(f"{series['config']}: {', '.join(parts)}")


def _common_values(series: Series, tables: str) -> dict[str, str | int | float]:
    """The values by name that every title has, if the series has them: config, command or problem, and workers."""
    values = {**series, _TABLES: tables} if tables else series
    names = ("config", "command", "how", "rows_per_chunk", _TABLES, "workers")
    return {name: values[name] for name in names if name in values}


def _series_value_text(name: str, value: str | float) -> str:
    """A value of a series for its title: ``2 workers``, ``fraction 0.3``, ``left content 3b8386f0``."""
    if name == _TABLES:
        return shorten_middle(str(value), _TABLES_LETTERS)
    if name.endswith(" content"):
        value = str(value)[:_FINGERPRINT_LETTERS]
    return shorten_middle(plan_option_text(name.removeprefix(_WORKLOAD), value))


def drift_or_noise_sentence(series: HistorySeries, finding: DriftOrNoiseFinding) -> str:
    """Describe a drift or a change of noise: ``drifts: -3.2 % since 8 Nov, little by little``."""
    began, change = day_of_result(series, finding.since), 100 * finding.change
    if finding.kind == DRIFTS:
        return f"drifts: {change:+.1f} % since {began}, little by little"
    return f"noise changed: {change:+.0f} % since {began}"


def reference_level_sentence(series: HistorySeries) -> str:
    """A sentence if ``--against history`` compares with another level than the present one; else empty."""
    if series.reference is None or not series.reference_results:
        return ""
    if len(series.results) - 1 in series.reference_results or series.metric != series.main_metric:
        return ""
    level = DisplayUnit.for_recorded_unit(series.unit).format_value(series.reference, with_unit=True)
    if (series.level > series.reference) == (series.better == "more"):
        return f"--against history compares with {level} until the better level has {FIRST} results"
    return f"--against history compares with {level}, until somebody accepts the loss: history --accept REASON"


def shift_summary(series: HistorySeries, shifts: Sequence[LevelShift], shift: LevelShift) -> str:
    """A shift's change and its days: ``-4.9 % on 8 Nov, for 7 results, until 14 Nov``."""
    if shift.ramp is not None:
        parts = [each for each in shifts if each.ramp == shift.ramp]
        first, last = parts[0].before, parts[-1].after
        change = last / first - 1.0 if first and last else shift.change
        begin, end = (day_of_result(series, at) for at in shift.ramp)
        return f"{100 * change:+.1f} % little by little, from {begin} to {end}"
    text = f"{100 * shift.change:+.1f} % on {day_of_result(series, shift.result)}"
    if shift.ended is not None:
        results = count_with_noun(shift.ended - shift.result, "result")
        text += f", for {results}, until {day_of_result(series, shift.ended - 1)}"
    return text + (", back at an earlier level" if shift.returns else "")


def _write_shift(page: PageBuilder, series: HistorySeries, shift: LevelShift) -> None:
    style = "green" if shift.better else "red"
    page.add_unwrapped_line(f"  {shift_summary(series, series.shifts, shift)} at {shorten_path(shift.path)}", style)
    if shift.accepted is not None:
        page.add_paragraph(
            f"accepted by {mark_unprintable(shift.accepted.by)}: {mark_unprintable(shift.accepted.reason)}", indent=4
        )
    reasons = [shorten_middle(mark_unprintable(text), 2 * _LETTERS) for text in shift.difference_texts]
    more = len(reasons) - _MOST_DIFFERENCES if reasons else len(shift.differences)
    shown = reasons[:_MOST_DIFFERENCES] or ["nothing in the records differs from the result before"]
    if more > 0:
        shown.append(f"{more} more {'' if reasons else 'one result away '}(--details)")
    page.add_paragraph("; ".join(shown), indent=4)


def _write_results_table(page: PageBuilder, series: HistorySeries) -> None:
    unit = DisplayUnit.for_recorded_unit(series.unit)
    names = [os.path.basename(result.path) for result in series.results]
    days = short_time_texts(result.started for result in series.results)
    figures = (
        (unit.format_value(each.value), unit.format_value(each.level), str(len(each.launches)))
        for each in series.results
    )
    rows = [(day, *each, name) for day, each, name in zip(days, figures, names, strict=True)]
    heads = (
        "Started\n(UTC)",
        unit.metric_heading("Value", "\n"),
        unit.metric_heading("Level", "\n"),
        "Launches",
        "Result",
    )
    page.add_table(*columns_from_rows(heads, rows, (0, 4)))
    differences = [
        [
            shorten_middle(mark_unprintable(format_cell(text)), _LETTERS)
            for text in (each.kind, each.name, each.before, each.after)
        ]
        + [names[each.result]]
        for shift in series.shifts
        for each in shift.differences
    ]
    if differences:
        page.add_paragraph("")
        page.add_table(*columns_from_rows(("Differs", "", "Before", "From here", "Result"), differences, range(5)))


def day_of_result(series: HistorySeries, result_index: int) -> str:
    """The day on which a result of the series began, as ``12 Nov``; `result_index`: its number, from 0."""
    return short_time_texts(result.started for result in series.results)[result_index]


def history_charts(document: HistoryDocument) -> list[Chart]:
    """Make a chart for each of the first series with enough results to find a shift, or else for the first series."""
    judged = [series for series in document.series if series.judged]
    return [_series_chart(document, series) for series in (judged or document.series)[:_MOST_CHARTS]]


def _series_chart(document: HistoryDocument, series: HistorySeries) -> Chart:
    unit = DisplayUnit.for_recorded_unit(series.unit)
    values = [result.value * unit.scale for result in series.results]
    days = short_time_texts(result.started for result in series.results)
    begins = [0, *(shift.result for shift in series.shifts), len(values)]
    levels = (LineMark((a - 0.5, b - 0.5), (series.results[a].level * unit.scale,) * 2) for a, b in pairwise(begins))
    details = {
        "result": [shorten_path(result.path) for result in series.results],
        "started": [date_text(result.started) for result in series.results],
        "value": [f"{value:,.4g} {unit.name}".rstrip() for value in values],
    }
    results = PointMarks(range(len(values)), values, size=6, details=details)
    groups = [MarkGroup(0, (results,), "results"), MarkGroup(GREY, tuple(levels), "level")]
    if series.shifts:
        details = {
            "change": [f"{100 * shift.change:+.1f} %" for shift in series.shifts],
            "differs": ["; ".join(shift.difference_texts) or "-" for shift in series.shifts],
        }
        marks = PointMarks(begins[1:-1], [values[at] for at in begins[1:-1]], size=12, details=details)
        groups.append(MarkGroup(1, (marks,), "shifts"))
    ticks = {at: days[at] for at in evenly_spread_indexes(len(values), 6)}
    value_axis = Axis(unit.metric_heading(metric_title(series)))
    return Chart(Axis("", ticks), value_axis, tuple(groups), 300, series_label(document, series), _NOTE)

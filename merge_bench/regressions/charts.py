"""The series of a history as charts: a point for each result, in their order, and a line for each level."""

from __future__ import annotations

from itertools import pairwise

from merge_bench.regressions.documents import HistoryDocument, HistorySeries
from merge_bench.regressions.text import series_label, shorter_path
from merge_bench.view.comparison import UNITS
from merge_bench.view.plot import GREY
from merge_bench.view.plot.marks import Axis, Chart, Group, Line, Points
from merge_bench.view.text import capitalized, thin
from merge_bench.view.titles import date_text, short_times

_MOST = 8
_SCALES = {"B/s": 2.0**-30, "s": 1e3}
_NOTE = "Points: medians over launches, in order; lines: levels, medians over results; squares: first of a new level."


def charts_of(document: HistoryDocument) -> list[Chart]:
    """A chart for each of the first series with enough results to find a shift; if none has, for the first series."""
    judged = [series for series in document.series if series.judged]
    return [_series_chart(document, series) for series in (judged or document.series)[:_MOST]]


def _series_chart(document: HistoryDocument, series: HistorySeries) -> Chart:
    unit, scale = UNITS[document.unit][0], _SCALES[document.unit]
    values = [result.value * scale for result in series.results]
    days = short_times(result.started for result in series.results)
    begins = [0, *(shift.result for shift in series.shifts), len(values)]
    levels = (Line((a - 0.5, b - 0.5), (series.results[a].level * scale,) * 2) for a, b in pairwise(begins))
    details = {
        "result": [shorter_path(result.path) for result in series.results],
        "started": [date_text(result.started) for result in series.results],
        "value": [f"{value:,.4g} {unit}" for value in values],
    }
    results = Points(range(len(values)), values, size=6, details=details)
    groups = [Group(0, (results,), "results"), Group(GREY, tuple(levels), "level")]
    if series.shifts:
        details = {
            "change": [f"{100 * shift.change:+.1f} %" for shift in series.shifts],
            "differs": ["; ".join(shift.differs) or "-" for shift in series.shifts],
        }
        marks = Points(begins[1:-1], [values[at] for at in begins[1:-1]], size=12, details=details)
        groups.append(Group(1, (marks,), "shifts"))
    ticks = {at: days[at] for at in thin(len(values), 6)}
    value_axis = Axis(f"{capitalized(document.metric)} ({unit})")
    return Chart(Axis("", ticks), value_axis, tuple(groups), 300, series_label(document, series), _NOTE)

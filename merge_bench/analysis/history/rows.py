"""The results of a history as rows of a data frame, and their levels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from merge_bench.analysis.documents.history import HistoryDocument, HistorySeries, LevelShift
from merge_bench.analysis.statistics import median


def levels(series: HistorySeries) -> list[tuple[int, int, float]]:
    """The first result of each level, the first that does not belong to it, and the median of those between."""
    ends = [0, *(shift.result for shift in series.shifts), len(series.results)]
    return [
        (start, end, median([result.value for result in series.results[start:end]])) for start, end in pairwise(ends)
    ]


def differs(shift: LevelShift) -> list[str]:
    """``UCX version 1.20.0 → 1.21.0``: what differs between the result before and the one that a shift names."""
    return [
        f"{each.kind} {each.name} {each.before or '-'} → {each.after or '-'}"
        for each in shift.differences
        if each.result == shift.result
    ]


def rows_of(document: HistoryDocument) -> Iterator[dict[str, Any]]:
    """A row for each result."""
    for number, series in enumerate(document.series):
        shifts = {shift.result: shift for shift in series.shifts}
        for start, end, level in levels(series):
            for at in range(start, end):
                result, shift = series.results[at], shifts.get(at)
                yield {
                    "series": number, **series.series, "path": result.path, "started": result.started,
                    "metric": document.metric, "value": result.value, "launches": len(result.launches),
                    "verified": result.verified, "level": level, "shift": shift.change if shift else None,
                    "differs": "; ".join(differs(shift)) if shift else None,
                }  # fmt: skip

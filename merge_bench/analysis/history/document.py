"""Results of many nights → the document that ``history --json`` prints."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any

from merge_bench.analysis.compare.properties import differences
from merge_bench.analysis.compare.samples import METRICS, Metric
from merge_bench.analysis.documents import history as documents
from merge_bench.analysis.history.index import Entry, Index, Series
from merge_bench.analysis.history.shifts import AFTER, FIRST, Shift, find_shifts
from merge_bench.analysis.statistics import median
from merge_bench.errors import UsageError, require

BY_NAME = {metric.name: metric for metric in METRICS}
LEAST = FIRST + AFTER
"""Results with which a shift can be found."""


def history(
    folders: Sequence[str | os.PathLike[str]], *, metric: str = "throughput", threshold: float = 0.02,
    most: int | None = None, **only: Any,
) -> documents.HistoryDocument:  # fmt: skip
    """The series in `folders`, or `only` those with this ``config``, ``chunk``, …, and their shifts in one metric.

    `threshold`: the least change of the level that matters, 0.02 for 2 %; `most`: series at most, those with the newest
    results.

    Raises
    ------
    UsageError
        If a folder cannot be read, or there is no such series, or `ruptures` is not installed.
    """
    for name in only.keys() - {"config", "chunk", "workers", "hosts", "engine", "exchange"}:
        raise UsageError(f"history has no option {name}")
    index = Index(folders)
    only["rows_per_chunk"] = only.pop("chunk", None)
    wanted = {name: value for name, value in only.items() if value is not None}
    series = (each for each in index.series() if wanted.items() <= each.items())
    found = document_of(index, series, metric, threshold, most)
    if not found.series:
        texts = {name.replace("_", " "): str(value).removesuffix(".0") for name, value in wanted.items()}
        described = ", ".join(map(" ".join, texts.items()))
        having = f" with {described}" if described else ""
        raise UsageError(f"no result in {', '.join(map(str, folders))}{having} has a {metric}")
    return found


def document_of(
    index: Index, series: Iterable[Series], metric: str, threshold: float = 0.02, most: int | None = None
) -> documents.HistoryDocument:
    """The first `most` of these `series` that have the metric."""
    require("ruptures", "history", "history")
    if metric not in BY_NAME:
        raise UsageError(f"metric {metric!r} is none of {', '.join(BY_NAME)}")
    found = filter(None, (series_of(index, each, BY_NAME[metric], threshold) for each in series))
    return documents.HistoryDocument(
        folders=index.roots, metric=metric, unit=BY_NAME[metric].unit, threshold=threshold,
        series=list(islice(found, most)), notes=index.problems,
    )  # fmt: skip


def series_of(
    index: Index, series: Series, metric: Metric, threshold: float, *, without: str = ""
) -> documents.HistorySeries | None:
    """One series, None if nothing in it has the metric; `without`: the folder of a result to leave out."""
    every = [entry for entry in index.entries(series) if entry.path != without]
    entries = [entry for entry in every if entry.values.get(metric.name) and not entry.wrong]
    if not entries:
        return None
    values = [median(entry.values[metric.name]) for entry in entries]
    found = [[entry.floors[metric.name]] if metric.name in entry.floors else [] for entry in entries]
    known = list(accumulate(found))  # with each result, so that one that comes later changes no shift
    shifts = find_shifts(values, (max(threshold, median(floors or [0.0])) for floors in known))
    begins = [0, *(shift.at for shift in shifts), len(values)]
    since = begins[-2]
    levels = [middle for a, b in pairwise(begins) for middle in [median(values[a:b])] * (b - a)]
    level = levels[-1]
    return documents.HistorySeries(
        series=dict(series),
        level=level,
        since=since,
        noise=1.4826 * median([abs(value / level - 1.0) for value in values[since:]]),
        noise_floor=median(known[-1]) if known[-1] else None,
        judged=len(entries) >= LEAST,
        wrong_results=sum(entry.wrong for entry in every),
        results=[
            documents.HistoryResult(
                path=entry.path, started=entry.started, value=values[at], level=levels[at],
                launches=entry.values[metric.name], verified=entry.verified,
            )
            for at, entry in enumerate(entries)
        ],
        shifts=[_shift(index, entries, shift, levels, metric) for shift in shifts],
    )  # fmt: skip


def _shift(
    index: Index, entries: Sequence[Entry], shift: Shift, levels: Sequence[float], metric: Metric
) -> documents.LevelShift:
    """With what differs across it; then what differs one result later or earlier, as noise may hide the right one."""
    found = [
        documents.ShiftDifference(
            kind=each.kind, name=each.name, before=each.baseline_value, after=each.candidate_value, result=at
        )
        for at in (shift.at, shift.at + 1, shift.at - 1)
        for each in differences(*(index.properties(entry) for entry in entries[at - 1 : at + 1]))
    ]
    change = levels[shift.at] / levels[shift.at - 1] - 1.0
    return documents.LevelShift(
        result=shift.at,
        path=entries[shift.at].path,
        found_with=shift.found,
        change=change,
        better=(change > 0) == metric.higher_is_better,
        evidence=shift.evidence,
        differences=found,
    )

"""Results of many nights → the document that ``history --json`` prints; `docs/reference/records.md` describes it."""

from __future__ import annotations

import getpass
import os
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, islice, pairwise
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from merge_bench.analysis.compare.judging import METRIC, METRICS, Metric
from merge_bench.analysis.compare.properties import differences
from merge_bench.analysis.documents import Failure
from merge_bench.analysis.statistics import median
from merge_bench.errors import UsageError
from merge_bench.regressions.index import HistoryIndex, RunFigures, Series, write_accepted
from merge_bench.regressions.shifts import AFTER, FIRST, Shift, find_other_changes, find_ramps, find_shifts

BY_NAME = {metric.name: metric for metric in METRICS}
_NEWEST = 200
"""The median of a level is made of this many of its results, the newest ones."""

LEAST = FIRST + AFTER
"""The number of results from which on a shift can be found."""


class HistoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a series; `value` is the median of its launches, `level` that of the results of its level."""

    path: str
    started: float
    value: float
    level: float
    launches: list[float]
    verified: bool


class ShiftDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A property that differs across a shift; null: not there. `result`: the first result that has the new value."""

    kind: str
    name: str
    before: str | None
    after: str | None
    result: int


class AcceptedLevel(msgspec.Struct, frozen=True, kw_only=True):
    """Who accepted a level that is worse, why, and when."""

    by: str
    reason: str
    time: float


class LevelShift(msgspec.Struct, frozen=True, kw_only=True):
    """The level changed: `result`, `found_with` count the results from 0, `change` is -0.05 for 5 % less.

    `before` and `after` are the levels as they were known with the result `found_with`.
    """

    result: int
    path: str
    found_with: int
    change: float
    better: bool
    evidence: float
    differences: list[ShiftDifference]
    before: float | None = None
    after: float | None = None
    level: int | None = None
    returns: bool = False
    ended: int | None = None
    ramp: tuple[int, int] | None = None
    accepted: AcceptedLevel | None = None

    @property
    def differs(self) -> list[str]:
        """What differs between the result before the shift and its first one, as ``UCX version 1.20.0 → 1.21.0``."""
        here = (each for each in self.differences if each.result == self.result)
        return [f"{each.kind} {each.name} {each.before or '-'} → {each.after or '-'}" for each in here]


class SeriesFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the series by `change` since the result `since` that is no shift: ``drifts`` or ``noise-changed``."""

    kind: str
    since: int
    path: str
    change: float


class HistorySeries(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one config with one problem, the oldest first, and the shifts between them.

    ``level`` is the median of the results of the present level, ``noise`` the robust standard deviation about it, as a
    share of it. ``reference`` is the level that ``--against history`` compares with, ``reference_results`` its results.
    """

    series: dict[str, str | int | float]
    level: float
    since: int
    noise: float
    noise_floor: float | None
    judged: bool
    wrong_results: int
    results: list[HistoryResult]
    shifts: list[LevelShift]
    findings: list[SeriesFinding] = []
    reference: float | None = None
    reference_results: list[int] = []


class HistoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every series that was asked for, those with the newest results first."""

    document_version: Literal[1] = 1
    folders: list[str]
    metric: str
    unit: str
    threshold: float
    series: list[HistorySeries]
    notes: list[str]
    error: Failure | None = None


def history(
    folders: Sequence[str | os.PathLike[str]],
    *,
    metric: str = "throughput",
    threshold: float = 0.02,
    most: int | None = None,
    **only: Any,
) -> HistoryDocument:
    """The series in `folders`, or `only` those with this ``config``, ``chunk``, …, and their shifts in one metric.

    `threshold`: the least change of the level that matters, 0.02 for 2 %; `most`: series at most, those with the newest
    results.

    Raises UsageError if a folder cannot be read, or there is no such series.
    """
    for name in only.keys() - {"config", "chunk", "workers", "hosts", "engine", "exchange"}:
        raise UsageError(f"history has no option {name}")
    index = HistoryIndex(folders)
    only["rows_per_chunk"] = only.pop("chunk", None)
    wanted = {name: value for name, value in only.items() if value is not None}
    series = (each for each in index.series() if wanted.items() <= each.items())
    document = history_document(index, series, metric, threshold, most)
    if not document.series:
        texts = {name.replace("_", " "): str(value).removesuffix(".0") for name, value in wanted.items()}
        described = ", ".join(map(" ".join, texts.items()))
        having = f" with {described}" if described else ""
        raise UsageError(f"no result in {', '.join(map(str, folders))}{having} has a {metric}")
    return document


def accept_level(document: HistoryDocument, *, by: str | None, reason: str) -> None:
    """Let ``--against history`` compare with the present level of the document's only series, though it is worse.

    Raises UsageError if that is not one series or not the metric that is compared, if it is compared with that level
    anyway, or if nobody and nothing is named.
    """
    if document.metric != METRIC:
        raise UsageError(f"--against history compares the {METRIC}; accept a level without --metric {document.metric}")
    if len(document.series) != 1:
        names = ", ".join(dict.fromkeys(str(each.series["config"]) for each in document.series))
        raise UsageError(
            f"a level is accepted for one series, and these are {len(document.series)} ({names}); name one"
        )
    (series,) = document.series
    if len(series.results) - 1 in series.reference_results:
        raise UsageError("nothing to accept: --against history compares with the present level")
    if not reason.strip():
        raise UsageError("say why the level is accepted")
    try:
        by = by or getpass.getuser()
    except (KeyError, OSError):  # as in a container with a user of its own
        raise UsageError("this user has no name here; say who accepts with --by NAME") from None
    newest = series.results[-1]
    write_accepted(
        os.path.dirname(newest.path),
        series=series.series,
        newest=newest.started,
        metric=document.metric,
        level=series.level,
        by=by,
        reason=reason,
    )


def history_document(
    index: HistoryIndex, series: Iterable[Series], metric: str, threshold: float = 0.02, most: int | None = None
) -> HistoryDocument:
    """The history document of the first `most` of these `series` that have the metric."""
    if metric not in BY_NAME:
        raise UsageError(f"metric {metric!r} is none of {', '.join(BY_NAME)}")
    histories = filter(None, (series_history(index, each, BY_NAME[metric], threshold) for each in series))
    return HistoryDocument(
        folders=index.roots,
        metric=metric,
        unit=BY_NAME[metric].unit,
        threshold=threshold,
        series=list(islice(histories, most)),
        notes=index.problems,
    )


def series_history(
    index: HistoryIndex, series: Series, metric: Metric, threshold: float, *, without: str = ""
) -> HistorySeries | None:
    """The results, levels and shifts of a series in `metric`, None if no result has it; `without`: a result to omit."""
    every = [entry for entry in index.runs(series) if entry.path != without]
    entries = [entry for entry in every if entry.values.get(metric.name) and not entry.wrong]
    if not entries:
        return None
    values = [median(entry.values[metric.name]) for entry in entries]
    floors_of = [[entry.floors[metric.name]] if metric.name in entry.floors else [] for entry in entries]
    floors_until = list(accumulate(floors_of))  # with each result, so that one that comes later changes no shift
    shifts = find_shifts(values, (max(threshold, median(floors or [0.0])) for floors in floors_until))
    begins = [0, *(shift.at for shift in shifts), len(values)]
    numbers = [
        number
        for number, (a, b) in zip([0, *(s.level for s in shifts)], pairwise(begins), strict=True)
        for _ in range(a, b)
    ]
    middles = {number: median(_newest_of_level(values, numbers, number)) for number in set(numbers)}
    levels = [middles[number] for number in numbers]
    level, since = levels[-1], begins[-2]
    accepted = {at: each for at, each in _acceptances(index, series, entries, shifts, metric).items() if at is not None}
    reference = _reference_level(shifts, accepted, len(values), higher=metric.higher_is_better)
    ramps = find_ramps(values, shifts)
    return HistorySeries(
        series=dict(series),
        level=level,
        since=since,
        noise=1.4826 * median([abs(value / level - 1.0) for value in _newest_of_level(values, numbers, numbers[-1])]),
        noise_floor=median(floors_until[-1]) if floors_until[-1] else None,
        judged=len(entries) >= LEAST,
        wrong_results=sum(entry.wrong for entry in every),
        results=[
            HistoryResult(
                path=entry.path,
                started=entry.started,
                value=values[at],
                level=levels[at],
                launches=entry.values[metric.name],
                verified=entry.verified,
            )
            for at, entry in enumerate(entries)
        ],
        shifts=[
            replace(
                _level_shift(index, entries, shift, metric),
                ramp=ramps.get(at),
                accepted=accepted.get(at),
                returns=any(shift.level == number for number in [0, *(each.level for each in shifts[:at])]),
                ended=next(
                    (later.at for later in shifts[at + 1 : at + 2] if later.level == numbers[shift.at - 1]), None
                ),
            )
            for at, shift in enumerate(shifts)
        ],
        findings=[
            SeriesFinding(kind=each.kind, since=each.since, path=entries[each.since].path, change=each.change)
            for each in find_other_changes(values, levels, since, threshold)
        ],
        reference=middles[reference],
        reference_results=[at for at, number in enumerate(numbers) if number == reference],
    )


def _newest_of_level(values: Sequence[float], numbers: Sequence[int], number: int) -> list[float]:
    """The newest values of the level `number`; `numbers`: the level of each value."""
    return [value for value, level in zip(values, numbers, strict=True) if level == number][-_NEWEST:]


def _acceptances(
    index: HistoryIndex, series: Series, entries: Sequence[RunFigures], shifts: Sequence[Shift], metric: Metric
) -> dict[int | None, AcceptedLevel]:
    """Who accepted which level: by the number of the shift with which it begins, None for the first level."""
    levels: dict[int | None, AcceptedLevel] = {}
    for level in index.accepted:
        if level.series == series and level.metric == metric.name:
            then = [at for at, shift in enumerate(shifts) if entries[shift.found].started <= level.newest]
            levels[max(then, default=None)] = AcceptedLevel(by=level.by, reason=level.reason, time=level.time)
    return levels


def _reference_level(shifts: Sequence[Shift], accepted: Collection[int], results: int, *, higher: bool) -> int:
    """The number of the level that a new result is compared with.

    A worse level becomes that once somebody accepted it, a better level once it has `FIRST` results.
    """
    reference, middle = 0, shifts[0].before if shifts else 0.0
    for number, shift in enumerate(shifts):
        ends = shifts[number + 1].at if number + 1 < len(shifts) else results
        better = (shift.after > middle) == higher and ends - shift.at >= FIRST
        if better or number in accepted:
            reference, middle = shift.level, shift.after
    return reference


def _level_shift(index: HistoryIndex, runs: Sequence[RunFigures], shift: Shift, metric: Metric) -> LevelShift:
    """A shift with the properties that differ across it, then those that differ one result later or earlier."""
    different = [
        ShiftDifference(
            kind=each.kind, name=each.name, before=each.baseline_value, after=each.candidate_value, result=at
        )
        for at in (shift.at, shift.at + 1, shift.at - 1)
        for each in differences(*(index.properties(entry) for entry in runs[at - 1 : at + 1]))
    ]
    return LevelShift(
        result=shift.at,
        path=runs[shift.at].path,
        found_with=shift.found,
        change=shift.change,
        better=(shift.change > 0) == metric.higher_is_better,
        evidence=shift.evidence,
        differences=different,
        before=shift.before,
        after=shift.after,
        level=shift.level,
    )

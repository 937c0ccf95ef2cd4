"""Results of many nights → the document that ``history --json`` prints; `docs/reference/records.md` describes it.

And a new result compared with the level of its series, or with one earlier result (``run --against``).
"""

from __future__ import annotations

import getpass
import itertools
import math
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import accumulate, islice, pairwise
from typing import Any, Literal

import msgspec
import numpy as np

from merge_bench.analysis.comparable_runs import property_differences
from merge_bench.analysis.compare import (
    METRIC,
    METRICS,
    ComparisonSide,
    LaunchSample,
    Metric,
    common_metrics,
    compare_campaigns,
    comparison_side,
    empty_compare_document,
)
from merge_bench.analysis.documents import CompareDocument, Failure
from merge_bench.analysis.statistics import median
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.regressions.accepted_levels import AcceptedLevelLine, append_accepted_level
from merge_bench.regressions.index import HistoryIndex, RunFigures, Series
from merge_bench.regressions.shifts import (
    AFTER,
    FIRST,
    DetectedShift,
    clip_outliers,
    find_drift_or_noise_change,
    find_gradual_changes,
    find_shifts,
)

BY_NAME = {metric.name: metric for metric in METRICS}
"""The metrics of merges; a series of a command has its own."""
_NEWEST = 200
"""The median of a level, and the noise, are made of this many results, the newest ones."""

LEAST = FIRST + AFTER
"""The number of results from which on a shift can be found."""

LEAST_FOR_LEVEL = 3
"""The fewest results of a level with which a new result can be compared."""
_MOST_COMPARED = 20
"""How many results, the newest ones, give the launches to compare with."""

_NIGHTS = 5
"""The fewest results that show the noise from night to night."""
_ALPHA = 0.01
"""The chance that a result of an unchanged level counts as further away than noise explains, on either side."""


class HistoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """A stored result in a series; `value`: the median of its launches; `level`: the median of its level's results."""

    path: str
    started: float
    value: float
    level: float
    launches: list[float]
    verified: bool


class ShiftDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A property that differs before and after a shift; null: not recorded. `result`: the first with the new value."""

    kind: str
    name: str
    before: str | None
    after: str | None
    result: int


class AcceptedLevel(msgspec.Struct, frozen=True, kw_only=True):
    """Who accepted a level that is worse than the one before, why, and when."""

    by: str
    reason: str
    time: float


class LevelShift(msgspec.Struct, frozen=True, kw_only=True):
    """A shift of a series from one level to another; `change`: relative, -0.05 for 5 % less.

    `result`: the number of the first result of the new level, from 0; `found_with`: of the result that made the shift
    certain. `before` and `after`: the two levels as they were known then.
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
    def difference_texts(self) -> list[str]:
        """What differs between the results just before and after the shift: ``UCX version 1.20.0 → 1.21.0``."""
        here = (each for each in self.differences if each.result == self.result)
        return [f"{each.kind} {each.name} {each.before or '-'} → {each.after or '-'}" for each in here]


class DriftOrNoiseFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a series that is no shift: ``drifts`` or ``noise-changed``, by `change` since the result `since`."""

    kind: str
    since: int
    path: str
    change: float


class HistorySeries(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one config with one problem, the oldest first, and the shifts between them.

    `metric`: the metric of the values, with its `unit` (empty if unknown), and whether more or less is `better`;
    `main_metric`: the metric in which ``--against history`` compares. `tables`: the files that the newest result
    merged, as text; empty for generated tables and commands.

    ``level`` is the median of the results of the present level, ``noise`` the robust standard deviation about that
    level, as a share of the level. ``reference`` is the level that ``--against history`` compares with,
    ``reference_results`` are the results of that level.
    """

    series: dict[str, str | int | float]
    metric: str
    unit: str
    better: Literal["more", "less"]
    main_metric: str
    level: float
    since: int
    noise: float
    noise_floor: float | None
    judged: bool
    wrong_results: int
    results: list[HistoryResult]
    shifts: list[LevelShift]
    findings: list[DriftOrNoiseFinding] = []
    reference: float | None = None
    reference_results: list[int] = []
    tables: str = ""

    @property
    def is_main_metric(self) -> bool:
        """Whether the metric of the series is the main metric."""
        return self.metric == self.main_metric


class HistoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The requested series of results, those with the newest results first.

    `metric`, `unit`: those of all series; empty if the series have different metrics or units.
    """

    document_version: Literal[1] = 1
    folders: list[str]
    metric: str
    unit: str
    threshold: float
    series: list[HistorySeries]
    notes: list[str]
    error: Failure | None = None


def load_history(
    folders: Sequence[str | os.PathLike[str]],
    *,
    metric: str | None = None,
    threshold: float = 0.02,
    most_series: int | None = None,
    command: str | None = None,
    **only: Any,
) -> HistoryDocument:
    """Find the series of results in `folders`, and the shifts in them.

    `only`: the ``config``, ``chunk``, … that series must have. `metric`: in which levels are computed; None: the main
    metric of each series, which is throughput or the first metric of a command. `threshold`: the least change of the
    level that matters, 0.02 for 2 %; `most_series`: how many series at most, those with the newest results; `command`:
    a text that the command of a series must contain.

    Raises UsageError if a folder cannot be read, or there is no such series.
    """
    for name in only.keys() - {"config", "chunk", "workers", "hosts", "engine", "exchange"}:
        raise UsageError(f"history has no option {name}")
    index = HistoryIndex(folders)
    only["rows_per_chunk"] = only.pop("chunk", None)
    wanted = {name: value for name, value in only.items() if value is not None}
    every = [each for each in index.list_series() if wanted.items() <= each.items()]
    series = [each for each in every if command is None or command in str(each.get("command", ""))]
    texts = {name.replace("_", " "): str(value).removesuffix(".0") for name, value in wanted.items()}
    if command is not None and not series:
        raise UsageError(f"{_no_result_text(folders, texts)} is of a command that contains {command!r}")
    document = make_history_document(index, series, metric, threshold, most_series)
    if not document.series:
        texts |= {"command": command} if command is not None else {}
        mains = dict.fromkeys(index.metrics_of_series(each)[0].name for each in index.list_series())
        what = metric or " or ".join(mains) or METRIC
        raise UsageError(f"{_no_result_text(folders, texts)} has a {what}")
    return document


def _no_result_text(folders: Sequence[str | os.PathLike[str]], selection: Mapping[str, str]) -> str:
    """The begin of a sentence that says which series is missing: ``no result in results with config tcp``."""
    described = ", ".join(f"{name} {value}" for name, value in selection.items())
    return f"no result in {', '.join(map(str, folders))}" + (f" with {described}" if described else "")


def accept_level(document: HistoryDocument, *, accepted_by: str | None, reason: str) -> None:
    """Let ``--against history`` compare with the present level of the document's only series, though it is worse.

    Raises UsageError if the document has several series or another metric than the main one, if ``--against history``
    compares with the present level anyway, or if the reason or the person is missing.
    """
    if other := next((each for each in document.series if not each.is_main_metric), None):
        compared = f"--against history compares the {other.main_metric}"
        raise UsageError(f"{compared}; accept a level without --metric {other.metric}")
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
        accepted_by = accepted_by or getpass.getuser()
    except (KeyError, OSError):  # as in a container with a user of its own
        raise UsageError("this user has no name here; say who accepts with --by NAME") from None
    newest = series.results[-1]
    accepted = AcceptedLevelLine(
        series=series.series,
        newest=newest.started,
        metric=series.metric,
        level=series.level,
        by=accepted_by,
        reason=reason,
        time=time.time(),
    )
    append_accepted_level(os.path.dirname(newest.path), accepted)


def make_history_document(
    index: HistoryIndex,
    series: Iterable[Series],
    metric_name: str | None,
    threshold: float = 0.02,
    most_series: int | None = None,
) -> HistoryDocument:
    """Make the history document of the first `most_series` series that have the metric.

    `metric_name`: None for the main metric of each series. Raises UsageError if no series can have the metric.
    """
    chosen = list(series)
    if metric_name not in (None, *BY_NAME):
        metric_names = [*BY_NAME, *(each.name for one in chosen for each in index.metrics_of_series(one))]
        if metric_name not in metric_names:
            raise UsageError(f"metric {metric_name!r} is none of {', '.join(dict.fromkeys(metric_names))}")
    histories = filter(None, (make_series_history(index, each, metric_name, threshold) for each in chosen))
    shown_series = list(islice(histories, most_series))
    metrics, units = {each.metric for each in shown_series}, {each.unit for each in shown_series}
    return HistoryDocument(
        folders=index.roots,
        metric=metrics.pop() if len(metrics) == 1 else metric_name or "",
        unit=units.pop() if len(units) == 1 else "",
        threshold=threshold,
        series=shown_series,
        notes=index.problems,
    )


def make_series_history(
    index: HistoryIndex, series: Series, metric_name: str | None, threshold: float, *, omitted_path: str = ""
) -> HistorySeries | None:
    """Find the levels and shifts of a series in a metric; None if no result has the metric.

    `metric_name`: None for the main metric of the series; `omitted_path`: the path of a result to leave out.
    """
    every = [entry for entry in index.runs_of_series(series) if entry.path != omitted_path]
    main, *others = every[-1].metrics if every else METRICS
    metric = next((each for each in (main, *others) if metric_name in (None, each.name)), None)
    entries = [entry for entry in every if metric is not None and entry.values.get(metric.name) and not entry.wrong]
    if metric is None or not entries:
        return None
    values = [median(entry.values[metric.name]) for entry in entries]
    floors_of = [[entry.floors[metric.name]] if metric.name in entry.floors else [] for entry in entries]
    floors_until = list(accumulate(floors_of))  # with each result, so that one that comes later changes no shift
    shifts = find_shifts(values, (max(threshold, median(floors or [0.0])) for floors in floors_until))
    begins = [0, *(shift.at for shift in shifts), len(values)]
    level_numbers = [
        number
        for number, (a, b) in zip([0, *(s.level for s in shifts)], pairwise(begins), strict=True)
        for _ in range(a, b)
    ]
    middles = {number: median(_newest_values_of_level(values, level_numbers, number)) for number in set(level_numbers)}
    levels = [middles[number] for number in level_numbers]
    level, since = levels[-1], begins[-2]
    accepted = {
        at: each
        for at, each in _accepted_levels_by_shift(index, series, entries, shifts, metric).items()
        if at is not None
    }
    reference = _reference_level_number(shifts, accepted, len(values), higher_is_better=metric.higher_is_better)
    ramps = find_gradual_changes(values, shifts)
    return HistorySeries(
        series=dict(series),
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        main_metric=main.name,
        level=level,
        since=since,
        noise=1.4826
        * median(
            [abs(value / level - 1.0) for value in _newest_values_of_level(values, level_numbers, level_numbers[-1])]
        ),
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
            LevelShift(
                result=shift.at,
                path=entries[shift.at].path,
                found_with=shift.newest,
                change=shift.relative_change,
                better=(shift.relative_change > 0) == metric.higher_is_better,
                evidence=shift.evidence,
                differences=_differences_across_shift(index, entries, shift.at),
                before=shift.before,
                after=shift.after,
                level=shift.level,
                returns=shift.level in level_numbers[: shift.at],
                ended=later.at if later and later.level == level_numbers[shift.at - 1] else None,
                ramp=ramps.get(at),
                accepted=accepted.get(at),
            )
            for at, (shift, later) in enumerate(zip(shifts, [*shifts[1:], None], strict=False))
        ],
        findings=[
            DriftOrNoiseFinding(kind=each.kind, since=each.since, path=entries[each.since].path, change=each.change)
            for each in find_drift_or_noise_change(values, levels, since, threshold)
        ],
        reference=middles[reference],
        reference_results=[at for at, number in enumerate(level_numbers) if number == reference],
        tables=index.tables_of_series(series),
    )


def _newest_values_of_level(values: Sequence[float], level_numbers: Sequence[int], level_number: int) -> list[float]:
    """The newest values of one level; `level_numbers`: the number of the level of each value."""
    return [value for value, own_level in zip(values, level_numbers, strict=True) if own_level == level_number][
        -_NEWEST:
    ]


def _accepted_levels_by_shift(
    index: HistoryIndex,
    series: Series,
    run_figures: Sequence[RunFigures],
    shifts: Sequence[DetectedShift],
    metric: Metric,
) -> dict[int | None, AcceptedLevel]:
    """Return the accepted levels by the number of the shift with which each level begins, None for the first level."""
    levels: dict[int | None, AcceptedLevel] = {}
    for level in index.accepted:
        if level.series == series and level.metric == metric.name:
            then = [at for at, shift in enumerate(shifts) if run_figures[shift.newest].started <= level.newest]
            levels[max(then, default=None)] = AcceptedLevel(by=level.by, reason=level.reason, time=level.time)
    return levels


def _reference_level_number(
    shifts: Sequence[DetectedShift], accepted_shifts: Collection[int], result_count: int, *, higher_is_better: bool
) -> int:
    """The number of the reference level, with which a new result is compared.

    A worse level becomes the reference once somebody accepted it, a better level once it has `FIRST` results.
    `accepted_shifts`: the numbers of the shifts to accepted levels.
    """
    reference, middle = 0, shifts[0].before if shifts else 0.0
    for number, shift in enumerate(shifts):
        ends = shifts[number + 1].at if number + 1 < len(shifts) else result_count
        better = (shift.after > middle) == higher_is_better and ends - shift.at >= FIRST
        if better or number in accepted_shifts:
            reference, middle = shift.level, shift.after
    return reference


def _differences_across_shift(
    index: HistoryIndex, runs: Sequence[RunFigures], shift_index: int
) -> list[ShiftDifference]:
    """List the properties that differ across a shift, then those that differ one result later, then one earlier.

    `shift_index`: the number of the first result after the shift.
    """
    return [
        ShiftDifference(
            kind=each.kind, name=each.name, before=each.baseline_value, after=each.candidate_value, result=at
        )
        for at in (shift_index, shift_index + 1, shift_index - 1)
        for each in property_differences(*(index.properties_of_run(entry) for entry in runs[at - 1 : at + 1]))
    ]


def compare_with_reference_level(
    campaign: Campaign, results_folder: str | os.PathLike[str], threshold: float
) -> CompareDocument:
    """Compare the one run of `campaign` with the reference level of its series in `results_folder`.

    The reference level is the present level, unless the present level is a loss that nobody accepted. With fewer than
    `LEAST_FOR_LEVEL` earlier results nothing is compared, as the only note of the document says.
    """
    history, entries = _earlier_history_and_runs(campaign, results_folder, threshold)
    paths = {history.results[at].path for at in history.reference_results} if history is not None else set()
    if len(paths) < LEAST_FOR_LEVEL:
        what = "merge" if campaign.command is None else "command"
        needed = f"{LEAST_FOR_LEVEL} earlier results of this {what} are needed, and {results_folder} has {len(paths)}"
        return empty_compare_document(needed, threshold)
    assert history is not None
    level = {}
    for metric in common_metrics(campaign.runs):
        of_level = [entry for entry in entries if entry.path in paths and entry.values.get(metric.name)]
        if len(of_level) >= LEAST_FOR_LEVEL:
            floors = [entry.floors[metric.name] for entry in of_level if metric.name in entry.floors]
            noise, nights = _noise_between_nights(history, entries, metric.name, len(of_level))
            runs = of_level[-_MOST_COMPARED:]
            launches = enumerate(itertools.chain.from_iterable(entry.values[metric.name] for entry in runs))
            level[metric.name] = ComparisonSide(
                tuple(LaunchSample(at, at, value) for at, value in launches),
                floor=max(noise, float(np.median(floors)) if floors else 0.0),
                level_of=len(paths),
                nights=nights,
            )
    newest = max(paths, key=[entry.path for entry in entries].index)
    return compare_campaigns(
        [read_campaign(newest), campaign], threshold=threshold, allow_incomparable=True, baseline_by_metric=level
    )


def compare_with_earlier_result(campaign: Campaign, earlier_result: Campaign, threshold: float) -> CompareDocument:
    """Compare `campaign` with one earlier result.

    The noise from night to night is taken from the other results of the series, if the folder of `campaign` has
    `_NIGHTS` of them and SciPy is installed; else the verdicts say that the noise is not known.
    """
    sides = {}
    if len(campaign.runs) == len(earlier_result.runs) == 1 and find_spec("scipy"):
        history, entries = _earlier_history_and_runs(campaign, campaign.folder.resolve().parent, threshold)
        if history is not None and len(history.results) >= _NIGHTS:
            for metric in common_metrics((*campaign.runs, *earlier_result.runs)):
                noise, nights = _noise_between_nights(history, entries, metric.name, 1)
                if nights >= _NIGHTS:
                    sides[metric.name] = replace(
                        comparison_side(earlier_result.runs[0], metric), floor=noise, nights=nights
                    )
    return compare_campaigns([earlier_result, campaign], threshold=threshold, baseline_by_metric=sides)


def _earlier_history_and_runs(
    campaign: Campaign, results_folder: str | os.PathLike[str], threshold: float
) -> tuple[HistorySeries | None, list[RunFigures]]:
    """The history of the series to which `campaign` belongs, from other results in a folder, and the runs of these."""
    index, own = HistoryIndex([results_folder]), campaign.folder.resolve()
    series = next(iter(index.list_series(own.name)), {})
    history = make_series_history(
        index, series, common_metrics(campaign.runs)[0].name, threshold, omitted_path=str(own)
    )
    paths = {each.path for each in history.results} if history is not None else set()
    return history, [entry for entry in index.runs_of_series(series) if entry.path in paths]


def _noise_between_nights(
    history: HistorySeries, run_figures: Sequence[RunFigures], metric_name: str, result_count: int
) -> tuple[float, int]:
    """How far one more result may be from the median of `result_count` results, and how many results show that.

    The distance, 0.03 for 3 %, is half of a prediction interval by Student's t. All levels of a series are taken to
    have the same noise.
    """
    from scipy.stats import t

    level_of = {each.path: each.level for each in history.results}
    levels: dict[float, list[float]] = {}
    for entry in [entry for entry in run_figures if entry.values.get(metric_name)][-_NEWEST:]:
        levels.setdefault(level_of[entry.path], []).append(float(np.median(entry.values[metric_name])))
    parts = [clip_outliers(np.log(values) - np.log(np.median(values))) for values in levels.values() if len(values) > 1]
    free = sum(len(part) - 1 for part in parts)
    if not free:
        return math.inf, 0
    spread = np.sqrt(sum(float(((part - part.mean()) ** 2).sum()) for part in parts) / free)
    return float(np.expm1(t.isf(_ALPHA / 2.0, free) * spread * np.sqrt(1.0 + 1.0 / result_count))), free + len(parts)

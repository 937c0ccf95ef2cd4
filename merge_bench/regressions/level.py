"""Compares a new result with the level of its series, or with one earlier result (`run --against`)."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from merge_bench.analysis.compare.document import compare, nothing_compared
from merge_bench.analysis.compare.judging import METRIC, METRICS, Sample, Side, side_of_run
from merge_bench.analysis.documents import CompareDocument
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.regressions.document import BY_NAME, HistorySeries, series_history
from merge_bench.regressions.index import HistoryIndex, RunFigures
from merge_bench.regressions.noise import clip_outliers

LEAST = 3
"""The fewest results of a level with which a new result can be compared."""
_MOST, _NEWEST = 20, 200
"""How many results, the newest ones, give the launches to compare with, and how many give the noise."""

_NIGHTS = 5
"""The fewest results that show the noise from night to night."""
_ALPHA = 0.01
"""The chance that a result of an unchanged level counts as further away than noise explains, on either side."""


def compare_with_level(campaign: Campaign, results: str | os.PathLike[str], threshold: float) -> CompareDocument:
    """Compare `campaign`, which has one run, with the level of its series that it has to keep up with.

    `results`: the folder of the series. The level is the present one, unless it is a loss that nobody accepted.

    Without `LEAST` earlier results nothing is compared, as the only note says.
    """
    history, entries = _earlier_results(campaign, results, threshold)
    paths = {history.results[at].path for at in history.reference_results} if history is not None else set()
    if len(paths) < LEAST:
        needed = f"{LEAST} earlier results of this merge are needed, and {results} has {len(paths)}"
        return nothing_compared(needed, threshold)
    assert history is not None
    level = {}
    for metric in METRICS:
        of_level = [entry for entry in entries if entry.path in paths and entry.values.get(metric.name)]
        if len(of_level) >= LEAST:
            floors = [entry.floors[metric.name] for entry in of_level if metric.name in entry.floors]
            noise, nights = _night_noise(history, entries, metric.name, len(of_level))
            runs = of_level[-_MOST:]
            launches = enumerate(itertools.chain.from_iterable(entry.values[metric.name] for entry in runs))
            level[metric.name] = Side(
                tuple(Sample(at, at, value) for at, value in launches),
                floor=max(noise, float(np.median(floors)) if floors else 0.0),
                level_of=len(paths),
                nights=nights,
            )
    newest = max(paths, key=[entry.path for entry in entries].index)
    return compare([read_campaign(newest), campaign], threshold=threshold, anyway=True, level=level)


def compare_with_result(campaign: Campaign, earlier: Campaign, threshold: float) -> CompareDocument:
    """Compare `campaign` with one earlier result.

    The noise from night to night is taken from the other results of the series, if the folder of `campaign` has
    `_NIGHTS` of them and SciPy is installed; else the verdicts say that it is not known.
    """
    sides = {}
    if len(campaign.runs) == len(earlier.runs) == 1 and find_spec("scipy"):
        history, entries = _earlier_results(campaign, campaign.folder.resolve().parent, threshold)
        if history is not None and len(history.results) >= _NIGHTS:
            for metric in METRICS:
                noise, nights = _night_noise(history, entries, metric.name, 1)
                if nights >= _NIGHTS:
                    sides[metric.name] = replace(side_of_run(earlier.runs[0], metric), floor=noise, nights=nights)
    return compare([earlier, campaign], threshold=threshold, level=sides)


def _earlier_results(
    campaign: Campaign, folder: str | os.PathLike[str], threshold: float
) -> tuple[HistorySeries | None, list[RunFigures]]:
    """The history of the series of `campaign` in a folder, without itself, and the runs of the results in it."""
    index, own = HistoryIndex([folder]), campaign.folder.resolve()
    series = next(iter(index.series(own.name)), {})
    history = series_history(index, series, BY_NAME[METRIC], threshold, without=str(own))
    paths = {each.path for each in history.results} if history is not None else set()
    return history, [entry for entry in index.runs(series) if entry.path in paths]


def _night_noise(history: HistorySeries, entries: Sequence[RunFigures], metric: str, results: int) -> tuple[float, int]:
    """How far one more result may lie from the median of so many, 0.03 for 3 %, and how many show that.

    This is half of a prediction interval by Student's t. All levels of a series are taken to have the same noise.
    """
    from scipy.stats import t

    level_of = {each.path: each.level for each in history.results}
    levels: dict[float, list[float]] = {}
    for entry in [entry for entry in entries if entry.values.get(metric)][-_NEWEST:]:
        levels.setdefault(level_of[entry.path], []).append(float(np.median(entry.values[metric])))
    parts = [clip_outliers(np.log(values) - np.log(np.median(values))) for values in levels.values() if len(values) > 1]
    free = sum(len(part) - 1 for part in parts)
    if not free:
        return math.inf, 0
    spread = np.sqrt(sum(float(((part - part.mean()) ** 2).sum()) for part in parts) / free)
    return float(np.expm1(t.isf(_ALPHA / 2.0, free) * spread * np.sqrt(1.0 + 1.0 / results))), free + len(parts)

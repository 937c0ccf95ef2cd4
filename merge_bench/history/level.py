"""The level of a merge, which `run --against history` holds a new result against."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from merge_bench.analysis.compare.document import compare
from merge_bench.analysis.compare.judging import METRICS, Sample, Side, side
from merge_bench.analysis.documents.compare import CompareDocument
from merge_bench.analysis.statistics.verdict import ALPHA
from merge_bench.history.document import BY_NAME, series_of
from merge_bench.history.index import HistoryIndex, RunFigures
from merge_bench.history.noise import limited
from merge_bench.history.series_document import HistorySeries
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign

LEAST = 3
"""Results of a level with which something can be compared."""
_MOST, _NEWEST = 20, 200
"""Results whose launches are compared with, and whose noise counts."""

_NIGHTS = 5
"""Results that show how far two nights lie apart."""
_ALPHA = 0.01
"""The chance that a night of an unchanged level lies further from it than its noise explains, to either side."""


def compare_with_level(campaign: Campaign, results: str | os.PathLike[str], threshold: float) -> CompareDocument:
    """Compare `campaign`, which has one run, with the level of its series that it has to keep up with.

    `results`: the folder of the series. The level is the present one, unless it is a loss that nobody accepted.

    Without `LEAST` earlier results nothing is compared, as the only note says.
    """
    index, own = HistoryIndex([results]), campaign.folder.resolve()
    series = next(iter(index.series(own.name)), {})
    history = series_of(index, series, BY_NAME["throughput"], threshold, without=str(own))
    paths = {history.results[at].path for at in history.reference_results} if history is not None else set()
    if len(paths) < LEAST:
        needed = f"{LEAST} earlier results of this merge are needed, and {results} has {len(paths)}"
        return CompareDocument(
            results=[],
            threshold=threshold,
            alpha=ALPHA,
            comparisons=[],
            differences=[],
            notes=[f"nothing was compared: {needed}"],
            verified=True,
        )
    assert history is not None
    entries = [entry for entry in index.runs(series) if entry.path in {each.path for each in history.results}]
    level = {}
    for metric in METRICS:
        its = [entry for entry in entries if entry.path in paths and entry.values.get(metric.name)]
        if len(its) >= LEAST:
            floors = [entry.floors[metric.name] for entry in its if metric.name in entry.floors]
            noise, nights = _noise(history, entries, metric.name, len(its))
            launches = enumerate(itertools.chain.from_iterable(entry.values[metric.name] for entry in its[-_MOST:]))
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

    How far two nights lie apart is taken from the other results of the series, where the folder of `campaign` has
    `_NIGHTS` of them and SciPy is installed; else the verdicts say that it is not known.
    """
    sides = {}
    if len(campaign.runs) == len(earlier.runs) == 1 and find_spec("scipy"):
        own = campaign.folder.resolve()
        index = HistoryIndex([own.parent])
        series = next(iter(index.series(own.name)), {})
        history = series_of(index, series, BY_NAME["throughput"], threshold, without=str(own)) if series else None
        if history is not None and len(history.results) >= _NIGHTS:
            entries = [entry for entry in index.runs(series) if entry.path in {each.path for each in history.results}]
            for metric in METRICS:
                noise, nights = _noise(history, entries, metric.name, 1)
                if nights >= _NIGHTS:
                    sides[metric.name] = replace(side(earlier.runs[0], metric), floor=noise, nights=nights)
    return compare([earlier, campaign], threshold=threshold, level=sides)


def _noise(history: HistorySeries, entries: Sequence[RunFigures], metric: str, results: int) -> tuple[float, int]:
    """How far from the median of so many results one more may lie, and how many results show that.

    That is half its prediction interval by Student's t, 0.03 for 3 %. All levels of the series share their noise.
    """
    from scipy.stats import t

    level_of = {each.path: each.level for each in history.results}
    levels: dict[float, list[float]] = {}
    for entry in [entry for entry in entries if entry.values.get(metric)][-_NEWEST:]:
        levels.setdefault(level_of[entry.path], []).append(float(np.median(entry.values[metric])))
    parts = [limited(np.log(values) - np.log(np.median(values))) for values in levels.values() if len(values) > 1]
    free = sum(len(part) - 1 for part in parts)
    if not free:
        return math.inf, 0
    spread = np.sqrt(sum(float(((part - part.mean()) ** 2).sum()) for part in parts) / free)
    return float(np.expm1(t.isf(_ALPHA / 2.0, free) * spread * np.sqrt(1.0 + 1.0 / results))), free + len(parts)

"""The level of a merge, which `run --against history` holds a new result against."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import numpy as np

from merge_bench.analysis.compare.document import compare
from merge_bench.analysis.compare.samples import METRICS, Sample, Side
from merge_bench.analysis.documents.compare import CompareDocument
from merge_bench.analysis.history.document import BY_NAME, series_of
from merge_bench.analysis.history.index import Index
from merge_bench.analysis.history.noise import within_limits
from merge_bench.analysis.statistics.verdict import ALPHA
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign

LEAST = 3
"""Results of a level with which something can be compared."""
_MOST, _NEWEST = 20, 200
"""Results whose launches are compared with, and whose noise counts."""
_ALPHA = 0.01
"""The chance that a night of an unchanged level lies further from it than its noise explains, to either side."""


def compare_with_level(campaign: Campaign, results: str | os.PathLike[str], threshold: float) -> CompareDocument:
    """Compare `campaign`, which has one run, with the level that its series in the folder `results` has to keep up with.

    That is the present level, unless it is a loss that nobody accepted.

    Without `LEAST` earlier results nothing is compared, as the only note says.
    """
    index, own = Index([results]), campaign.folder.resolve()
    series = next(iter(index.series(own.name)), {})
    found = series_of(index, series, BY_NAME["throughput"], threshold, without=str(own))
    paths = {found.results[at].path for at in found.reference_results} if found is not None else set()
    if len(paths) < LEAST:
        known = f"{LEAST} earlier results of this merge are needed, and {results} has {len(paths)}"
        return CompareDocument(
            results=[], threshold=threshold, alpha=ALPHA, comparisons=[], differences=[],
            notes=[f"nothing was compared: {known}"], verified=True,
        )  # fmt: skip
    assert found is not None
    numbers = {result.path: result.level for result in found.results}
    entries = [entry for entry in index.entries(series) if entry.path in numbers]
    level = {}
    for metric in METRICS:
        having = [entry for entry in entries if entry.values.get(metric.name)]
        its = [entry for entry in having if entry.path in paths]
        if len(its) >= LEAST:
            floors = [entry.floors[metric.name] for entry in its if metric.name in entry.floors]
            by_level: dict[float, list[float]] = {}
            for entry in having[-_NEWEST:]:
                by_level.setdefault(numbers[entry.path], []).append(float(np.median(entry.values[metric.name])))
            floor = max(_noise(list(by_level.values()), len(its)), float(np.median(floors)) if floors else 0.0)
            launches = enumerate(itertools.chain.from_iterable(entry.values[metric.name] for entry in its[-_MOST:]))
            samples = tuple(Sample(at, at, value) for at, value in launches)
            level[metric.name] = Side(samples, floor=floor, level_of=len(paths))
    newest = max(paths, key=[entry.path for entry in entries].index)
    return compare([read_campaign(newest), campaign], threshold=threshold, anyway=True, level=level)


def _noise(levels: Sequence[Sequence[float]], results: int) -> float:
    """How far from a level of so many results one more may lie: half its prediction interval by Student's t, 0.03 for 3 %.

    `levels`: the values of each level of the series, which share their noise.
    """
    from scipy.stats import t

    parts = [within_limits(np.log(values)) for values in levels if len(values) > 1]
    free = sum(len(part) - 1 for part in parts)
    if not free:
        return float("inf")
    spread = np.sqrt(sum(float(((part - part.mean()) ** 2).sum()) for part in parts) / free)
    return float(np.expm1(t.isf(_ALPHA / 2.0, free) * spread * np.sqrt(1.0 + 1.0 / results)))

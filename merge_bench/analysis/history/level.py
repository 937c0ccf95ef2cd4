"""The present level of a merge, which `run --against history` holds a new result against."""

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
from merge_bench.analysis.history.shifts import within_limits
from merge_bench.analysis.statistics.verdict import ALPHA
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign

LEAST = 3
"""Results of a level with which something can be compared."""
_MOST = 20
_ALPHA = 0.01
"""The chance that a night of an unchanged level lies further from it than its noise explains, to either side."""


def compare_with_level(campaign: Campaign, results: str | os.PathLike[str], threshold: float) -> CompareDocument:
    """Compare `campaign`, which has one run, with the present level of its series in the folder `results`.

    Without `LEAST` earlier results nothing is compared, as the only note says.
    """
    index, own = Index([results]), campaign.folder.resolve()
    series = next(iter(index.series(own.name)), {})
    found = series_of(index, series, BY_NAME["throughput"], threshold, without=str(own))
    paths = {result.path for result in found.results[found.since :]} if found is not None else set()
    if len(paths) < LEAST:
        known = f"{LEAST} earlier results of this merge are needed, and {results} has {len(paths)}"
        return CompareDocument(
            results=[], threshold=threshold, alpha=ALPHA, comparisons=[], differences=[],
            notes=[f"nothing was compared: {known}"], verified=True,
        )  # fmt: skip
    entries = [entry for entry in index.entries(series) if entry.path in paths]
    level = {}
    for metric in METRICS:
        every = [values for entry in entries if (values := entry.values.get(metric.name))]
        if len(every) >= LEAST:
            floors = [entry.floors[metric.name] for entry in entries if metric.name in entry.floors]
            floor = max(_noise(every), float(np.median(floors)) if floors else 0.0)
            launches = enumerate(itertools.chain.from_iterable(every[-_MOST:]))
            samples = tuple(Sample(at, at, value) for at, value in launches)
            level[metric.name] = Side(samples, floor=floor, level_of=len(paths))
    return compare([read_campaign(entries[-1].path), campaign], threshold=threshold, anyway=True, level=level)


def _noise(results: Sequence[Sequence[float]]) -> float:
    """How far from the level one more result may lie: half its prediction interval by Student's t, 0.03 for 3 %."""
    from scipy.stats import t

    count = len(results)
    spread = np.std(within_limits(np.log([np.median(values) for values in results])), ddof=1)
    return float(np.expm1(t.isf(_ALPHA / 2.0, count - 1) * spread * np.sqrt(1.0 + 1.0 / count)))

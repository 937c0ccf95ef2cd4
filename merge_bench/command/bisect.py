"""Decides which of several releases of UCX made something slower or faster; what measures is given.

The two ends are compared first. If they differ, each step compares the release in the middle with the first one: it is
on the far side of the change if the logarithm of its ratio is beyond half of that of the ends, which any sequence of
releases crosses somewhere. The neighbours that are found are then compared with each other, which is what counts: a
wrong step on the way is noticed there.

A comparison is looked at after 6 launches and each time that they have doubled. All looks together have the level α:
the first one 2 ÷ 2⁶, the least that 6 launches can reach, and the later ones share the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from merge_bench.analysis.documents import Failure, PropertyDifference, RatioInterval
from merge_bench.analysis.statistics import EffectEstimate
from merge_bench.analysis.statistics.verdict import (
    ALPHA,
    Judgement,
    Verdict,
    judge_effects,
    least_launches_for_significance,
)

LEAST = least_launches_for_significance(alpha=ALPHA)
_FIRST_LEVEL = 2.0 / 2**LEAST
NO_TIME = "the budget has no time for more launches"
ALIKE = "the first and the last release do not differ"
NOT_SEEN = "launches show no difference between the first and the last release"
NOT_TOLD = "launches vary too much to tell which of these releases it is"
Measure = Callable[[str, str, int], "tuple[EffectEstimate, str] | None"]
"""Measures two releases with so many launches of each; the effect of the second one against the first, and the folder
of the records. None: the budget has no time for it."""


class BisectStep(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of two releases; a `ratio` above 1: the candidate is better.

    `beyond_half`: whether the candidate is on the far side of half the difference of the ends; null: not certain.
    """

    baseline: str
    candidate: str
    launches: int
    verdict: str
    ratio: float
    interval: RatioInterval | None
    beyond_half: bool | None
    records: str


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of UCX whose default differs between two releases; null: that release does not have the setting."""

    name: str
    baseline: str | None
    candidate: str | None


class BisectDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `bisect --json`.

    `verdict`: on the last release against the first one; `between`: the releases between which the change is, two
    neighbours if it was found, null if the ends do not differ; `decisive_step`: the one that compares these neighbours;
    `reason`: why nothing was found; `differences`, `settings`: what else differs between the neighbours.
    """

    document_version: Literal[1] = 1
    releases: list[str]
    metric: str
    threshold: float
    verdict: str
    between: tuple[str, str] | None
    decisive_step: BisectStep | None
    reason: str | None
    steps: list[BisectStep]
    differences: list[PropertyDifference]
    settings: list[SettingChange]
    error: Failure | None = None


class Bisection(NamedTuple):
    """What was found; the fields are those of `BisectDocument`."""

    verdict: str
    between: tuple[str, str] | None
    decisive_step: BisectStep | None
    reason: str | None
    steps: list[BisectStep]


def planned_looks(most: int) -> list[tuple[int, float]]:
    """The numbers of launches after which a comparison is looked at, up to `most`, and the level of each look."""
    counts = [LEAST]
    while counts[-1] < most:
        counts.append(min(most, 2 * counts[-1]))
    if len(counts) == 1:
        return [(LEAST, ALPHA)]
    later = (ALPHA - _FIRST_LEVEL) / (len(counts) - 1)
    return [(LEAST, _FIRST_LEVEL), *((count, later) for count in counts[1:])]


def bisect_releases(releases: Sequence[str], measure: Measure, *, threshold: float, most: int) -> Bisection:
    """Find the neighbours in `releases` between which the metric changes, with at most `most` launches a comparison."""
    steps: list[BisectStep] = []

    def compare(low: int, high: int, half: float | None = None) -> BisectStep | None:
        """Compare two releases until the verdict, or with `half` on which side of it the effect is, is certain."""
        step = None
        for launches, level in planned_looks(most):
            measured = measure(releases[low], releases[high], launches)
            if measured is None:
                break
            effect, records = measured
            (judgement,) = judge_effects([effect], threshold=threshold, alpha=level)
            step = _make_step(releases[low], releases[high], judgement, half, records)
            if (judgement.verdict is not Verdict.INCONCLUSIVE) if half is None else step.beyond_half is not None:
                break
        steps.extend([step] if step is not None else [])
        return step

    last = len(releases) - 1
    ends = compare(0, last)
    if ends is None:
        return Bisection(Verdict.INCONCLUSIVE.value, None, None, NO_TIME, steps)
    if ends.verdict not in (Verdict.FASTER.value, Verdict.SLOWER.value):
        why = ALIKE if ends.verdict == Verdict.EQUIVALENT.value else NOT_SEEN
        return Bisection(ends.verdict, None, None, why, steps)
    half = math.log(ends.ratio) / 2
    low, high = certain = 0, last
    decided = True
    while high - low > 1:
        middle = (low + high) // 2
        step = compare(0, middle, half)
        if step is None:
            return Bisection(ends.verdict, _names(releases, certain), None, NO_TIME, steps)
        beyond = (math.log(step.ratio) - half) * half > 0
        low, high = (low, middle) if beyond else (middle, high)
        decided = decided and step.beyond_half is not None
        certain = (low, high) if decided else certain
    pair = ends if last == 1 else compare(low, high)
    if pair is None:
        return Bisection(ends.verdict, _names(releases, certain), None, NO_TIME, steps)
    if pair.verdict != ends.verdict:
        return Bisection(ends.verdict, _names(releases, certain), None, NOT_TOLD, steps)
    return Bisection(ends.verdict, _names(releases, (low, high)), pair, None, steps)


def _names(releases: Sequence[str], between: tuple[int, int]) -> tuple[str, str]:
    return releases[between[0]], releases[between[1]]


def _make_step(baseline: str, candidate: str, judgement: Judgement, half: float | None, records: str) -> BisectStep:
    effect, interval, beyond = judgement.effect, None, None
    if judgement.interval is not None:
        low, high = judgement.interval
        interval = RatioInterval(low=math.exp(low), high=math.exp(high), level=1.0 - judgement.alpha)
        if half is not None and not low <= half <= high:
            beyond = (low > half) == (half > 0)
    return BisectStep(
        baseline=baseline,
        candidate=candidate,
        launches=effect.smaller_sample_size,
        verdict=judgement.verdict.value,
        ratio=math.exp(effect.estimate),
        interval=interval,
        beyond_half=beyond,
        records=records,
    )

"""Decides which of several releases of UCX made something slower or faster; what measures is given.

The two ends are compared first. If they differ, each step compares the release in the middle with the first one: it is
on the far side of the change if the logarithm of its ratio is beyond half of that of the ends, which any sequence of
releases crosses somewhere. The neighbours that are found are then compared with each other, which is what counts: a
wrong step on the way is noticed there.

A release with which launches fail cannot be compared. Between the ends it is left out, and the search goes on with the
others.

A comparison is looked at after 6 launches and each time that they have doubled. All looks together have the level α:
the first one 2 ÷ 2⁶, the least that 6 launches can reach, and the later ones share the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from merge_bench.errors import LaunchFailed

LEAST = least_launches_for_significance(alpha=ALPHA)
_FIRST_LEVEL = 2.0 / 2**LEAST
NO_TIME = "the budget has no time for more launches"
ALIKE = "the first and the last release do not differ"
NOT_SEEN = "launches show no difference between the first and the last release"
NOT_TOLD = "launches vary too much to tell which of these releases it is"
FAILED = "FAILED"
"""What stands for the verdict of a comparison in which launches failed."""
Measure = Callable[[str, str, int], "tuple[EffectEstimate, str] | None"]
"""Measures two releases with so many launches of each; the effect of the second one against the first, and the folder
of the records. None: the budget has no time for it. Raises ReleaseLaunchFailed if launches fail with one of the two."""


class ReleaseLaunchFailed(LaunchFailed):
    """Launches with a release failed. `release`: its name; `reason`: how many failed and why; `records`: the folder."""

    def __init__(self, release: str, reason: str, records: str, log_tail: str | None = None) -> None:
        super().__init__(f"UCX {release}: {reason}", log_tail=log_tail)
        self.release, self.records = release, records


class BisectStep(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of two releases; a `ratio` above 1: the candidate is better.

    `beyond_half`: whether the candidate is on the far side of half the difference of the ends; null: not certain.
    `failure`: of a comparison with the verdict ``FAILED``, which has no ratio, the release with which launches failed,
    and why.
    """

    baseline: str
    candidate: str
    launches: int
    verdict: str
    ratio: float | None
    interval: RatioInterval | None
    beyond_half: bool | None
    records: str
    failure: str | None = None


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of UCX whose default differs between two releases; null: that release does not have the setting."""

    name: str
    baseline: str | None
    candidate: str | None


class BisectDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `bisect --json`.

    `verdict`: on the last release against the first one, ``FAILED`` if launches with one of them failed; `between`: the
    releases between which the change is, two neighbours if it was found, null if the ends do not differ;
    `decisive_step`: the one that compares these neighbours; `reason`: why nothing was found; `left_out`: releases
    between the ends with which launches failed; `differences`, `settings`: what else differs between the neighbours.
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
    left_out: list[str] = []
    differences: list[PropertyDifference]
    settings: list[SettingChange]
    error: Failure | None = None


class BisectionResult(NamedTuple):
    """The result of a bisection, with the fields of `BisectDocument`.

    `failure`: of the first or the last release, without which nothing can be found.
    """

    verdict: str
    between: tuple[str, str] | None
    decisive_step: BisectStep | None
    reason: str | None
    steps: list[BisectStep]
    left_out: list[str]
    failure: ReleaseLaunchFailed | None = None


def planned_interim_looks(most_launches: int) -> list[tuple[int, float]]:
    """The looks at a comparison: after how many launches of each release, at most `most_launches`, and each one's α."""
    counts = [LEAST]
    while counts[-1] < most_launches:
        counts.append(min(most_launches, 2 * counts[-1]))
    if len(counts) == 1:
        return [(LEAST, ALPHA)]
    later = (ALPHA - _FIRST_LEVEL) / (len(counts) - 1)
    return [(LEAST, _FIRST_LEVEL), *((count, later) for count in counts[1:])]


def bisect_releases(
    releases: Sequence[str], measure: Measure, *, threshold: float, most_launches: int
) -> BisectionResult:
    """Find the neighbours in `releases` between which the metric changes.

    `most_launches`: the most launches of each release in a comparison.
    """
    search = _ReleaseSearch(list(releases), measure, threshold, most_launches)
    try:
        return search.find_changed_neighbours()
    except ReleaseLaunchFailed as failure:
        return search.make_result(FAILED, reason=str(failure), failure=failure)


@dataclass
class _ReleaseSearch:
    """A search among `releases`, from which those are taken out with which launches fail.

    `_middle_steps`: the comparisons with the first release, by the other one.
    """

    releases: list[str]
    measure: Measure
    threshold: float
    most_launches: int
    steps: list[BisectStep] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    _middle_steps: dict[str, BisectStep] = field(default_factory=dict)

    def find_changed_neighbours(self) -> BisectionResult:
        """Compare the ends, then narrow them down until two neighbours are left and compared.

        Raises ReleaseLaunchFailed if launches with the first or the last release fail.
        """
        ends = self._compare_releases(self.releases[0], self.releases[-1])
        if ends is None:
            return self.make_result(Verdict.INCONCLUSIVE.value, reason=NO_TIME)
        if ends.verdict not in (Verdict.FASTER.value, Verdict.SLOWER.value):
            why = ALIKE if ends.verdict == Verdict.EQUIVALENT.value else NOT_SEEN
            return self.make_result(ends.verdict, reason=why)
        while True:
            try:
                return self._narrow_to_neighbours(ends)
            except ReleaseLaunchFailed as failure:
                if failure.release not in self.releases[1:-1]:
                    raise
                self.releases.remove(failure.release)
                self.left_out.append(failure.release)

    def _narrow_to_neighbours(self, ends: BisectStep) -> BisectionResult:
        """Find the neighbours among the releases that are left; comparisons that were made are not made again."""
        half_effect = _step_log_ratio(ends) / 2
        first, last = low, high = certain = self.releases[0], self.releases[-1]
        decided = True
        while middle := self._middle_release(low, high):
            step = self._middle_steps.get(middle) or self._compare_releases(first, middle, half_effect)
            if step is None:
                return self.make_result(ends.verdict, certain, reason=NO_TIME)
            self._middle_steps[middle] = step
            beyond = (_step_log_ratio(step) - half_effect) * half_effect > 0
            low, high = (low, middle) if beyond else (middle, high)
            decided = decided and step.beyond_half is not None
            certain = (low, high) if decided else certain
        pair = ends if (low, high) == (first, last) else self._compare_releases(low, high)
        if pair is None:
            return self.make_result(ends.verdict, certain, reason=NO_TIME)
        if pair.verdict != ends.verdict:
            return self.make_result(ends.verdict, certain, reason=NOT_TOLD)
        return self.make_result(ends.verdict, (low, high), pair)

    def _middle_release(self, low: str, high: str) -> str | None:
        """The release in the middle between two others; None if they are neighbours."""
        low_at, high_at = self.releases.index(low), self.releases.index(high)
        return self.releases[(low_at + high_at) // 2] if high_at - low_at > 1 else None

    def _compare_releases(self, baseline: str, candidate: str, half_effect: float | None = None) -> BisectStep | None:
        """Compare two releases until the verdict, or with `half_effect` on which side of it the effect is, is certain.

        Returns None if the budget has no time for it. Raises ReleaseLaunchFailed if launches fail, and adds a step.
        """
        step = None
        for launches, level in planned_interim_looks(self.most_launches):
            try:
                measured = self.measure(baseline, candidate, launches)
            except ReleaseLaunchFailed as failure:
                self.steps.append(_make_failed_step(baseline, candidate, launches, failure))
                raise
            if measured is None:
                break
            effect, records = measured
            (judgement,) = judge_effects([effect], threshold=self.threshold, alpha=level)
            step = _make_step(baseline, candidate, judgement, half_effect, records)
            if (judgement.verdict is not Verdict.INCONCLUSIVE) if half_effect is None else step.beyond_half is not None:
                break
        self.steps.extend([step] if step is not None else [])
        return step

    def make_result(
        self,
        verdict: str,
        between: tuple[str, str] | None = None,
        decisive_step: BisectStep | None = None,
        reason: str | None = None,
        failure: ReleaseLaunchFailed | None = None,
    ) -> BisectionResult:
        """Make the result of the search, with all steps so far."""
        return BisectionResult(verdict, between, decisive_step, reason, self.steps, self.left_out, failure)


def _step_log_ratio(step: BisectStep) -> float:
    assert step.ratio is not None
    return math.log(step.ratio)


def _make_failed_step(baseline: str, candidate: str, launches: int, failure: ReleaseLaunchFailed) -> BisectStep:
    return BisectStep(
        baseline=baseline,
        candidate=candidate,
        launches=launches,
        verdict=FAILED,
        ratio=None,
        interval=None,
        beyond_half=None,
        records=failure.records,
        failure=str(failure),
    )


def _make_step(
    baseline: str, candidate: str, judgement: Judgement, half_effect: float | None, records: str
) -> BisectStep:
    effect, interval, beyond = judgement.effect, None, None
    if judgement.interval is not None:
        low, high = judgement.interval
        interval = RatioInterval(low=math.exp(low), high=math.exp(high), level=1.0 - judgement.alpha)
        if half_effect is not None and not low <= half_effect <= high:
            beyond = (low > half_effect) == (half_effect > 0)
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

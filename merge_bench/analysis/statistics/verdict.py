"""Verdicts on candidates: faster, slower, equivalent or inconclusive, and how many launches would decide.

Several candidates are one family, in which the chance of any false FASTER or SLOWER stays below α (0.05), and so does
that of any false EQUIVALENT. Holm's steps ("A simple sequentially rejective multiple test procedure", 1979) decide on
differences: the smallest p of k is held against α ÷ k, the next against α ÷ (k - 1), and so on until one fails, which
all after it then do. Equivalence is held against α ÷ k (Bonferroni), because Holm's later steps do not apply to it.

So that interval and verdict never disagree, each interval has the level at which its claim is made: that of its Holm
step (after the first that fails: of that step) where the estimate reaches the threshold, and 1 - α ÷ k where it does
not. One candidate alone has the usual 1 - α.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import NormalDist

from merge_bench.analysis.statistics import EffectEstimate

ALPHA = 0.05
"""The chance of a false claim in a family of comparisons."""

POWER = 0.9
"""The probability of a verdict with the number of launches that `launches_needed` gives."""

MOST = 1000
"""The largest number of launches that `launches_needed` gives: more are not practical."""

EFFICIENCY = 3.0 / math.pi
"""Efficiency of the Hodges-Lehmann estimate relative to the mean for normal errors; for heavy tails it is higher."""


class Verdict(Enum):
    """The verdict on a candidate. FAILED (launches crashed) and WRONG (wrong result) are no matter of statistics."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    EQUIVALENT = "EQUIVALENT"
    INCONCLUSIVE = "INCONCLUSIVE"
    FAILED = "FAILED"
    WRONG = "WRONG"


class InconclusiveReason(Enum):
    """Why a comparison is inconclusive."""

    UNDERPOWERED = "underpowered"  # so few launches that no outcome at all could be significant
    WIDE = "wide-interval"
    NOISE = "within-noise"  # more than the threshold, and less than a config shows against itself


@dataclass(frozen=True)
class Judgement:
    """The verdict on one candidate, with its reason, interval and p value.

    `reason`: why it is INCONCLUSIVE, else None. `interval`: of the log-ratio, of level 1 - `alpha`; None where launches
    are too few. `p_holm`: the p value after Holm's correction, at most 0.05 where Holm's steps find a difference.
    `equivalence_bound`: the log-ratio within which sides are equivalent; `difference_bound`: beyond which they differ.
    """

    verdict: Verdict
    reason: InconclusiveReason | None
    interval: tuple[float, float] | None
    alpha: float
    p_holm: float
    effect: EffectEstimate
    equivalence_bound: float
    difference_bound: float

    @property
    def more_launches(self) -> int | None:
        """About how many more launches of each config would settle an INCONCLUSIVE verdict, if effect and spread stay.

        ``None``: not inconclusive, or more than `MOST`, as for an effect that is as large as the threshold. A noise
        floor is mostly half an interval, and shrinks with the square root of the launches as all intervals do.
        """
        if self.reason is None:
            return None
        effect, size = self.effect, abs(self.effect.estimate)
        needed = least_launches_for_significance(alpha=self.alpha, paired=effect.paired)
        if effect.spread is not None:
            launches = launches_needed(
                effect=size,
                spread=effect.spread,
                threshold=self.equivalence_bound,
                alpha=self.alpha,
                paired=effect.paired,
            )
            if launches is None:
                return None
            needed = max(needed, launches)
        if self.equivalence_bound <= size < self.difference_bound:
            needed = max(needed, math.ceil(effect.smaller_sample_size * (self.difference_bound / size) ** 2))
        return max(1, needed - effect.smaller_sample_size) if needed <= MOST else None


def holm_adjusted_p_values(p_values: Sequence[float], *, family_size: int | None = None) -> tuple[float, ...]:
    """Holm's adjusted p values: the running maximum of (k - j) · p over the ascending p, j = 0 … k - 1, at most 1.

    `family_size`: how many comparisons were meant to be made; those without a p value count as if it were 1.
    """
    k = _checked_family_size(len(p_values), family_size)
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for step, index in enumerate(_indexes_by_p_value(p_values)):
        highest = max(highest, (k - step) * p_values[index])
        adjusted[index] = min(1.0, highest)
    return tuple(adjusted)


def holm_significance_levels(
    p_values: Sequence[float], *, alpha: float = ALPHA, family_size: int | None = None
) -> tuple[float, ...]:
    """The significance level for each p value in Holm's procedure: α ÷ (k - j) at step j of the ascending p values.

    After the first p value that fails, the level stays the same. Equal p values share the step of the first of them:
    they pass or fail together, in whichever order they came.
    """
    k = _checked_family_size(len(p_values), family_size)
    levels = [alpha] * len(p_values)
    level, last = alpha, -1.0
    for step, index in enumerate(_indexes_by_p_value(p_values)):
        if last <= level and p_values[index] != last:
            level = alpha / (k - step)
        last = p_values[index]
        levels[index] = level
    return tuple(levels)


def judge_effects(
    effects: Sequence[EffectEstimate],
    *,
    threshold: float,
    noise_floors: Sequence[float | None] | None = None,
    alpha: float = ALPHA,
    family_size: int | None = None,
) -> tuple[Judgement, ...]:
    """Judge the effects of one family of comparisons; returns the judgement of each.

    With the threshold t and the interval of the ratio: EQUIVALENT, if it lies within 1 ÷ (1 + t) … 1 + t. FASTER, if
    its lower end is above 1 and the estimate at least 1 + max(t, noise floor). SLOWER: the mirror, which is what FASTER
    becomes when baseline and candidate change places. Else INCONCLUSIVE.

    `threshold`: t, 0.02 for 2 %. `noise_floors`: of each effect the noise floor, or None; it raises the bound for a
    difference, and not that for equivalence: noise would make everything alike. `family_size`: how many comparisons
    were meant to be made, if more than `effects`.
    """
    k = _checked_family_size(len(effects), family_size)
    p_values = [effect.p_value for effect in effects]
    levels, adjusted = (
        holm_significance_levels(p_values, alpha=alpha, family_size=k),
        holm_adjusted_p_values(p_values, family_size=k),
    )
    equivalence_bound = math.log1p(threshold)
    judgements = []
    for effect, floor, level, p_holm in zip(
        effects, noise_floors or [None] * len(effects), levels, adjusted, strict=True
    ):
        difference_bound = math.log1p(max(threshold, floor or 0.0))
        level_of_claim = level if abs(effect.estimate) >= equivalence_bound else alpha / k
        interval = effect.interval(level_of_claim)
        verdict, reason = _verdict_of_interval(effect.estimate, interval, equivalence_bound, difference_bound)
        judgements.append(
            Judgement(verdict, reason, interval, level_of_claim, p_holm, effect, equivalence_bound, difference_bound)
        )
    return tuple(judgements)


def noise_floor(effect: EffectEstimate) -> float:
    """The noise that an A/A comparison, of a config with itself, shows: 0.01 for 1 %.

    That is the smallest threshold at which the comparison is EQUIVALENT, as it should be: exp of the far end of its
    interval, minus 1; with too few launches for an interval, exp of its largest log-ratio, minus 1.
    """
    interval = effect.interval(ALPHA)
    return math.expm1(max(map(abs, effect.points if interval is None else interval)))


def _verdict_of_interval(
    estimate: float, interval: tuple[float, float] | None, equivalence_bound: float, difference_bound: float
) -> tuple[Verdict, InconclusiveReason | None]:
    if interval is None:
        return Verdict.INCONCLUSIVE, InconclusiveReason.UNDERPOWERED
    low, high = interval
    if -equivalence_bound <= low and high <= equivalence_bound:
        return Verdict.EQUIVALENT, None
    if low <= 0.0 <= high or abs(estimate) < equivalence_bound:
        return Verdict.INCONCLUSIVE, InconclusiveReason.WIDE
    if abs(estimate) < difference_bound:
        return Verdict.INCONCLUSIVE, InconclusiveReason.NOISE
    return Verdict.FASTER if low > 0.0 else Verdict.SLOWER, None


def _indexes_by_p_value(p_values: Sequence[float]) -> list[int]:
    """The indexes of the p values, the smallest p first."""
    return sorted(range(len(p_values)), key=p_values.__getitem__)


def _checked_family_size(effect_count: int, family_size: int | None) -> int:
    k = max(1, effect_count) if family_size is None else family_size
    if k < effect_count:
        raise ValueError(f"a family of {k} has no {effect_count} comparisons")
    return k


def least_launches_for_significance(*, alpha: float = 0.05, paired: bool = True) -> int:
    """The fewest launches of each config with which anything could be significant at level α.

    The most extreme outcome of n pairs has p = 2 ÷ 2ⁿ, of n and n launches 2 ÷ (2n over n); of k comparisons Holm
    tests the smallest p at α ÷ k. With α = 0.05: 6 pairs for one candidate, 9 for ten; unpaired 4 and 6.
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"no test at {alpha}")
    n = 1
    while 2.0 * (0.5**n if paired else 1 / math.comb(2 * n, n)) > alpha:
        n += 1
    return n


def can_reach_significance(baseline_launches: int, candidate_launches: int, *, alpha: float = 0.05) -> bool:
    """Whether so many launches, not interleaved, could show any difference that is significant at level `alpha`."""
    return 2.0 / math.comb(baseline_launches + candidate_launches, baseline_launches) <= alpha


def launches_needed(
    *, effect: float, spread: float, threshold: float, alpha: float = 0.05, paired: bool = True
) -> int | None:
    """The fewest launches of each config with which a verdict is reached with probability `POWER`.

    `effect`, `threshold`: true log-ratio, and the log of 1 + t. `spread`: standard deviation of the log-ratio of one
    candidate and one baseline launch. `alpha`: the level; for a family of k, α ÷ k, the strictest of Holm's steps.

    With n launches the estimate is about normal around `effect` with standard error s = spread ÷ √(n · 3 ÷ π) (Lehmann,
    "Nonparametrics", 1975, ch. 2 and 4), and the interval reaches h = z · spread ÷ √((n - c) · 3 ÷ π) to each side, z
    the normal quantile at 1 - α ÷ 2; c = z² ÷ 2 is for the small sample (Guenther, "Sample size formulas for normal
    theory t tests", 1981; unpaired z² ÷ 4). FASTER is where the estimate is at least max(h, threshold), SLOWER the
    mirror, EQUIVALENT where it is within threshold - h. One launch is added for the steps that exact tests take: in
    simulations the power is up to a tenth short without it. ``None`` beyond `MOST`, as for an effect that is as large
    as the threshold.
    """
    if spread < 0.0 or threshold < 0.0:
        raise ValueError("a spread or a threshold is not negative")
    first = least_launches_for_significance(alpha=alpha, paired=paired)
    z = NormalDist().inv_cdf(1.0 - alpha / 2.0)
    small = z * z / (2.0 if paired else 4.0)

    def reaches_power(launches: int) -> bool:
        error = spread / math.sqrt(launches * EFFICIENCY)
        half_width = z * spread / math.sqrt((launches - small) * EFFICIENCY) if launches > small else math.inf
        return _verdict_probability(effect, error, half_width, threshold) >= POWER

    launches = first + bisect.bisect_left(range(first, MOST + 1), True, key=reaches_power)
    return launches + 1 if launches <= MOST else None


def _verdict_probability(effect: float, standard_error: float, half_width: float, threshold: float) -> float:
    """The probability of a verdict other than INCONCLUSIVE, for a true log-ratio `effect`.

    `standard_error`: of its estimate; `half_width`: of the interval.
    """
    if standard_error == 0.0:
        return float(abs(effect) != threshold)
    estimate = NormalDist(effect, standard_error)
    beyond = max(half_width, threshold)
    probability = 1.0 - estimate.cdf(beyond) + estimate.cdf(-beyond)
    within = threshold - half_width
    return probability + (estimate.cdf(within) - estimate.cdf(-within) if within > 0.0 else 0.0)

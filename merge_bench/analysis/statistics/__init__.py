"""Statistics of small samples: intervals of medians, and effects of one config against another.

Nothing is assumed normal and nothing is dropped.

The unit of inference is the launch: iterations of one launch share a cluster and are no independent samples. Of one
sample `median_interval` is meant for one value a launch, quartiles describe iterations. Of two samples an
`EffectEstimate` says how much better one config is than another: the ratio, its interval, its p value; `verdict` judges
it. `docs/compare.md` has the formulas.

Effects are computed on logarithms of ratios that are larger than 1 where the candidate is better, so that exchanging
baseline and candidate changes signs and nothing else, and ratios are never averaged.

* Paired: one log-ratio a block. The estimate is the median of their Walsh averages (Hodges & Lehmann, "Estimates of
  location based on rank tests", 1963), the interval reaches from the k-th smallest to the k-th largest of these, and
  the p value is Wilcoxon's signed-rank test. What a block does to both of its launches cancels.
* Unpaired: two samples. The same with the differences of all pairs, and Mann and Whitney's test. What changed between
  the two samples besides the config stays in the ratio.

Interval and p value are one thing: p ≤ α exactly if the interval of level 1 - α does not hold 1. Zeros and ties count
against a difference: an average that is 0 lies on neither side.

The exact distributions of the two statistics, where there is no difference, count: of n paired differences, how many of
the n (n + 1) ÷ 2 Walsh averages are positive (Wilcoxon's T); of m and n values, in how many of the m · n pairs the
second is larger (Mann and Whitney's U). With more than `EXACT` values on a side the normal approximation is used, with
continuity correction. Sources: J. W. Tukey, "The simplest signed-rank tests" (1949); H. B. Mann & D. R. Whitney, "On a
test of whether one of two random variables is stochastically larger than the other" (1947); M. Hollander, D. A. Wolfe &
E. Chicken, "Nonparametric Statistical Methods", ch. 3 and 4.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, combinations_with_replacement
from statistics import NormalDist
from statistics import median as median

FAR_OUT = 3.0
"""Tukey's outer fence: how many interquartile ranges outside the quartiles a value is an outlier."""


@dataclass(frozen=True)
class MedianInterval:
    """A confidence interval of a median, from `low` to `high`, the values at `ranks` of the sorted sample, from 1.

    `coverage`: the exact probability that such an interval holds the median, for any continuous distribution.
    """

    low: float
    high: float
    coverage: float
    ranks: tuple[int, int]


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the sample lies, interpolated between neighbours.

    With the sorted values x(0)..x(n-1) and h = (n - 1) · share: x(⌊h⌋) + (h - ⌊h⌋) · (x(⌊h⌋+1) - x(⌊h⌋)).
    This is type 7 of Hyndman & Fan, "Sample Quantiles in Statistical Packages" (1996), NumPy's default.
    """
    if not values:
        raise ValueError("no values")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"{share} is no share of a sample")
    ordered = sorted(values)
    position = (len(ordered) - 1) * share
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    weight = position - below
    low, high = ordered[below], ordered[above]
    return low if low == high else low * (1.0 - weight) + high * weight


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """First quartile, median and third quartile of a sample."""
    return quantile(values, 0.25), quantile(values, 0.5), quantile(values, 0.75)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> MedianInterval | None:
    """The rank-based confidence interval of the median, or ``None`` where there are too few values.

    The interval from the k-th smallest to the k-th largest of n values holds the median with probability
    1 - 2 · P(B ≤ k - 1), B binomial(n, 1/2); k is the largest for which that reaches `confidence`. At 95 %:
    n = 6 gives ranks 1 and 6 (96.9 %), n = 9 ranks 2 and 8 (96.1 %), n = 12 ranks 3 and 10 (96.1 %); n ≤ 5 none.
    Source: W. J. Conover, "Practical Nonparametric Statistics", ch. 3; recommended for benchmarks by
    Hoefler & Belli, "Scientific Benchmarking of Parallel Computing Systems" (2015).
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"{confidence} is no confidence")
    n = len(values)
    interval: MedianInterval | None = None
    tail = 0  # number of the 2**n outcomes with at most k - 1 values below the median
    ordered = sorted(values)
    for k in range(1, n // 2 + 1):
        tail += math.comb(n, k - 1)
        coverage = 1.0 - 2 * tail / 2**n
        if coverage < confidence:
            break
        interval = MedianInterval(ordered[k - 1], ordered[n - k], coverage, (k, n - k + 1))
    return interval


def harmonic_mean(values: Sequence[float]) -> float:
    """The harmonic mean, n ÷ Σ 1/x: the mean of rates over equal amounts of work (Hoefler & Belli 2015, rule 3).

    0 if any value is 0, the limit of the formula.
    """
    if not values:
        raise ValueError("no values")
    smallest = min(values)
    if smallest < 0.0:
        raise ValueError("a harmonic mean is of rates, which are not negative")
    if smallest == 0.0:
        return 0.0
    # Scaled by the smallest value, so that the reciprocals stay within what a float can hold.
    return smallest * (len(values) / math.fsum(smallest / value for value in values))


def outlier_flags(values: Sequence[float]) -> tuple[bool, ...]:
    """Whether each value is an outlier: more than `FAR_OUT` interquartile ranges outside the quartiles.

    Tukey, "Exploratory Data Analysis" (1977): 1.5 is "outside", 3 is "far out". Outliers are flagged for a look,
    never dropped. Of fewer than 4 values none is flagged.
    """
    if len(values) < 4:
        return (False,) * len(values)
    first, _, third = quartiles(values)
    reach = FAR_OUT * (third - first)
    return tuple(not first - reach <= value <= third + reach for value in values)


EXACT = 100
"""Up to so many values on a side the distributions are exact: counted in whole numbers."""


@dataclass(frozen=True)
class EffectEstimate:
    """The estimated effect of a candidate config against a baseline, in natural logarithms of ratios.

    `points`: the values that are shown to people: the log-ratio of each block, or if unpaired of each candidate launch
    to the baseline's median. `averages`: Walsh averages of the pairs, or differences of all pairs; ascending. `tail`:
    for t = 0, 1, … the probability that at most t averages are positive where there is no difference. `paired`:
    whether each point is a ratio within one block. `launches`: how many values of the baseline and of the candidate
    were used. `spread`: standard deviation of the difference of one candidate and one baseline launch; None for one.
    """

    points: tuple[float, ...]
    averages: tuple[float, ...]
    tail: tuple[float, ...]
    paired: bool
    launches: tuple[int, int]
    spread: float | None

    @cached_property
    def estimate(self) -> float:
        """The estimated log-ratio of Hodges and Lehmann: the median of the averages."""
        return median(self.averages)

    @cached_property
    def p_value(self) -> float:
        """The two-sided p value, exact up to `EXACT` values."""
        not_above = bisect.bisect_right(self.averages, 0.0)
        not_below = len(self.averages) - bisect.bisect_left(self.averages, 0.0)
        return min(1.0, 2.0 * self.tail[min(not_above, not_below)])

    def interval(self, alpha: float) -> tuple[float, float] | None:
        """The interval that holds the true log-ratio with probability 1 - `alpha` or more; ``None``: too few values."""
        k = critical_rank(self.tail, alpha)
        return (self.averages[k - 1], self.averages[-k]) if k else None

    @property
    def smaller_sample_size(self) -> int:
        """The number of launches on the side with fewer of them, which decides about the verdict."""
        return min(self.launches)


def paired_effect(log_ratios: Sequence[float]) -> EffectEstimate:
    """Estimate the effect of a candidate from one log-ratio for each block, in which candidate and baseline ran.

    Raises ValueError if there are no log-ratios, or one is not finite.
    """
    points = _require_finite(log_ratios)
    n = len(points)
    averages = sorted((a + b) / 2 for a, b in combinations_with_replacement(points, 2))
    spread = math.sqrt(_sum_of_squared_deviations(points) / (n - 1)) if n > 1 else None
    return EffectEstimate(points, tuple(averages), signed_rank_distribution(n), True, (n, n), spread)


def unpaired_effect(baseline_logs: Sequence[float], candidate_logs: Sequence[float]) -> EffectEstimate:
    """Estimate the effect of a candidate whose launches share no blocks with the baseline's.

    Arguments: the logarithms of both sides' values, where larger is better. Raises ValueError if one side is empty, or
    a value is not finite.
    """
    old, new = _require_finite(baseline_logs), _require_finite(candidate_logs)
    averages = sorted(b - a for a in old for b in new)
    middle = median(old)
    m, n = len(old), len(new)
    spread = (
        math.sqrt(2.0 * (_sum_of_squared_deviations(old) + _sum_of_squared_deviations(new)) / (m + n - 2))
        if m + n > 2
        else None
    )
    return EffectEstimate(
        tuple(b - middle for b in new), tuple(averages), rank_sum_distribution(m, n), False, (m, n), spread
    )


def _sum_of_squared_deviations(values: Sequence[float]) -> float:
    """The sum of squared deviations from the mean; twenty times as fast as `statistics.variance`."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _require_finite(values: Sequence[float]) -> tuple[float, ...]:
    """Return the values as a tuple; raises ValueError if there are no values, or one is not finite."""
    if not values:
        raise ValueError("no values")
    if not all(map(math.isfinite, values)):
        raise ValueError("a logarithm of a ratio is not finite")
    return tuple(values)


@lru_cache(maxsize=512)
def signed_rank_distribution(n: int, exact_limit: int = EXACT) -> tuple[float, ...]:
    """The cumulative distribution of Wilcoxon's signed-rank statistic T: P(T ≤ t) for t = 0 … n (n + 1) ÷ 2.

    The `n` differences are symmetric about 0. Up to `exact_limit` differences the probabilities are exact: of the 2ⁿ
    ways to give the ranks 1 … n their signs, count those whose positive ranks add up to at most t.
    """
    most = n * (n + 1) // 2
    if n > exact_limit:
        return _normal_distribution(most, variance=n * (n + 1) * (2 * n + 1) / 24)
    ways = [1] + [0] * most
    for rank in range(1, n + 1):
        for total in range(most, rank - 1, -1):
            ways[total] += ways[total - rank]
    return _cumulative_probabilities(ways)


@lru_cache(maxsize=512)
def rank_sum_distribution(m: int, n: int, exact_limit: int = EXACT) -> tuple[float, ...]:
    """The cumulative distribution of Mann and Whitney's rank-sum statistic U: P(U ≤ u) for u = 0 … m · n.

    The m and n values are from one distribution. Up to `exact_limit` values on each side the probabilities are exact:
    the ways to reach each u are the coefficients of the Gaussian binomial Π (1 - qⁿ⁺ⁱ) ÷ (1 - qⁱ), i = 1 … m.
    """
    most = m * n
    if max(m, n) > exact_limit:
        return _normal_distribution(most, variance=m * n * (m + n + 1) / 12)
    ways = [1] + [0] * most
    for i in range(1, m + 1):
        for total in range(most, n + i - 1, -1):
            ways[total] -= ways[total - n - i]
        for total in range(i, most + 1):
            ways[total] += ways[total - i]
    return _cumulative_probabilities(ways)


def critical_rank(cumulative_probabilities: Sequence[float], alpha: float) -> int:
    """The largest rank k with 2 · P(≤ k - 1) ≤ `alpha`: the k-th smallest and largest averages bound the interval.

    `cumulative_probabilities`: P(≤ t) for t = 0, 1, … 0 where even the extreme outcome is more likely than `alpha`: too
    few values.
    """
    return bisect.bisect_right(cumulative_probabilities, alpha / 2.0, hi=len(cumulative_probabilities) // 2)


def _cumulative_probabilities(outcome_counts: Sequence[int]) -> tuple[float, ...]:
    """P(≤ t) for each outcome t = 0, 1, …; `outcome_counts`: in how many equally likely ways each outcome arises."""
    total = sum(outcome_counts)
    return tuple(count / total for count in accumulate(outcome_counts))


def _normal_distribution(largest_value: int, *, variance: float) -> tuple[float, ...]:
    """P(≤ t) for t = 0 … `largest_value` by the normal approximation with mean `largest_value` ÷ 2."""
    normal = NormalDist(largest_value / 2, math.sqrt(variance))
    return tuple(normal.cdf(t + 0.5) for t in range(largest_value + 1))

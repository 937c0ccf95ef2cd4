"""How much better one config is than another: the ratio, its interval, its p value.

Everything is done on logarithms of ratios that are larger than 1 where the candidate is better, so that exchanging
baseline and candidate changes signs and nothing else, and ratios are never averaged.

* Paired: one log-ratio a block. The estimate is the median of their Walsh averages (Hodges & Lehmann, "Estimates of
  location based on rank tests", 1963), the interval reaches from the k-th smallest to the k-th largest of these, and
  the p value is Wilcoxon's signed-rank test. What a block does to both of its launches cancels.
* Unpaired: two samples. The same with the differences of all pairs, and Mann and Whitney's test. What changed between
  the two samples beside the config stays in the ratio.

Interval and p value are one thing: p ≤ α exactly if the interval of level 1 - α does not hold 1. Zeros and ties count
against a difference: an average that is 0 lies on neither side.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement

from merge_bench.analysis.statistics import median
from merge_bench.analysis.statistics.ranks import critical_rank, rank_sum_tail, signed_rank_tail


@dataclass(frozen=True)
class Effect:
    """A comparison of two configs, all in natural logarithms of ratios.

    Attributes
    ----------
    points : tuple of float
        What people are shown: the log-ratio of each block; unpaired, of each candidate launch to the baseline's median.
    averages : tuple of float
        Walsh averages of the pairs, or differences of all pairs; ascending.
    tail : tuple of float
        P(at most t of the averages are positive) where there is no difference.
    paired : bool
        Whether each point is a ratio within one block.
    launches : tuple of int
        How many values of the baseline and of the candidate are in it.
    spread : float or None
        Standard deviation of the difference of one candidate and one baseline launch; ``None`` for a single one.
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
    def p(self) -> float:
        """The two-sided p value, exact up to `ranks.EXACT` values."""
        not_above = bisect.bisect_right(self.averages, 0.0)
        not_below = len(self.averages) - bisect.bisect_left(self.averages, 0.0)
        return min(1.0, 2.0 * self.tail[min(not_above, not_below)])

    def interval(self, alpha: float) -> tuple[float, float] | None:
        """The interval that holds the true log-ratio with probability 1 - `alpha` or more; ``None``: too few values."""
        k = critical_rank(self.tail, alpha)
        return (self.averages[k - 1], self.averages[-k]) if k else None

    @property
    def least(self) -> int:
        """The number of launches in the smaller of the two samples, on which the verdict rests."""
        return min(self.launches)


def paired_effect(log_ratios: Sequence[float]) -> Effect:
    """The effect of one log-ratio a block.

    Raises ValueError if there is none, or one is not finite.
    """
    points = _checked_finite(log_ratios)
    n = len(points)
    averages = sorted((a + b) / 2 for a, b in combinations_with_replacement(points, 2))
    spread = math.sqrt(_squared_deviations(points) / (n - 1)) if n > 1 else None
    return Effect(points, tuple(averages), signed_rank_tail(n), True, (n, n), spread)


def unpaired_effect(baseline: Sequence[float], candidate: Sequence[float]) -> Effect:
    """The effect of two samples of logarithms, larger ones better, that were not taken block by block.

    Raises ValueError if one of them is empty, or a value is not finite.
    """
    old, new = _checked_finite(baseline), _checked_finite(candidate)
    averages = sorted(b - a for a in old for b in new)
    middle = median(old)
    m, n = len(old), len(new)
    spread = math.sqrt(2.0 * (_squared_deviations(old) + _squared_deviations(new)) / (m + n - 2)) if m + n > 2 else None
    return Effect(tuple(b - middle for b in new), tuple(averages), rank_sum_tail(m, n), False, (m, n), spread)


def _squared_deviations(values: Sequence[float]) -> float:
    """The sum of squared deviations from the mean; `statistics.variance` takes twenty times as long."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _checked_finite(values: Sequence[float]) -> tuple[float, ...]:
    """The values as a tuple; raises ValueError if there are none, or one is not finite."""
    if not values:
        raise ValueError("no values")
    if not all(map(math.isfinite, values)):
        raise ValueError("a logarithm of a ratio is not finite")
    return tuple(values)

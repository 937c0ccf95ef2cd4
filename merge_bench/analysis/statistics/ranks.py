"""Exact distributions of the two rank statistics, where there is no difference.

Both count: of n paired differences, how many of the n (n + 1) ÷ 2 Walsh averages are positive (Wilcoxon's signed-rank
statistic T); of m and n values, in how many of the m · n pairs the second is larger (Mann and Whitney's U). With more
than `EXACT` values on a side the normal approximation is used, with continuity correction.
Sources: J. W. Tukey, "The simplest signed-rank tests" (1949); H. B. Mann & D. R. Whitney, "On a test of whether one of
two random variables is stochastically larger than the other" (1947); M. Hollander, D. A. Wolfe & E. Chicken,
"Nonparametric Statistical Methods", ch. 3 and 4.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist

EXACT = 100
"""Up to so many values on a side the distributions are exact: counted in whole numbers."""


@lru_cache(maxsize=512)
def signed_rank_tail(n: int) -> tuple[float, ...]:
    """P(T ≤ t) for t = 0 … n (n + 1) ÷ 2, of n differences that are symmetric about 0.

    Of the 2ⁿ ways to give the ranks 1 … n their signs, count those whose positive ranks add up to at most t.
    """
    _require_values(n)
    most = n * (n + 1) // 2
    if n > EXACT:
        return _normal_tail(most, variance=n * (n + 1) * (2 * n + 1) / 24)
    ways = [1] + [0] * most
    for rank in range(1, n + 1):
        for total in range(most, rank - 1, -1):
            ways[total] += ways[total - rank]
    return _cumulative_shares(ways)


@lru_cache(maxsize=512)
def rank_sum_tail(m: int, n: int) -> tuple[float, ...]:
    """P(U ≤ u) for u = 0 … m · n, of m and n values from one distribution.

    The ways are the coefficients of the Gaussian binomial Π (1 - qⁿ⁺ⁱ) ÷ (1 - qⁱ), i = 1 … m.
    """
    _require_values(m)
    _require_values(n)
    most = m * n
    if max(m, n) > EXACT:
        return _normal_tail(most, variance=m * n * (m + n + 1) / 12)
    ways = [1] + [0] * most
    for i in range(1, m + 1):
        for total in range(most, n + i - 1, -1):
            ways[total] -= ways[total - n - i]
        for total in range(i, most + 1):
            ways[total] += ways[total - i]
    return _cumulative_shares(ways)


def critical_rank(tail: Sequence[float], alpha: float) -> int:
    """The largest k with 2 · P(≤ k - 1) ≤ `alpha`: the k-th smallest and largest averages bound the interval.

    0 where even the extreme outcome is more likely than that: too few values for this `alpha`.
    """
    return bisect.bisect_right(tail, alpha / 2.0, hi=len(tail) // 2)


def _cumulative_shares(ways: Sequence[int]) -> tuple[float, ...]:
    """The probability of each outcome or a smaller one, from the ways that lead to each outcome."""
    total = sum(ways)
    return tuple(count / total for count in accumulate(ways))


def _normal_tail(most: int, *, variance: float) -> tuple[float, ...]:
    """P(≤ t) for t = 0 … `most` by the normal approximation, with mean `most` ÷ 2."""
    normal = NormalDist(most / 2, math.sqrt(variance))
    return tuple(normal.cdf(t + 0.5) for t in range(most + 1))


def _require_values(n: int) -> None:
    if n < 1:
        raise ValueError("no values")

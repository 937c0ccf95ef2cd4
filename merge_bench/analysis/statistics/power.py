"""How many launches it takes to reach a verdict."""

from __future__ import annotations

import bisect
import math
from statistics import NormalDist

POWER = 0.9
"""The probability of a verdict with the number of launches that `launches_needed` gives."""

MOST = 1000
"""The largest number of launches that `launches_needed` gives: more are not practical."""

EFFICIENCY = 3.0 / math.pi
"""Efficiency of the Hodges-Lehmann estimate relative to the mean for normal errors; for heavy tails it is higher."""


def least_launches(*, alpha: float = 0.05, paired: bool = True) -> int:
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


def can_differ(baseline: int, candidate: int, *, alpha: float = 0.05) -> bool:
    """Whether any difference of so many launches that were not interleaved could be significant at level α."""
    return 2.0 / math.comb(baseline + candidate, baseline) <= alpha


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
    first = least_launches(alpha=alpha, paired=paired)
    z = NormalDist().inv_cdf(1.0 - alpha / 2.0)
    small = z * z / (2.0 if paired else 4.0)

    def enough(n: int) -> bool:
        error = spread / math.sqrt(n * EFFICIENCY)
        half_width = z * spread / math.sqrt((n - small) * EFFICIENCY) if n > small else math.inf
        return _verdict_probability(effect, error, half_width, threshold) >= POWER

    launches = first + bisect.bisect_left(range(first, MOST + 1), True, key=enough)
    return launches + 1 if launches <= MOST else None


def _verdict_probability(effect: float, error: float, half_width: float, threshold: float) -> float:
    """The probability of a verdict other than INCONCLUSIVE; `error`: standard error of the estimate `effect`."""
    if error == 0.0:
        return float(abs(effect) != threshold)
    estimate = NormalDist(effect, error)
    beyond = max(half_width, threshold)
    probability = 1.0 - estimate.cdf(beyond) + estimate.cdf(-beyond)
    within = threshold - half_width
    return probability + (estimate.cdf(within) - estimate.cdf(-within) if within > 0.0 else 0.0)

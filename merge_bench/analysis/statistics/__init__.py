"""Pure functions on small samples. Nothing is assumed normal and nothing is dropped.

The unit of inference is the launch: iterations of one launch share a cluster and are no independent samples. This
module describes one sample: `median_interval` is meant for one value a launch, quartiles describe iterations.
`effect` and `verdict` compare two samples. `docs/compare.md` has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median as median

FAR_OUT = 3.0
"""Tukey's outer fence: how many interquartile ranges outside the quartiles a value is an outlier."""


@dataclass(frozen=True)
class Interval:
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
    """First quartile, median and third quartile, by `quantile`."""
    return quantile(values, 0.25), quantile(values, 0.5), quantile(values, 0.75)


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
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
    interval: Interval | None = None
    tail = 0  # number of the 2**n outcomes with at most k - 1 values below the median
    ordered = sorted(values)
    for k in range(1, n // 2 + 1):
        tail += math.comb(n, k - 1)
        coverage = 1.0 - 2 * tail / 2**n
        if coverage < confidence:
            break
        interval = Interval(ordered[k - 1], ordered[n - k], coverage, (k, n - k + 1))
    return interval


def harmonic_mean(values: Sequence[float]) -> float:
    """n ÷ Σ 1/x: the mean of rates over equal amounts of work (Hoefler & Belli 2015, rule 3).

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


def outliers(values: Sequence[float]) -> tuple[bool, ...]:
    """Which values lie more than `FAR_OUT` interquartile ranges outside the quartiles.

    Tukey, "Exploratory Data Analysis" (1977): 1.5 is "outside", 3 is "far out". They are flagged for a look,
    never dropped. Fewer than 4 values flag nothing.
    """
    if len(values) < 4:
        return (False,) * len(values)
    first, _, third = quartiles(values)
    reach = FAR_OUT * (third - first)
    return tuple(not first - reach <= value <= third + reach for value in values)

"""What a series of results does while nothing changes: its spread, its tails, its drift and its memory.

Nobody knows whether the noise of a series has a memory, or has just grown. Each possibility counts by how well it
explains the results so far (Bayesian model averaging, Hoeting et al. 1999).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[np.float64]

_FAR, _WIDE = 3.5, 7.0
"""In robust standard deviations: results beyond the first are tails; the spread counts none beyond the second."""

_CAP, _RARE = 5.0, 0.85
_LEAST = 5e-4
_SLOPE = 2.0


@dataclass(frozen=True)
class Noise:
    """The noise of a series, in logarithms. `spread`: the standard deviation, tails included; `robust`: without tails;
    `cap`: a result further from its level than this counts as if it were this far.
    """

    spread: float
    cap: float
    robust: float


def noise_of(residuals: Values) -> Noise:
    """The noise that these deviations from a level show."""
    size = np.abs(residuals)
    robust = max(1.4826 * float(np.median(size)), _LEAST)
    wide = np.minimum(size, _WIDE * robust)
    spread = max(math.sqrt(float(wide @ wide) / max(1, len(wide) - 1)), _LEAST)
    tails = np.count_nonzero(size > _CAP * robust)
    cap = _CAP if not tails else _RARE * math.sqrt(2.0 * math.log((len(size) + 1.0) / (tails + 0.5)))
    return Noise(spread, cap * spread, robust)


def slope_of(values: Values, spread: float, variance_ratio: float = 1.0, *, certain: float = _SLOPE) -> float:
    """The drift of the values from one result to the next, 0 where it is not certain.

    `variance_ratio`: variance of the values' mean ÷ that of the mean of as many independent results.
    """
    count = len(values)
    if count < 10:
        return 0.0
    place = np.arange(count) - (count - 1) / 2.0
    squares = float(place @ place)
    slope = float(place @ values) / squares
    error = spread * math.sqrt(variance_ratio / squares)
    return slope if abs(slope) > certain * error else 0.0


def clip_outliers(residuals: Values) -> Values:
    """Deviations from a level, in which outliers are moved to the limit of what is no outlier."""
    limit = _FAR * max(1.4826 * float(np.median(np.abs(residuals))), _LEAST)
    return np.clip(residuals, -limit, limit)


_WITH = 0.35
"""The prior probability that a series has a memory; the kinds below share it by their last numbers."""

_FADING = ((1.0, 0.3, 1.5), (1.0, 0.5, 1.5), (1.0, 0.65, 0.7), (1.0, 0.8, 0.7), (0.7, 0.9, 0.25))
"""Memory that fades: its share of the variance, the share of a deviation left one result later, and a weight."""

_SHARE = 0.8
_STATES = ((2, 1.0), (3, 1.0), (5, 1.5), (7, 1.5))
"""Memory of a host's state: this many results share one, which has the share `_SHARE` of the variance."""

_FULL = 4.0
_LAGS = 8
_MOST = 400

_GROWN = (1.5, 2.0, 3.0)
"""The factors by which the noise may have grown; below, since how many results, with the probability of each."""
_SINCE = {0: 0.0002, 3: 0.0002, 5: 0.0002, 10: 0.003, 20: 0.003, 40: 0.003, 80: 0.003}


@dataclass(frozen=True)
class _MemoryKinds:
    """A row for each kind of memory, that without one first.

    `prior`: how likely it is. `unexplained`: multiplied with autocorrelations of lags 0 to `_LAGS`, the share of the
    variance that the best prediction leaves. `mean` and `newest`: variance of the mean of so many results, and of so
    many newest ones, which may all share one state; of one result it is 1. `witnesses`: results that show the variance
    as well as one independent result.
    """

    prior: Values
    unexplained: Values
    mean: Values
    newest: Values
    witnesses: Values


@cache
def _memory_kinds() -> _MemoryKinds:
    lag = np.arange(_MOST)
    rows = [np.zeros(_MOST), *(share * left**lag for share, left, _ in _FADING)]
    rows += [_SHARE * np.maximum(0.0, 1.0 - lag / nights) for nights, _ in _STATES]
    correlations = np.array(rows)
    correlations[:, 0] = 1.0
    unexplained = np.array([_unexplained(row[: _LAGS + 1]) for row in correlations])
    sums, weighted = correlations.cumsum(axis=1), (lag * correlations).cumsum(axis=1)
    count = lag + 1.0
    mean = (2.0 * (sums - weighted / count) - 1.0) / count
    newest = mean.copy()
    for row, (nights, _) in enumerate(_STATES, 1 + len(_FADING)):
        newest[row] = np.maximum(mean[row], _SHARE * np.minimum(1.0, nights / count) + (1.0 - _SHARE) / count)
    weights = np.array([each[-1] for each in (*_FADING, *_STATES)])
    prior = np.append(1.0 - _WITH, _WITH * weights / weights.sum())
    return _MemoryKinds(prior, unexplained, mean, newest, 2.0 * (correlations**2).sum(axis=1) - 1.0)


def _unexplained(correlations: Values) -> Values:
    """`_MemoryKinds.unexplained` of one kind, for the best linear prediction from `_LAGS` results (Yule and Walker)."""
    lags = np.arange(_LAGS)
    weights = np.linalg.solve(correlations[np.abs(lags[:, None] - lags)], correlations[1:])
    errors = np.append(1.0, -weights)
    products = np.array([errors[: _LAGS + 1 - lag] @ errors[lag:] for lag in range(_LAGS + 1)])
    products[1:] *= 2.0
    return products


@dataclass(frozen=True)
class Memory:
    """How likely each kind of memory in `_memory_kinds` is."""

    weights: Values

    def variance_ratio(self, count: int) -> float:
        """The variance of the mean of `count` results ÷ that of as many results without a memory."""
        count = min(count, _MOST)
        return count * float(self.weights @ _memory_kinds().mean[:, count - 1])


def memory_of(residuals: Values) -> Memory:
    """The memory that these deviations from a level show."""
    count = len(residuals)
    values = clip_outliers(residuals)
    kinds = _memory_kinds()
    autocorrelations = np.zeros(_LAGS + 1)
    autocorrelations[0] = 1.0
    for lag in range(1, min(_LAGS, count // 3) + 1):
        # the level is estimated from the same results, which takes 1 / count from each
        autocorrelations[lag] = values[lag:] @ values[:-lag] / max(float(values @ values), 1e-12) + 1.0 / count
    likelihood = np.log(kinds.prior) - count / 2.0 * np.log(np.maximum(kinds.unexplained @ autocorrelations, 1e-3))
    return Memory(_probabilities(likelihood))


def shift_evidence(new: Values, before: int, noise: Noise, memory: Memory, residuals: Values) -> float:
    """How surely `new` deviations from the level of the `before` older results are those of another level.

    In standard deviations of a normal distribution: 2 for a chance of 0.05 that such a series does this by itself, to
    either side. `residuals`: the older results' deviations, which show `noise` and `memory`.
    """
    kinds, after, count = _memory_kinds(), len(new), min(len(residuals), _MOST)
    # outliers are independent: where results share a state, each counts in full
    distances = np.full(len(kinds.prior), float(np.clip(new, -_FULL * noise.cap, _FULL * noise.cap).mean()))
    new, residuals = (np.clip(each, -noise.cap, noise.cap) for each in (new, residuals))
    distances[0] = new.mean()
    factors, grown = _noise_growth(new / noise.spread, residuals / noise.spread)
    # an unknown level hides a part of the variance
    hidden = np.maximum(1.0 - kinds.mean[:, count - 1], 0.2)
    error = noise.spread * np.sqrt((kinds.newest[:, after - 1] + kinds.mean[:, before - 1]) / hidden)
    free = np.maximum(count / kinds.witnesses - 1.0, 2.0)
    deviates = _normal_deviates(np.abs(distances) / np.outer(factors, error), free)
    chances = np.array([[math.erfc(value / math.sqrt(2.0)) for value in row] for row in deviates])
    chance = float(grown @ chances @ memory.weights)
    return -NormalDist().inv_cdf(min(max(chance / 2.0, 1e-300), 0.5))


def _noise_growth(new: Values, residuals: Values) -> tuple[Values, Values]:
    """The factors by which the noise may have grown, and the probability of each; takes standard deviations."""
    within = float(((new - new.mean()) ** 2).sum())
    squares_since = {
        since: float(residuals[len(residuals) - since :] @ residuals[len(residuals) - since :])
        for since in _SINCE
        if 2 * len(residuals) >= 3 * since
    }
    certain = 1.0 - len(_GROWN) * sum(_SINCE.values())
    likelihood, factors = [math.log(certain)], [1.0]
    for factor in _GROWN:
        for since, squares in squares_since.items():
            explained = (within + squares) * (1.0 - factor**-2.0) / 2.0
            likelihood.append(math.log(_SINCE[since]) + explained - (len(new) - 1 + since) * math.log(factor))
            factors.append(factor)
    return np.array(factors), _probabilities(np.array(likelihood))


def _probabilities(likelihood: Values) -> Values:
    """Turn logarithms of likelihoods into probabilities, whose sum is 1."""
    shares = np.exp(likelihood - likelihood.max())
    return np.asarray(shares / shares.sum())


def _normal_deviates(t: Values, free: Values | Sequence[float]) -> Values:
    """Normal deviates that are as unlikely as these values of Student's t (Wallace 1959)."""
    free = np.asarray(free)
    return np.asarray((8.0 * free + 1.0) / (8.0 * free + 3.0) * np.sqrt(free * np.log1p(t * t / free)))

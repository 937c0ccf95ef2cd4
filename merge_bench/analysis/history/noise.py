"""What a series of results does while nothing changes: its spread, its tails, its memory and its drift."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[np.float64]

_FAR, _WIDE = 3.5, 7.0
"""Robust standard deviations: further away is a tail; for the spread, a result counts as no further than the second."""

_CAP = 5.0
_LEAST = 5e-4
DECAY, _LAGS = 0.8, 8
"""The memory of a series is taken to fade like this from result to result, and is estimated from so many lags."""

_MARGIN = 15.0
_CERTAIN = 0.8
_RUNS = 2.0
"""Standard errors that are added to the memory, because few results show it badly."""
_MOST = 1.3
_WEIGHTS = DECAY ** np.arange(_LAGS)
_SLOPE = 3.0


@dataclass(frozen=True)
class Noise:
    """`spread`: the standard deviation, tails included; `cap`: how far from its level a result counts at most;
    `robust`: the standard deviation without tails.
    """

    spread: float
    cap: float
    robust: float


def noise_of(residuals: Values) -> Noise:
    """The noise of these deviations from the level."""
    size = np.abs(residuals)
    robust = max(1.4826 * float(np.median(size)), _LEAST)
    wide = np.minimum(size, _WIDE * robust)
    spread = max(math.sqrt(float(wide @ wide) / max(1, len(wide) - 1)), _LEAST)
    tails = np.count_nonzero(size > _CAP * robust)
    cap = spread * math.sqrt(2.0 * math.log(1.0 / ((tails + 0.5) / (len(size) + 1.0)))) if tails else _CAP * spread
    return Noise(spread, cap, robust)


def memory_of(residuals: Values) -> float:
    """The autocorrelation of neighbours, with a margin for what so few results cannot tell; 0: none."""
    count = len(residuals)
    robust = _FAR * max(1.4826 * float(np.median(np.abs(residuals))), _LEAST)
    values = np.clip(residuals, -robust, robust)
    lags = min(_LAGS, count // 3)
    weights = _WEIGHTS[:lags]
    found = np.array([values[lag:] @ values[:-lag] for lag in range(1, lags + 1)]) / max(float(values @ values), 1e-12)
    squares = float(weights @ weights)
    lost = float(weights.sum()) / squares / count  # of each lag, because the level is estimated from the same results
    memory = (float(weights @ found) / squares + lost) / max(0.5, 1.0 - 2.0 * lost / (1.0 - DECAY))
    certain = max(0.0, memory - _CERTAIN / math.sqrt(squares * count))
    return float(min(_MOST, _RUNS * certain + _MARGIN / count**1.5))


def variance_ratio(memory: float, count: int) -> float:
    """How many times as large the variance of the mean of `count` results is as it were without a memory."""
    left = np.arange(1, count)
    return 1.0 + 2.0 * memory * float(((1.0 - left / count) * DECAY ** (left - 1.0)).sum())


def slope_of(values: Values, spread: float, memory: float, *, certain: float = _SLOPE) -> float:
    """The drift from result to result, where it is certain; else 0."""
    count = len(values)
    if count < 10:
        return 0.0
    place = np.arange(count) - (count - 1) / 2.0
    squares = float(place @ place)
    slope = float(place @ values) / squares
    error = spread * math.sqrt(variance_ratio(memory, count) / squares)
    return slope if abs(slope) > certain * error else 0.0


def within_limits(values: Values) -> Values:
    """The logarithms of a level's results as they count: outliers as if they were no further away than the limit."""
    middle = float(np.median(values))
    limit = _FAR * max(1.4826 * float(np.median(np.abs(values - middle))), _LEAST)
    return np.clip(values, middle - limit, middle + limit)

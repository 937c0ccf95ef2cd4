"""What a series of results does while nothing changes: its spread, its tails and its drift."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[np.float64]

_FAR, _WIDE = 3.5, 7.0
"""Robust standard deviations: further away is a tail; for the spread, a result counts as no further than the second."""

_CAP, _RARE = 5.0, 0.85
_LEAST = 5e-4
_SLOPE = 2.0


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
    cap = _CAP if not tails else _RARE * math.sqrt(2.0 * math.log((len(size) + 1.0) / (tails + 0.5)))
    return Noise(spread, cap * spread, robust)


def slope_of(values: Values, spread: float, variance_ratio: float = 1.0, *, certain: float = _SLOPE) -> float:
    """The drift from result to result, where it is certain; else 0.

    `variance_ratio`: of their mean, to that of as many independent results.
    """
    count = len(values)
    if count < 10:
        return 0.0
    place = np.arange(count) - (count - 1) / 2.0
    squares = float(place @ place)
    slope = float(place @ values) / squares
    error = spread * math.sqrt(variance_ratio / squares)
    return slope if abs(slope) > certain * error else 0.0


def limited(residuals: Values) -> Values:
    """Deviations from a level as they count: outliers as if they were no further away than the limit."""
    limit = _FAR * max(1.4826 * float(np.median(np.abs(residuals))), _LEAST)
    return np.clip(residuals, -limit, limit)

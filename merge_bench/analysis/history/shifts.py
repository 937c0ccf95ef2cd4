"""Level shifts in a series of results that arrive one after the other: `docs/regressions.md` explains the rule.

`ruptures` proposes where the level changed; it says nothing about chance. The evidence below does, and its threshold
was calibrated (`benchmarks/history_alarms.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

FIRST = 12
"""Results of a level before a shift away from it can be found."""

AFTER = 3
"""Results that a new level needs: fewer are outliers."""

_LONGEST, _REMEMBERED = 40, 400
"""Results after a shift, and before one, that are looked back at."""

_CLIP, _WIDE = 3.5, 7.0
"""Robust standard deviations from the level: a result counts as if no further away; for the noise, as if no further
than the second, so that heavy tails and outliers raise the noise more than they move the level."""

_LEAST_NOISE = 5e-4
_NONE = np.empty(0)
EVIDENCE = 4.65
"""The evidence, in standard deviations of a normal distribution, from which on a shift is reported."""

_CALIBRATED = 400
"""Results up to which `EVIDENCE` was calibrated; beyond, every doubling adds at most as many false alarms."""


@dataclass(frozen=True)
class Shift:
    """The level changed with the result at `at`; it was found when the result at `found` arrived.

    `change`: of the value, -0.05 for 5 % less. `evidence`: see `EVIDENCE`.
    """

    at: int
    found: int
    change: float
    evidence: float


def find_shifts(values: Iterable[float], thresholds: Iterable[float] = repeat(0.02)) -> list[Shift]:
    """The shifts in `values` above 0, which are looked at one after the other; no later value changes a shift.

    `thresholds`: the least change that matters, for each value.
    """
    found: list[Shift] = []
    level = _Level()
    for at, (value, threshold) in enumerate(zip(values, thresholds, strict=False)):
        level.add(math.log(value))
        shift = level.shift(at, threshold)
        if shift is not None:
            found.append(shift)
            level = _Level(level.values[shift.at - at - 1 :])
    return found


class _Level:
    """The last results of the present level, as logarithms: their `values`, and as they count `clipped` and `wide`."""

    def __init__(self, values: NDArray[np.float64] = _NONE) -> None:
        self.values, self.clipped, self.wide = values, _NONE, _NONE

    def add(self, value: float) -> None:
        """Clip one more result by those before it; as soon as there are enough, the first ones by each other."""
        self.values = np.append(self.values, value)[-_LONGEST - _REMEMBERED :]
        if len(self.values) < FIRST:
            return
        new, others = (self.values[-1:], self.values[:-1]) if len(self.clipped) else (self.values, self.values)
        middle, noise = _middle_and_noise(others)
        self.clipped, self.wide = (
            np.append(old, np.clip(new, middle - far * noise, middle + far * noise))[-len(self.values) :]
            for old, far in ((self.clipped, _CLIP), (self.wide, _WIDE))
        )

    def shift(self, at: int, threshold: float) -> Shift | None:
        """The shift that is certain with the last result, which is the one at `at`."""
        after = np.arange(AFTER, min(_LONGEST, len(self.values) - FIRST) + 1)
        needed = math.sqrt(EVIDENCE**2 + 2.0 * max(0.0, math.log((at + 1) / _CALIBRATED)))
        if not len(after) or max(self.evidence(after)) < needed:
            return None
        before = self.proposed()
        count = len(self.values) - before
        if before < FIRST or count < AFTER:
            return None
        evidence = float(self.evidence(np.array([count]))[0])
        change = float(np.median(self.values[before:]) - np.median(self.values[:before]))
        if evidence < needed or abs(change) < math.log1p(threshold):
            return None
        return Shift(at + 1 - count, at, math.expm1(change), evidence)

    def evidence(self, after: NDArray[np.int64]) -> NDArray[np.float64]:
        """How far the last `after` results lie from those before.

        That is Student's t, as a normal deviate (Wallace 1959).
        """
        before = len(self.clipped) - after
        clipped, wide = self.clipped - self.clipped[0], self.wide - self.clipped[0]
        sums, wides, squares = (np.cumsum(each) for each in (clipped, wide, wide**2))
        at, free = before - 1, before - 1.0
        old, new = sums[at] / before, (sums[-1] - sums[at]) / after
        spread = (squares[at] - wides[at] ** 2 / before) / free
        t = np.abs(new - old) / np.sqrt(np.maximum(spread, _LEAST_NOISE**2) * (1.0 / before + 1.0 / after))
        return np.asarray((8.0 * free + 1.0) / (8.0 * free + 3.0) * np.sqrt(free * np.log1p(t**2 / free)))

    def proposed(self) -> int:
        """How many of the results belong to the old level, as `ruptures` finds.

        The wider limits tell two levels apart better, unless the level begins with an outlier.
        """
        import ruptures

        search = ruptures.Binseg(model="l2", min_size=1, jump=1)
        before = 0
        for values in (self.wide, self.clipped):
            before = search.fit(values).predict(n_bkps=1)[0]
            if before >= FIRST:
                break
        return before


def _middle_and_noise(values: NDArray[np.float64]) -> tuple[float, float]:
    """The median, and the robust standard deviation."""
    middle = float(np.median(values))
    return middle, max(1.4826 * float(np.median(np.abs(values - middle))), _LEAST_NOISE)


def within_limits(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithms of a level's results as they count: outliers as if they were no further away than the limit."""
    middle, noise = _middle_and_noise(values)
    return np.clip(values, middle - _CLIP * noise, middle + _CLIP * noise)

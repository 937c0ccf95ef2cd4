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


class Monitor:
    """Looks for shifts in values above 0 that are fed one at a time; a shift that was reported stays."""

    def __init__(self) -> None:
        self._values: list[float] = []  # logarithms
        self._start = 0  # of the present level
        self._level = _Level()

    def feed(self, value: float, threshold: float = 0.02) -> Shift | None:
        """The shift that is certain with this value, if any; `threshold`: the least change that matters."""
        self._values.append(math.log(value))
        first = max(self._start, len(self._values) - _LONGEST - _REMEMBERED)
        level = np.array(self._values[first:])
        if len(level) < FIRST:
            return None
        self._level.add(level, len(self._values) - self._start)
        after = np.arange(AFTER, min(_LONGEST, len(level) - FIRST) + 1)
        if not len(after) or max(self._level.evidence(len(level), after)) < self._needed:
            return None
        before = self._level.proposed(len(level))
        count = len(level) - before
        if before < FIRST or count < AFTER:
            return None
        evidence = float(self._level.evidence(len(level), np.array([count]))[0])
        change = float(np.median(level[before:]) - np.median(level[:before]))
        if evidence < self._needed or abs(change) < math.log1p(threshold):
            return None
        found = Shift(first + before, len(self._values) - 1, math.expm1(change), evidence)
        self._start, self._level = found.at, _Level()
        return found

    @property
    def _needed(self) -> float:
        return math.sqrt(EVIDENCE**2 + 2.0 * max(0.0, math.log(len(self._values) / _CALIBRATED)))


class _Level:
    """The present level: its results as they count, and their sums, so that each new result costs the same."""

    def __init__(self) -> None:
        self.clipped: list[float] = []
        self._wide: list[float] = []
        self._sums, self._wides, self._squares = [0.0], [0.0], [0.0]

    def add(self, level: NDArray[np.float64], count: int) -> None:
        """Clip the last of `count` results, those that are new, by the results before them; the first by each other."""
        new = level[len(self.clipped) - count :]
        middle, noise = _middle_and_noise(level if len(new) == len(level) else level[: -len(new)])
        for value in new.tolist():
            clipped, wide = (min(max(value, middle - far * noise), middle + far * noise) for far in (_CLIP, _WIDE))
            self.clipped.append(clipped)
            self._wide.append(wide)
            base = self.clipped[0]
            self._sums.append(self._sums[-1] + clipped - base)
            self._wides.append(self._wides[-1] + wide - base)
            self._squares.append(self._squares[-1] + (wide - base) ** 2)

    def evidence(self, length: int, after: NDArray[np.int64]) -> NDArray[np.float64]:
        """How far the last `after` of the last `length` results lie from those before.

        That is Student's t, as a normal deviate (Wallace 1959).
        """
        before = length - after
        end, begin = len(self.clipped), len(self.clipped) - length
        low = end - int(after.max())
        sums, wides, squares = (np.array(each[low:]) for each in (self._sums, self._wides, self._squares))
        at = int(after.max()) - after
        old = (sums[at] - self._sums[begin]) / before
        new = (sums[-1] - sums[at]) / after
        free = before - 1.0
        spread = (squares[at] - self._squares[begin] - (wides[at] - self._wides[begin]) ** 2 / before) / free
        t = np.abs(new - old) / np.sqrt(np.maximum(spread, _LEAST_NOISE**2) * (1.0 / before + 1.0 / after))
        return np.asarray((8.0 * free + 1.0) / (8.0 * free + 3.0) * np.sqrt(free * np.log1p(t**2 / free)))

    def proposed(self, length: int) -> int:
        """How many of the last `length` results belong to the old level, as `ruptures` finds.

        The wider limits tell two levels apart better, unless the level begins with an outlier.
        """
        import ruptures

        search = ruptures.Binseg(model="l2", min_size=1, jump=1)
        before = 0
        for values in (self._wide, self.clipped):
            before = search.fit(np.array(values[-length:])).predict(n_bkps=1)[0]
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


def find_shifts(values: Iterable[float], thresholds: Iterable[float] = repeat(0.02)) -> list[Shift]:
    """Every shift that a `Monitor` reports when it is fed with `values`, each with its threshold."""
    monitor = Monitor()
    return [found for each in zip(values, thresholds, strict=False) if (found := monitor.feed(*each)) is not None]

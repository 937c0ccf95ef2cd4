"""What a series shows beside its shifts: gradual changes, drift, and noise that changed.

These look at the whole series, so they may read otherwise with later results; shifts do not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from merge_bench.analysis.history.memory import memory_of
from merge_bench.analysis.history.noise import Values, noise_of, slope_of
from merge_bench.analysis.history.shifts import EVIDENCE, Shift

DRIFTS = "drifts"
NOISE = "noise-changed"
_LEAST_DRIFT = 30
_LEAST_NOISE = 15
_NEWEST = 400
"""Results that are looked at."""

_AROUND = 25
"""Results before and after a gradual change that are looked at, and how many results it may begin early or end late."""

_SHORTEST = 4
"""Results of a gradual change: fewer are a shift."""


@dataclass(frozen=True)
class Finding:
    """`kind`: `DRIFTS`, by so much from the result `since` to the last; `NOISE`: since that result, -0.5 for half."""

    kind: str
    since: int
    change: float


def findings(values: Sequence[float], levels: Sequence[float], since: int, threshold: float) -> list[Finding]:
    """Of a series with these levels, whose present stretch begins at `since`."""
    logs = np.log(np.array(values))
    found = _drift(logs, since, threshold) or _noise_change(logs - np.log(np.array(levels)))
    return [] if found is None else [found]


def _drift(logs: Values, since: int, threshold: float) -> Finding | None:
    first = max(since, len(logs) - _NEWEST)
    count = len(logs) - first
    if count < _LEAST_DRIFT:
        return None
    residuals = logs[first:] - np.median(logs[first:])
    noise = noise_of(residuals)
    clipped = np.clip(residuals, -noise.cap, noise.cap)
    line = slope_of(clipped, noise.spread) * (np.arange(count) - (count - 1) / 2.0)
    ratio = memory_of(clipped - line).variance_ratio(count)
    slope = slope_of(clipped, noise.spread, ratio, certain=EVIDENCE)
    change = slope * (count - 1)
    return Finding(DRIFTS, first, math.expm1(change)) if abs(change) >= math.log1p(threshold) else None


def _noise_change(residuals: Values) -> Finding | None:
    """Whether deviations from the level grew or shrank for good: a shift of their logarithms."""
    first = max(0, len(residuals) - _NEWEST)
    sizes = np.abs(residuals[first:])
    count = len(sizes)
    if count < 2 * _LEAST_NOISE or not sizes.any():
        return None
    logs = np.log(np.maximum(sizes, np.median(sizes) / 20.0 + 1e-9))
    before = np.arange(_LEAST_NOISE, count - _LEAST_NOISE + 1)
    sums = np.cumsum(logs)
    difference = (sums[-1] - sums[before - 1]) / (count - before) - sums[before - 1] / before
    apart = np.abs(difference) / np.sqrt(1.0 / before + 1.0 / (count - before))
    best = int(np.argmax(apart))
    own = logs - np.where(np.arange(count) < before[best], logs[: before[best]].mean(), logs[before[best] :].mean())
    error = float(own.std()) * math.sqrt(memory_of(own).variance_ratio(count))
    if apart[best] < EVIDENCE * error:
        return None
    return Finding(NOISE, first + int(before[best]), math.expm1(float(difference[best])))


def gradual(values: Sequence[float], shifts: Sequence[Shift]) -> dict[int, tuple[int, int]]:
    """Of the shifts, by their number, those that are parts of a ramp, with its first and its last result.

    Neighbours in the same direction are one ramp, if a straight line between two levels explains the results better
    than they do (Bayesian information criterion).
    """
    logs = np.log(np.array(values))
    found: dict[int, tuple[int, int]] = {}
    for first, last in _groups(shifts):
        low = max(shifts[first - 1].at if first else 0, shifts[first].at - 2 * _AROUND)
        high = min(shifts[last + 1].at if last + 1 < len(shifts) else len(logs), shifts[last].at + 2 * _AROUND)
        ramp = _ramp(logs[low:high], [shift.at - low for shift in shifts[first : last + 1]])
        if ramp is not None:
            found |= dict.fromkeys(range(first, last + 1), (ramp[0] + low, ramp[1] + low))
    return found


def _groups(shifts: Sequence[Shift]) -> list[tuple[int, int]]:
    """The first and the last number of neighbours that change in one direction, near each other."""
    groups: list[tuple[int, int]] = []
    for number, shift in enumerate(shifts):
        before = shifts[number - 1] if number else None
        if before and before.change * shift.change > 0 and shift.at - before.at <= _AROUND:
            groups[-1] = groups[-1][0], number
        else:
            groups.append((number, number))
    return groups


def _ramp(values: Values, steps: Sequence[int]) -> tuple[int, int] | None:
    """The first and the last result on the way from one level to the other, counted in `values`."""
    count = len(values)
    middle = np.median(values)
    noise = noise_of(np.diff(values))
    values = np.clip(values, middle - 20.0 * noise.spread, middle + 20.0 * noise.spread)
    parts = np.split(values, steps)
    by_steps = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    begins = np.arange(max(1, steps[0] - _AROUND), steps[0] + 1)
    ends = np.arange(steps[0] + 1, min(count - 1, steps[-1] + _AROUND) + 1)
    begin, end = (each.ravel() for each in np.meshgrid(begins, ends))
    long = end - begin + 1 >= _SHORTEST
    begin, end = begin[long], end[long]
    if not len(begin):
        return None
    # 0 before the first result on the way, 1 from the last one on
    way = np.clip((np.arange(count) - begin[:, None] + 1.0) / (end - begin + 1.0)[:, None], 0.0, 1.0)
    way -= way.mean(axis=1, keepdims=True)
    centred = values - values.mean()
    squares = (way**2).sum(axis=1)
    left = float(centred @ centred) - (way @ centred) ** 2 / squares
    best = int(np.argmin(left))
    penalty = math.log(count) * (4 - (2 * len(steps) + 1))
    if count * math.log(max(float(left[best]), 1e-12)) + penalty >= count * math.log(max(by_steps, 1e-12)):
        return None
    return int(begin[best]), int(end[best])

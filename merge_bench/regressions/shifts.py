"""Shifts in a series of results that arrive one after the other: `docs/regressions.md` explains the rule.

A result is judged by what the series does while nothing changes: its spread, its tails, its drift and its memory, the
autocorrelation of results. Nobody knows whether its noise has a memory, or has just grown: each possibility counts by
how well it explains the results so far (Bayesian model averaging, Hoeting et al. 1999). `benchmarks/history_alarms.py`
calibrated the thresholds. Gradual changes, drift and noise that changed are found in the whole series
(`find_drift_or_noise_change`), so later results may change them; they do not change shifts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
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
class SeriesNoise:
    """The noise of a series of results, in logarithms.

    `spread`: the standard deviation, tails included; `robust`: the standard deviation without tails; `cap`: results
    further from their level than this count as if they were this far.
    """

    spread: float
    cap: float
    robust: float


def estimate_noise(residuals: Values) -> SeriesNoise:
    """Estimate the noise of a series from the deviations of its results from their level."""
    size = np.abs(residuals)
    robust = max(1.4826 * float(np.median(size)), _LEAST)
    wide = np.minimum(size, _WIDE * robust)
    spread = max(math.sqrt(float(wide @ wide) / max(1, len(wide) - 1)), _LEAST)
    tails = np.count_nonzero(size > _CAP * robust)
    cap = _CAP if not tails else _RARE * math.sqrt(2.0 * math.log((len(size) + 1.0) / (tails + 0.5)))
    return SeriesNoise(spread, cap * spread, robust)


def estimate_drift(
    values: Values, spread: float, variance_ratio: float = 1.0, *, least_t_value: float = _SLOPE
) -> float:
    """Estimate the drift, the change of the values from one result to the next; 0 where the drift is not certain.

    `variance_ratio`: variance of the values' mean ÷ that of the mean of as many independent results. `least_t_value`:
    how many standard errors a drift needs to be certain.
    """
    count = len(values)
    if count < 10:
        return 0.0
    place = np.arange(count) - (count - 1) / 2.0
    squares = float(place @ place)
    slope = float(place @ values) / squares
    error = spread * math.sqrt(variance_ratio / squares)
    return slope if abs(slope) > least_t_value * error else 0.0


def clip_outliers(residuals: Values) -> Values:
    """Return deviations from a level, with outliers reduced to the largest deviation that counts as none."""
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
class AutocorrelationModels:
    """Models of how results of a series may depend on earlier ones, a row each; in the first they are independent.

    `prior`: the probability of each model. `unexplained`: factors of the autocorrelations of lags 0 to `_LAGS`; their
    sum is the share of the variance that the best prediction leaves. `mean`: variance of the mean of 1, 2, … results;
    `newest`: of as many newest results, which may all share one state; that of one result is 1. `witnesses`: how many
    results show the variance as well as one independent result does.
    """

    prior: Values
    unexplained: Values
    mean: Values
    newest: Values
    witnesses: Values


@cache
def autocorrelation_models() -> AutocorrelationModels:
    """Compute all models: independent results, correlations that fade, and states that last for some nights."""
    lag = np.arange(_MOST)
    rows = [np.zeros(_MOST), *(share * left**lag for share, left, _ in _FADING)]
    rows += [_SHARE * np.maximum(0.0, 1.0 - lag / nights) for nights, _ in _STATES]
    autocorrelations = np.array(rows)
    autocorrelations[:, 0] = 1.0
    unexplained = np.array([_unexplained_variances(row[: _LAGS + 1]) for row in autocorrelations])
    sums, weighted = autocorrelations.cumsum(axis=1), (lag * autocorrelations).cumsum(axis=1)
    count = lag + 1.0
    mean = (2.0 * (sums - weighted / count) - 1.0) / count
    newest = mean.copy()
    for row, (nights, _) in enumerate(_STATES, 1 + len(_FADING)):
        newest[row] = np.maximum(mean[row], _SHARE * np.minimum(1.0, nights / count) + (1.0 - _SHARE) / count)
    weights = np.array([each[-1] for each in (*_FADING, *_STATES)])
    prior = np.append(1.0 - _WITH, _WITH * weights / weights.sum())
    return AutocorrelationModels(prior, unexplained, mean, newest, 2.0 * (autocorrelations**2).sum(axis=1) - 1.0)


def _unexplained_variances(autocorrelations: Values) -> Values:
    """Compute a row of `AutocorrelationModels.unexplained` for a model's autocorrelations (Yule and Walker)."""
    lags = np.arange(_LAGS)
    weights = np.linalg.solve(autocorrelations[np.abs(lags[:, None] - lags)], autocorrelations[1:])
    errors = np.append(1.0, -weights)
    products = np.array([errors[: _LAGS + 1 - lag] @ errors[lag:] for lag in range(_LAGS + 1)])
    products[1:] *= 2.0
    return products


@dataclass(frozen=True)
class SeriesAutocorrelation:
    """The probability of each of the `autocorrelation_models` for a series, in their order."""

    weights: Values

    def variance_ratio(self, count: int) -> float:
        """The variance of the mean of `count` results ÷ that of the mean of as many independent results."""
        count = min(count, _MOST)
        return count * float(self.weights @ autocorrelation_models().mean[:, count - 1])


def estimate_autocorrelation(residuals: Values) -> SeriesAutocorrelation:
    """Estimate the autocorrelation of a series from the deviations of its results from their level."""
    count = len(residuals)
    values = clip_outliers(residuals)
    models = autocorrelation_models()
    autocorrelations = np.zeros(_LAGS + 1)
    autocorrelations[0] = 1.0
    for lag in range(1, min(_LAGS, count // 3) + 1):
        # the level is estimated from the same results, which takes 1 / count from each
        autocorrelations[lag] = values[lag:] @ values[:-lag] / max(float(values @ values), 1e-12) + 1.0 / count
    likelihood = np.log(models.prior) - count / 2.0 * np.log(np.maximum(models.unexplained @ autocorrelations, 1e-3))
    return SeriesAutocorrelation(_normalize_likelihoods(likelihood))


def shift_evidence(
    new_residuals: Values,
    older_count: int,
    noise: SeriesNoise,
    autocorrelation: SeriesAutocorrelation,
    older_residuals: Values,
) -> float:
    """The evidence that new results belong to another level than the `older_count` older results.

    In standard deviations of a normal distribution: 2 for a chance of 0.05 that such a series does this by itself, to
    either side. `new_residuals`: deviations of the new results from the old level; `older_residuals`: those of the
    older results, from which `noise` and `autocorrelation` were estimated.
    """
    models, after, count = autocorrelation_models(), len(new_residuals), min(len(older_residuals), _MOST)
    # outliers are independent: where results share a state, each counts in full
    distances = np.full(len(models.prior), float(np.clip(new_residuals, -_FULL * noise.cap, _FULL * noise.cap).mean()))
    new_residuals, older_residuals = (np.clip(each, -noise.cap, noise.cap) for each in (new_residuals, older_residuals))
    distances[0] = new_residuals.mean()
    factors, grown = _noise_growth_factors(new_residuals / noise.spread, older_residuals / noise.spread)
    # an unknown level hides a part of the variance
    hidden = np.maximum(1.0 - models.mean[:, count - 1], 0.2)
    error = noise.spread * np.sqrt((models.newest[:, after - 1] + models.mean[:, older_count - 1]) / hidden)
    free = np.maximum(count / models.witnesses - 1.0, 2.0)
    deviates = _normal_deviates_of_t(np.abs(distances) / np.outer(factors, error), free)
    chances = np.array([[math.erfc(value / math.sqrt(2.0)) for value in row] for row in deviates])
    chance = float(grown @ chances @ autocorrelation.weights)
    return -NormalDist().inv_cdf(min(max(chance / 2.0, 1e-300), 0.5))


def _noise_growth_factors(new_residuals: Values, older_residuals: Values) -> tuple[Values, Values]:
    """Return the factors by which the noise may have grown, and their probabilities.

    The deviations of the results from their level are given as multiples of the standard deviation.
    """
    within = float(((new_residuals - new_residuals.mean()) ** 2).sum())
    squares_since = {
        since: float(older_residuals[len(older_residuals) - since :] @ older_residuals[len(older_residuals) - since :])
        for since in _SINCE
        if 2 * len(older_residuals) >= 3 * since
    }
    certain = 1.0 - len(_GROWN) * sum(_SINCE.values())
    likelihood, factors = [math.log(certain)], [1.0]
    for factor in _GROWN:
        for since, squares in squares_since.items():
            explained = (within + squares) * (1.0 - factor**-2.0) / 2.0
            likelihood.append(math.log(_SINCE[since]) + explained - (len(new_residuals) - 1 + since) * math.log(factor))
            factors.append(factor)
    return np.array(factors), _normalize_likelihoods(np.array(likelihood))


def _normalize_likelihoods(log_likelihoods: Values) -> Values:
    """Turn logarithms of likelihoods into probabilities with the sum 1."""
    shares = np.exp(log_likelihoods - log_likelihoods.max())
    return np.asarray(shares / shares.sum())


def _normal_deviates_of_t(t: Values, degrees_of_freedom: Values | Sequence[float]) -> Values:
    """Normal deviates that are as unlikely as these values of Student's t (Wallace 1959)."""
    degrees_of_freedom = np.asarray(degrees_of_freedom)
    return np.asarray(
        (8.0 * degrees_of_freedom + 1.0)
        / (8.0 * degrees_of_freedom + 3.0)
        * np.sqrt(degrees_of_freedom * np.log1p(t * t / degrees_of_freedom))
    )


FIRST = 12
"""How many results a series needs before a shift can be found."""

AFTER = 3
"""How many results a new level needs: fewer are outliers."""

_LONGEST, _REMEMBERED, _MEMORY = 40, 200, 400
"""The most results after a shift and before it that are compared, and the most that show the noise's memory."""

EVIDENCE = 4.03
"""The evidence, in standard deviations of a normal distribution, from which on a shift is reported."""

_EARLY, _SOON, _LATE, _SLOW = 0.3, 5, 0.8, 2.0
"""What is added to `EVIDENCE`: `_EARLY` for each result fewer than `_SOON`, which outliers imitate; up to `_LATE` for
more results, reached with `_SLOW` more, because a shift that can wait has to be surer."""

RETURN = 3.3
"""The evidence for a return to a level that is known already."""

_ALIKE = 3.0
"""Standard deviations from a known level up to which a level is that one again."""

_KNOWN = 8
"""How many earlier levels, the newest ones, a series can return to."""

_LENGTHS = ((AFTER, _SOON), (6, 12), (13, _LONGEST))
"""Ranges of the number of newest results; in each the likeliest shift is judged."""

_NEAR = 3
_OFTEN = 48
_SCREEN = 0.9
_CALIBRATED = 400
"""Results up to which `EVIDENCE` was calibrated; beyond, every doubling adds at most as many false alarms."""


@dataclass(frozen=True)
class DetectedShift:
    """A shift to another level with the result number `at`; it was found when the result number `newest` arrived.

    `before`, `after`: the two levels as they were known then, in the unit of the values. `level`: the number of the
    level that begins, from 0; if the results are back at an earlier level, its number. `evidence`: see `EVIDENCE`.
    """

    at: int
    newest: int
    before: float
    after: float
    evidence: float
    level: int

    @property
    def relative_change(self) -> float:
        """The relative change of the level: -0.05 for 5 % less."""
        return self.after / self.before - 1.0


def find_shifts(
    values: Iterable[float], thresholds: Iterable[float] = repeat(0.02), evidence: float = EVIDENCE
) -> list[DetectedShift]:
    """Find the shifts in a series of `values` above 0, taken one after the other; no later value changes a shift.

    `thresholds`: the least change that matters, for each value. `evidence`: how much evidence a shift needs.
    """
    followed = _ShiftDetector(evidence)
    shifts = (
        followed.add_result(math.log(value), math.log1p(threshold))
        for value, threshold in zip(values, thresholds, strict=False)
    )
    return [shift for shift in shifts if shift is not None]


@dataclass
class _LevelResults:
    """The newest results of the level `number`, as logarithms; `clipped`: the same without outliers."""

    number: int
    values: Values = field(default_factory=lambda: np.empty(0))
    clipped: Values = field(default_factory=lambda: np.empty(0))

    def add_results(self, values: Values, noise: SeriesNoise) -> None:
        """Add the logarithms of newer results to this level.

        In `clipped` they are moved towards the level's median, to no further away than the noise allows.
        """
        middle = float(np.median(self.values if len(self.values) >= AFTER else values))
        keep = _LONGEST + _MEMORY
        self.values = np.append(self.values, values)[-keep:]
        self.clipped = np.append(self.clipped, np.clip(values, middle - noise.cap, middle + noise.cap))[-keep:]

    def remove_newest_results(self, count: int) -> tuple[Values, Values]:
        """Remove the last `count` results; returns the results that stay, and the removed ones."""
        ends = len(self.values) - count
        kept, self.values, self.clipped = self.values[ends:], self.values[:ends], self.clipped[:ends]
        return self.values, kept


@dataclass(frozen=True)
class _PossibleShift:
    """A possible shift by `change` (logarithm) that began with the last `after` results.

    `back`: the earlier level to which the results return, None for a new level.
    """

    after: int
    change: float
    evidence: float
    back: _LevelResults | None


@dataclass
class _ShiftDetector:
    """Finds shifts in a series whose results are added one after the other.

    `levels`: the levels so far, the present one last; `other_residuals`: deviations of the other levels' results.
    `evidence`: how much evidence a shift needs.
    """

    evidence: float
    count: int = 0
    since: int = 0
    levels: list[_LevelResults] = field(default_factory=lambda: [_LevelResults(0)])
    other_residuals: Values = field(default_factory=lambda: np.empty(0))
    noise: SeriesNoise | None = None

    def add_result(self, value: float, threshold: float) -> DetectedShift | None:
        """Add a result (logarithm); returns the shift that becomes certain with this result, None without one."""
        level, self.count = self.levels[-1], self.count + 1
        new = np.array([value])
        if self.noise is None:
            level.values = np.append(level.values, new)
            if len(level.values) < FIRST:
                return None
            every, level.values = level.values, np.empty(0)
            self.noise = estimate_noise(every - np.median(every))
            level.add_results(every, self.noise)
            return None
        level.add_results(new, self.noise)
        shift = self._find_shift(threshold)
        if self.count < _OFTEN or self.count % 4 == 0 or shift is not None:
            level = self.levels[-1]
            self.noise = estimate_noise(self._newest_residuals(level.values, level.clipped)[-_REMEMBERED:])
        return shift

    def _newest_residuals(self, values: Values, clipped_values: Values) -> Values:
        """The newest deviations from their level: of `values`, and where they are few, of other levels' results."""
        return np.append(self.other_residuals, values - clipped_values[-_REMEMBERED:].mean())[-_MEMORY:]

    def _find_shift(self, threshold: float) -> DetectedShift | None:
        """The shift with the most evidence among those that end with the newest result; None without one."""
        level, noise = self.levels[-1], self.noise
        assert noise is not None
        most = min(_LONGEST, self.count - self.since - AFTER, len(level.values) + len(self.other_residuals) - FIRST)
        if most < AFTER:
            return None
        after = np.arange(AFTER, most + 1)
        before = np.minimum(len(level.values) - after, _REMEMBERED)
        sums = np.append(0.0, np.cumsum(level.clipped - level.clipped[0]))
        ends = len(level.values) - after
        difference = (sums[-1] - sums[ends]) / after - (sums[ends] - sums[ends - before]) / before
        apart = np.abs(difference) / np.sqrt(1.0 / after + 1.0 / before)
        needed = math.sqrt(self.evidence**2 + 2.0 * max(0.0, math.log(self.count / _CALIBRATED)))
        least = (needed if len(self.levels) == 1 else RETURN) * noise.robust * _SCREEN
        candidates = []
        for first, last in _LENGTHS:
            part = apart[first - AFTER : last - AFTER + 1]
            if len(part) and part.max() >= least:
                candidates.append(self._judge_shift(first + int(np.argmax(part)), needed, threshold))
        best = max(filter(None, candidates), key=lambda each: each.evidence, default=None)
        return self._begin_level_after_shift(best) if best is not None else None

    def _judge_shift(self, newest_count: int, needed_evidence: float, threshold: float) -> _PossibleShift | None:
        """The shift that begins with the last `newest_count` results; None if its evidence is too weak."""
        level = self.levels[-1]
        ends = len(level.values) - newest_count
        old, new = level.values[max(0, ends - _REMEMBERED) : ends], level.values[ends:]
        change = float(np.median(new) - np.median(old))
        beyond = np.count_nonzero((new - np.median(old)) * math.copysign(1.0, change) > abs(change) / 2.0)
        if abs(change) < threshold or beyond < newest_count - newest_count // 4:
            return None
        clipped = level.clipped[max(0, ends - _REMEMBERED) : ends]
        residuals = self._newest_residuals(level.values[:ends], clipped)
        autocorrelation, residuals = estimate_autocorrelation(residuals), residuals[-_REMEMBERED:]
        noise = estimate_noise(residuals)
        back = self._find_earlier_level(new, change, noise, autocorrelation)
        expected = clipped.mean()
        slope = estimate_drift(clipped, noise.spread, autocorrelation.variance_ratio(len(clipped)))
        expected += slope * (len(clipped) + newest_count) / 2.0
        evident = shift_evidence(new - expected, len(old), noise, autocorrelation, residuals)
        extra = max(_EARLY * (_SOON - newest_count), _LATE * min(1.0, (newest_count - _SOON) / _SLOW))
        least = RETURN if back is not None else needed_evidence + extra
        return (
            _PossibleShift(self._likeliest_shift_length(newest_count, change), change, evident, back)
            if evident >= least
            else None
        )

    def _likeliest_shift_length(self, newest_count: int, change: float) -> int:
        """The likeliest number of results since a shift by `change`, near `newest_count`."""
        values = self.levels[-1].values[-(newest_count + _NEAR + _REMEMBERED) :]
        counts = np.arange(max(AFTER, newest_count - _NEAR), min(newest_count + _NEAR, len(values) - 1) + 1)
        middle = float(np.median(values[:-newest_count])) + change / 2.0
        # how much better the new level explains each result; what lies beyond either level says no more than it
        better = np.clip((values - middle) / change, -0.5, 0.5)
        return int(counts[np.argmax(np.cumsum(better[::-1])[counts - 1])])

    def _find_earlier_level(
        self, new_values: Values, change: float, noise: SeriesNoise, autocorrelation: SeriesAutocorrelation
    ) -> _LevelResults | None:
        """The newest earlier level to which `new_values` return after a shift by `change`; None without one."""
        middle = float(np.median(new_values))
        for level in reversed(self.levels[-1 - _KNOWN : -1]):
            values = level.values[-_REMEMBERED:]
            ratios = [autocorrelation.variance_ratio(count) / count for count in (len(new_values), len(values))]
            error = noise.spread * math.sqrt(sum(ratios))
            if abs(middle - float(np.median(values))) < min(_ALIKE * error, abs(change) / 2.0):
                return level
        return None

    def _begin_level_after_shift(self, shift: _PossibleShift) -> DetectedShift:
        """Begin a level with the results after a shift, or continue the earlier level; returns the found shift."""
        back = shift.back
        assert self.noise is not None
        old, new = self.levels[-1].remove_newest_results(shift.after)
        before = float(np.median(old[-_REMEMBERED:]))
        if back is None:
            back = _LevelResults(max(each.number for each in self.levels) + 1)
        else:
            self.levels.remove(back)
        residuals = [each.values - each.clipped[-_REMEMBERED:].mean() for each in self.levels]
        self.other_residuals = np.concatenate(residuals)[-_MEMORY:]
        back.add_results(new, self.noise)
        self.levels = [*self.levels, back]
        self.since = self.count - shift.after
        levels = math.exp(before), math.exp(before + shift.change)
        return DetectedShift(self.since, self.count - 1, *levels, shift.evidence, back.number)


DRIFTS = "drifts"
NOISE = "noise-changed"
_LEAST_DRIFT = 30
_LEAST_NOISE = 15
_NEWEST = 400
"""How many results, the newest ones, are searched for drift and changed noise."""

_AROUND = 25
"""Results before and after a gradual change that are looked at, and how many results it may begin early or end late."""

_SHORTEST = 4
"""Results of a gradual change: fewer are a shift."""


@dataclass(frozen=True)
class DriftOrNoiseChange:
    """A change of a series that is no shift: a drift or another noise, by `change` since the result `since`.

    `kind`: `DRIFTS` or `NOISE`; `change`: relative, -0.5 for half.
    """

    kind: str
    since: int
    change: float


def find_drift_or_noise_change(
    values: Sequence[float], levels: Sequence[float], level_begin: int, threshold: float
) -> list[DriftOrNoiseChange]:
    """Find a drift or a change of the noise, at most one.

    `levels`: the level of each value; `level_begin`: the number of the first result of the present level.
    """
    logs = np.log(np.array(values))
    finding = _find_drift(logs, level_begin, threshold) or _find_noise_change(logs - np.log(np.array(levels)))
    return [] if finding is None else [finding]


def _find_drift(log_values: Values, level_begin: int, threshold: float) -> DriftOrNoiseChange | None:
    """Find a drift of the present level that is certain, and larger in all than `threshold`; None without one."""
    first = max(level_begin, len(log_values) - _NEWEST)
    count = len(log_values) - first
    if count < _LEAST_DRIFT:
        return None
    residuals = log_values[first:] - np.median(log_values[first:])
    noise = estimate_noise(residuals)
    clipped = np.clip(residuals, -noise.cap, noise.cap)
    line = estimate_drift(clipped, noise.spread) * (np.arange(count) - (count - 1) / 2.0)
    ratio = estimate_autocorrelation(clipped - line).variance_ratio(count)
    slope = estimate_drift(clipped, noise.spread, ratio, least_t_value=EVIDENCE)
    change = slope * (count - 1)
    return DriftOrNoiseChange(DRIFTS, first, math.expm1(change)) if abs(change) >= math.log1p(threshold) else None


def _find_noise_change(residuals: Values) -> DriftOrNoiseChange | None:
    """Find a lasting change in the size of deviations from the level; None without one."""
    first = max(0, len(residuals) - _NEWEST)
    sizes = np.abs(residuals[first:])
    count = len(sizes)
    if count < 2 * _LEAST_NOISE or not sizes.any():
        return None
    logs = np.log(np.maximum(sizes, np.median(sizes) / 20.0 + 1e-9))
    before = np.arange(_LEAST_NOISE, count - _LEAST_NOISE + 1)
    sums = np.cumsum(logs)
    difference = (sums[-1] - sums[before - 1]) / (count - before) - sums[before - 1] / before
    distances = np.abs(difference) / np.sqrt(1.0 / before + 1.0 / (count - before))
    best = int(np.argmax(distances))
    own = logs - np.where(np.arange(count) < before[best], logs[: before[best]].mean(), logs[before[best] :].mean())
    error = float(own.std()) * math.sqrt(estimate_autocorrelation(own).variance_ratio(count))
    if distances[best] < EVIDENCE * error:
        return None
    return DriftOrNoiseChange(NOISE, first + int(before[best]), math.expm1(float(difference[best])))


def find_gradual_changes(values: Sequence[float], shifts: Sequence[DetectedShift]) -> dict[int, tuple[int, int]]:
    """Find gradual changes (ramps); returns the first and last result of a ramp by the number of each shift in it.

    Neighbouring shifts in the same direction are one ramp, if a straight line between two levels explains the results
    better than the shifts do (Bayesian information criterion).
    """
    logs = np.log(np.array(values))
    ramps: dict[int, tuple[int, int]] = {}
    for first, last in _group_shifts_by_direction(shifts):
        low = max(shifts[first - 1].at if first else 0, shifts[first].at - 2 * _AROUND)
        high = min(shifts[last + 1].at if last + 1 < len(shifts) else len(logs), shifts[last].at + 2 * _AROUND)
        ramp = _fit_ramp(logs[low:high], [shift.at - low for shift in shifts[first : last + 1]])
        if ramp is not None:
            ramps |= dict.fromkeys(range(first, last + 1), (ramp[0] + low, ramp[1] + low))
    return ramps


def _group_shifts_by_direction(shifts: Sequence[DetectedShift]) -> list[tuple[int, int]]:
    """Group neighbouring shifts in one direction that are near each other; returns first and last number of each."""
    groups: list[tuple[int, int]] = []
    for number, shift in enumerate(shifts):
        before = shifts[number - 1] if number else None
        if before and before.relative_change * shift.relative_change > 0 and shift.at - before.at <= _AROUND:
            groups[-1] = groups[-1][0], number
        else:
            groups.append((number, number))
    return groups


def _fit_ramp(values: Values, step_indexes: Sequence[int]) -> tuple[int, int] | None:
    """Find the ramp that explains `values` better than shifts at `step_indexes` do; returns first and last index."""
    count = len(values)
    middle = np.median(values)
    noise = estimate_noise(np.diff(values))
    values = np.clip(values, middle - 20.0 * noise.spread, middle + 20.0 * noise.spread)
    parts = np.split(values, step_indexes)
    by_steps = sum(float(((part - part.mean()) ** 2).sum()) for part in parts)
    begins = np.arange(max(1, step_indexes[0] - _AROUND), step_indexes[0] + 1)
    ends = np.arange(step_indexes[0] + 1, min(count - 1, step_indexes[-1] + _AROUND) + 1)
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
    penalty = math.log(count) * (4 - (2 * len(step_indexes) + 1))
    if count * math.log(max(float(left[best]), 1e-12)) + penalty >= count * math.log(max(by_steps, 1e-12)):
        return None
    return int(begin[best]), int(end[best])

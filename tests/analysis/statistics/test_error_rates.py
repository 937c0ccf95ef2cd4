"""How often the statistics are wrong, on made-up launches of which the truth is known. Seeds are fixed.

A rate that is to be at most r may show r + 3 standard errors in N trials: √(r (1 - r) ÷ N) each. All trials of a test
are calculated together, as arrays; the first of them are compared with what the package's own functions give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from merge_bench.analysis.statistics import (
    EffectEstimate,
    critical_rank,
    paired_effect,
    rank_sum_distribution,
    signed_rank_distribution,
    unpaired_effect,
)
from merge_bench.analysis.statistics.verdict import Verdict, judge_effects, launches_needed

Array = NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, int]], Array]

DIFFERENT = (Verdict.FASTER, Verdict.SLOWER)
CHECKED = 50
"""So many trials of every kind are calculated by the package as well."""


def at_most(rate: float, trials: int) -> float:
    return rate + 3 * math.sqrt(rate * (1 - rate) / trials)


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Times are normal."""
    return np.log(np.maximum(1.0 + 0.03 * rng.standard_normal(shape), 0.5))


def lognormal(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return 0.03 * rng.standard_normal(shape)


def heavy(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Student's t with 2 degrees of freedom, which has no variance."""
    return 0.02 * rng.standard_t(2, shape)


def disturbed(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Never faster than the machine, and in one launch of ten somebody else takes a half of it."""
    return -rng.exponential(0.02, shape) - 0.7 * (rng.random(shape) < 0.1)


def coarse(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """A clock of few steps: many ties."""
    return np.round(0.015 * rng.standard_normal(shape), 2)


NOISES = (normal, lognormal, heavy, disturbed, coarse)


def drift(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """What happens to both launches of a block: a trend of a fifth, and a random walk."""
    trend = np.linspace(0.0, -0.2, shape[1])
    return trend + np.cumsum(0.05 * rng.standard_normal(shape), axis=1)


@dataclass(frozen=True)
class Trials:
    """Comparisons calculated together: a row of ascending averages for each, and the distribution that all share.

    `effect`: what the package makes of the comparison in a row.
    """

    averages: Array
    tail: tuple[float, ...]
    effect: Callable[[int], EffectEstimate]

    def __len__(self) -> int:
        return len(self.averages)

    @property
    def p(self) -> Array:
        """The p value of each."""
        sides = [(self.averages <= 0.0).sum(axis=1), (self.averages >= 0.0).sum(axis=1)]
        found = np.minimum(1.0, 2.0 * np.array(self.tail)[np.minimum(*sides)])
        assert all(self.effect(row).p_value == found[row] for row in range(CHECKED))
        return found

    @property
    def intervals(self) -> tuple[Array, Array]:
        """The lower and the upper end of each 95 % interval; infinite where there are too few launches for one."""
        k = critical_rank(self.tail, 0.05)
        nothing = np.full(len(self), np.inf)
        low, high = (self.averages[:, k - 1], self.averages[:, -k]) if k else (-nothing, nothing)
        for row in range(CHECKED):
            assert (self.effect(row).interval(0.05) or (-np.inf, np.inf)) == (low[row], high[row])
        return low, high

    def verdicts(self, threshold: float = 0.02) -> NDArray[np.object_]:
        """The verdict on each, one candidate alone."""
        low, high = self.intervals
        within = math.log1p(threshold)
        alike = (-within <= low) & (high <= within)
        clear = ~alike & (np.abs(np.median(self.averages, axis=1)) >= within)
        found = np.full(len(self), Verdict.INCONCLUSIVE, dtype=object)
        found[alike] = Verdict.EQUIVALENT
        found[clear & (low > 0.0)] = Verdict.FASTER
        found[clear & (high < 0.0)] = Verdict.SLOWER
        for row in range(CHECKED):
            assert judge_effects([self.effect(row)], threshold=threshold)[0].verdict is found[row]
        return found

    def share(self, *verdicts: Verdict, threshold: float = 0.02) -> float:
        """How many of them have one of `verdicts`."""
        return float(np.isin(self.verdicts(threshold), verdicts).mean())

    def coverage(self, truth: float) -> float:
        """How many of the intervals hold the true log-ratio."""
        low, high = self.intervals
        return float(((low <= truth + 1e-12) & (truth - 1e-12 <= high)).mean())


def pairs(log_ratios: Array) -> Trials:
    """A comparison for each row of log-ratios by block."""
    n = log_ratios.shape[1]
    first, second = np.triu_indices(n)
    averages = np.sort((log_ratios[:, first] + log_ratios[:, second]) / 2, axis=1)
    return Trials(averages, signed_rank_distribution(n), lambda row: paired_effect(log_ratios[row].tolist()))


def samples(old: Array, new: Array) -> Trials:
    """A comparison for each row of `old` and `new`: logarithms of launches that were not interleaved."""
    averages = np.sort((new[:, None, :] - old[:, :, None]).reshape(len(old), -1), axis=1)
    tail = rank_sum_distribution(old.shape[1], new.shape[1])
    return Trials(averages, tail, lambda row: unpaired_effect(old[row].tolist(), new[row].tolist()))


def trials(noise: Noise, count: int, n: int, effect: float, seed: int, *, drifting: bool = False) -> Trials:
    """`count` comparisons of n blocks; the candidate is better by the log-ratio `effect`."""
    rng = np.random.default_rng(seed)
    shape = (count, n)
    both = drift(rng, shape) if drifting else np.zeros(shape)
    old, new = both + noise(rng, shape), both + noise(rng, shape) + effect
    return pairs(new - old)


def apart(noise: Noise, count: int, m: int, n: int, effect: float, seed: int) -> Trials:
    """`count` comparisons of m and n launches that were not interleaved."""
    rng = np.random.default_rng(seed)
    return samples(noise(rng, (count, m)), noise(rng, (count, n)) + effect)


@pytest.mark.parametrize(("noise", "threshold"), [*((noise, 0.0) for noise in NOISES), (lognormal, 0.02)])
def test_of_10000_comparisons_of_a_config_with_itself_at_most_5_percent_find_a_difference(
    noise: Noise, threshold: float
) -> None:
    found = trials(noise, 10_000, 10, 0.0, seed=1, drifting=True)
    assert len(found) == 10_000
    assert found.share(*DIFFERENT, threshold=threshold) <= at_most(0.05, 10_000)


def test_also_where_the_launches_were_not_interleaved() -> None:
    found = apart(lognormal, 10_000, 8, 9, 0.0, seed=2)
    assert 0.02 <= found.share(*DIFFERENT, threshold=0.0) <= at_most(0.05, 10_000)


@pytest.mark.parametrize(("n", "drifting"), [(6, True), (10, False), (20, True)])
@pytest.mark.parametrize("noise", NOISES)
def test_intervals_hold_the_truth(noise: Noise, n: int, drifting: bool) -> None:
    truth = math.log(1.05)
    assert trials(noise, 2000, n, truth, seed=3, drifting=drifting).coverage(truth) >= 0.94


@pytest.mark.parametrize(("m", "n"), [(4, 4), (6, 10), (12, 12)])
@pytest.mark.parametrize("noise", NOISES)
def test_intervals_of_launches_that_were_not_interleaved_hold_the_truth(noise: Noise, m: int, n: int) -> None:
    truth = math.log(1.05)
    assert apart(noise, 2000, m, n, truth, seed=4).coverage(truth) >= 0.94


def test_drift_hides_a_difference_from_launches_that_are_not_paired() -> None:
    """Why launches are interleaved: the blocks of this drift are told apart, two columns of it are not."""
    rng = np.random.default_rng(5)
    both = drift(rng, (300, 12))
    old, new = both + lognormal(rng, (300, 12)), both + lognormal(rng, (300, 12)) + 0.05
    assert pairs(new - old).share(Verdict.FASTER) > 0.85
    assert samples(old, new).share(Verdict.FASTER) < 0.3


def needed(effect: float, spread: float, *, paired: bool = True) -> int:
    found = launches_needed(
        effect=math.log1p(effect), spread=math.sqrt(2) * spread, threshold=math.log1p(0.02), paired=paired
    )
    assert found is not None
    return found


def test_5_percent_at_3_percent_noise_are_found_in_11_blocks() -> None:
    n = needed(0.05, 0.03)
    assert n == 11
    found = trials(lognormal, 10_000, n, math.log(1.05), seed=6)
    assert found.share(Verdict.FASTER) >= 0.9 - 3 * math.sqrt(0.9 * 0.1 / 10_000)
    assert found.share(Verdict.SLOWER) == 0


@pytest.mark.parametrize(
    ("effect", "spread", "right"),
    [
        (0.05, 0.03, Verdict.FASTER),
        (0.03, 0.01, Verdict.FASTER),
        (-0.06, 0.04, Verdict.SLOWER),
        (0.10, 0.03, Verdict.FASTER),
        (0.0, 0.01, Verdict.EQUIVALENT),
        (0.01, 0.01, Verdict.EQUIVALENT),
        (0.0, 0.02, Verdict.EQUIVALENT),
    ],
)
@pytest.mark.parametrize("interleaved", [True, False])
def test_the_launches_said_to_be_needed_suffice_and_two_thirds_of_them_do_not(
    effect: float, spread: float, right: Verdict, interleaved: bool
) -> None:
    n = needed(effect, spread, paired=interleaved)

    def power(launches: int) -> float:
        def noise(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
            return spread * rng.standard_normal(shape)

        truth = math.log1p(effect)
        made = (
            trials(noise, 1500, launches, truth, seed=7)
            if interleaved
            else apart(noise, 1500, launches, launches, truth, seed=7)
        )
        return made.share(right)

    assert power(n) >= 0.87
    assert power(2 * n // 3) < 0.9


def families(noise: Noise, count: int, n: int, effects: list[float], seed: int) -> list[list[EffectEstimate]]:
    """Several candidates against one baseline in the same blocks."""
    rng = np.random.default_rng(seed)
    old = noise(rng, (count, n))
    columns = [(noise(rng, (count, n)) + effect - old).tolist() for effect in effects]
    return [[paired_effect(column[i]) for column in columns] for i in range(count)]


@pytest.mark.parametrize("true", [[0.0] * 5, [0.15, 0.15, 0.0, 0.0, 0.0], [0.15, -0.15, 0.15, -0.15, 0.0]])
def test_among_several_candidates_a_false_difference_is_as_rare(true: list[float]) -> None:
    false = 0
    for family in families(lognormal, 1500, 10, true, seed=8):
        found = judge_effects(family, threshold=0.0)
        false += any(each.verdict in DIFFERENT for each, effect in zip(found, true, strict=True) if effect == 0.0)
    assert false / 1500 <= at_most(0.05, 1500)


def test_among_several_candidates_a_false_equivalence_is_as_rare() -> None:
    """All are better by the threshold and a hair: surely better than 1, and any may seem to be below t."""
    rng = np.random.default_rng(9)
    columns = (math.log(1.0201) + 0.002 * rng.standard_normal((1500, 10, 10))).tolist()
    false = 0
    for rows in columns:
        found = judge_effects([paired_effect(row) for row in rows], threshold=0.02)
        assert max(each.p_holm for each in found) <= 0.05
        false += any(each.verdict is Verdict.EQUIVALENT for each in found)
    assert false / 1500 <= at_most(0.05, 1500)


def test_stopping_on_precision_costs_little_and_stopping_on_p_a_lot() -> None:
    """Looked at after every launch; whoever stops on p does so at the first that is significant."""
    rows = 0.03 * np.random.default_rng(10).standard_normal((600, 30))
    looks = [pairs(rows[:, :n]) for n in range(6, 31)]
    fished = np.any([look.p <= 0.05 for look in looks], axis=0).sum()
    intervals = [np.transpose(look.intervals) for look in looks]
    differ = {threshold: [np.isin(look.verdicts(threshold), DIFFERENT) for look in looks] for threshold in (0.0, 0.02)}
    precise, strict, practical = 0, 0, 0
    for row in range(600):
        for place in range(25):
            low, high = intervals[place][row]
            if narrow := math.expm1((high - low) / 2.0) <= 0.012:
                break
        precise += narrow
        strict += differ[0.0][place][row]
        practical += differ[0.02][place][row]
    assert 0.5 < precise / 600 < 1.0
    assert strict / 600 <= 0.09  # intervals that happen to be narrow stop it: a little more than 5 %
    assert practical / 600 <= 0.02  # an interval narrower than the threshold does not take noise for a difference
    assert fished / 600 > 0.15


def test_a_candidate_that_alone_is_disturbed_moves_the_interval() -> None:
    """What `docs/compare.md` says the interval assumes: here one launch of ten, of the candidate only, takes twice."""
    rng = np.random.default_rng(11)
    shape = (2000, 20)
    old = 0.01 * rng.standard_normal(shape)
    new = 0.05 + 0.01 * rng.standard_normal(shape) - 0.7 * (rng.random(shape) < 0.1)
    assert 0.85 <= pairs(new - old).coverage(0.05) < 0.94

"""How often the statistics are wrong, on made-up launches of which the truth is known. Seeds are fixed.

A rate that is to be at most r may show r + 3 standard errors in N trials: √(r (1 - r) ÷ N) each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from merge_bench.analysis.statistics.effect import Effect, paired, unpaired
from merge_bench.analysis.statistics.power import Stop, half_width, launches_needed, stop
from merge_bench.analysis.statistics.verdict import Verdict, judge

Array = NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, int]], Array]

DIFFERENT = (Verdict.FASTER, Verdict.SLOWER)


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


def trials(noise: Noise, count: int, n: int, effect: float, seed: int, *, drifting: bool = False) -> list[Effect]:
    """`count` comparisons of n blocks; the candidate is better by the log-ratio `effect`."""
    rng = np.random.default_rng(seed)
    shape = (count, n)
    both = drift(rng, shape) if drifting else np.zeros(shape)
    old, new = both + noise(rng, shape), both + noise(rng, shape) + effect
    return [paired(row) for row in (new - old).tolist()]


def apart(noise: Noise, count: int, m: int, n: int, effect: float, seed: int) -> list[Effect]:
    """`count` comparisons of m and n launches that were not interleaved."""
    rng = np.random.default_rng(seed)
    old, new = noise(rng, (count, m)).tolist(), (noise(rng, (count, n)) + effect).tolist()
    return [unpaired(a, b) for a, b in zip(old, new, strict=True)]


def verdicts(effects: list[Effect], threshold: float = 0.02) -> Counter[Verdict]:
    return Counter(judge([effect], threshold=threshold)[0].verdict for effect in effects)


def coverage(effects: list[Effect], truth: float) -> float:
    held = 0
    for effect in effects:
        interval = effect.interval(0.05)
        held += interval is not None and interval[0] <= truth + 1e-12 and truth - 1e-12 <= interval[1]
    return held / len(effects)


@pytest.mark.parametrize(("noise", "threshold"), [*((noise, 0.0) for noise in NOISES), (lognormal, 0.02)])
def test_of_10000_comparisons_of_a_config_with_itself_at_most_5_percent_find_a_difference(
    noise: Noise, threshold: float
) -> None:
    found = verdicts(trials(noise, 10_000, 10, 0.0, seed=1, drifting=True), threshold)
    false = found[Verdict.FASTER] + found[Verdict.SLOWER]
    assert false / 10_000 <= at_most(0.05, 10_000)
    assert found.total() == 10_000


def test_also_where_the_launches_were_not_interleaved() -> None:
    found = verdicts(apart(lognormal, 10_000, 8, 9, 0.0, seed=2), threshold=0.0)
    assert 0.02 <= (found[Verdict.FASTER] + found[Verdict.SLOWER]) / 10_000 <= at_most(0.05, 10_000)


@pytest.mark.parametrize(("n", "drifting"), [(6, True), (10, False), (20, True)])
@pytest.mark.parametrize("noise", NOISES)
def test_intervals_hold_the_truth(noise: Noise, n: int, drifting: bool) -> None:
    truth = math.log(1.05)
    assert coverage(trials(noise, 2000, n, truth, seed=3, drifting=drifting), truth) >= 0.94


@pytest.mark.parametrize(("m", "n"), [(4, 4), (6, 10), (12, 12)])
@pytest.mark.parametrize("noise", NOISES)
def test_intervals_of_launches_that_were_not_interleaved_hold_the_truth(noise: Noise, m: int, n: int) -> None:
    truth = math.log(1.05)
    assert coverage(apart(noise, 2000, m, n, truth, seed=4), truth) >= 0.94


def test_drift_hides_a_difference_from_launches_that_are_not_paired() -> None:
    """Why launches are interleaved: the blocks of this drift are told apart, two columns of it are not."""
    effects = trials(lognormal, 300, 12, 0.05, seed=5, drifting=True)
    rng = np.random.default_rng(5)
    both = drift(rng, (300, 12))
    old, new = both + lognormal(rng, (300, 12)), both + lognormal(rng, (300, 12)) + 0.05
    loose = [unpaired(a, b) for a, b in zip(old.tolist(), new.tolist(), strict=True)]
    assert verdicts(effects)[Verdict.FASTER] > 0.85 * 300
    assert verdicts(loose)[Verdict.FASTER] < 0.3 * 300


def needed(effect: float, spread: float, *, comparisons: int = 1, pairs: bool = True) -> int:
    found = launches_needed(
        effect=math.log1p(effect), spread=math.sqrt(2) * spread, threshold=math.log1p(0.02), comparisons=comparisons,
        paired=pairs,
    )  # fmt: skip
    assert found is not None
    return found


def test_5_percent_at_3_percent_noise_are_found_in_11_blocks() -> None:
    n = needed(0.05, 0.03)
    assert n == 11
    found = verdicts(trials(lognormal, 10_000, n, math.log(1.05), seed=6))
    assert found[Verdict.FASTER] / 10_000 >= 0.9 - 3 * math.sqrt(0.9 * 0.1 / 10_000)
    assert found[Verdict.SLOWER] == 0


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
@pytest.mark.parametrize("pairs", [True, False])
def test_the_launches_said_to_be_needed_suffice_and_two_thirds_of_them_do_not(
    effect: float, spread: float, right: Verdict, pairs: bool
) -> None:
    n = needed(effect, spread, pairs=pairs)

    def power(launches: int) -> float:
        def noise(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
            return spread * rng.standard_normal(shape)

        truth = math.log1p(effect)
        made = (
            trials(noise, 1500, launches, truth, seed=7)
            if pairs
            else apart(noise, 1500, launches, launches, truth, seed=7)
        )
        return verdicts(made)[right] / 1500

    assert power(n) >= 0.87
    assert power(2 * n // 3) < 0.9


def families(noise: Noise, count: int, n: int, effects: list[float], seed: int) -> list[list[Effect]]:
    """Several candidates against one baseline in the same blocks."""
    rng = np.random.default_rng(seed)
    old = noise(rng, (count, n))
    columns = [(noise(rng, (count, n)) + effect - old).tolist() for effect in effects]
    return [[paired(column[i]) for column in columns] for i in range(count)]


@pytest.mark.parametrize("true", [[0.0] * 5, [0.15, 0.15, 0.0, 0.0, 0.0], [0.15, -0.15, 0.15, -0.15, 0.0]])
def test_among_several_candidates_a_false_difference_is_as_rare(true: list[float]) -> None:
    false = 0
    for family in families(lognormal, 1500, 10, true, seed=8):
        found = judge(family, threshold=0.0)
        false += any(each.verdict in DIFFERENT for each, effect in zip(found, true, strict=True) if effect == 0.0)
    assert false / 1500 <= at_most(0.05, 1500)


def test_among_several_candidates_a_false_equivalence_is_as_rare() -> None:
    """All are better by the threshold and a hair: surely better than 1, and any may seem to be below t."""
    rng = np.random.default_rng(9)
    columns = (math.log(1.0201) + 0.002 * rng.standard_normal((1500, 10, 10))).tolist()
    false = 0
    for rows in columns:
        found = judge([paired(row) for row in rows], threshold=0.02)
        assert max(each.p_holm for each in found) <= 0.05
        false += any(each.verdict is Verdict.EQUIVALENT for each in found)
    assert false / 1500 <= at_most(0.05, 1500)


def test_stopping_on_precision_costs_little_and_stopping_on_p_a_lot() -> None:
    """Looked at after every launch; whoever stops on p does so at the first that is significant."""
    rng = np.random.default_rng(10)
    precise, fished, strict, practical = 0, 0, 0, 0
    for row in (0.03 * rng.standard_normal((600, 30))).tolist():
        effects = [paired(row[:n]) for n in range(6, 31)]
        fished += any(effect.p <= 0.05 for effect in effects)
        for effect in effects:
            rule = stop([half_width(effect.interval(0.05))], precision=0.012, launches=effect.least, most_launches=30)
            if rule is not None:
                break
        precise += rule is Stop.PRECISION
        strict += judge([effect], threshold=0.0)[0].verdict in DIFFERENT
        practical += judge([effect], threshold=0.02)[0].verdict in DIFFERENT
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
    held = coverage([paired(row) for row in (new - old).tolist()], 0.05)
    assert 0.85 <= held < 0.94

"""Estimate, interval and p value of one comparison."""

from __future__ import annotations

import itertools
import math
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.analysis.statistics import paired_effect, unpaired_effect

THOUSANDTHS = st.integers(-2000, 2000)


def logs(thousandths: list[int]) -> list[float]:
    return [each / 1000 for each in thousandths]


LOGS = st.lists(THOUSANDTHS, min_size=1, max_size=14).map(logs)
WITHOUT_TIES = st.lists(THOUSANDTHS.filter(bool), min_size=1, max_size=14, unique_by=abs).map(logs)
TWO_WITHOUT_TIES = st.lists(THOUSANDTHS, min_size=2, max_size=28, unique=True).flatmap(
    lambda values: st.integers(1, len(values) - 1).map(lambda cut: (logs(values[:cut]), logs(values[cut:])))
)
ALPHAS = st.sampled_from([0.3, 0.1, 0.05, 0.01])


def test_a_pair_of_hand_worked_examples() -> None:
    found = paired_effect([0.1, 0.3, 0.2])
    # Walsh averages: 0.1, 0.15, 0.2, 0.2, 0.25, 0.3. None is 0 or less: p = 2 · P(T ≤ 0) = 2 ÷ 8.
    assert found.estimate == pytest.approx(0.2)
    assert found.p_value == 0.25
    assert found.interval(0.25) == pytest.approx((0.1, 0.3))
    assert found.interval(0.05) is None
    assert found.launches == (3, 3)
    two = unpaired_effect([0.0, 0.1], [0.3, 0.5, 0.4])
    # Differences: 0.3, 0.5, 0.4 and 0.2, 0.4, 0.3; of 10 arrangements one has U = 0.
    assert two.estimate == pytest.approx(0.35)
    assert two.p_value == pytest.approx(0.2)
    assert two.interval(0.2) == pytest.approx((0.2, 0.5))
    assert two.points == pytest.approx((0.25, 0.45, 0.35))
    assert two.launches == (2, 3)
    assert two.smaller_sample_size == 2


@pytest.mark.parametrize(("n", "there"), [(1, False), (5, False), (6, True), (9, True)])
def test_six_pairs_give_an_interval(n: int, there: bool) -> None:
    assert (paired_effect([0.01 * i for i in range(n)]).interval(0.05) is not None) == there


@given(WITHOUT_TIES)
def test_p_is_that_of_wilcoxon_where_there_are_no_ties(stats: ModuleType, values: list[float]) -> None:
    assert paired_effect(values).p_value == pytest.approx(stats.wilcoxon(values, mode="exact").pvalue, rel=1e-9)


@given(TWO_WITHOUT_TIES)
def test_p_of_two_samples_is_that_of_mann_and_whitney_where_there_are_no_ties(
    stats: ModuleType, samples: tuple[list[float], list[float]]
) -> None:
    first, second = samples
    found = stats.mannwhitneyu(second, first, method="exact")
    assert unpaired_effect(first, second).p_value == pytest.approx(found.pvalue, rel=1e-9)


@given(LOGS, ALPHAS)
def test_p_and_interval_say_the_same_and_the_interval_holds_the_estimate(values: list[float], alpha: float) -> None:
    found = paired_effect(values)
    interval = found.interval(alpha)
    excludes = interval is not None and not interval[0] <= 0.0 <= interval[1]
    assert excludes == (found.p_value <= alpha)
    assert interval is None or interval[0] <= found.estimate <= interval[1]


@given(LOGS, LOGS, ALPHAS)
def test_p_and_interval_of_two_samples_say_the_same(first: list[float], second: list[float], alpha: float) -> None:
    found = unpaired_effect(first, second)
    interval = found.interval(alpha)
    excludes = interval is not None and not interval[0] <= 0.0 <= interval[1]
    assert excludes == (found.p_value <= alpha)


@given(LOGS, LOGS, ALPHAS)
def test_changing_places_changes_signs_and_nothing_else(first: list[float], second: list[float], alpha: float) -> None:
    pairs = list(zip(first, second, strict=False))
    for one, other in (
        (paired_effect([b - a for a, b in pairs]), paired_effect([a - b for a, b in pairs])),
        (unpaired_effect(first, second), unpaired_effect(second, first)),
    ):
        assert other.estimate == pytest.approx(-one.estimate, abs=1e-12)
        assert other.p_value == one.p_value
        assert other.spread == (None if one.spread is None else pytest.approx(one.spread))
        interval, mirror = one.interval(alpha), other.interval(alpha)
        assert mirror == (None if interval is None else pytest.approx((-interval[1], -interval[0]), abs=1e-12))


@pytest.mark.parametrize(
    "sizes", [(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (1.0,) * 7, (0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0), (0.0,) * 7]
)
def test_ties_and_zeros_never_make_a_difference_too_likely(sizes: tuple[float, ...]) -> None:
    """Without a difference every pattern of signs is equally likely: of all, at most α may have p ≤ α."""
    patterns = list(itertools.product((-1.0, 1.0), repeat=len(sizes)))
    found = [
        paired_effect([sign * size for sign, size in zip(signs, sizes, strict=True)]).p_value for signs in patterns
    ]
    for alpha in sorted(set(found)):
        if alpha < 1.0:
            assert sum(p <= alpha for p in found) / len(found) <= alpha


def test_ties_in_two_samples_never_make_a_difference_too_likely() -> None:
    pool = (0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 2.0)
    found = []
    for chosen in itertools.combinations(range(8), 4):
        rest = [pool[i] for i in range(8) if i not in chosen]
        found.append(unpaired_effect([pool[i] for i in chosen], rest).p_value)
    for alpha in sorted(set(found)):
        if alpha < 1.0:
            assert sum(p <= alpha for p in found) / len(found) <= alpha


def test_identical_measurements_are_no_evidence() -> None:
    found = paired_effect([0.0] * 10)
    assert (found.estimate, found.p_value, found.interval(0.05)) == (0.0, 1.0, (0.0, 0.0))


def test_the_spread_is_of_one_launch_against_another() -> None:
    assert paired_effect([0.0, 0.2]).spread == pytest.approx(math.sqrt(0.02))
    assert paired_effect([0.1]).spread is None
    assert unpaired_effect([0.0], [0.1]).spread is None
    # Variances 0.02 and 0.02 with 1 degree of freedom each: √(2 · 0.02).
    assert unpaired_effect([0.0, 0.2], [0.5, 0.7]).spread == pytest.approx(0.2)


@pytest.mark.parametrize("bad", [[math.nan], [0.1, math.inf], []])
def test_what_is_no_number_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match=r"not finite|no values"):
        paired_effect(bad)
    with pytest.raises(ValueError, match=r"not finite|no values"):
        unpaired_effect([0.1], bad)

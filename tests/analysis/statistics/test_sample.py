"""The statistics, against other definitions of the same thing."""

from __future__ import annotations

import itertools
import statistics as stdlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merge_bench.analysis.statistics import (
    harmonic_mean,
    median_interval,
    outlier_flags,
    quantile,
    quartiles,
)

VALUES = st.lists(st.floats(min_value=1e-6, max_value=1e12), min_size=1, max_size=40)


@given(VALUES.filter(lambda values: len(values) > 1))
def test_quartiles_interpolate_between_neighbours(values: list[float]) -> None:
    assert quartiles(values) == pytest.approx(stdlib.quantiles(values, n=4, method="inclusive"), rel=1e-9)
    assert quantile(values, 0.5) == pytest.approx(stdlib.median(values), rel=1e-12)


@given(VALUES, st.floats(0, 1), st.floats(0, 1))
def test_quantiles_grow_with_the_share_and_stay_inside(values: list[float], a: float, b: float) -> None:
    low, high = sorted((a, b))
    slack = 1e-12 * max(values)
    assert min(values) - slack <= quantile(values, low) <= quantile(values, high) + slack <= max(values) + 2 * slack


@pytest.mark.parametrize("bad", [[], ()])
def test_nothing_has_no_quantile(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="no values"):
        quantile(bad, 0.5)


def test_a_share_is_between_0_and_1() -> None:
    with pytest.raises(ValueError, match=r"1\.5 is no share"):
        quantile([1.0], 1.5)


@pytest.mark.parametrize(
    ("n", "ranks", "percent"),
    [(6, (1, 6), 96.875), (9, (2, 8), 96.09375), (12, (3, 10), 96.142578125)],
)
def test_interval_takes_the_ranks_of_the_tables(n: int, ranks: tuple[int, int], percent: float) -> None:
    values = [float(10 * rank) for rank in range(n, 0, -1)]
    found = median_interval(values)
    assert found is not None
    assert found.ranks == ranks
    assert found.coverage * 100 == percent
    assert (found.low, found.high) == (10.0 * ranks[0], 10.0 * ranks[1])


@pytest.mark.parametrize("n", range(6))
def test_fewer_than_six_give_no_interval(n: int) -> None:
    assert median_interval([1.0] * n) is None


@pytest.mark.parametrize("n", [6, 7, 8, 9, 10, 13])
def test_coverage_counts_the_outcomes(n: int) -> None:
    """Every value is below or above the true median with equal chance: count the 2**n outcomes that the ranks catch."""
    found = median_interval([float(i) for i in range(n)])
    assert found is not None
    low, high = found.ranks
    caught = sum(low <= sum(below) < high for below in itertools.product((0, 1), repeat=n))
    assert found.coverage == caught / 2**n
    assert found.coverage >= 0.95


@given(VALUES, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_interval_holds_the_median_and_is_the_narrowest(values: list[float], confidence: float) -> None:
    found = median_interval(values, confidence)
    if found is None:
        assert 1 - 2 * 0.5 ** len(values) < confidence or len(values) == 1
        return
    assert found.low <= stdlib.median(values) <= found.high
    assert found.coverage >= confidence
    wider = median_interval(values, 0.5 + confidence / 2)
    assert wider is None or (wider.low <= found.low and wider.high >= found.high)


def test_interval_wants_a_confidence() -> None:
    with pytest.raises(ValueError, match="no confidence"):
        median_interval([1.0] * 9, 1.0)


@given(VALUES)
def test_harmonic_mean_is_of_reciprocals(values: list[float]) -> None:
    assert harmonic_mean(values) == pytest.approx(stdlib.harmonic_mean(values), rel=1e-9)


def test_harmonic_mean_by_hand() -> None:
    assert harmonic_mean([2.0, 6.0]) == pytest.approx(3.0)  # 2 / (1/2 + 1/6)
    assert harmonic_mean([0.0, 6.0]) == 0.0
    assert harmonic_mean([1e-310, 1e-310]) == pytest.approx(1e-310)


def test_harmonic_mean_refuses_what_is_no_rate() -> None:
    with pytest.raises(ValueError, match="not negative"):
        harmonic_mean([1.0, -1.0])
    with pytest.raises(ValueError, match="no values"):
        harmonic_mean([])


def test_outliers_are_flagged_where_they_stand() -> None:
    # Quartiles of 10, 11, 12, 13, 100 are 11 and 13: the fence is at 13 + 3 · 2 = 19.
    assert outlier_flags([10.0, 100.0, 12.0, 13.0, 11.0]) == (False, True, False, False, False)
    assert outlier_flags([10.0, 18.9, 12.0, 13.0, 11.0]) == (False,) * 5
    assert outlier_flags([13.0, 12.0, -50.0, 11.0, 10.0]) == (False, False, True, False, False)


def test_three_values_show_no_outlier() -> None:
    assert outlier_flags([1.0, 1.0, 1000.0]) == (False, False, False)


@given(VALUES)
def test_the_middle_half_is_never_flagged(values: list[float]) -> None:
    flags = outlier_flags(values)
    assert len(flags) == len(values)
    low, _, high = quartiles(values)
    assert not any(flag for flag, value in zip(flags, values, strict=True) if low <= value <= high)

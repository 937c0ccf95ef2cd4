"""Shifts: few false ones, real ones soon and in place; `benchmarks/history_alarms.py` counts more of them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import history_alarms as made
from merge_bench.analysis.history import shifts
from merge_bench.analysis.history.shifts import find_shifts

SERIES = 25


@pytest.mark.slow
@pytest.mark.parametrize("family", made.FAMILIES)
def test_unchanged_results_have_no_shift(family: str) -> None:
    assert made.false_alarms(family, SERIES, 1, seed=3) <= 1


def test_a_lower_threshold_would_report_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shifts, "EVIDENCE", 2.5)
    assert made.false_alarms("normal", 10, 1, seed=3) >= 5


@pytest.mark.slow
def test_a_loss_is_found_soon_and_at_the_right_result() -> None:
    soon, right = made.detections(SERIES, 5, seed=3)
    assert soon >= 0.9 * SERIES
    assert right >= 0.8 * SERIES


def steady(count: int, seed: int = 1) -> list[float]:
    """Results with a noise of 1 %."""
    return np.exp(np.random.default_rng(seed).normal(0.0, 0.01, count)).tolist()


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 2.0])
@pytest.mark.parametrize("nights", [1, 2])
def test_one_or_two_bad_nights_are_no_shift(factor: float, nights: int) -> None:
    results = steady(80)
    results[40 : 40 + nights] = [factor * value for value in results[40 : 40 + nights]]
    assert find_shifts(results) == []


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 2.0])
def test_three_results_of_a_new_level_are_a_shift(factor: float) -> None:
    results = steady(100) + [factor * value for value in steady(3, seed=2)]
    (found,) = find_shifts(results)
    assert (found.at, found.found) == (100, 102)
    assert found.change == pytest.approx(factor - 1, abs=0.02)


def test_a_shift_stays_whatever_comes_later() -> None:
    results = steady(40) + [0.9 * value for value in steady(40, seed=2)] + steady(40, seed=3)
    found = find_shifts(results)
    assert [shift.at for shift in found] == [40, 80]
    for count in range(len(results)):
        assert find_shifts(results[:count]) == [shift for shift in found if shift.found < count]


def test_a_shift_below_the_threshold_does_not_matter() -> None:
    results = steady(60) + [0.97 * value for value in steady(60, seed=2)]
    assert [shift.at for shift in find_shifts(results)] == [60]
    assert find_shifts(results, [0.05] * 120) == []


def test_equal_results_are_no_reason_to_divide_by_zero() -> None:
    assert find_shifts([5.0] * 50) == []
    assert [shift.at for shift in find_shifts([5.0] * 50 + [4.0] * 3)] == [50]


def test_long_levels_are_looked_back_at_only_so_far() -> None:
    results = steady(600) + [0.95 * value for value in steady(5, seed=2)]
    assert [shift.at for shift in find_shifts(results)] == [600]

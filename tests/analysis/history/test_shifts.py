"""Shifts: few false ones, real ones soon and in place; `benchmarks/history_alarms.py` counts more of them."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from benchmarks import history_alarms as made
from merge_bench.regressions.shifts import DRIFTS, NOISE, find_drift_or_noise_change, find_gradual_changes, find_shifts

SERIES = 25


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name in made.FAMILIES if name != "doubled"])
def test_unchanged_results_have_no_shift(family: str) -> None:
    assert made.false_alarms(family, SERIES, 1, seed=3, nights=150) <= 2


def test_a_lower_threshold_would_report_what_is_not_there() -> None:
    assert made.false_alarms("normal", 10, 1, seed=3, rule=functools.partial(find_shifts, evidence=1.5)) >= 5


def test_a_loss_that_ends_is_closed_and_a_second_one_is_named() -> None:
    found, ended = made.closed(20, 6, seed=3, before=60)
    assert (found >= 18, ended >= 17) == (True, True)
    assert made.both_named(20, seed=3) >= 16


def test_a_return_keeps_the_levels_with_which_the_loss_was_found() -> None:
    results = steady(60) + [0.95 * value for value in steady(6, seed=2)] + steady(40, seed=4)
    loss, back = find_shifts(results)
    assert (loss.at, back.at, loss.level, back.level) == (60, 66, 1, 0)
    assert loss.relative_change == pytest.approx(-0.05, abs=0.015)
    assert back.relative_change == pytest.approx(0.0526, abs=0.015)


def test_a_ramp_is_named_with_its_nights_and_two_steps_are_two() -> None:
    ramp = np.clip((np.arange(120) - 59) / 10.0, 0.0, 1.0)  # results 60 to 69
    results = (np.array(steady(120)) * (1.0 - 0.06 * ramp)).tolist()
    found = find_gradual_changes(results, find_shifts(results))
    assert found[0] == (pytest.approx(60, abs=3), pytest.approx(69, abs=3))
    two = steady(60) + [0.95 * value for value in steady(20, seed=2)] + [0.9 * value for value in steady(40, seed=3)]
    assert [shift.at for shift in find_shifts(two)] == [60, 80]
    assert find_gradual_changes(two, find_shifts(two)) == {}


def test_drift_and_noise_that_changed_are_findings_and_no_shifts() -> None:
    drifting = np.array(steady(300)) * np.exp(-2e-4 * np.arange(300))
    assert find_shifts(drifting) == []
    (found,) = find_drift_or_noise_change(drifting.tolist(), [1.0] * 300, 0, 0.02)
    assert (found.kind, found.since) == (DRIFTS, 0)
    assert found.change == pytest.approx(-0.058, abs=0.01)
    random = np.random.default_rng(2)
    grown = np.exp(np.append(random.normal(0.0, 0.005, 150), random.normal(0.0, 0.01, 150))).tolist()
    (found,) = find_drift_or_noise_change(grown, [1.0] * 300, 0, 0.02)
    assert (found.kind, found.since) == (NOISE, pytest.approx(150, abs=15))
    assert find_drift_or_noise_change(steady(300), [1.0] * 300, 0, 0.02) == []


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
    assert (found.at, found.newest) == (100, 102)
    assert found.relative_change == pytest.approx(factor - 1, abs=0.02)


def test_a_shift_stays_whatever_comes_later() -> None:
    results = steady(40) + [0.9 * value for value in steady(40, seed=2)] + steady(40, seed=3)
    found = find_shifts(results)
    assert [shift.at for shift in found] == [40, 80]
    for count in (*range(0, 120, 9), *range(38, 46), *range(78, 86)):  # some, and each near a shift
        assert find_shifts(results[:count]) == [shift for shift in found if shift.newest < count]


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

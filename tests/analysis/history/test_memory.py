"""What a series does by itself, averaged over what its noise may be."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import toeplitz

from benchmarks.history_alarms import memory as with_memory
from benchmarks.history_alarms import normal, states
from merge_bench.regressions.shifts import (
    autocorrelation_models,
    estimate_autocorrelation,
    estimate_noise,
    shift_evidence,
)

INDEPENDENT, STRONG, WEEK = 0, 4, 9
"""Rows of the kinds: no memory, 0.8, states of seven results."""

FIVE = np.array([-0.02, 0.01, 0.004, -0.01, 0.016])
"""Results about their mean, with a standard deviation of 1.5 %."""


def residuals(count: int = 200, seed: int = 1, share: float = 0.0) -> NDArray[np.float64]:
    """Deviations of 2 %, with that share left one result later."""
    made = with_memory(share) if share else normal
    found = made(np.random.default_rng(seed), count, 1)[:, 0]
    return np.asarray(0.02 * (found - found.mean()) / found.std())


def surely(new: NDArray[np.float64], known: NDArray[np.float64]) -> float:
    return shift_evidence(new, len(known), estimate_noise(known), estimate_autocorrelation(known), known)


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_the_variance_of_a_mean_is_that_of_its_correlations(count: int) -> None:
    strong = toeplitz(0.8 ** np.arange(count)).mean()
    week = toeplitz(np.where(np.arange(count) > 0, 0.8, 1.0) * np.maximum(0.0, 1.0 - np.arange(count) / 7.0)).mean()
    found = autocorrelation_models().mean[:, count - 1]
    assert found[[INDEPENDENT, STRONG, WEEK]] == pytest.approx([1.0 / count, strong, week])


def test_newest_results_may_all_share_one_state() -> None:
    """Those of a state have 0.8 of their variance in common, however many they are; later states differ."""
    found = autocorrelation_models().newest[WEEK]
    assert found[[0, 4, 6, 13]] == pytest.approx([1.0, 0.84, 0.8 + 0.2 / 7, 0.4 + 0.2 / 14])


def test_a_kind_predicts_its_own_results_best() -> None:
    unexplained = autocorrelation_models().unexplained
    lags = np.arange(unexplained.shape[1])
    assert unexplained @ 0.8**lags == pytest.approx(np.maximum(unexplained @ 0.8**lags, 0.36))
    assert unexplained[STRONG] @ 0.8**lags == pytest.approx(1.0 - 0.8**2)
    assert unexplained @ (lags == 0) == pytest.approx(np.maximum(unexplained @ (lags == 0), 1.0))


def test_results_tell_whether_they_have_a_memory() -> None:
    assert estimate_autocorrelation(residuals()).weights[INDEPENDENT] > 0.8
    assert estimate_autocorrelation(residuals()).variance_ratio(5) == pytest.approx(1.0, abs=0.2)
    assert estimate_autocorrelation(residuals(share=0.8)).weights[INDEPENDENT] < 1e-6
    assert estimate_autocorrelation(residuals(share=0.8)).variance_ratio(5) > 2.5


def test_evidence_is_as_rare_as_it_says() -> None:
    """Above 2 lies one mean in twenty or fewer, and not far fewer."""
    random = np.random.default_rng(7)
    found = [surely(each, residuals(seed=seed)) for seed in range(20) for each in normal(random, 50, 5)]
    assert 20 <= sum(value > 2.0 for value in found) <= 60


@pytest.mark.parametrize("later", [5, 40])
def test_a_memory_or_noise_that_has_just_grown_is_less_sure(later: int) -> None:
    new, known = FIVE - 0.05, residuals()
    assert surely(new, known) > 4.0
    assert surely(new, residuals(share=0.8)) < surely(new, known) - 1.0
    grown = np.append(known[:-later], 2.5 * known[-later:])
    assert surely(new, grown) < surely(new, known) - 0.3
    assert surely(new + FIVE, known) < surely(new, known)


def test_a_host_with_states_of_a_week_is_not_sure_after_four_weeks() -> None:
    week = states(7)(np.random.default_rng(3), 28, 1)[:, 0]
    week -= week.mean()
    assert surely(np.full(5, 2.5 * week.std()), week) < 3.0


def test_one_far_result_counts_as_an_outlier_and_five_do_not() -> None:
    known = residuals()
    assert surely(np.append(FIVE[:4], -1.0), known) < 3.0
    assert surely(FIVE - 1.0, known) > 6.0

"""Two candidates held against each other: when it is clear, and what it is called."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from merge_bench.tune.evaluator import (
    Candidate,
    ComparisonState,
    LaunchSample,
    PairedComparison,
    RequiredGain,
    decision_reason,
    interval_alpha,
    required_gain_from_twin,
    sort_comparisons_by_effect,
)
from tests.tune.factorials import value

BAR = RequiredGain(0.02)


def comparison(*ratios: float, name: str = "a") -> PairedComparison:
    return PairedComparison(Candidate.from_values(value(name)), Candidate(), [math.log(ratio) for ratio in ratios])


@pytest.mark.parametrize(
    ("ratios", "state"),
    [
        ((), ComparisonState.OPEN),
        ((1.5, 1.5), ComparisonState.OPEN),  # too few, however clear
        ((1.03, 1.10, 1.05), ComparisonState.GAIN),
        ((1.01, 1.10, 1.05), ComparisonState.OPEN),  # the lower end is not worth it
        ((0.9, 0.95, 0.97), ComparisonState.LOSS),
        ((0.99, 1.01, 1.0), ComparisonState.NONE),
        ((0.99, 1.0, 1.2), ComparisonState.OPEN),
        (
            (1.005, 1.03, 1.03, 1.04, 1.03, 1.03),
            ComparisonState.GAIN,
        ),  # six: above 1 for certain, and worth it by estimate
        ((1.005, 1.018, 1.018, 1.025, 1.019, 1.018), ComparisonState.OPEN),  # its estimate is not
    ],
)
def test_the_state_follows_from_interval_and_estimate(ratios: Sequence[float], state: ComparisonState) -> None:
    assert comparison(*ratios).judge_candidate(BAR, min_blocks=3) is state


def test_a_gain_must_stand_out_of_the_noise() -> None:
    found = comparison(1.03, 1.04, 1.05)
    assert found.judge_candidate(RequiredGain(0.02, 0.03), min_blocks=3) is ComparisonState.GAIN
    assert found.judge_candidate(RequiredGain(0.02, 0.06), min_blocks=3) is ComparisonState.OPEN
    assert "within the noise of 6.0%" in decision_reason(ComparisonState.OPEN, found, RequiredGain(0.02, 0.06))


def test_noise_is_what_the_baseline_seems_to_differ_from_itself() -> None:
    assert required_gain_from_twin(comparison(), 0.02).floor == 0.0
    assert required_gain_from_twin(comparison(0.96, 0.96, 0.96), 0.02).floor == pytest.approx(1 / 0.96 - 1)
    one_slow = required_gain_from_twin(comparison(1.0, 1.01, 0.99, 1.0, 0.7, 1.0), 0.02)
    assert one_slow.floor < 0.01


def test_levels_are_those_that_so_few_blocks_can_give() -> None:
    assert [interval_alpha(n) for n in (2, 3, 4, 5, 6, 8)] == [0.5, 0.25, 0.125, 0.0625, 0.05, 0.05]


def test_failures_count_where_the_other_did_not_fail_too() -> None:
    found, good, bad = comparison(), LaunchSample(1.0), LaunchSample(None, "it died")
    found.add_block(bad, bad)
    assert (found.failures, found.ratios) == ([], [])
    found.add_block(bad, good)
    assert found.judge_candidate(BAR, min_blocks=3) is ComparisonState.OPEN
    found.add_block(good, bad)
    found.add_block(bad, good)
    assert found.judge_candidate(BAR, min_blocks=3) is ComparisonState.FAILED
    assert decision_reason(ComparisonState.FAILED, found, BAR) == "failed 2 times: it died"


def test_a_wrong_result_is_a_failure_whatever_the_other_did() -> None:
    found = comparison(1.5, 1.5, 1.5)
    found.add_block(LaunchSample(None, "its result was wrong", wrong=True), LaunchSample(None, "it died"))
    assert found.judge_candidate(BAR, min_blocks=3) is ComparisonState.FAILED


def test_equal_effects_are_ranked_by_name() -> None:
    made = [comparison(1.1, name="c"), comparison(1.1, name="b"), comparison(1.2, name="d"), comparison(name="a")]
    assert [each.candidate.config_name("") for each in sort_comparisons_by_effect(made)] == ["d=y", "b=y", "c=y", "a=y"]


def test_a_candidate_is_called_by_its_settings_in_one_order() -> None:
    both = Candidate.from_values(value("b"), value("a"))
    assert both == Candidate.from_values(value("a")).with_value(value("b"))
    assert both.config_name("default") == "a=y+b=y"
    assert both.without_value(value("a")).config_name("default") == "b=y"
    assert (Candidate().config_name("default"), Candidate(twin=True).config_name("default")) == (
        "default",
        "default again",
    )

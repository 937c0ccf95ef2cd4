"""Two candidates held against each other: when it is clear, and what it is called."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from merge_bench.tune.evaluator import (
    Bar,
    Candidate,
    Contest,
    Sample,
    State,
    bar_from_twin,
    interval_alpha,
    largest_effect_first,
    reason_text,
)
from tests.tune.factorials import value

BAR = Bar(0.02)


def contest(*ratios: float, name: str = "a") -> Contest:
    return Contest(Candidate.of(value(name)), Candidate(), [math.log(ratio) for ratio in ratios])


@pytest.mark.parametrize(
    ("ratios", "state"),
    [
        ((), State.OPEN),
        ((1.5, 1.5), State.OPEN),  # too few, however clear
        ((1.03, 1.10, 1.05), State.GAIN),
        ((1.01, 1.10, 1.05), State.OPEN),  # the lower end is not worth it
        ((0.9, 0.95, 0.97), State.LOSS),
        ((0.99, 1.01, 1.0), State.NONE),
        ((0.99, 1.0, 1.2), State.OPEN),
        ((1.005, 1.03, 1.03, 1.04, 1.03, 1.03), State.GAIN),  # six: above 1 for certain, and worth it by estimate
        ((1.005, 1.018, 1.018, 1.025, 1.019, 1.018), State.OPEN),  # its estimate is not
    ],
)
def test_the_state_follows_from_interval_and_estimate(ratios: Sequence[float], state: State) -> None:
    assert contest(*ratios).state(BAR, least=3) is state


def test_a_gain_must_stand_out_of_the_noise() -> None:
    found = contest(1.03, 1.04, 1.05)
    assert found.state(Bar(0.02, 0.03), least=3) is State.GAIN
    assert found.state(Bar(0.02, 0.06), least=3) is State.OPEN
    assert "within the noise of 6.0%" in reason_text(State.OPEN, found, Bar(0.02, 0.06))


def test_noise_is_what_the_baseline_seems_to_differ_from_itself() -> None:
    assert bar_from_twin(contest(), 0.02).floor == 0.0
    assert bar_from_twin(contest(0.96, 0.96, 0.96), 0.02).floor == pytest.approx(1 / 0.96 - 1)
    one_slow = bar_from_twin(contest(1.0, 1.01, 0.99, 1.0, 0.7, 1.0), 0.02)
    assert one_slow.floor < 0.01


def test_levels_are_those_that_so_few_blocks_can_give() -> None:
    assert [interval_alpha(n) for n in (2, 3, 4, 5, 6, 8)] == [0.5, 0.25, 0.125, 0.0625, 0.05, 0.05]


def test_failures_count_where_the_other_did_not_fail_too() -> None:
    found, good, bad = contest(), Sample(1.0), Sample(None, "it died")
    found.add(bad, bad)
    assert (found.failures, found.ratios) == ([], [])
    found.add(bad, good)
    assert found.state(BAR, least=3) is State.OPEN
    found.add(good, bad)
    found.add(bad, good)
    assert found.state(BAR, least=3) is State.FAILED
    assert reason_text(State.FAILED, found, BAR) == "failed 2 times: it died"


def test_a_wrong_result_is_a_failure_whatever_the_other_did() -> None:
    found = contest(1.5, 1.5, 1.5)
    found.add(Sample(None, "its result was wrong", wrong=True), Sample(None, "it died"))
    assert found.state(BAR, least=3) is State.FAILED


def test_equal_effects_are_ranked_by_name() -> None:
    made = [contest(1.1, name="c"), contest(1.1, name="b"), contest(1.2, name="d"), contest(name="a")]
    assert [each.candidate.name("") for each in largest_effect_first(made)] == ["d=y", "b=y", "c=y", "a=y"]


def test_a_candidate_is_called_by_its_settings_in_one_order() -> None:
    both = Candidate.of(value("b"), value("a"))
    assert both == Candidate.of(value("a")).with_value(value("b"))
    assert both.name("default") == "a=y+b=y"
    assert both.without(value("a")).name("default") == "b=y"
    assert (Candidate().name("default"), Candidate(twin=True).name("default")) == ("default", "default again")

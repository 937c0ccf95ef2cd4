"""New launches of several candidates, which share those of the baseline and are one family of verdicts."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from merge_bench.analysis.statistics import paired_effect
from merge_bench.records.reader import read_campaign
from merge_bench.tune.evaluator import BudgetSpent, Candidate, LaunchSample, SearchOptions
from merge_bench.tune.result import TuningResult, tuning_result_of
from merge_bench.tune.search_steps import confirm_candidates, confirm_or_repair_best, max_candidates_to_confirm
from merge_bench.tune.tune_campaign import TuningBudget
from tests.tune.clusters import Cluster, Cut, begin, evaluator_of, made, reopened, steps
from tests.tune.factorials import value
from tests.tune.replay_evaluator import Recorded, ReplayEvaluator

A, B, C = (Candidate.from_values(value(name)) for name in "abc")
EIGHT = SearchOptions(confirm=8)
UP = (1.05, 1.06, 1.07, 1.08)
EVEN = (0.99, 1.01, 1.0, 1.0)
ONE_BELOW = (0.97, 1.09, 1.08, 1.07, 1.06, 1.05, 1.04, 0.985)


def launches(**by: Sequence[float]) -> Recorded:
    """Launches of the baseline, all alike, and of settings, in turn so many times as fast; 0: a failed one."""
    return {frozenset(): [1e9] * 24} | {
        frozenset([f"{name}=y"]): [1e9 * factors[block % len(factors)] or None for block in range(24)]
        for name, factors in by.items()
    }


def confirmed(*candidates: Candidate, options: SearchOptions = EIGHT, **by: Sequence[float]) -> ReplayEvaluator:
    """The evaluator after the confirmation, with `found` set."""
    evaluator = ReplayEvaluator(launches(**by))
    confirm_or_repair_best(candidates[0], evaluator, options, candidates[1:])
    return evaluator


def decisions(evaluator: ReplayEvaluator) -> list[tuple[str, str, str]]:
    return [(line.config, line.decision, line.reason) for line in evaluator.notes]


def test_the_second_is_found_where_the_first_is_not_with_the_same_launches_of_the_baseline() -> None:
    evaluator = confirmed(A, B, a=(0.96, 0.97, 0.98, 0.95), b=UP)
    assert evaluator.launches == 3 * 8
    assert decisions(evaluator) == [("a=y", "rejected", "SLOWER"), ("b=y", "accepted", "FASTER")]


def test_of_two_that_are_faster_the_faster_one_wins_and_its_line_is_the_last() -> None:
    for first, second in ((A, B), (B, A)):
        evaluator = confirmed(first, second, a=UP, b=tuple(1.1 * each for each in UP))
        assert [line[:2] for line in decisions(evaluator)] == [("a=y", "accepted"), ("b=y", "accepted")]


def test_a_candidate_that_fails_takes_no_other_with_it() -> None:
    evaluator = confirmed(A, B, a=(1.1, 0.0), b=UP)
    assert decisions(evaluator) == [("a=y", "rejected", "FAILED"), ("b=y", "accepted", "FASTER")]


def test_verdicts_share_the_chance_of_a_false_one() -> None:
    """Alone it is faster at the level of 95 %; of three, at 98.3 %, it is not."""
    p = paired_effect([each - 1.0 for each in ONE_BELOW]).p_value
    assert 0.05 / 3 < p <= 0.05
    assert decisions(confirmed(A, a=ONE_BELOW)) == [("a=y", "accepted", "FASTER")]
    together = decisions(confirmed(A, B, C, a=ONE_BELOW, b=EVEN, c=EVEN))
    assert together[0] == ("a=y", "rejected", "INCONCLUSIVE")


def test_that_there_is_no_gain_is_judged_by_each_ones_own_interval() -> None:
    """At the level of 98.3 % of three candidates it would stay open."""
    sinking = (0.93, 0.94, 0.95, 0.96, 0.97, 0.97, 0.98, 1.07)
    effect = paired_effect([math.log(each) for each in sinking])
    whole, shared = effect.interval(0.05), effect.interval(0.05 / 3)
    assert whole is not None
    assert shared is not None
    assert whole[1] < math.log(1.02) < shared[1]
    found = decisions(confirmed(A, B, C, a=sinking, b=EVEN, c=EVEN))
    assert found[0] == ("a=y", "rejected", "no gain of at least 2.0%")


@pytest.mark.parametrize(
    ("confirm", "sizes", "together"), [(6, 1, 1), (7, 1, 3), (8, 1, 3), (7, 2, 1), (8, 2, 3), (8, 3, 2), (8, 6, 1)]
)
def test_no_more_are_confirmed_together_than_the_blocks_can_give_a_verdict(
    confirm: int, sizes: int, together: int
) -> None:
    assert max_candidates_to_confirm(SearchOptions(confirm=confirm), sizes) == together


def settled(evaluator: object) -> Candidate:
    return confirm_or_repair_best(A, evaluator, EIGHT, [B, C])


RECORDED = launches(a=EVEN, b=UP, c=EVEN)


@pytest.mark.slow
def test_cut_off_anywhere_the_same_candidates_are_confirmed(tmp_path: Path) -> None:
    with begin(tmp_path / "whole") as writer:
        assert settled(evaluator_of(writer, Cluster(writer, speed=RECORDED).launch)) == B
    whole = read_campaign(writer.folder)
    for cut in range(0, len(whole.launches), 5):
        with begin(tmp_path / str(cut)) as writer, pytest.raises(Cut):
            settled(evaluator_of(writer, Cluster(writer, cut, speed=RECORDED).launch))
        with reopened(writer.folder) as again:
            assert settled(evaluator_of(again, Cluster(again, speed=RECORDED).launch)) == B
        campaign = read_campaign(writer.folder)
        assert (made(campaign), steps(campaign)) == (made(whole), steps(whole))
    result = tuning_result_of(whole)
    assert result.outcome_heading == "Found: b=y"
    assert {(line.config, line.plan) for line in result.confirmation_steps} == {("b=y", 0), ("b=y", 1)}


def outcome(tmp_path: Path, seconds: float | None = None, **by: Sequence[float]) -> TuningResult:
    with begin(tmp_path, values=["a=y", "b=y", "c=y", "d=y"]) as writer:
        evaluator = evaluator_of(
            writer,
            Cluster(writer, speed=launches(**by)).launch,
            budget=TuningBudget(seconds=seconds, weights=(1.0, 1.0)),
        )
        with contextlib.suppress(BudgetSpent):
            settled(evaluator)
    return tuning_result_of(read_campaign(writer.folder))


def test_the_outcome_of_several_says_no_more_than_was_decided(tmp_path: Path) -> None:
    none = "Found no config faster than default: a=y, b=y, c=y"
    swaying, sinking = (0.9, 1.13, 1.14, 0.95), (0.9, 1.08, 1.09, 0.9)
    excluded = outcome(tmp_path / "1", a=(0.95, 0.96), b=EVEN, c=EVEN)
    assert excluded.outcome_heading == f"{none} have no gain of at least 2.0% in new launches"
    seen = outcome(tmp_path / "2", a=sinking, b=EVEN, c=EVEN)
    assert seen.outcome_heading == f"{none} showed no gain of at least 2.0% in new launches"
    assert seen.unconfirmed_gains == []
    open_still = outcome(tmp_path / "3", a=EVEN, b=swaying, c=EVEN)
    assert open_still.outcome_heading == "Not decided: b=y may be faster than default"


def test_blocks_that_suffice_for_one_do_not_for_three(tmp_path: Path) -> None:
    result = outcome(tmp_path, 4.0 * 4 * 2 * 7, a=UP, b=UP, c=UP)
    assert (result.confirmed, {line.launches for line in result.broken_off}) == ([], {7})


def test_a_gain_within_the_noise_is_no_reason_to_say_may_be_faster(tmp_path: Path) -> None:
    """It was "may be faster" at 0.88 to 1.23, where the baseline differed from itself by 24 %."""
    found = outcome(tmp_path, a=EVEN, b=(0.9, 1.13, 1.14, 0.95), c=EVEN)
    line = found.unconfirmed_gains[0]
    assert line.config == "b=y"
    assert 1.02 < (line.ratio or 0.0) < 1.1
    noise = found.noise_floor or line
    for apart, outcome_ in ((1.01, "b=y may be faster than default"), (1.24, "the gain of b=y may be noise")):
        for twin in (apart, 1 / apart):
            noisy = replace(found, noise_floor=structs.replace(noise, ratio=twin))
            assert noisy.outcome_heading == f"Not decided: {outcome_}"


def sized(*by_size: Sequence[float]) -> ReplayEvaluator:
    """An evaluator whose setting ``a`` is in turn so many times as fast as the baseline, at each of several sizes."""

    blocks = Counter[int]()

    class Sized(ReplayEvaluator):
        """Gives the setting its factors at each size."""

        def launch_block(self, candidates: Sequence[Candidate], *, plan: int = 0, **more: Any) -> list[LaunchSample]:
            self.launches += len(candidates)
            factors = by_size[plan]
            factor = factors[blocks[plan] % len(factors)]
            blocks[plan] += 1
            return [LaunchSample(1e9 * factor if candidate.values else 1e9) for candidate in candidates]

    evaluator = Sized(launches())
    evaluator.plan_count = len(by_size)
    return evaluator


OPEN_LOSS = (0.97, 1.02, 0.99, 1.03, 0.96, 1.0, 1.02, 0.98)
"""Even blocks that do not exclude a loss of 2 %."""


def test_a_config_that_is_faster_at_one_size_is_not_accepted_while_it_may_lose_at_another() -> None:
    evaluator = sized(UP, OPEN_LOSS)
    winner, losing = confirm_candidates([A], evaluator, EIGHT)
    assert (winner, losing) == (None, [1])
    assert decisions(evaluator) == [("a=y", "rejected", "FASTER"), ("a=y", "rejected", "may be slower by 2.0%")]
    first, second = evaluator.notes
    assert (first.launches, second.launches) == (8, 16)
    assert second.low is not None
    assert second.low <= 1 / 1.02


def test_more_blocks_at_the_size_where_it_is_open_can_exclude_the_loss() -> None:
    evaluator = sized(UP, (*OPEN_LOSS, *(1.0, 1.01, 1.02, 1.0, 1.01, 1.0, 1.02, 1.01)))
    assert confirm_candidates([A], evaluator, EIGHT) == (A, [])
    assert decisions(evaluator) == [("a=y", "accepted", "FASTER"), ("a=y", "accepted", "not slower by 2.0%")]
    assert [line.launches for line in evaluator.notes] == [8, 16]
    assert evaluator.notes[1].low is not None
    assert evaluator.notes[1].low > 1 / 1.02


def test_no_more_blocks_are_made_where_even_the_estimate_is_a_loss() -> None:
    evaluator = sized(UP, (0.9, 1.03, 0.93, 1.02))
    assert confirm_candidates([A], evaluator, EIGHT) == (None, [1])
    assert evaluator.launches == 2 * 2 * 8


def test_a_loss_that_is_excluded_at_once_takes_no_more_blocks() -> None:
    evaluator = sized(UP, (0.99, 1.03, 1.0, 1.02))
    assert confirm_candidates([A], evaluator, EIGHT) == (A, [])
    assert evaluator.launches == 2 * 2 * 8

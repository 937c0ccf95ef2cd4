"""Strategies on replayed factorials whose truth is known: the winner, what it costs, and what must never win."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from merge_bench.errors import UsageError
from merge_bench.records.schema import TuningStepLine
from merge_bench.tune.evaluator import BudgetSpent, Candidate, LaunchSample, SearchOptions
from merge_bench.tune.search_steps import confirm_or_repair
from merge_bench.tune.strategies import strategies
from tests.tune.factorials import Truth, space_of, value
from tests.tune.replay_evaluator import ReplayEvaluator, read_recorded

FOUR = Truth({"a": 1.5, "b": 1.15, "c": 1.0, "d": 0.97})
FIVE = Truth({"a": 1.4, "b": 1.15, "c": 1.0, "d": 1.0, "e": 0.9})
HURT = Truth({"a": 1.4, "b": 1.2, "c": 1.0, "d": 1.0}, together={frozenset("ab"): 0.7})
SAME = Truth({"a": 1.3, "b": 1.3, "c": 1.0, "d": 1.0}, together={frozenset("ab"): 1 / 1.3})
NOTHING = Truth(dict.fromkeys("abcd", 1.0))
SEEDS = 10


@dataclass
class Tuned:
    """What a strategy made of one recording."""

    found: frozenset[str]
    launches: int
    notes: list[TuningStepLine] = field(default_factory=list)


def tuned(truth: Truth, seed: int, strategy: str = "race", options: SearchOptions | None = None) -> Tuned:
    evaluator = ReplayEvaluator(truth.recorded(seed))
    asked = options or SearchOptions()
    candidate = strategies()[strategy].tune(truth.space, truth.space.values, evaluator, asked)
    searched = evaluator.launches
    confirmed = confirm_or_repair(candidate, evaluator, asked)
    return Tuned(frozenset(each.setting for each in confirmed.values), searched, evaluator.notes)


@pytest.mark.parametrize("spread", [0.02, 0.035, 0.05])
@pytest.mark.parametrize("truth", [FOUR, FIVE, HURT], ids=["2**4", "2**5", "hurt-together"])
def test_the_race_finds_the_winner_in_nine_of_ten_with_half_the_launches(truth: Truth, spread: float) -> None:
    noisy = replace(truth, spread=spread)
    runs = [tuned(noisy, seed) for seed in range(SEEDS)]
    exhaustive = 8 * 2 ** len(truth.gains)
    assert sum(run.found == truth.best for run in runs) >= 9
    assert sum(run.launches for run in runs) <= SEEDS * exhaustive / 2
    assert max(run.launches for run in runs) <= 0.6 * exhaustive


def test_the_race_finds_what_all_combinations_find() -> None:
    agreed = 0
    for seed in range(SEEDS):
        race, every = tuned(FIVE, seed), tuned(FIVE, seed, "exhaustive")
        agreed += race.found == every.found == FIVE.best
        assert every.launches == 256
        assert 2 * race.launches <= every.launches
    assert agreed >= 9


def test_where_nothing_helps_nothing_is_found() -> None:
    noisy = replace(NOTHING, spread=0.05, outliers=0.05)
    found = [tuned(noisy, seed).found for seed in range(60)]
    assert sum(map(bool, found)) <= 3  # 5 % of 60, each the outcome of a confirmation at 2.5 %


def test_a_config_that_crashes_now_and_then_does_not_win() -> None:
    crashing = replace(FOUR, crashes={"a": 0.5})
    for seed in range(SEEDS):
        run = tuned(crashing, seed)
        assert "a" not in run.found
    always = tuned(replace(FOUR, crashes={"a": 1.0}), 0)
    (line,) = [line for line in always.notes if line.setting == "a=y" and line.phase == "screen"]
    assert (line.decision, line.ratio, line.launches) == ("failed", None, 0)
    assert line.reason == "failed 2 times: the recorded launch failed"


def test_settings_that_help_alone_and_hurt_together_are_told() -> None:
    for seed in range(SEEDS):
        notes = tuned(HURT, seed).notes
        (line,) = [line for line in notes if line.phase == "combine" and line.setting == "b=y"]
        assert line.decision == "dropped"
        assert line.high is not None
        assert line.high < 1
        assert line.reason.endswith("the setting gains alone but loses in the combination")


def test_of_two_settings_that_do_the_same_one_is_kept() -> None:
    found = [tuned(SAME, seed).found for seed in range(SEEDS)]
    assert sum(each in ({"a"}, {"b"}) for each in found) >= 9


def test_a_setting_that_another_makes_superfluous_is_taken_out_again() -> None:
    """a is the strongest alone; b and c together do all that it does, and it then costs something."""
    truth = Truth(
        {"a": 1.3, "b": 1.2, "c": 1.2}, together={frozenset("abc"): 0.7, frozenset("bc"): 1.3}, spread=0.01, outliers=0
    )
    evaluator = ReplayEvaluator(truth.recorded(1))
    made = strategies()["race"].tune(truth.space, truth.space.values, evaluator, SearchOptions())
    last = {line.setting: line for line in evaluator.notes if line.phase == "ablate"}
    for each in made.values:  # whatever is left was measured against exactly what is left, without it
        assert last[each.id].config == made.config_name("default")
        assert last[each.id].against == made.without_value(each).config_name("default")
        assert last[each.id].decision == "kept"


def test_conflicts_are_respected() -> None:
    space = space_of("abcd", {"b": ("a",)})
    for name in strategies():
        evaluator = ReplayEvaluator(FOUR.recorded(3))
        made = strategies()[name].tune(space, space.values, evaluator, SearchOptions())
        assert {each.setting for each in made.values} == {"a"}, name


def test_a_wrong_result_is_out_at_once() -> None:
    class Wrong(ReplayEvaluator):
        """Of one candidate, the result of the second launch is wrong."""

        asked = 0

        def make_block(self, candidates: Sequence[Candidate], **more: Any) -> list[LaunchSample]:
            samples = super().make_block(candidates, **more)
            self.asked += 1
            if self.asked != 2:
                return samples
            wrong = {"value": None, "reason": "its result was wrong", "wrong": True}
            return [
                replace(sample, **wrong) if value("a") in candidate.values else sample
                for candidate, sample in zip(candidates, samples, strict=True)
            ]

    evaluator = Wrong(FOUR.recorded(0))
    made = strategies()["race"].tune(FOUR.space, FOUR.space.values, evaluator, SearchOptions())
    assert value("a") not in made.values
    (line,) = [line for line in evaluator.notes if line.setting == "a=y"]
    assert (line.decision, line.reason) == ("failed", "failed once: its result was wrong")


def test_a_block_in_which_the_baseline_fails_too_says_nothing_of_a_candidate() -> None:
    recorded: Mapping[frozenset[str], list[float | None]] = {
        ids: [None, None, *values[2:]] for ids, values in FOUR.recorded(0).items()
    }
    evaluator = ReplayEvaluator(recorded)
    made = strategies()["race"].tune(FOUR.space, FOUR.space.values, evaluator, SearchOptions(most=12))
    assert value("a") in made.values


def test_the_same_recording_gives_the_same_steps() -> None:
    def steps() -> list[TuningStepLine]:
        return [TuningStepLine(**{**_fields(line), "time": 0.0}) for line in tuned(FIVE, 4).notes]

    assert steps() == steps()


def _fields(line: TuningStepLine) -> dict[str, object]:
    return {name: getattr(line, name) for name in line.__struct_fields__}


@pytest.mark.parametrize("name", strategies())
def test_the_first_block_is_the_largest_and_known_before(name: str) -> None:
    blocks: list[int] = []

    class Counting(ReplayEvaluator):
        def make_block(self, candidates, *, plan=0, search=True, reserved_confirmations=1):
            blocks.append(len(candidates))
            return super().make_block(candidates, plan=plan, search=search)

    strategy = strategies()[name]
    strategy.tune(FOUR.space, FOUR.space.values, Counting(FOUR.recorded(0)), SearchOptions())
    assert blocks[0] == max(blocks) == strategy.first_block(FOUR.space, FOUR.space.values)


def test_more_combinations_than_can_be_tried_are_refused() -> None:
    space = space_of([f"s{number}" for number in range(9)])
    with pytest.raises(UsageError, match="more than 256 combinations"):
        strategies()["exhaustive"].first_block(space, space.values)


def test_no_launch_is_made_beyond_the_budget() -> None:
    evaluator = ReplayEvaluator(FOUR.recorded(0), most_launches=20)
    with pytest.raises(BudgetSpent):
        strategies()["race"].tune(FOUR.space, FOUR.space.values, evaluator, SearchOptions())
    assert evaluator.launches == 20


def test_a_recording_is_read_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "recorded.csv"
    path.write_text("settings,block,value\n,1,2.0\n,0,1.0\na=y b=y,0,\na=y b=y,1,3.5\n")
    assert read_recorded(path) == {frozenset(): [1.0, 2.0], frozenset({"a=y", "b=y"}): [None, 3.5]}

"""What fits the budget of a tuning, and what the search does at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune.evaluator import AGAIN, BudgetSpent, Candidate, SearchOptions
from merge_bench.tune.result import LEFT_OUT, tuning_result_of
from merge_bench.tune.search_steps import confirm_or_repair_best
from merge_bench.tune.space import SettingValue
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tune_campaign import TuningBudget, candidates_worth_confirming, fit_search_to_timed_baseline
from merge_bench.tune.tuning_plan import AffordableSearch, TuningCosts, fit_search_to_budget, make_left_out_record_lines
from tests.tune.clusters import PREPARED, TRUTH, Cluster, begin, evaluator_of, search
from tests.tune.factorials import Truth
from tests.tune.replay_evaluator import Recorded

VALUES = tuple(TRUTH.space.values)


def costs(*launch: float) -> TuningCosts:
    def first_block(values: Sequence[SettingValue]) -> int:
        return len(values) + 2

    return TuningCosts(launch, first_block, confirm_blocks=8)


# With a launch of 4 s: 3 blocks of 3, 4 or 5 launches take 36, 48 or 60 s, a confirmation 64 s.
@pytest.mark.parametrize(("budget", "values"), [(124.0, 3), (123.9, 2), (112.0, 2), (111.9, 1), (100.0, 1)])
def test_as_many_settings_are_tried_as_can_be_judged_and_confirmed(budget: float, values: int) -> None:
    assert fit_search_to_budget(VALUES, costs(4.0), budget) == AffordableSearch(VALUES[:values], 1)


def test_a_size_is_left_out_before_a_setting_is() -> None:
    assert fit_search_to_budget(VALUES, costs(4.0, 16.0), 380.0) == AffordableSearch(VALUES, 2)
    assert fit_search_to_budget(VALUES, costs(4.0, 16.0), 379.9) == AffordableSearch(VALUES, 1)


def test_a_budget_for_no_comparison_is_refused_with_the_least_that_suffices() -> None:
    with pytest.raises(UsageError, match=r"90s is too short .* 25 launches of about 4 seconds; .*use --budget 2m"):
        fit_search_to_budget(VALUES, costs(4.0, 16.0), 90.0)
    assert fit_search_to_budget(VALUES, costs(4.0 * 1.2, 16.0), 120.0) == AffordableSearch(
        VALUES[:1], 1
    )  # also if launches become slower


@pytest.mark.parametrize("seconds", [62.0, 90.0, 130.0, 201.0])
def test_no_launch_begins_once_the_budget_is_spent(tmp_path: Path, seconds: float) -> None:
    with begin(tmp_path) as writer, pytest.raises(BudgetSpent):
        search(evaluator_of(writer, Cluster(writer).launch, budget=TuningBudget(seconds=seconds)))
    assert 0.0 < sum(lengths(writer.folder)) < seconds + 4.0


def test_launches_that_become_slow_end_the_search_in_the_middle_of_a_block(tmp_path: Path) -> None:
    with begin(tmp_path) as writer:
        cluster = Cluster(writer)

        def launch(job: PlannedLaunch, index: int) -> int:
            cluster.seconds = 4.0 if index < 7 else 30.0
            return cluster.launch(job, index)

        evaluator = evaluator_of(writer, launch, budget=TuningBudget(seconds=50.0))
        with pytest.raises(BudgetSpent):
            search(evaluator)
    assert lengths(writer.folder) == [4.0] * 7 + [30.0]  # the second block is of five launches
    found = tuning_result_of(read_campaign(writer.folder))
    assert {line.setting for line in found.singles} == {
        value.value_id for value in VALUES
    }  # what they show is not lost
    assert {(line.reason, line.launches) for line in found.singles} == {
        ("undecided after 1 block, when its time was up", 1)
    }
    assert found.outcome_heading == f"Not decided: too few blocks to judge {len(VALUES)} of {len(VALUES)} candidates"


def test_the_search_leaves_time_for_the_confirmation(tmp_path: Path) -> None:
    budget = TuningBudget(seconds=250.0, weights=(1.0, 2.0), confirm=7)
    with begin(tmp_path) as writer, pytest.raises(BudgetSpent):
        search(evaluator_of(writer, Cluster(writer).launch, budget=budget))
    kept = 3 * 14 * 4.0  # the launches at the second size count twice
    assert 60.0 < sum(lengths(writer.folder)) <= 250.0 - kept


FLAT = Truth(dict.fromkeys("abc", 1.0), outliers=0.0).space
LEVEL = (0.9, 1.0, 1.1)  # no estimate leads, and no interval decides
SWAYING = (1.4, 0.9, 1.3)  # the estimate leads


def swaying(**by: Sequence[float]) -> Recorded:
    """Launches of the baseline, all alike, and of single settings, in turn so many times as fast."""
    return {frozenset(): [1e9] * 24} | {
        frozenset([f"{name}=y"]): [1e9 * factors[block % len(factors)] for block in range(24)]
        for name, factors in by.items()
    }


def screened(folder: Path, seconds: float, speed: Recorded) -> tuple[Campaign, str]:
    """A race within so many seconds, and why it ended."""
    budget = TuningBudget(seconds=seconds, weights=(1.0,), confirm=7)
    with begin(folder) as writer:
        evaluator = evaluator_of(writer, Cluster(writer, speed=speed).launch, budget=budget, prepared=PREPARED[:1])
        with pytest.raises(BudgetSpent) as spent:
            strategies()["race"].tune(FLAT, FLAT.values, evaluator, SearchOptions(confirm=7))
    return read_campaign(writer.folder), str(spent.value)


def test_where_nothing_seems_faster_no_time_is_kept_for_a_confirmation(tmp_path: Path) -> None:
    """It was, so that half of the budget was given up: nothing was there to confirm."""
    campaign, why = screened(tmp_path, 130.0, swaying(a=LEVEL, b=LEVEL, c=LEVEL))
    assert sum(lengths(campaign.folder)) == 120.0  # a block of 3 more launches would be too many
    assert why.endswith("its budget is used up")
    assert candidates_worth_confirming(campaign, FLAT.values) == []


def test_the_last_of_the_budget_goes_to_the_best_of_what_is_undecided(tmp_path: Path) -> None:
    worse = tuple(0.97 * each for each in LEVEL)
    campaign, _ = screened(tmp_path, 132.0, swaying(a=worse, b=LEVEL, c=worse))
    blocks = {line.setting: line.launches for line in campaign.tuning if line.setting}
    assert blocks == {"a=y": 6, "b=y": 7, "c=y": 6}  # 6 blocks of 5 launches, then one of 3


@pytest.mark.parametrize(("seconds", "blocks"), [(150.0, (3, 3, 3)), (170.0, (4, 4, 3))])
def test_time_is_left_to_confirm_both_that_seem_faster_and_the_rest_is_for_these(
    tmp_path: Path, seconds: float, blocks: tuple[int, ...]
) -> None:
    """A fourth block of all took the time in which a second one could have been confirmed."""
    # 3 blocks of 5 launches take 60 s, 7 of 3 in the confirmation 84, and a block of both that seem faster 16.
    campaign, _ = screened(tmp_path, seconds, swaying(a=SWAYING, b=SWAYING, c=LEVEL))
    assert tuple(line.launches for line in campaign.tuning if line.setting) == blocks
    assert [each.config_name("") for each in candidates_worth_confirming(campaign, FLAT.values)] == ["a=y", "b=y"]


def test_time_is_left_to_confirm_what_seems_faster_after_all_its_blocks(tmp_path: Path) -> None:
    """It went into blocks of those that seem slower, once those that seem faster had all of theirs."""
    # 3 blocks of 5 launches and 5 of 4 take 140 s, 7 of 3 in the confirmation 84, and a block of one more 12.
    campaign, _ = screened(tmp_path, 235.0, swaying(a=SWAYING, b=SWAYING, c=LEVEL))
    assert [line.launches for line in campaign.tuning if line.setting] == [8, 8, 3]


def test_winners_are_combined_only_in_the_time_that_confirming_each_alone_leaves(tmp_path: Path) -> None:
    # 3 blocks of 5 launches take 60 s, 7 of 3 in the confirmation 84, 3 blocks of the combination 24.
    fast = {**swaying(a=(1.1,), b=(1.2,), c=(0.5,)), frozenset(["a=y", "b=y"]): [1.3e9] * 24}
    campaign, why = screened(tmp_path, 167.0, fast)
    assert why.endswith("the rest of the budget is for a confirmation")
    assert sum(launch.run_key == ("a=y+b=y", 0) for launch in campaign.launches) == 2
    assert [each.config_name("") for each in candidates_worth_confirming(campaign, FLAT.values)] == ["b=y", "a=y"]


def test_each_block_of_the_copy_counts_as_in_a_comparison(tmp_path: Path) -> None:
    """The first one, which times launches, was left out, so that `compare` showed another noise."""
    campaign, _ = waiting(tmp_path, 180.0, swaying(a=LEVEL, b=LEVEL, c=SWAYING))
    (copy,) = [run for run in campaign.runs if run.config.name.endswith(AGAIN)]
    noise = tuning_result_of(campaign).noise_floor
    assert noise is not None
    assert noise.launches == len(copy.launches) > 3


@pytest.mark.parametrize("b", [SWAYING, (0.985, 1.022, 1.03)], ids=["by far", "within noise and threshold"])
def test_an_undecided_candidate_that_seems_faster_is_confirmed_in_the_time_kept_for_it(
    tmp_path: Path, b: Sequence[float]
) -> None:
    campaign, why = screened(tmp_path, 130.0, swaying(a=LEVEL, b=b, c=LEVEL))
    assert sum(lengths(campaign.folder)) <= 130.0 - 14 * 4.0
    assert why.endswith("the rest of the budget is for a confirmation")
    assert candidates_worth_confirming(campaign, FLAT.values)[0].config_name("default") == "b=y"


def test_launches_that_become_slow_leave_time_for_a_confirmation(tmp_path: Path) -> None:
    """All were screened until the budget ended, and the one that seemed faster was left without its confirmation."""
    with begin(tmp_path) as writer:
        cluster = Cluster(writer, speed=swaying(a=LEVEL, b=SWAYING, c=LEVEL))

        def launch(job: PlannedLaunch, index: int) -> int:
            cluster.seconds = 4.0 if index < 10 else 6.0
            return cluster.launch(job, index)

        budget = TuningBudget(seconds=160.0, weights=(1.0,), confirm=7)
        evaluator = evaluator_of(writer, launch, budget=budget, prepared=PREPARED[:1])
        with pytest.raises(BudgetSpent):
            strategies()["race"].tune(FLAT, FLAT.values, evaluator, SearchOptions(confirm=7))
        found = candidates_worth_confirming(read_campaign(writer.folder), FLAT.values)[0]
        assert found.config_name("default") == "b=y"
        assert evaluator.has_time_to_confirm(6)
        confirm_or_repair_best(found, evaluator, SearchOptions(confirm=7))
    (line,) = tuning_result_of(read_campaign(writer.folder)).confirmed
    assert line.launches >= 6


def waiting(folder: Path, seconds: float, speed: Recorded) -> tuple[Campaign, Candidate]:
    """A race that begins with one of three candidates, because the first launches took long."""
    with begin(folder, values=["a=y", "b=y", "c=y"], budget=[None, seconds]) as writer:
        budget = TuningBudget(seconds=seconds, weights=(1.0,), confirm=7)
        evaluator = evaluator_of(writer, Cluster(writer, speed=speed).launch, budget=budget, prepared=PREPARED[:1])
        task = cast(
            "Any",
            SimpleNamespace(values=FLAT.values, space=FLAT, prepared=PREPARED[:1], baseline="default", command=None),
        )
        evaluator.measure_baseline_seconds()
        for line in make_left_out_record_lines(task, AffordableSearch(FLAT.values[:1], 1), seconds):
            evaluator.record_step(line)
        evaluator.waiting = FLAT.values[1:]
        found = Candidate()
        try:
            found = strategies()["race"].tune(FLAT, FLAT.values[:1], evaluator, SearchOptions(confirm=7))
        except BudgetSpent:
            found = candidates_worth_confirming(read_campaign(writer.folder), FLAT.values)[0]
        confirm_or_repair_best(found, evaluator, SearchOptions(confirm=7))
    return read_campaign(writer.folder), found


def test_candidates_that_waited_join_as_soon_as_there_is_time_for_them_and_a_confirmation(tmp_path: Path) -> None:
    campaign, found = waiting(tmp_path, 180.0, swaying(a=LEVEL, b=LEVEL, c=SWAYING))
    result = tuning_result_of(campaign)
    assert {line.setting for line in result.singles} == {"a=y", "b=y", "c=y"}
    assert (result.left_out, found.config_name("default")) == ([], "c=y")
    assert [line.launches for line in result.confirmed] == [7]
    assert sum(lengths(campaign.folder)) <= 180.0


def test_candidates_for_which_there_is_no_time_beside_a_confirmation_stay_out(tmp_path: Path) -> None:
    # 2 + 3 × 3 launches until the first is judged, 14 of a confirmation; more take a tenth longer.
    campaign, _ = waiting(tmp_path, 112.0, swaying(a=SWAYING, b=LEVEL, c=LEVEL))
    result = tuning_result_of(campaign)
    assert [each.value for each in result.left_out] == ["b=y", "c=y"]
    assert [line.launches for line in result.confirmed] == [7]


@pytest.mark.parametrize(("launches", "blocks"), [(12, 6), (13, 6), (11, None)])
def test_a_confirmation_that_the_budget_ends_is_judged_by_the_blocks_that_a_verdict_needs(
    tmp_path: Path, launches: int, blocks: int | None
) -> None:
    with begin(tmp_path) as writer:
        budget = TuningBudget(seconds=4.0 * launches, weights=(1.0,), confirm=8)
        evaluator = evaluator_of(writer, Cluster(writer).launch, budget=budget, prepared=PREPARED[:1])
        assert evaluator.has_time_to_confirm(6) is True  # before the first launch nothing is known of their time
        found = Candidate.from_values(VALUES[0])
        if blocks is None:
            with pytest.raises(BudgetSpent):
                confirm_or_repair_best(found, evaluator, SearchOptions(confirm=8))
            assert not evaluator.has_time_to_confirm(6)
            (line,) = tuning_result_of(read_campaign(writer.folder)).broken_off  # what it shows is not lost
            assert (line.decision, line.launches, line.ratio) == ("undecided", 5, pytest.approx(1.5, rel=0.05))
            return
        assert confirm_or_repair_best(found, evaluator, SearchOptions(confirm=8)) == found
    (line,) = read_campaign(writer.folder).tuning
    assert (line.decision, line.launches) == ("accepted", blocks)


def lengths(folder: Path) -> list[float]:
    """Seconds of each launch."""
    return [launch.end.seconds or 0.0 for launch in read_campaign(folder).launches if launch.end]


@dataclass
class _Timing:
    """As `tune.tuning_plan.TuningTiming`, with the costs of this file."""

    budget: float
    jobs: int = 1
    measured: Sequence[float] = ()
    said: list[AffordableSearch] = field(default_factory=list)

    @property
    def relative_launch_seconds(self) -> tuple[float, ...]:
        return tuple(each / self.measured[0] for each in self.measured) or (1.0,) * self.jobs

    def choose_affordable_search(self, launch: float) -> AffordableSearch:
        return fit_search_to_budget(
            VALUES, costs(*(launch * weight for weight in self.relative_launch_seconds)), self.budget
        )

    def print_duration_forecast(self, fitting: AffordableSearch) -> None:
        self.said.append(fitting)


def fitted(writer: CampaignWriter, budget: float, made: float) -> tuple[AffordableSearch, int]:
    """What fits by the first launch, which takes `made` seconds, and how many launches it took to know."""
    cluster = Cluster(writer, seconds=made)
    task = cast("Any", SimpleNamespace(values=VALUES, prepared=PREPARED[:1], baseline="default", command=None))
    evaluator = evaluator_of(writer, cluster.launch, budget=TuningBudget(seconds=budget))
    return fit_search_to_timed_baseline(task, cast("Any", _Timing(budget)), evaluator), cluster.made


def test_the_first_two_launches_decide_what_fits_and_a_resumed_tuning_decides_the_same(tmp_path: Path) -> None:
    with begin(tmp_path) as writer:
        assert fitted(writer, 250.0, 8.0) == (AffordableSearch(VALUES[:3], 1), 2)
        assert fitted(writer, 230.0, 99.0) == (AffordableSearch(VALUES[:2], 1), 0)  # the launch is in the records
        lines = read_campaign(writer.folder).tuning
        assert [(line.setting, line.decision) for line in lines] == [(VALUES[2].value_id, LEFT_OUT)]
        assert fitted(writer, 230.0, 99.0)[0].values == VALUES[:2]
    assert len(read_campaign(writer.folder).tuning) == 1
    left = tuning_result_of(read_campaign(writer.folder)).left_out
    assert [each.value for each in left] == [VALUES[2].value_id]


@pytest.mark.parametrize(("large", "sizes"), [(8.0, 2), (12.0, 1)])
def test_how_long_launches_take_at_another_size_is_measured(tmp_path: Path, large: float, sizes: int) -> None:
    """The rule of thumb said 6 s where it was 9, and the budget ended in the middle of the confirmation."""
    with begin(tmp_path) as writer:
        cluster = Cluster(writer)

        def launch(job: PlannedLaunch, index: int) -> int:
            cluster.seconds = (4.0, large)[job.plan]
            return cluster.launch(job, index)

        task = cast("Any", SimpleNamespace(values=VALUES, prepared=PREPARED, baseline="default", command=None))
        evaluator = evaluator_of(writer, launch, budget=TuningBudget(seconds=300.0))
        timing = _Timing(300.0, jobs=2)
        fitting = fit_search_to_timed_baseline(task, cast("Any", timing), evaluator)
        # 60 s until all can be judged, 64 s to confirm one at the first size, 128 or 192 s at the second.
        assert fitting == AffordableSearch(VALUES, sizes)
        assert timing.measured == [4.0, large]
        assert evaluator.budget.weights == (1.0, large / 4.0)[:sizes]
        assert cluster.made == 3
        again = evaluator_of(writer, launch, budget=TuningBudget(seconds=300.0))
        assert fit_search_to_timed_baseline(task, cast("Any", _Timing(300.0, jobs=2)), again) == fitting
        assert cluster.made == 3  # what is in the records is not made again


def test_a_first_launch_that_shows_that_nothing_fits_ends_the_search(tmp_path: Path) -> None:
    with begin(tmp_path) as writer, pytest.raises(BudgetSpent, match=r"use --budget 4m or more"):
        fitted(writer, 100.0, 8.0)

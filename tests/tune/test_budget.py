"""What fits the budget of a tuning, and what the search does at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from merge_bench.campaign.planned_launches import Job
from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune.budget import Costs, Fitting, fit
from merge_bench.tune.cluster_evaluator import Budget
from merge_bench.tune.evaluator import BudgetSpent
from merge_bench.tune.result import LEFT_OUT, result_of
from merge_bench.tune.space import Value
from merge_bench.tune.tune_campaign import _fit_recorded
from tests.tune.clusters import PREPARED, TRUTH, Cluster, begin, evaluator_of, search

VALUES = tuple(TRUTH.space.values)


def costs(*launch: float) -> Costs:
    def first_block(values: Sequence[Value]) -> int:
        return len(values) + 2

    return Costs(launch, first_block, confirm=8)


# With a launch of 4 s: 3 blocks of 3, 4 or 5 launches take 36, 48 or 60 s, a confirmation 64 s.
@pytest.mark.parametrize(("budget", "values"), [(124.0, 3), (123.9, 2), (112.0, 2), (111.9, 1), (100.0, 1)])
def test_as_many_settings_are_tried_as_can_be_judged_and_confirmed(budget: float, values: int) -> None:
    assert fit(VALUES, costs(4.0), budget) == Fitting(VALUES[:values], 1)


def test_a_size_is_left_out_only_if_no_setting_fits_with_it() -> None:
    assert fit(VALUES, costs(4.0, 16.0), 356.0) == Fitting(VALUES[:1], 2)
    assert fit(VALUES, costs(4.0, 16.0), 355.9) == Fitting(VALUES, 1)


def test_a_budget_for_no_comparison_is_refused_with_the_least_that_suffices() -> None:
    with pytest.raises(UsageError, match=r"90s is too short .* 25 launches of about 4 seconds; use --budget 100s"):
        fit(VALUES, costs(4.0, 16.0), 90.0)
    assert fit(VALUES, costs(4.0, 16.0), 100.0) == Fitting(VALUES[:1], 1)


@pytest.mark.parametrize("seconds", [62.0, 90.0, 130.0, 201.0])
def test_no_launch_begins_once_the_budget_is_spent(tmp_path: Path, seconds: float) -> None:
    with begin(tmp_path) as writer, pytest.raises(BudgetSpent):
        search(evaluator_of(writer, Cluster(writer).launch, budget=Budget(seconds=seconds)))
    assert 0.0 < sum(lengths(writer.folder)) < seconds + 4.0


def test_launches_that_become_slow_end_the_search_in_the_middle_of_a_block(tmp_path: Path) -> None:
    with begin(tmp_path) as writer:
        cluster = Cluster(writer)

        def launch(job: Job, index: int) -> int:
            cluster.seconds = 4.0 if index < 7 else 30.0
            return cluster.launch(job, index)

        evaluator = evaluator_of(writer, launch, budget=Budget(seconds=50.0))
        with pytest.raises(BudgetSpent):
            search(evaluator)
    assert lengths(writer.folder) == [4.0] * 7 + [30.0]  # the second block is of five launches
    found = result_of(read_campaign(writer.folder))
    assert {line.setting for line in found.singles} == {value.id for value in VALUES}  # what they show is not lost
    assert {(line.reason, line.launches) for line in found.singles} == {("undecided after 1 block", 1)}
    assert found.outcome == f"Not decided: {len(VALUES)} of {len(VALUES)} candidates may be faster than default"


def test_the_search_leaves_time_for_the_confirmation(tmp_path: Path) -> None:
    budget = Budget(seconds=250.0, weights=(1.0, 2.0), confirm=7)
    with begin(tmp_path) as writer, pytest.raises(BudgetSpent):
        search(evaluator_of(writer, Cluster(writer).launch, budget=budget))
    kept = 3 * 14 * 4.0  # the launches at the second size count twice
    assert 60.0 < sum(lengths(writer.folder)) <= 250.0 - kept


def lengths(folder: Path) -> list[float]:
    """Seconds of each launch."""
    return [launch.end.seconds or 0.0 for launch in read_campaign(folder).launches if launch.end]


@dataclass
class _Timing:
    """As `tune.timing.Timing`, with the costs of this file."""

    budget: float
    weights: tuple[float, ...] = (1.0, 1.0)
    said: list[Fitting] = field(default_factory=list)

    def fit(self, launch: float) -> Fitting:
        return fit(VALUES, costs(launch), self.budget)

    def say(self, fitting: Fitting) -> None:
        self.said.append(fitting)


def fitted(writer: CampaignWriter, budget: float, made: float) -> tuple[Fitting, int]:
    """What fits by the first launch, which takes `made` seconds, and how many launches it took to know."""
    cluster = Cluster(writer, seconds=made)
    task = cast("Any", SimpleNamespace(values=VALUES, prepared=PREPARED[:1], baseline="default"))
    evaluator = evaluator_of(writer, cluster.launch, budget=Budget(seconds=budget))
    return _fit_recorded(task, cast("Any", _Timing(budget)), evaluator), cluster.made


def test_the_first_launch_decides_what_fits_and_a_resumed_tuning_decides_the_same(tmp_path: Path) -> None:
    with begin(tmp_path) as writer:
        assert fitted(writer, 250.0, 8.0) == (Fitting(VALUES[:3], 1), 1)
        assert fitted(writer, 230.0, 99.0) == (Fitting(VALUES[:2], 1), 0)  # the launch is in the records
        lines = read_campaign(writer.folder).tuning
        assert [(line.setting, line.decision) for line in lines] == [(VALUES[2].id, LEFT_OUT)]
        assert fitted(writer, 230.0, 99.0)[0].values == VALUES[:2]
    assert len(read_campaign(writer.folder).tuning) == 1
    left = result_of(read_campaign(writer.folder)).left_out
    assert [each.value for each in left] == [VALUES[2].id]


def test_a_first_launch_that_shows_that_nothing_fits_ends_the_search(tmp_path: Path) -> None:
    with begin(tmp_path) as writer, pytest.raises(BudgetSpent, match=r"use --budget 3\.5m or more"):
        fitted(writer, 100.0, 8.0)

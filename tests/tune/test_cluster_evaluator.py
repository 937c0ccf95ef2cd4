"""A real evaluator over launches that write real records, cut off wherever that hurts, and gone on with."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from merge_bench.campaign.make_plan import PlannedRun
from merge_bench.campaign.planned_launches import PlannedLaunch
from merge_bench.cluster.signals import Interrupted
from merge_bench.errors import RecordsNotWritten, RunFailed, UsageError, WrongResult
from merge_bench.records import schema as s
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune.evaluator import BudgetSpent, Candidate, SearchOptions
from merge_bench.tune.result import tuning_result_of
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tune_campaign import TuningBudget
from merge_bench.tune.tuned_config import candidate_config_text, candidate_file_name
from tests.tune.clusters import (
    OPTIONS,
    PREPARED,
    TRUTH,
    Cluster,
    Cut,
    begin,
    evaluator_of,
    failing,
    made,
    reopened,
    search,
    steps,
)
from tests.tune.factorials import value
from tests.tune.replay_evaluator import recorded_in


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The tuning that nobody interrupted."""
    with begin(tmp_path_factory.mktemp("whole")) as writer:
        found = search(evaluator_of(writer, Cluster(writer).launch))
    assert {each.setting for each in found.values} == {"a", "b"}
    return read_campaign(writer.folder)


def same(campaign: Campaign, whole: Campaign) -> None:
    """No launch lost, none made twice, the same steps."""
    assert made(campaign) == made(whole)
    assert set(made(campaign).values()) == {1}
    assert steps(campaign) == steps(whole)
    assert [line.config.name for line in campaign.added] == [line.config.name for line in whole.added]


@pytest.mark.parametrize("where", ["before", "middle", "half", "after"])
def test_wherever_it_is_cut_off_the_same_command_goes_on(tmp_path: Path, whole: Campaign, where: str) -> None:
    launches = len(whole.launches)
    for cut in {0, launches - 1, *random.Random(where).sample(range(launches), 5)}:
        with begin(tmp_path / str(cut)) as writer, pytest.raises(Cut):
            search(evaluator_of(writer, Cluster(writer, cut, where).launch))
        with reopened(writer.folder) as again:
            search(evaluator_of(again, Cluster(again).launch))
        same(read_campaign(writer.folder), whole)


def test_interrupted_again_and_again_it_comes_to_the_same(tmp_path: Path, whole: Campaign) -> None:
    rng, writer, times = random.Random(11), begin(tmp_path), 0
    while True:
        cluster = Cluster(writer, rng.randrange(12), rng.choice(["before", "middle", "half", "after"]))
        try:
            search(evaluator_of(writer, cluster.launch))
            break
        except Cut:
            times += 1
        finally:
            writer.close()
        writer = reopened(writer.folder)
    assert times > 3
    same(read_campaign(writer.folder), whole)


def test_steps_are_the_same_after_one_was_lost(tmp_path: Path, whole: Campaign) -> None:
    """Cut off between a launch and the line that says what was decided by it."""
    with begin(tmp_path) as writer:
        evaluator = evaluator_of(writer, Cluster(writer).launch)
        write, count = evaluator.record_step, [0]

        def note(line: s.TuningStepLine) -> None:
            count[0] += 1
            if count[0] == 3:
                raise Cut
            write(line)

        evaluator.record_step = note
        with pytest.raises(Cut):
            search(evaluator)
    with reopened(writer.folder) as again:
        search(evaluator_of(again, Cluster(again).launch))
    same(read_campaign(writer.folder), whole)


def test_confirming_uses_no_launch_of_the_search(whole: Campaign) -> None:
    confirmed = {line.config for line in whole.tuning if line.phase == "confirm"}
    assert confirmed == {"a=y+b=y"}
    blocks = {launch.block_index for launch in whole.launches if launch.run_key == ("a=y+b=y", 1)}
    small = sorted(launch.block_index or 0 for launch in whole.launches if launch.run_key == ("a=y+b=y", 0))
    assert len(blocks) == OPTIONS.confirm
    searched = small[: -OPTIONS.confirm]  # the sizes are confirmed in turn
    assert searched[-1] < small[-OPTIONS.confirm] == min(block or 0 for block in blocks) - 1
    assert len(small) >= 3 + OPTIONS.confirm


@pytest.mark.parametrize("launches", [5, 15, 17, 25, 40])
def test_no_more_launches_than_the_budget_are_made_for_searching(tmp_path: Path, launches: int) -> None:
    with begin(tmp_path) as writer:
        cluster = Cluster(writer)
        with pytest.raises(BudgetSpent):
            strategies()["race"].tune(
                TRUTH.space,
                TRUTH.space.values,
                evaluator_of(writer, cluster.launch, budget=TuningBudget(launches=launches)),
                SearchOptions(least=12, most=20),
            )
    assert launches - 5 < cluster.made <= launches


def test_a_display_tells_the_search_from_the_confirmation(tmp_path: Path) -> None:
    with begin(tmp_path) as writer:
        cluster, labels = Cluster(writer), []

        def launch(job: PlannedLaunch, index: int) -> int:
            labels.append(evaluator.launch_label(job))
            return cluster.launch(job, index)

        evaluator = evaluator_of(writer, launch)
        search(evaluator)
    phases = [label.partition(", ")[0] for label in labels]
    confirming = phases.index("confirm")
    assert set(phases[:confirming]) == {"search"}
    assert set(phases[confirming:]) == {"confirm"}
    assert labels[0].startswith("search, launch 0, ")


def test_seconds_of_the_budget_are_those_of_the_records(tmp_path: Path) -> None:
    def spent(writer: CampaignWriter, cluster: Cluster) -> str:
        with pytest.raises(BudgetSpent) as stop:
            search(evaluator_of(writer, cluster.launch, budget=TuningBudget(seconds=20.0)))
        return str(stop.value)

    with begin(tmp_path / "once") as writer:
        once = spent(writer, Cluster(writer))
    with begin(tmp_path / "twice") as writer, pytest.raises(Cut):
        search(evaluator_of(writer, Cluster(writer, 4).launch, budget=TuningBudget(seconds=20.0)))
    with reopened(writer.folder) as again:
        assert spent(again, Cluster(again)) == once


def test_an_interruption_while_a_config_is_read_is_no_failure_of_it(tmp_path: Path) -> None:
    def load(path: Path) -> list[PlannedRun]:
        raise Interrupted("interrupted by SIGINT")

    with begin(tmp_path) as writer, pytest.raises(Interrupted):
        search(evaluator_of(writer, Cluster(writer).launch, load=load))


def test_a_config_that_is_refused_costs_no_launch_and_does_not_win(tmp_path: Path) -> None:
    def load(path: Path) -> list[PlannedRun]:
        if "UCX_A=" in path.read_text():
            raise UsageError("UCX_A is unknown")
        return PREPARED

    with begin(tmp_path) as writer:
        found = search(evaluator_of(writer, Cluster(writer).launch, load=load))
    campaign = read_campaign(writer.folder)
    assert {each.setting for each in found.values} == {"b"}
    assert not any("a=y" in launch.run_key[0] for launch in campaign.launches if launch.run_key)
    (failed,) = tuning_result_of(campaign).failures
    assert (failed.setting, failed.reason) == ("a=y", "failed 2 times: UCX_A is unknown")


def test_a_baseline_that_fails_ends_the_tuning(tmp_path: Path) -> None:
    with begin(tmp_path) as writer, pytest.raises(RunFailed, match=r"the baseline failed 3 times .*: it died"):
        search(evaluator_of(writer, failing(writer, "default", "run-failed", "it died")))


def test_a_baseline_whose_result_is_wrong_ends_the_tuning_at_once(tmp_path: Path) -> None:
    with begin(tmp_path) as writer, pytest.raises(WrongResult, match="baseline default gave a wrong"):
        search(evaluator_of(writer, failing(writer, "default", WrongResult.code, "1 row too many")))


def test_a_wrong_result_never_wins(tmp_path: Path) -> None:
    with begin(tmp_path) as writer:
        found = search(evaluator_of(writer, failing(writer, "a=y", WrongResult.code, "1 row too many")))
    assert value("a") not in found.values


def test_a_launch_for_which_the_disk_had_no_room_is_made_again(tmp_path: Path, whole: Campaign) -> None:
    with begin(tmp_path) as writer, pytest.raises(RunFailed, match="could not be recorded"):
        search(evaluator_of(writer, failing(writer, "a=y", RecordsNotWritten.code, "no space left on device")))
    with reopened(writer.folder) as again:
        search(evaluator_of(again, Cluster(again).launch))
    assert made(read_campaign(writer.folder)) == made(whole)


def test_what_was_measured_can_be_replayed(whole: Campaign) -> None:
    recorded = recorded_in(whole)
    assert set(recorded) >= {frozenset(), frozenset({"a=y"}), frozenset({"a=y", "b=y"})}
    own = [launch for launch in whole.launches if launch.run_key == ("default", 0)]
    assert len(recorded[frozenset()]) == len(own)  # the twin's launches are not among them


def test_a_candidates_settings_stand_after_the_baselines_and_win() -> None:
    text = candidate_config_text("export UCX_A=n \\", Candidate.from_values(value("a"), value("b")))
    assert text == "export UCX_A=n \\\n\nexport UCX_A=y\nexport UCX_B=y\n"


@pytest.mark.parametrize("name", ["a/b=y", "é" * 200, "x=y+" * 60 + "x=z", "..", "a\nb"])
def test_every_name_is_a_file_name_of_its_own(name: str) -> None:
    made = candidate_file_name(name)
    assert len(made.encode()) < 200
    assert "/" not in made
    assert made.isprintable()
    assert not made.startswith(".")
    assert made != candidate_file_name(name + "+")
    assert candidate_file_name("mutex=y+rails=2") == "mutex=y+rails=2"

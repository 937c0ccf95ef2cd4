"""A full factorial that was measured on a real machine, replayed: the race against all combinations, and cut off."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from merge_bench.tune.evaluator import Candidate, SearchOptions
from merge_bench.tune.result import tuning_result_of
from merge_bench.tune.search_steps import confirm_or_repair_best
from merge_bench.tune.space import Setting, SettingValue, TuningSpace
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tune_campaign import ClusterEvaluator
from tests.tune.clusters import Cluster, Cut, begin, evaluator_of, made, reopened, steps
from tests.tune.replay_evaluator import ReplayEvaluator, read_recorded
from tests.tune.replays import replay

RECORDED = read_recorded(Path(__file__).parents[1] / "data" / "factorial-2x4.csv")
BLOCKS = 6
OPTIONS = SearchOptions(most=BLOCKS, confirm=7)
EXHAUSTIVE = BLOCKS * 2**4
SHARED_MEMORY = frozenset({"sysv-error-handling=y"})
WHERE = ("before", "middle", "half", "after")


def _setting(name: str, label: str) -> Setting:
    variable = name.upper().replace("-", "_")
    return Setting(name, (SettingValue(name, label, ((f"UCX_{variable}", label),)),))


SPACE = TuningSpace(tuple(_setting(*each.split("=")) for each in sorted(frozenset().union(*RECORDED))), "0" * 64)


@dataclass(frozen=True)
class Found:
    """What a strategy made of the recorded blocks, and what it would have cost."""

    ids: frozenset[str]
    launches: int


def replayed(strategy: str, order: Sequence[int], baseline: frozenset[str] = frozenset()) -> Found:
    """The search over the recorded blocks in this order, all combinations of a block staying together.

    `baseline`: the combination that counts as the baseline; an id then stands for changing that setting, to or fro.
    """
    recorded = {ids ^ baseline: [values[block] for block in order] for ids, values in RECORDED.items()}
    evaluator = ReplayEvaluator(recorded)
    found = strategies()[strategy].tune(SPACE, SPACE.values, evaluator, OPTIONS)
    return Found(frozenset(value.value_id for value in found.values), evaluator.launches)


def test_every_combination_was_launched_in_every_block() -> None:
    assert len(SPACE.values) == 4
    assert len(RECORDED) == 2**4
    assert {len(values) for values in RECORDED.values()} == {BLOCKS}


def test_the_race_finds_what_all_combinations_find_in_half_the_launches_whatever_the_order_of_blocks() -> None:
    orders = list(itertools.permutations(range(BLOCKS)))
    races = [replayed("race", order) for order in orders]
    wholes = [replayed("exhaustive", order) for order in orders[::40]]
    assert {whole.launches for whole in wholes} == {EXHAUSTIVE}
    assert {race.ids for race in races} == {whole.ids for whole in wholes} == {SHARED_MEMORY}
    assert max(race.launches for race in races) <= EXHAUSTIVE / 2


def test_whichever_combination_is_the_baseline_the_race_finds_nothing_that_is_not_there() -> None:
    """Shared memory is what is worth something, for the eight that lack it.

    Two of sixteen tell why races and all combinations may differ. In one, the only change that gains has a launch at
    803 MB/s beside five around 1,250, so that six blocks of it do not suffice in most orders, where all combinations
    have seven others that hold it. In the other, all combinations take the largest of fifteen estimates, 1.026.
    """
    agreed, launches = 0, []
    for baseline in RECORDED:
        races = [replayed("race", random.Random(seed).sample(range(BLOCKS), BLOCKS), baseline) for seed in range(20)]
        launches += [race.launches for race in races]
        wanted = SHARED_MEMORY - baseline
        found = {race.ids for race in races}
        assert found <= {wanted, frozenset()}, baseline
        agreed += found == {wanted}
    assert agreed >= 15
    assert 2 * max(launches) <= EXHAUSTIVE


def search(evaluator: ClusterEvaluator) -> Candidate:
    return confirm_or_repair_best(
        strategies()["race"].tune(SPACE, SPACE.values, evaluator, OPTIONS), evaluator, OPTIONS
    )


def launches_of(writer: CampaignWriter, cut: int | None = None, where: str = "middle") -> Cluster:
    return Cluster(writer, cut, where, speed=RECORDED)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The tuning that nobody interrupted."""
    with begin(tmp_path_factory.mktemp("whole")) as writer:
        search(evaluator_of(writer, launches_of(writer).launch))
    return read_campaign(writer.folder)


@pytest.mark.slow
def test_cut_off_at_any_one_launch_it_comes_to_the_same_winner(tmp_path: Path, whole: Campaign) -> None:
    for cut in range(len(whole.launches)):
        with begin(tmp_path / str(cut)) as writer, pytest.raises(Cut):
            search(evaluator_of(writer, launches_of(writer, cut, WHERE[cut % len(WHERE)]).launch))
        with reopened(writer.folder) as again:
            search(evaluator_of(again, launches_of(again).launch))
        same(read_campaign(writer.folder), whole)


def test_cut_off_at_every_launch_it_comes_to_the_same_winner(tmp_path: Path, whole: Campaign) -> None:
    writer, cuts = begin(tmp_path), 0
    while True:
        try:
            with writer:
                search(evaluator_of(writer, launches_of(writer, 1, WHERE[cuts % len(WHERE)]).launch))
            break
        except Cut:
            cuts += 1
            writer = reopened(writer.folder)
    assert cuts >= len(whole.launches) / 2
    same(read_campaign(writer.folder), whole)


def same(campaign: Campaign, whole: Campaign) -> None:
    """No launch lost, none made twice, the same steps to the same winner."""
    assert made(campaign) == made(whole)
    assert set(made(campaign).values()) == {1}
    assert steps(campaign) == steps(whole)
    winners = [tuning_result_of(each).winner for each in (campaign, whole)]
    assert [winner.settings for winner in winners if winner] == [["sysv-error-handling=y"]] * 2


def test_the_launches_alone_lead_to_the_same_decisions(tmp_path: Path, whole: Campaign) -> None:
    anew = replay(whole, tmp_path, SPACE, OPTIONS)
    assert steps(anew.campaign) == steps(whole)
    assert Counter(anew.asked) == made(whole)
    lost = replace(whole, records=tmp_path / "lost" / "records.jsonl")
    lost.folder.mkdir()
    lines = whole.records.read_bytes().splitlines(keepends=True)
    lost.records.write_bytes(b"".join(line for line in lines if json.loads(line).get("launch") != 7))
    with pytest.raises(AssertionError, match="is not recorded"):
        replay(lost, tmp_path / "again", SPACE, OPTIONS)

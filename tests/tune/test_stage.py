"""What a tuning says of itself while it runs, from its records as they were at that moment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.tune.result import OPEN, decision_text
from merge_bench.tune.stage import TuningStage, tuning_stage_of
from tests.tune.clusters import OPTIONS, Cluster, begin, evaluator_of, search

RECORDED = Path(__file__).parents[1] / "data" / "campaigns" / "tune" / "records.jsonl"


def cut(records: Path, folder: Path) -> Iterator[Campaign]:
    """The campaign as it was after each of its launches."""
    lines = records.read_bytes().splitlines(keepends=True)
    for at, line in enumerate(lines, 1):
        if b'"launch_end"' in line:
            (folder / "records.jsonl").write_bytes(b"".join(lines[:at]))
            yield read_campaign(folder)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> list[TuningStage]:
    """The stages of a tuning of the real command: 4 settings in 3 blocks."""
    return [tuning_stage_of(campaign) for campaign in cut(RECORDED, tmp_path_factory.mktemp("real"))]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[TuningStage]:
    """The stages of a tuning that combines two settings and confirms them at two sizes, of 1000 seconds at most."""
    with begin(tmp_path_factory.mktemp("tuned")) as writer:
        search(evaluator_of(writer, Cluster(writer).launch))
    head, _, rest = writer.records.read_bytes().partition(b"\n")
    options = msgspec.json.decode(head)
    for plan in options["plans"]:
        plan["tune"] = {"strategy": "race", "confirm": OPTIONS.confirm, "budget": [None, 1000.0]}
    writer.records.write_bytes(msgspec.json.encode(options) + b"\n" + rest)
    return [tuning_stage_of(campaign) for campaign in cut(writer.records, tmp_path_factory.mktemp("cut"))]


def test_screening_counts_settings_and_blocks(real: list[TuningStage]) -> None:
    blocks = [re.sub(r".* with default, ", "", stage.doing) for stage in real]
    assert blocks == ["block 1 of 3"] * 5 + ["block 2 of 3"] * 6 + ["block 3 of 3"] * 7
    assert all(stage.doing.startswith("comparing each of 4 candidates alone with default, ") for stage in real)


def test_what_the_blocks_show_so_far_is_what_is_recorded_in_the_end(real: list[TuningStage]) -> None:
    decided = {line.config: line for line in read_campaign(RECORDED.parent).tuning}
    assert [len(stage.compared) for stage in real[:3]] == [0, 1, 2]
    for line in real[-1].compared:
        final = decided[line.config]
        assert (line.ratio, line.low, line.high) == (final.ratio, final.low, final.high)
        assert (line.launches, line.setting) == (3, final.setting)
        assert line.decision == OPEN
    assert [decision_text(line) for line in real[-1].compared] == [OPEN] * 4 + ["noise"]


def test_the_time_left_goes_down_and_without_a_budget_no_share_is_known(real: list[TuningStage]) -> None:
    assert all(stage.share is None for stage in real)
    first, last = real[0].left, real[-2].left
    pattern = r"About \S+ \w+ left if each candidate is decided after 3 blocks and none gains, about \S+ \w+ if they"
    assert re.match(pattern, first)
    assert first.startswith("About 4 minutes left")  # 17 launches of 14 s
    assert last.startswith("About 12 seconds left")  # one of 12 s


def test_the_combination_and_the_confirmation_are_named(found: list[TuningStage]) -> None:
    said = list(dict.fromkeys(re.sub(r", block .*", "", stage.doing) for stage in found))
    assert "comparing a=y+b=y with a=y at 1,000,000 rows per chunk" in said
    confirming = [stage for stage in found if stage.doing.startswith("confirming a=y+b=y against default")]
    assert {re.sub(r", block .*", "", stage.doing) for stage in confirming} == {
        "confirming a=y+b=y against default at 1,000,000 rows per chunk",
        "confirming a=y+b=y against default at 25,000,000 rows per chunk",
    }
    assert {line.phase for stage in confirming for line in stage.compared} == {"confirm"}
    last = confirming[-1].compared
    assert [(line.plan, line.setting) for line in last] == [(0, None), (1, None)]
    assert all(line.ratio is not None and line.ratio > 1.5 for line in last)
    assert confirming[-1].left.startswith("About 1 second left, at most ")  # nothing is left but the end
    shares = [stage.share for stage in found]
    assert shares == [pytest.approx(4 * made / 1000) for made in range(1, len(found) + 1)]

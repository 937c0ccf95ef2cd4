"""`run --against RESULT --fail-on …`: a new measurement held against an old one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from merge_bench.analysis.compare import ONE_NIGHT
from merge_bench.config.options import RunOptions
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.regressions.gates import RegressionGate, apply_gates, gate_summary
from tests.analysis.compare.test_document import SIX, faster, on_busy_host
from tests.helpers.synthetic_campaigns import interleaved, write_campaign


def measured(tmp_path: Path, walls: list[float], **changes: object) -> Campaign:
    return read_campaign(write_campaign(tmp_path, *interleaved({"nightly": walls}, **changes)))


@pytest.mark.parametrize(("by", "status"), [(0.5, 5), (0.99, 0), (1.0, 0), (2.0, 0)])
def test_a_slower_night_ends_with_5(tmp_path: Path, by: float, status: int) -> None:
    before, now = measured(tmp_path, list(SIX)), measured(tmp_path, faster(by))
    document, found = RegressionGate(before, ("slower",), 0.02).judge_campaign(now)
    assert found == status
    assert (document.error is None) == (status == 0)
    (verdict,) = {each.verdict for each in document.comparisons if each.metric == "throughput"}
    said = gate_summary(document, metric_name="throughput", fail_on=["slower"])
    named = f"B: nightly is {verdict} in throughput"
    undecided = (
        f"--fail-on slower did not fail, but nothing was decided: {named}; with --fail-on"
        " slower,inconclusive it ends with status 5; more launches may decide it"
    )
    expected = (
        undecided
        if verdict == "INCONCLUSIVE"
        else f"--fail-on slower passed: {named}" + (f"; {ONE_NIGHT}" if verdict == "FASTER" else "")
    )
    assert said == ("" if status else expected)
    assert {each.metric for each in document.comparisons} >= {"throughput", "wall"}


def test_configs_of_one_campaign_are_held_against_the_first(tmp_path: Path) -> None:
    campaign = read_campaign(write_campaign(tmp_path, *interleaved({"base": SIX, "tuned": faster(0.7)})))
    document, status = RegressionGate(None, ("slower",), 0.02).judge_campaign(campaign)
    assert status == 5
    assert document.error is not None
    assert "tuned is SLOWER in throughput" in document.error.message


def test_a_gate_that_passes_without_every_verdict_says_so(tmp_path: Path) -> None:
    eight = [*SIX, 0.16, 0.17]
    walls = {"base": eight, "tuned": [wall / 2 for wall in eight], "same": eight[::-1]}
    campaign = read_campaign(write_campaign(tmp_path, *interleaved(walls)))
    document, status = RegressionGate(None, ("slower",), 0.02).judge_campaign(campaign)
    assert status == 0
    said = gate_summary(document, metric_name="throughput", fail_on=["slower"])
    assert said.startswith(
        "--fail-on slower did not fail, but not everything was decided: tuned is FASTER in throughput, same is"
        " INCONCLUSIVE in throughput; "
    )


def test_a_gate_that_decides_nothing_on_a_busy_host_says_so(tmp_path: Path) -> None:
    before, now = measured(tmp_path, list(SIX)), on_busy_host(measured(tmp_path, faster(0.99)).folder)
    document, status = RegressionGate(before, ("slower",), 0.02).judge_campaign(read_campaign(now))
    assert status == 0
    said = gate_summary(document, metric_name="throughput", fail_on=["slower"])
    assert "; B was measured while other processes kept the host's cores busy, so launches vary more; " in said


def test_a_gate_that_is_not_met_on_a_busy_host_says_so(tmp_path: Path) -> None:
    before, now = measured(tmp_path, list(SIX)), on_busy_host(measured(tmp_path, faster(0.5)).folder)
    document, status = RegressionGate(before, ("slower",), 0.02).judge_campaign(read_campaign(now))
    assert status == 5
    assert document.error is not None
    assert "nightly is SLOWER in throughput; " in document.error.message
    assert document.error.message.endswith(
        "B was measured while other processes kept the host's cores busy, so the difference may come from the host"
    )


@pytest.mark.parametrize(
    ("has", "makes", "fail_on", "says"),
    [
        (
            1,
            8,
            ("slower",),
            "has 1 launch, and this run makes 8: a verdict needs at least 4 of each, so it can only be"
            " INCONCLUSIVE, and --fail-on slower cannot fail; with --fail-on slower,inconclusive it ends with status 5",
        ),
        (6, 1, ("inconclusive",), "and --fail-on inconclusive ends with status 5"),
        (6, 1, (), "so it can only be INCONCLUSIVE"),
        (4, 4, ("slower",), None),
        (1, 39, ("slower",), None),
    ],
)
def test_too_few_launches_for_a_verdict_are_said_before_the_run(
    tmp_path: Path, has: int, makes: int, fail_on: tuple[str, ...], says: str | None
) -> None:
    doubt = RegressionGate(measured(tmp_path, list(SIX[:has])), fail_on, 0.02).too_few_launches_warning(makes)
    assert doubt is None if says is None else str(doubt).endswith(says)


def test_a_verdict_on_one_launch_is_inconclusive(tmp_path: Path) -> None:
    before, now = measured(tmp_path, [SIX[0]]), measured(tmp_path, faster(0.125))
    document, status = RegressionGate(before, ("slower",), 0.02).judge_campaign(now)
    assert status == 0
    assert {each.verdict for each in document.comparisons if each.metric == "throughput"} == {"INCONCLUSIVE"}


def test_another_problem_cannot_be_compared(tmp_path: Path) -> None:
    before, now = measured(tmp_path, list(SIX)), measured(tmp_path, list(SIX), rows_per_chunk=25_000_000)
    with pytest.raises(UsageError, match="rows per chunk"):
        RegressionGate(before, (), 0.02).judge_campaign(now)
    document, status = RegressionGate(before, ("slower",), 0.02).judge_campaign(now)
    assert status == 5
    assert document.error is not None
    assert "rows per chunk" in document.error.message


def test_a_campaign_with_nothing_to_compare_meets_no_gate_unless_that_is_meant(tmp_path: Path) -> None:
    campaign = measured(tmp_path, list(SIX))
    found = [RegressionGate(None, ("slower",), 0.02, allowed).judge_campaign(campaign) for allowed in (False, True)]
    assert [(document.error is None, status) for document, status in found] == [(False, 5), (True, 0)]
    said = gate_summary(found[1][0], metric_name="throughput", fail_on=["slower"])
    assert said.startswith("nothing was compared: ")
    assert said.endswith("--allow-no-baseline")


def test_a_metric_that_nothing_has_meets_no_gate(tmp_path: Path) -> None:
    campaign = read_campaign(write_campaign(tmp_path, *interleaved({"base": SIX, "tuned": SIX})))
    document, status = RegressionGate(None, ("slower",), 0.02).judge_campaign(campaign)
    assert status == 0
    others = [each for each in document.comparisons if each.metric != "throughput"]
    without = msgspec.structs.replace(document, comparisons=others)
    assert apply_gates(without, metric_name="throughput", fail_on=["slower"])[1] == 5


def test_a_gate_needs_something_to_hold_against() -> None:
    options = RunOptions(fail_on=("slower",))
    with pytest.raises(UsageError, match="--against"):
        RegressionGate.from_options(options, choice_count=1, run_count=1)
    assert RegressionGate.from_options(options, choice_count=2, run_count=2) == RegressionGate(None, ("slower",), 0.02)
    assert RegressionGate.from_options(RunOptions(), choice_count=2, run_count=2) is None


def asked(against: Path) -> RegressionGate | None:
    return RegressionGate.from_options(RunOptions(against=str(against)), choice_count=1, run_count=1)


def test_a_folder_of_one_result_is_that_result(tmp_path: Path) -> None:
    campaign = measured(tmp_path, list(SIX))
    found = asked(campaign.folder.parent)
    assert found is not None
    assert found.against is not None
    assert found.against.folder == campaign.folder


def test_of_a_folder_of_results_the_newest_is_named(tmp_path: Path) -> None:
    for name, time in (("a", 1.0), ("b b", 3.0), ("c", 2.0)):
        records = measured(tmp_path / "made", list(SIX)).records
        head, *rest = records.read_bytes().splitlines(keepends=True)
        (tmp_path / "all" / name).mkdir(parents=True)
        line = msgspec.json.encode(msgspec.json.decode(head) | {"time": time}) + b"\n"
        (tmp_path / "all" / name / "records.jsonl").write_bytes(line + b"".join(rest))
    with pytest.raises(UsageError) as refused:
        asked(tmp_path / "all")
    assert "contains 3" in str(refused.value)
    assert str(refused.value).endswith(f"--against '{tmp_path / 'all' / 'b b'}'")


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no"):
        asked(tmp_path)


def test_an_earlier_result_that_is_not_there_is_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        asked(tmp_path / "gone")

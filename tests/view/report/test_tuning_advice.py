"""What `tune` advises after it decided nothing: one thing, the other one as an alternative, quiet if noise is why."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from merge_bench.report.next_step import next_step_after_tuning
from merge_bench.tune.result import decision_text, tuning_result_of
from merge_bench.tune.tune_campaign import TuningBudget
from merge_bench.view.suggested_command import SuggestedCommand
from tests.view.report.test_tuning import NOISY, changed, confirmed, searched


def step_of(
    folder: Path, *, words: str = "--budget 2m", busy: bool = False, enough: float | None = None
) -> SuggestedCommand:
    """After a budget that had no time to confirm a candidate."""
    campaign = searched(
        folder,
        words=words,
        budget=[None, 120.0],
        limit=TuningBudget(seconds=120.0),
        stopped="b=y",
        speed=changed(*NOISY),
    )
    if busy:
        with campaign.records.open("ab") as stream:
            stream.write(msgspec.json.encode(s.WarningLine(code="busy-host", message="…", remedy="wait")) + b"\n")
        campaign = read_campaign(campaign.folder)
    return next_step_after_tuning(campaign, tuning_result_of(campaign), config_path=None, seconds_to_decide=enough)


def test_a_larger_budget_is_the_alternative_to_the_candidate_alone(tmp_path: Path) -> None:
    """Both were advised, in two places, and neither was called better."""
    step = step_of(tmp_path, enough=1000.0)
    assert step.command.endswith("tune --budget 2m --only b=y")
    assert step.does == "tests b=y alone; or all candidates, without --only and with --budget 17m"
    assert step.note == ""


@pytest.mark.parametrize("words", ["--budget 2m", "--budget 2m --wait-for-quiet 1m"])
def test_after_a_busy_host_the_candidate_is_tested_on_a_quiet_one(tmp_path: Path, words: str) -> None:
    step = step_of(tmp_path, words=words, busy=True)
    assert step.does == "tests b=y alone, on a quiet host"
    assert step.command.count("--wait-for-quiet") == 1


def test_after_a_busy_host_the_whole_search_is_made_again_on_a_quiet_one(tmp_path: Path) -> None:
    step = step_of(tmp_path, words="--budget 2m --only a=y,b=y,c=y", busy=True)
    assert step.does == "searches anew, on a quiet host"


@pytest.mark.parametrize(("by", "decided"), [((0.94, 0.99, 1.01, 0.97), True), ((0.96, 1.06, 1.04, 0.97), False)])
def test_new_launches_that_rule_out_a_gain_decide(tmp_path: Path, by: tuple[float, ...], decided: bool) -> None:
    """It was called undecided, and measured once more was advised, although no launch left room for a gain of 2 %."""
    campaign = confirmed(tmp_path, "c", changed(*by))
    result = tuning_result_of(campaign)
    assert {decision_text(line) for line in result.confirmation_steps} == (
        {"rejected"} if decided else {"undecided", "no gain seen"}
    )
    assert all((line.high < 1.02) is decided for line in result.confirmation_steps)
    none = "No config is faster than default: c=y has no gain of at least 2.0% in new launches"
    assert result.outcome_heading == (none if decided else "Not decided: the gain of c=y may be noise")
    step = next_step_after_tuning(campaign, result, config_path=None, seconds_to_decide=None)
    assert ("--only c=y" in step.command) is not decided

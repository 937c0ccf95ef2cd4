"""What `tune` advises after it decided nothing: one thing, the other one as an alternative, quiet if noise is why."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from merge_bench.errors import UsageError
from merge_bench.records import schema as s
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.recorded_plan import RecordedTuning
from merge_bench.report.next_step import next_step_after_tuning
from merge_bench.tune.result import decision_text, tuning_result_of
from merge_bench.tune.tune_campaign import TuningBudget
from merge_bench.tune.tuning_plan import TuningCosts, fit_search_to_budget
from merge_bench.tune.view import undecided_sentences
from merge_bench.units import parse_duration
from merge_bench.view.suggested_command import SuggestedCommand
from tests.tune.factorials import space_of
from tests.view.report.test_tuning import NOISY, RECORDED, changed, confirmed, searched


@functools.cache
def recorded_campaign() -> Campaign:
    """The tuning in tests/data."""
    return read_campaign(RECORDED)


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


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.floats(1.0, 7200.0),
    launch=st.floats(0.1, 600.0),
    enough=st.none() | st.floats(1.0, 20_000.0),
    twin=st.sampled_from((1.0, 1.3)),
)
def test_the_next_command_has_no_smaller_budget_than_a_sentence_above_it(
    seconds: float, launch: float, enough: float | None, twin: float
) -> None:
    """It was 10 minutes below a sentence that named 15."""
    costs = TuningCosts([launch], lambda values: len(values) + 2, 8)
    try:
        fit_search_to_budget(space_of("ab").values, costs, seconds)
        stopped = "the search ended after 9 launches; its budget is used up"
    except UsageError as error:
        stopped = str(error)
    before = recorded_campaign()
    head = msgspec.structs.replace(before.head, options={"budget": f"{seconds}s"})
    tuning = msgspec.structs.replace(before.plans[0].tune or RecordedTuning(), budget=[None, seconds])
    campaign = replace(
        before, head=head, plans=tuple(msgspec.structs.replace(each, tune=tuning) for each in before.plans)
    )
    found = tuning_result_of(campaign)
    noise = msgspec.structs.replace(found.noise_floor or found.singles[0], ratio=twin, low=twin, high=twin, launches=8)
    result = replace(found, winner=None, confirmed=[], unconfirmed=None, stopped=stopped, noise_floor=noise)
    step = next_step_after_tuning(campaign, result, config_path=None, seconds_to_decide=enough)
    above = "\n".join([*undecided_sentences(result, ["one", "two"]), step.note])
    named = [parse_duration(text) for text in re.findall(r"--budget ([0-9.]+[a-z]*)", above)]
    (proposed,) = (parse_duration(text) for text in re.findall(r"--budget ([0-9.]+[a-z]*)", step.command))
    assert proposed >= max([seconds, *named])
    assert bool(named) == ("too short" in stopped)

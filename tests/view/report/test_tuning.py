"""What `tune` prints: no more than what was decided, tables that fit a terminal, and what to do next."""

from __future__ import annotations

import dataclasses
import io
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from merge_bench.cli import cli
from merge_bench.records import schema as s
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import CampaignWriter
from merge_bench.report.next_step import next_step_after_tuning
from merge_bench.tune.evaluator import BudgetSpent, Candidate, SearchOptions
from merge_bench.tune.result import TuningResult, decision_text, tuning_result_of
from merge_bench.tune.search_steps import confirm_or_repair_best
from merge_bench.tune.space import PrunedValue
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tune_campaign import TuningBudget
from merge_bench.tune.view import BEST_ESTIMATE, print_tuning_result, speed_up_charts_by_phase, tuning_result_chart
from merge_bench.view.plot import GREY
from tests.tune.clusters import SPEED, Cluster, begin, evaluator_of
from tests.tune.factorials import space_of, value
from tests.tune.replay_evaluator import Recorded
from tests.view.report.test_text import Terminal

RECORDED = Path(__file__).parents[2] / "data" / "campaigns" / "tune"
SIZES = ["1,000,000 rows per chunk", "25,000,000 rows per chunk"]
ASKED = {"values": ["a=y", "b=y", "c=y"], "blocks": 8, "confirm": 7}
NOISY = (0.7, 0.7, 1.3, 1.3)  # the sizes are confirmed in turn


def changed(*by: float) -> Recorded:
    """The recorded speeds; those of changed configs times one of these numbers, block after block."""
    return {
        ids: [each * by[block % len(by)] if ids and each else each for block, each in enumerate(values)]
        for ids, values in SPEED.items()
    }


def ended(writer: CampaignWriter) -> Campaign:
    """The campaign, which came to its end."""
    writer.write(s.CampaignEndLine(status=0))
    return read_campaign(writer.folder)


def searched(folder: Path, names: str = "abc", *, speed: Recorded = SPEED, words: str = "", **asked: Any) -> Campaign:
    """A tuning of the settings `names` without its confirmation."""
    budget, stopped = asked.pop("limit", TuningBudget()), asked.pop("stopped", "default")
    with begin(folder, *words.split(), **ASKED, **asked) as writer:
        evaluator = evaluator_of(writer, Cluster(writer, speed=speed).launch, budget=budget)
        space = space_of(names)
        try:
            strategies()["race"].tune(space, space.values, evaluator, SearchOptions())
        except BudgetSpent as spent:
            evaluator.record_step(
                s.TuningStepLine(
                    phase="search", config=stopped, against="default", decision="stopped", reason=str(spent)
                )
            )
        return ended(writer)


def confirmed(folder: Path, name: str, speed: Recorded, words: str = "") -> Campaign:
    """The confirmation of one setting."""
    with begin(folder, *words.split(), **ASKED) as writer:
        evaluator = evaluator_of(writer, Cluster(writer, speed=speed).launch)
        confirm_or_repair_best(Candidate.from_values(value(name)), evaluator, SearchOptions(confirm=7))
        return ended(writer)


def undecided(name: str, found: float) -> s.TuningStepLine:
    """The step of a setting that too few blocks were made of."""
    return s.TuningStepLine(
        phase="screen",
        config=name,
        against="default",
        setting=name,
        ratio=found,
        low=0.9,
        high=1.2,
        launches=3,
        decision="undecided",
        reason="undecided after 3 blocks",
    )


def printed(result: TuningResult, width: int | None = None) -> list[str]:
    file = io.StringIO() if width is None else Terminal()
    print_tuning_result(result, sizes=SIZES, metric="throughput", file=file, width=width)
    return re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue()).splitlines()


def conclusion(result: TuningResult) -> list[str]:
    """What stands at the end: the outcome, and all about it."""
    lines = printed(result)
    return lines[lines.index(result.outcome_heading) :]


def next_of(campaign: Campaign, written: Path | None = None, enough: float | None = None) -> str:
    """What is to be typed next, which the program takes."""
    words = shlex.split(
        next_step_after_tuning(
            campaign, tuning_result_of(campaign), config_path=written, seconds_to_decide=enough
        ).command
    )
    assert words[:3] == ["python", "-m", "merge_bench"]
    command = cli.commands[words[3]] if words[3] in cli.commands else cli.commands["run"]
    command.make_context("merge-bench", words[4:] if words[3] in cli.commands else words[3:])
    return " ".join(words[3:])


def test_a_confirmation_that_decides_nothing_is_no_loss(tmp_path: Path) -> None:
    """It was called rejected in tables and figures."""
    result = tuning_result_of(campaign := confirmed(tmp_path, "b", changed(*NOISY)))
    lines = conclusion(result)
    assert {(line.decision, decision_text(line)) for line in result.confirmed} == {("rejected", "undecided")}
    assert not any("rejected" in line for line in printed(result))
    charts = [tuning_result_chart(result, SIZES, "throughput"), *speed_up_charts_by_phase(campaign.tuning, str)]
    assert {group.label for chart in charts for group in chart.groups} == {"undecided"}
    assert lines[0] == "Not decided: b=y may be faster than default"
    assert re.fullmatch(r"throughput at 1,000,000 rows per chunk: \S+ × default \S+ to \S+, INCONCLUSIVE", lines[1])


def test_a_candidate_that_was_confirmed_slower_or_as_fast_is_called_so(tmp_path: Path) -> None:
    slower = tuning_result_of(confirmed(tmp_path / "slower", "c", changed(0.5)))
    assert slower.outcome_heading == "No config is faster than default: c=y is slower"
    same = {ids: [1e9] * len(values) for ids, values in SPEED.items()}
    assert tuning_result_of(confirmed(tmp_path / "same", "c", same)).outcome_heading == (
        "No config is faster than default: c=y is as fast"
    )
    assert {decision_text(line) for line in slower.confirmed} == {"rejected"}


def test_the_best_of_what_stayed_undecided_is_named_with_its_interval(tmp_path: Path) -> None:
    result = tuning_result_of(searched(tmp_path, "bc", speed=changed(*NOISY)))
    lines = conclusion(result)
    assert lines[0] == "Not decided: too few blocks to judge 1 of 2 candidates"
    assert [decision_text(line) for line in result.singles] == ["undecided", "no gain seen"]
    assert not any("dropped" in line for line in printed(result))
    known = r"b=y: \S+ × default \(\S+ to \S+\) in 8 blocks\."
    assert re.fullmatch(rf"Of 2 candidates, 1 showed no gain \(not ruled out\), 1 is undecided: {known}", lines[1])


def test_how_many_settings_were_not_tried_is_said(tmp_path: Path) -> None:
    campaign = searched(tmp_path, "c", words="--budget 2m", budget=[None, 120.0])
    with (campaign.records).open("ab") as stream:
        for name in "ab":
            line = s.TuningStepLine(
                phase="search",
                config=f"{name}=y",
                against="default",
                setting=f"{name}=y",
                decision="left out",
                reason="the budget of 2 minutes has no time for it",
            )
            stream.write(msgspec.json.encode(line) + b"\n")
    campaign = read_campaign(campaign.folder)
    lines = conclusion(tuning_result_of(campaign))
    assert lines[0] == "Found no config faster than default"
    assert lines[1] == "2 of 3 candidates have not been tried yet; there is time only if others end early: a=y, b=y."
    assert next_of(campaign) == "tune --budget 4m"
    assert next_of(campaign, enough=1000.0) == "tune --budget 17m"


def test_that_everything_was_decided_is_said_without_more_unless_only_some_were_tried(tmp_path: Path) -> None:
    campaign, some = searched(tmp_path / "all", "c"), searched(tmp_path / "some", "c", words="--only c=y")
    assert conclusion(tuning_result_of(campaign)) == ["c=y is not faster than default", ""]
    assert next_of(campaign) == f"report {campaign.folder}"
    assert next_step_after_tuning(some, tuning_result_of(some), config_path=None, seconds_to_decide=None).note.endswith(
        "because of --only."
    )


def test_what_a_recorded_tuning_left_open_is_said() -> None:
    result = tuning_result_of(read_campaign(RECORDED))
    assert conclusion(result)[:3] == [
        "Found no config faster than default",
        "Of 4 candidates, 3 were dropped, 1 showed no gain (not ruled out).",
        "",
    ]


@pytest.mark.parametrize(("launches", "doubtful"), [(3, False), (5, False), (6, True), (8, True)])
def test_a_tuning_is_doubtful_only_by_an_interval_of_95_percent(launches: int, doubtful: bool) -> None:
    """It was called so on a quiet host: of 4 blocks the interval has a level of 87.5 %."""
    result = tuning_result_of(read_campaign(RECORDED))
    assert result.noise_floor is not None
    noise = msgspec.structs.replace(result.noise_floor, launches=launches)
    found = dataclasses.replace(result, noise_floor=noise)
    assert found.baseline_differs_from_itself is doubtful
    assert any(line.startswith("Doubtful: default differed from itself") for line in conclusion(found)) is doubtful
    (line,) = [line for line in printed(found) if line.startswith("Noise: ")]
    assert f"in {launches} blocks, level {({3: 75, 5: 93.75}).get(launches, 95)}%" in line


def test_the_baseline_against_itself_is_noise_and_no_gain(tmp_path: Path) -> None:
    for campaign in (read_campaign(RECORDED), searched(tmp_path, "c")):
        (twin,) = [line for line in campaign.tuning if line.config == "default again"]
        assert decision_text(twin) == "noise"
        chart = speed_up_charts_by_phase(campaign.tuning, str)[0]
        (noise,) = [group for group in chart.groups if group.label == "the baseline compared with itself"]
        assert noise.index == GREY
        assert not any(group.label == "kept" for group in chart.groups)


def test_the_axis_of_a_drawing_begins_near_the_estimates_so_that_small_gains_show(tmp_path: Path) -> None:
    steps = [
        msgspec.structs.replace(line, ratio=1.03, low=1.01, high=1.05)
        for line in searched(tmp_path, "c").tuning
        if line.setting
    ]
    assert steps
    axis = speed_up_charts_by_phase(steps, str)[0].x
    assert axis.low is not None
    assert 0.95 < axis.low <= 1.0


def test_the_noise_is_not_taken_for_the_measure_of_losses() -> None:
    (line,) = [line for line in printed(tuning_result_of(read_campaign(RECORDED))) if line.startswith("Noise: ")]
    assert "83.0% (default against its own copy: 0.434 to 0.646 in 3 blocks, level 75%)" in line
    assert line.endswith("A loss is decided by the interval of its own setting.")


@pytest.mark.parametrize("width", [80, 100, 160])
def test_tables_fit_the_terminal(tmp_path: Path, width: int) -> None:
    for result in (tuning_result_of(read_campaign(RECORDED)), tuning_result_of(confirmed(tmp_path, "b", SPEED))):
        lines = printed(result, width)
        assert max(map(len, lines)) <= width, lines
        text = "\n".join(lines)
        for line in (*result.singles, *result.confirmed):
            interval = rf"{line.low:.3f} to {line.high:.3f}"
            assert re.search(rf"^{re.escape(line.config)}\s.*{interval}", text, re.MULTILINE), text
            assert re.search(
                rf"^{re.escape(line.config)}\s.*{decision_text(line)} +{line.reason[:20]}", text, re.MULTILINE
            ), text


def test_a_table_that_fits_is_not_cut(tmp_path: Path) -> None:
    result = tuning_result_of(read_campaign(RECORDED))
    assert sum(line.startswith("Setting") for line in printed(result, 160)) == 1
    assert sum(line.startswith("Setting") for line in printed(result, 80)) == 3


def test_a_tuning_that_was_interrupted_says_no_more_than_it_knows(tmp_path: Path) -> None:
    """What has no line in the records was not judged: it may still be faster."""
    whole = searched(tmp_path, "c")
    lines = whole.records.read_bytes().splitlines(keepends=True)
    assert b'"end"' in lines[-1]
    whole.records.write_bytes(b"".join(lines[:-1]))
    result = tuning_result_of(read_campaign(whole.folder))
    assert conclusion(result)[:2] == [
        "Found no config faster than default",
        "The tuning is not finished: the same command resumes it.",
    ]


def test_what_cannot_help_here_takes_one_line_unless_all_is_asked_for(tmp_path: Path) -> None:
    result = tuning_result_of(searched(tmp_path, "c"))
    pruned = [PrunedValue(value=f"v{each}", reason="no GPU") for each in "abc"]
    for details, count in ((False, 0), (True, 3)):
        file = io.StringIO()
        print_tuning_result(result, sizes=SIZES, metric="throughput", pruned=pruned, details=details, file=file)
        assert sum("no GPU" in line for line in file.getvalue().splitlines()) == count
        assert ("3 other candidates cannot help on this cluster" in file.getvalue()) is not details


def test_a_confirmation_for_which_there_is_no_time_is_named_by_its_size(tmp_path: Path) -> None:
    campaign = searched(tmp_path, "c", words="--budget 2m", budget=[None, 120.0])
    line = s.TuningStepLine(
        phase="search", config="default", against="default", plan=1, decision="left out", reason="…"
    )
    with campaign.records.open("ab") as stream:
        stream.write(msgspec.json.encode(line) + b"\n")
    result = tuning_result_of(read_campaign(campaign.folder))
    assert conclusion(result)[1] == "The budget has no time for a confirmation at 25,000,000 rows per chunk."
    assert [each.value for each in result.left_out_values] == ["confirmation at size 2"]


def test_after_a_winner_it_is_merged_with(tmp_path: Path) -> None:
    words = "mine.cfg --workers 2 --budget 10m --only a,b --strategy race --json --fresh"
    campaign = confirmed(tmp_path, "a", SPEED, words)
    assert tuning_result_of(campaign).winner is not None
    found = next_of(campaign, tmp_path / "tuned.cfg")
    assert found == f"--config {tmp_path / 'tuned.cfg'} --chunk 1000000,25000000 --workers 2"


def test_a_winner_is_compared_where_it_could_not_be_confirmed(tmp_path: Path) -> None:
    campaign = confirmed(tmp_path, "a", SPEED, "--workers 2 --budget 5m")
    line = s.TuningStepLine(
        phase="search", config="default", against="default", plan=1, decision="left out", reason="…"
    )
    with campaign.records.open("ab") as stream:
        stream.write(msgspec.json.encode(line) + b"\n")
    found = next_of(read_campaign(campaign.folder), Path("tuned.cfg"))
    assert found == "--configs default.cfg,tuned.cfg --blocks 6 --workers 2 --chunk 25000000"


@pytest.mark.parametrize(
    ("words", "budget", "command"),
    [
        ("--only b,c", [None, None], "tune --only b,c --most-blocks 16"),
        ("mine.cfg --budget=10m", [None, 600.0], "tune mine.cfg --most-blocks 16 --budget 20m"),
    ],
)
def test_after_undecided_settings_more_blocks_are_made(
    tmp_path: Path, words: str, budget: list[float | None], command: str
) -> None:
    campaign = searched(tmp_path, "bc", speed=changed(*NOISY), words=words, budget=budget)
    assert next_of(campaign) == command


def test_after_an_inconclusive_confirmation_search_and_confirmation_are_made_longer(tmp_path: Path) -> None:
    """The search of the candidate alone ended undecided after the same few blocks, with time left."""
    campaign = confirmed(tmp_path, "b", changed(*NOISY), "--json")
    assert next_of(campaign) == "tune --only b=y --most-blocks 16 --confirm 14"
    step = next_step_after_tuning(campaign, tuning_result_of(campaign), config_path=None, seconds_to_decide=None)
    assert step.does == "tests b=y alone, with more blocks"


def test_what_was_not_confirmed_is_tested_alone(tmp_path: Path) -> None:
    """A new search of everything was named, where one candidate was left to confirm."""
    limit = TuningBudget(seconds=120.0)
    campaign = searched(
        tmp_path, words="--budget 2m", budget=[None, 120.0], limit=limit, stopped="b=y", speed=changed(*NOISY)
    )
    result = tuning_result_of(campaign)
    lines = conclusion(result)
    assert lines[0] == "Not decided: b=y may be faster than default"
    numbers = r".*b=y: \S+ × default \(.*\) in \d blocks?, not confirmed on new launches\."
    assert [bool(re.fullmatch(numbers, each)) for each in lines if "b=y:" in each] == [True]
    assert next_of(campaign) == "tune --budget 2m --only b=y"
    assert next_step_after_tuning(campaign, result, config_path=None, seconds_to_decide=None).does == "tests b=y alone"


@pytest.mark.parametrize(
    ("by", "may"), [(1.0, "may be faster than default"), (0.5, "has too few new launches to be judged")]
)
def test_new_launches_that_do_not_suffice_for_a_verdict_are_shown(tmp_path: Path, by: float, may: str) -> None:
    """They were made, took most of the time, spoke against the candidate, and were nowhere to be seen."""
    with begin(tmp_path, **ASKED) as writer:
        budget = TuningBudget(seconds=80.0)
        evaluator = evaluator_of(writer, Cluster(writer, speed=changed(by)).launch, budget=budget)
        with pytest.raises(BudgetSpent):
            confirm_or_repair_best(Candidate.from_values(value("b")), evaluator, SearchOptions(confirm=7))
        evaluator.record_step(
            s.TuningStepLine(
                phase="search", config="b=y", against="default", decision="stopped", reason="it was used up"
            )
        )
        lines = conclusion(tuning_result_of(ended(writer)))
    assert lines[0] == f"Not decided: b=y {may}"
    new = [line for line in lines if line.startswith("New launches of b=y at ")]
    assert [line.split(": ")[0].removeprefix("New launches of b=y at ") for line in new] == SIZES
    assert all(line.endswith("in 5 blocks, too few for a verdict.") for line in new)


def test_a_candidate_that_was_confirmed_is_not_undecided(tmp_path: Path) -> None:
    with begin(tmp_path, **ASKED) as writer:
        evaluator = evaluator_of(writer, Cluster(writer).launch)
        evaluator.record_step(undecided("b=y", 1.1))
        confirm_or_repair_best(Candidate.from_values(value("b")), evaluator, SearchOptions(confirm=7))
        result = tuning_result_of(ended(writer))
    assert (result.undecided, result.best_undecided) == ([], None)
    assert not any("undecided" in each for each in conclusion(result))
    (row,) = [each for each in printed(result) if each.startswith("b=y") and " undecided " in each]
    assert row.endswith(BEST_ESTIMATE)


def test_the_undecided_are_called_others_beside_the_one_that_new_launches_tested(tmp_path: Path) -> None:
    """The heading said of the tested one that it is not decided, and the next line that another one is the best."""
    with begin(tmp_path, **ASKED) as writer:
        evaluator = evaluator_of(writer, Cluster(writer, speed=changed(*NOISY)).launch)
        for name, found in (("a=y", 1.02), ("b=y", 1.1), ("c=y", 1.01)):
            evaluator.record_step(undecided(name, found))
        confirm_or_repair_best(Candidate.from_values(value("b")), evaluator, SearchOptions(confirm=7))
        lines = conclusion(tuning_result_of(ended(writer)))
    assert lines[0] == "Not decided: b=y may be faster than default"
    best = "a=y: 1.020 × default (0.900 to 1.200) in 3 blocks."
    counts = "Of 3 candidates, 1 was tested on new launches, 2 are undecided"
    assert f"{counts}; the best of these is {best}" in lines


def test_what_gained_alone_and_was_not_combined_is_named(tmp_path: Path) -> None:
    """It was dropped from the config without a word."""
    with begin(tmp_path, **ASKED) as writer:
        evaluator = evaluator_of(writer, Cluster(writer).launch)
        for name in ("a=y", "a=z", "b=y", "c=y"):
            line = s.TuningStepLine(
                phase="screen",
                config=name,
                against="default",
                setting=name,
                ratio=1.1,
                launches=3,
                decision="dropped" if name == "c=y" else "kept",
                reason="…",
            )
            evaluator.record_step(line)
        confirm_or_repair_best(Candidate.from_values(value("a")), evaluator, SearchOptions(confirm=7))
        whole = tuning_result_of(read_campaign(writer.folder))
        evaluator.record_step(
            s.TuningStepLine(phase="search", config="a=y", against="default", decision="stopped", reason="…")
        )
        result = tuning_result_of(ended(writer))
    assert (whole.not_combined, result.not_combined) == ([], ["a=z", "b=y"])
    assert conclusion(result)[0] == "Found: a=y"
    assert [each.partition(":")[0] for each in conclusion(result) if ": gained alone, too" in each] == ["b=y", "a=z"]


def test_where_something_is_open_after_a_winner_the_budget_that_suffices_is_named(tmp_path: Path) -> None:
    campaign = searched(
        tmp_path, speed=changed(*NOISY), words="--budget 2m", budget=[None, 120.0], limit=TuningBudget(seconds=120.0)
    )
    result = tuning_result_of(campaign)
    assert result.undecided

    def note(enough: float | None, written: Path | None = Path("tuned.cfg")) -> str:
        return next_step_after_tuning(campaign, result, config_path=written, seconds_to_decide=enough).note

    assert "--budget 17m " in note(1000.0)
    assert {note(None), note(100.0), note(1000.0, None)} == {""}  # without a winner the command itself has it
    all_blocks = searched(tmp_path / "all", "bc", speed=changed(*NOISY), words="--budget 2m", budget=[None, 120.0])
    assert tuning_result_of(all_blocks).undecided
    assert (
        next_step_after_tuning(
            all_blocks, tuning_result_of(all_blocks), config_path=Path("tuned.cfg"), seconds_to_decide=1000.0
        ).note
        == ""
    )


def test_after_a_budget_that_ended_the_search_a_larger_one_is_named(tmp_path: Path) -> None:
    campaign = searched(
        tmp_path, speed=changed(*NOISY), words="--max-launches 20", budget=[20, None], limit=TuningBudget(launches=20)
    )
    assert tuning_result_of(campaign).stopped is not None
    assert next_of(campaign) == "tune --max-launches 40"


def test_on_a_busy_host_the_search_waits_until_it_is_quiet(tmp_path: Path) -> None:
    campaign = searched(tmp_path, "bc", speed=changed(*NOISY), words="--chunk 1e6")
    with campaign.records.open("ab") as stream:
        stream.write(msgspec.json.encode(s.WarningLine(code="busy-host", message="…", remedy="wait")) + b"\n")
    assert next_of(read_campaign(campaign.folder)) == "tune --chunk 1e6 --wait-for-quiet 5m"

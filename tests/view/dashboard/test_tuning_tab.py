"""The Tuning tab: steps in their order, the outcome, and a config that can be used as it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import msgspec

from merge_bench.config.reader import read_config
from merge_bench.dashboard.tuning_tab import TuningContent, make_tuning_content
from merge_bench.records.reader import read_campaign
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.report.campaign_figures import CampaignCache
from merge_bench.report.page.results import charts_of_kind
from merge_bench.view.plot import PointMarks, WhiskerMarks
from tests.helpers.synthetic_campaigns import write_campaign
from tests.view.dashboard.boards import board, held, texts, update
from tests.view.dashboard.samples import tuning
from tests.view.report.test_tuning import changed, confirmed

CAMPAIGNS = Path(__file__).parents[2] / "data" / "campaigns"


def found(results: Path) -> TuningContent:
    (entry,) = ResultsFolder(results).entries()
    return make_tuning_content(CampaignCache().load([entry])[0])


def test_a_tuning_is_told_from_other_campaigns_by_its_first_line(tmp_path: Path) -> None:
    tuning(tmp_path)
    write_campaign(tmp_path)
    assert sorted(entry.kind for entry in ResultsFolder(tmp_path).entries()) == ["merge", "tune"]


def test_the_outcome_names_the_settings_and_what_they_were_confirmed_to_give(tmp_path: Path) -> None:
    tuning(tmp_path)
    assert found(tmp_path).outcome == "Found: tls=sm rails=2"
    assert found(tmp_path).details == (
        "Confirmed against default: 1.380 × (1.330 to 1.440) at 1,000,000 rows per chunk; "
        "1.210 × (1.150 to 1.270) at 25,000,000 rows per chunk.",
    )


def test_every_phase_and_size_has_a_chart_and_every_step_a_row(tmp_path: Path) -> None:
    tuning(tmp_path)
    shown = found(tmp_path)
    phases = [chart.title.split(",")[1].strip() for chart in shown.charts]
    assert phases == ["each alone", "combined", "removed again", *["confirmation on new launches"] * 2]
    assert shown.frame is not None
    decisions = ["noise"] + ["gained"] * 2 + ["dropped", "failed"] + ["kept"] * 3 + ["accepted"] * 2
    assert list(shown.frame["Decision"]) == decisions
    assert shown.frame["Speed-up"].isna().sum() == 1


def test_the_race_counts_steps_leaves_out_what_was_not_measured_and_shows_noise_as_noise(tmp_path: Path) -> None:
    tuning(tmp_path)
    race = found(tmp_path).race
    assert race is not None
    marks = {group.label: group.marks for group in race.groups}
    assert list(marks) == ["noise", "gained", "dropped", "kept", "accepted"]
    assert (
        race.note == "Lines: interval (95 % or more from 6 or more blocks). Noise: the baseline compared with itself."
    )
    points = [mark for of in marks.values() for mark in of if isinstance(mark, PointMarks)]
    assert sorted(at for mark in points for at in mark.x) == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert list(race.x.ticks or ()) == list(range(1, 11))
    interval, kept = marks["gained"]
    assert isinstance(interval, WhiskerMarks)
    assert isinstance(kept, PointMarks)
    assert (kept.x[0], interval.start[0], kept.y[0], interval.end[0]) == (2, 1.28, 1.32, 1.36)
    assert kept.details["setting"][0] == "step 2, each alone: tls=sm"


def test_the_config_to_keep_is_read_alike_by_bash_and_by_merge_bench(tmp_path: Path) -> None:
    tuning(tmp_path / "results")
    shown = found(tmp_path / "results")
    assert shown.config is not None
    assert shown.file_name == "tls-sm-rails-2.cfg"
    path = tmp_path / shown.file_name
    path.write_text(shown.config)
    variables = {variable.name: variable.value for variable in read_config(path, {}).variables}
    assert variables == {"UCX_TLS": "sm", "UCX_MAX_RNDV_RAILS": "2"}
    command = f"source {path}; echo $UCX_TLS $UCX_MAX_RNDV_RAILS"
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["sm", "2"]


def test_a_config_that_no_file_can_hold_is_refused_with_a_sentence(tmp_path: Path) -> None:
    folder = tuning(tmp_path)
    records = folder / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"UCX_TLS":', b'"x;touch /tmp/owned;":'))
    shown = found(tmp_path)
    assert shown.config is None
    assert "cannot be written to a config file" in shown.problems[0]


def test_values_with_quotes_and_commands_stay_values(tmp_path: Path) -> None:
    folder = tuning(tmp_path / "results")
    records = folder / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"UCX_TLS":"sm"', b'"UCX_TLS":"$(id) \'x"'))
    shown = found(tmp_path / "results")
    assert shown.config is not None
    path = tmp_path / "found.cfg"
    path.write_text(shown.config)
    assert {v.name: v.value for v in read_config(path, {}).variables}["UCX_TLS"] == "$(id) 'x"


def test_newlines_in_names_cannot_leave_a_comment(tmp_path: Path) -> None:
    folder = tuning(tmp_path)
    records = folder / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"tls=sm"', b'"tls=sm\\nUCX_TLS=all"'))
    shown = found(tmp_path)
    assert shown.config is not None
    assert all(line.startswith(("#", "export UCX_")) for line in shown.config.splitlines())
    assert "\nUCX_TLS=all" not in shown.config


def part_of_the_real_one(results: Path, launches: int) -> Path:
    """The recorded tuning of the real command, as it was when so many launches had ended."""
    lines = (CAMPAIGNS / "tune" / "records.jsonl").read_bytes().splitlines(keepends=True)
    ends = [at for at, line in enumerate(lines, 1) if b'"launch_end"' in line]
    (results / "tune").mkdir(parents=True)
    (results / "tune" / "records.jsonl").write_bytes(b"".join(lines[: ends[launches - 1]]))
    return results / "tune"


def test_a_tuning_that_goes_on_shows_what_it_compares_what_there_is_and_how_long_it_takes(tmp_path: Path) -> None:
    with held(part_of_the_real_one(tmp_path, 14)):
        view = board(tmp_path)
        update(view.tuning)
        shown = found(tmp_path)
        said = texts(view.tuning.layout)
    assert "The tuning goes on: 0 steps and 14 launches done." in said
    assert "Now comparing each of 4 candidates alone with default, block 3 of 3; launching." in said
    assert re.search(r"About \d+ seconds left if each candidate is decided after 3 blocks and none gains", said)
    assert shown.frame is not None
    assert set(shown.frame["Decision"]) == {"not decided yet", "noise"}
    assert sorted(shown.frame["Blocks"]) == [2, 2, 2, 2, 2]  # the launches of block 3 have no partner yet
    assert [chart.title.split(",")[1] for chart in shown.charts] == [" each alone"]
    assert shown.config is None


def test_a_tuning_that_ended_without_its_end_is_not_finished(tmp_path: Path) -> None:
    part_of_the_real_one(tmp_path, 7)
    assert found(tmp_path).outcome == "The tuning is not finished: 0 steps and 7 launches done."
    assert found(tmp_path).progress is None


def test_a_tuning_that_was_interrupted_early_shows_what_is_there_what_is_not_and_how_to_go_on(tmp_path: Path) -> None:
    part_of_the_real_one(tmp_path, 2)
    view = board(tmp_path)
    update(view.tuning)
    left = found(tmp_path).unfinished
    assert left is not None
    measured = {column.heading: list(column.cells) for column in left.measured}
    assert len(measured["Config"]) == 2
    assert measured["Launches"] == ["1", "1"]
    assert all(float(rate) > 0 for rate in measured["Throughput (GiB/s)"])
    tried = [name for name in measured["Config"] if not name.startswith("default")]
    assert f"Not measured: {4 - len(tried)} of 4 candidates: " in " ".join(left.missing)
    assert not any(f"{name}," in sentence for name in tried for sentence in left.missing)
    assert left.command.startswith("python -m merge_bench tune --chunk 2e4 --workers 2 --iterations 3 --only ")
    said = texts(view.tuning.layout)
    assert left.command in said
    assert all(name in said for name in measured["Config"])
    with held(tmp_path / "tune"):
        assert found(tmp_path).unfinished is None


def begun_only(results: Path, name: str, seconds: float) -> Path:
    """The recorded tuning of the real command, interrupted before its first launch, `seconds` after the other."""
    head = msgspec.json.decode((CAMPAIGNS / "tune" / "records.jsonl").read_bytes().partition(b"\n")[0])
    head["time"] += seconds
    (results / name).mkdir(parents=True)
    (results / name / "records.jsonl").write_bytes(msgspec.json.encode(head) + b"\n")
    return results / name


def test_the_tab_opens_with_the_newest_tuning_that_measured_anything_and_names_the_newer_ones(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "tune", tmp_path / "tune")
    begun_only(tmp_path, "empty", 3600.0)
    view = board(tmp_path)
    update(view.tuning)
    empty, measured = view.tuning.choice.options
    assert (empty, measured) == (
        "22 Nov 12:08 · default · unfinished, nothing measured",
        "22 Nov 11:08 · default · found no config faster than default",
    )
    assert view.tuning.choice.value == str(tmp_path / "tune")
    assert f"Newer, without measurements: {empty}." in texts(view.tuning.layout)
    view.tuning.choice.value = str(tmp_path / "empty")
    update(view.tuning)
    said = texts(view.tuning.layout)
    assert "The tuning is not finished: 0 steps and 0 launches done." in said
    assert "Newer, without" not in said


def test_the_newest_tuning_is_shown_from_its_beginning_while_it_goes_on(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "tune", tmp_path / "tune")
    with held(begun_only(tmp_path, "begun", 3600.0)):
        view = board(tmp_path)
        update(view.tuning)
        assert view.tuning.choice.value == str(tmp_path / "begun")


def test_a_tuning_without_a_launch_has_no_heading_above_nothing(tmp_path: Path) -> None:
    begun_only(tmp_path, "empty", 0.0)
    view = board(tmp_path)
    update(view.tuning)
    said = texts(view.tuning.layout)
    assert "Measured so far" not in said
    assert "<h2>What is missing</h2>" in said


def test_what_the_budget_leaves_out_is_no_step(tmp_path: Path) -> None:
    folder = tuning(tmp_path)
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(
            b'{"kind":"tune","schema":1,"time":1700000000.0,"phase":"search","config":"a=b","against":"default",'
            b'"setting":"a=b","decision":"left out","reason":"the budget of 3 minutes has no time for it"}\n'
        )
    shown = found(tmp_path)
    assert shown.details[-1] == "1 candidate has not been tried yet; there is time only if others end early: a=b."
    assert "a=b" not in list(shown.frame["Setting"]) if shown.frame is not None else False
    drawn = [chart.title for chart in charts_of_kind(read_campaign(folder), "tuning")]  # in the report
    assert drawn
    assert not [title for title in drawn if ", search" in title]


def test_without_a_tuning_the_command_that_makes_one_is_shown_and_nobody_elses_data(tmp_path: Path) -> None:
    view = board(tmp_path)
    update(view.tuning)
    assert "<code>python -m merge_bench tune --budget 10m</code>" in texts(view.tuning.layout)
    assert view.tuning.parts.objects == []


def test_a_tuning_of_the_real_command_is_listed_by_its_title_and_shown(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "tune", tmp_path / "tune")
    view = board(tmp_path)
    update(view.tuning)
    assert list(view.tuning.choice.options) == ["22 Nov 11:08 · default · found no config faster than default"]
    said = texts(view.tuning.layout)
    assert '<p class="verdict">Found no config faster than default</p>' in said
    assert "Of 4 candidates, 3 were dropped, 1 showed no gain" in said
    assert "Next: <code>python -m merge_bench report " in said
    content = found(tmp_path)
    assert [chart.title for chart in content.charts] == [
        "Tuning, each alone, 20,000 rows per chunk: speed-up by setting"
    ]
    assert content.frame is not None
    assert list(content.frame["Setting"].iloc[[0, 3]]) == [
        "rendezvous-scheme=get_zcopy",
        "rendezvous-scheme=rkey_ptr",
    ]


def test_a_rejected_candidate_has_its_figures_and_is_not_called_the_fastest(tmp_path: Path) -> None:
    """Lists named it as the fastest config because of the launches for which the search had chosen it."""
    campaign = confirmed(tmp_path, "c", changed(0.94, 0.99, 1.01, 0.97))
    (entry,) = ResultsFolder(campaign.folder.parent).entries()
    content = make_tuning_content(CampaignCache().load([entry])[0])
    assert "c=y has no gain of at least 2.0%" in content.outcome
    assert [
        bool(re.match(r"0\.9\d+ × \(.*\) at .* rows per chunk: no gain of", each)) for each in content.details[:2]
    ] == [True, True]
    (cache := CampaignCache()).read_small_campaigns([entry])
    known = cache.cached_figures(entry)
    assert known is not None
    assert known.fastest.startswith("default at ")

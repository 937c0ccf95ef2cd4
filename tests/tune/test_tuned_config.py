"""The config, the figure and the tables that a tuning leaves."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import msgspec
import pytest

from merge_bench.config.reader import read_config
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign
from merge_bench.records.schema import CampaignEndLine, TuningStepLine
from merge_bench.tune.evaluator import Candidate, SearchOptions
from merge_bench.tune.result import tuning_result_of
from merge_bench.tune.search_steps import confirm_or_repair_best
from merge_bench.tune.strategies import strategies
from merge_bench.tune.tuned_config import tuned_config_text
from merge_bench.tune.view import (
    StepEstimate,
    draw_tuning_charts,
    print_tuning_result,
    speed_up_forest_chart,
    tuning_result_chart,
)
from merge_bench.view.plot import BoxMarks, WhiskerMarks
from merge_bench.view.plot.draw import check_plot_files, draw_charts_into_file
from tests.helpers.charts import rows_of
from tests.tune.clusters import SPEED, TRUTH, Cluster, begin, evaluator_of, search
from tests.tune.factorials import space_of

SIZES = ["1,000,000 rows per chunk", "25,000,000 rows per chunk"]


def campaign_of(folder: Path, strategy: str = "race") -> Campaign:
    with begin(folder) as writer:
        evaluator = evaluator_of(writer, Cluster(writer).launch)
        if strategy == "race":
            search(evaluator)
        else:
            found = strategies()[strategy].tune(TRUTH.space, TRUTH.space.values, evaluator, SearchOptions())
            confirm_or_repair_best(found, evaluator, SearchOptions())
    return read_campaign(writer.folder)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return campaign_of(tmp_path_factory.mktemp("tuned"))


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    with begin(tmp_path_factory.mktemp("nothing")) as writer:
        space = space_of("c")
        assert strategies()["race"].tune(
            space, space.values, evaluator_of(writer, Cluster(writer).launch), SearchOptions()
        ) == (Candidate())
        writer.write(CampaignEndLine(status=0))
    return read_campaign(writer.folder)


def text_of(campaign: Campaign, baseline: str = "") -> str:
    return tuned_config_text(
        campaign, tuning_result_of(campaign), TRUTH.space, baseline_text=baseline, size_names=SIZES, metric="throughput"
    )


def test_the_config_holds_exactly_the_winners_variables(campaign: Campaign, tmp_path: Path) -> None:
    path = tmp_path / "tuned.cfg"
    path.write_text(text_of(campaign))
    found = read_config(path, {})
    assert {each.name: each.value for each in found.variables} == {"UCX_A": "y", "UCX_B": "y"}


def test_the_winners_settings_win_over_the_baselines(campaign: Campaign, tmp_path: Path) -> None:
    path = tmp_path / "tuned.cfg"
    path.write_text(text_of(campaign, "export UCX_A=n\nexport UCX_Z=1"))
    values = {each.name: each.value for each in read_config(path, {}).variables}
    assert values == {"UCX_A": "y", "UCX_B": "y", "UCX_Z": "1"}


def test_each_setting_says_what_it_is_worth_in_this_config(campaign: Campaign) -> None:
    lines = text_of(campaign).splitlines()
    for name, gain in (("a", 1.5), ("b", 1.2)):
        at = lines.index(f"export UCX_{name.upper()}=y")
        assert lines[at - 1].startswith(f"# {name}=y: ")
        assert lines[at - 1].endswith(" blocks) compared with this config without it")
        assert float(lines[at - 1].split()[2]) == pytest.approx(gain, rel=0.03)
        record = tuning_result_of(campaign).contributions[f"{name}=y"]
        assert record is not None
        assert record.config == "a=y+b=y"


def test_what_it_was_measured_on_and_the_confirmation_stand_at_the_top(campaign: Campaign) -> None:
    head = text_of(campaign).split("\n\n")[0].splitlines()
    assert head[0].startswith("# Tuned for node0 on 20")
    assert head[0].endswith(" by merge_bench tune, from default; measure again on other hosts.")
    assert head[1].startswith("# Hosts: node0; 2 workers; ")
    assert campaign.head.campaign_id in head[2]
    assert [line.split(": ")[0] for line in head[3:]] == [f"# throughput at {size}" for size in SIZES]
    assert all(line.endswith(", FASTER.") for line in head[3:])


def test_nothing_in_the_records_can_end_a_comment(campaign: Campaign) -> None:
    text = tuned_config_text(
        campaign,
        tuning_result_of(campaign),
        TRUTH.space,
        baseline_text="",
        size_names=["x\nexport UCX_EVIL=y", SIZES[1]],
        metric="m",
    )
    assert "\nexport UCX_EVIL" not in text


@pytest.mark.parametrize("strategy", ["one-at-a-time", "exhaustive"])
def test_contributions_are_of_the_setting_whatever_the_strategy(tmp_path: Path, strategy: str) -> None:
    result = tuning_result_of(campaign_of(tmp_path, strategy))
    assert result.winner is not None
    assert result.winner.settings == ["a=y", "b=y"]
    for name, gain in (("a=y", 1.5), ("b=y", 1.2)):
        line = result.contributions[name]
        assert line is not None
        assert line.ratio == pytest.approx(gain, rel=0.03)


def test_nothing_beats_the_baseline_is_said_first(nothing: Campaign) -> None:
    out = io.StringIO()
    print_tuning_result(tuning_result_of(nothing), sizes=SIZES, metric="throughput", file=out)
    assert "\nc=y is not faster than default\n" in out.getvalue()
    assert tuning_result_chart(tuning_result_of(nothing), SIZES, "throughput").title.endswith(
        ": c=y is not faster than default"
    )


def test_that_settings_stayed_undecided_is_said_first(tmp_path: Path) -> None:
    recorded = {
        ids: [each * (0.7, 1.3)[block % 2] if ids and each else each for block, each in enumerate(values)]
        for ids, values in SPEED.items()
    }
    with begin(tmp_path) as writer:
        space = space_of("bc")
        strategies()["race"].tune(
            space, space.values, evaluator_of(writer, Cluster(writer, speed=recorded).launch), SearchOptions()
        )
    result, out = tuning_result_of(read_campaign(writer.folder)), io.StringIO()
    print_tuning_result(result, sizes=SIZES, metric="throughput", file=out)
    said = "ot decided: too few blocks to judge 1 of 2 candidates"
    assert f"\nN{said}\n" in out.getvalue()
    assert tuning_result_chart(result, SIZES, "throughput").title.endswith(": n" + said)
    assert (result.undecided, result.no_gain_seen) == (["b=y"], ["c=y"])


def test_the_forest_has_every_single_the_combination_and_every_size(campaign: Campaign) -> None:
    chart = tuning_result_chart(tuning_result_of(campaign), SIZES, "throughput")
    rows = rows_of(chart)
    together, confirmed = rows.index("IN COMBINATION"), rows.index("CONFIRMATION")
    assert rows[:together] == ["EACH ALONE", "a=y", "b=y", "c=y"]
    assert set(rows[together + 1 : confirmed]) == {"a=y", "b=y"}
    assert rows[confirmed + 1 :] == ["a=y+b=y, 1,000,000 rows", "a=y+b=y, 25,000,000 rows"]
    noise, gained, kept, dropped = chart.groups
    assert isinstance(noise.marks[0], BoxMarks)
    assert (*noise.marks[0].start, *noise.marks[0].end) == (1.0, 1.0)
    assert (gained.label, kept.label, dropped.label) == ("gained", "kept", "dropped")
    assert isinstance(dropped.marks[0], WhiskerMarks)
    assert list(dropped.marks[0].at) == [rows.index("c=y")]


def test_a_long_name_leaves_room_for_the_whole_size_of_its_confirmation(campaign: Campaign) -> None:
    found = tuning_result_of(campaign)
    long = [msgspec.structs.replace(line, config="rendezvous-threshold=64k") for line in found.confirmed]
    rows = rows_of(tuning_result_chart(dataclasses.replace(found, confirmed=long, winner=None), SIZES, "throughput"))
    assert rows[-2:] == ["rendezvous-th…ld=64k, 1,000,000 rows", "rendezvous-t…ld=64k, 25,000,000 rows"]
    assert max(map(len, rows)) <= 36


@pytest.mark.slow
def test_figures_lie_in_the_campaigns_folder_and_where_asked_for(campaign: Campaign, tmp_path: Path) -> None:
    plot = tmp_path / "mine.svg"
    told = draw_tuning_charts(tuning_result_of(campaign), campaign, [plot], SIZES, "throughput")
    assert told == [f"Figure: {campaign.folder / 'figure.png'}", f"Figure: {plot}"]
    assert (campaign.folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    for svg in (plot, campaign.folder / "figure.svg"):
        assert svg.read_text().startswith("<?xml")
    page = (campaign.folder / "figure.html").read_text()
    assert "a=y" in page
    assert campaign.head.campaign_id in page
    assert '<script src="http' not in page


def test_a_failed_setting_is_drawn_too(tmp_path: Path) -> None:
    step = TuningStepLine(phase="screen", config="x", against="a", decision="failed", reason="it failed 2 times: <b>")
    failed = StepEstimate("x=$y$", "failed", step)
    with_failure = speed_up_forest_chart(
        {"$a$": [failed]}, title="Speed-up", axis_title="ratio", decisions=("failed",), noise_step=None
    )
    assert list(with_failure.y.beside.values()) == ["not measured"]
    for name in ("a.png", "a.svg", "a.html"):
        draw_charts_into_file([with_failure], tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000


def test_plots_are_looked_at_before(tmp_path: Path) -> None:
    output = [("--output", tmp_path / "tuned.cfg")]
    assert check_plot_files([str(tmp_path / "a.png")], output) == (tmp_path / "a.png",)
    with pytest.raises(UsageError, match=r"must end in .png, .svg or .html"):
        check_plot_files(["a.pdf"], output)
    with pytest.raises(UsageError, match="there is no folder"):
        check_plot_files([str(tmp_path / "none" / "a.png")], output)
    with pytest.raises(UsageError, match="two options write to"):
        check_plot_files([str(tmp_path / "a.png")] * 2, output)

"""Campaigns of a command in the tabs of the dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from merge_bench.dashboard.live_data import IterationPointCollector, campaign_progress, make_live_campaign_state
from merge_bench.dashboard.results_tab import ABSOLUTE, campaigns_data_frame, make_results_content
from merge_bench.records.reader import CampaignFollower, read_campaign
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.report.campaign_figures import CampaignCache
from tests.helpers.synthetic_campaigns import write_campaign
from tests.view.command_samples import OF_MERGES, RATES, one_config, one_failed, two_configs
from tests.view.dashboard.boards import board, drawn_in, texts, update, visible_cards, visible_parts

METRIC_CARD = "Main metric of each launch"


@pytest.fixture(autouse=True)
def _own_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def points_of(folder: Path) -> IterationPointCollector:
    """The points of its records."""
    follower, points = CampaignFollower(folder, lean=True), IterationPointCollector()
    points.add_records(follower.read())
    return points


def test_each_launch_that_passed_is_a_point_of_the_main_metric(tmp_path: Path) -> None:
    points = points_of(one_failed(tmp_path))
    assert points.metric is not None
    assert (points.metric.name, points.metric.unit) == ("busbw", "GB/s")
    assert [point.value for point in points.timed if point.config == "base"] == RATES
    assert [point.launch for point in points.timed if point.config == "tuned"] == [1, 3, 5, 9, 11, 13, 15]
    assert {point.throughput for point in points.timed} == {None}


def test_the_live_tab_shows_launches_as_points_in_the_unit_of_the_metric(tmp_path: Path) -> None:
    two_configs(tmp_path / "results")
    view = board(tmp_path / "results")
    update(view.live)
    cards = visible_cards(view.live.layout)
    assert set(cards) == {"Conclusion", METRIC_CARD}
    figure = drawn_in(cards[METRIC_CARD])
    assert figure.yaxis[0].axis_label == "busbw (GB/s)"
    assert figure.xaxis[0].axis_label == "Launch"
    shown = texts(view.live.layout)
    assert "Dask" not in shown
    assert "16.20 GB/s" in shown
    assert "16 of 16" in shown


def test_a_failed_launch_is_among_the_warnings(tmp_path: Path) -> None:
    one_failed(tmp_path / "results")
    view = board(tmp_path / "results")
    update(view.live)
    cards = visible_cards(view.live.layout)
    assert set(cards) == {"Conclusion", METRIC_CARD, "Warnings and remedies"}
    assert "launch 7, tuned, node0" in texts(cards["Warnings and remedies"])
    assert "1 failed" in texts(view.live.layout)


@pytest.mark.parametrize("make", [one_config, two_configs, one_failed], ids=lambda make: make.__name__)
def test_nothing_of_merges_is_in_the_state(tmp_path: Path, make: Any) -> None:
    state = make_live_campaign_state(read_campaign(make(tmp_path)))
    assert (state.workers, state.rates, state.memory, state.limit, state.lacking) == ((), (), None, None, {})
    assert not OF_MERGES.search(" ".join([*state.figures, *state.figures.values(), state.checks]))


def test_progress_counts_launches_alone(tmp_path: Path) -> None:
    folder = two_configs(tmp_path)
    path = folder / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: 1 + 4 * 4 + 1]))  # the fifth launch has begun
    progress = campaign_progress(read_campaign(folder))
    assert (progress.launches, progress.planned_launches) == (4, 16)
    assert (progress.iterations, progress.planned_iterations) == (0, 0)
    assert progress.doing == "launch 4: the command runs"


def test_the_table_of_results_has_the_main_metric_with_its_unit(tmp_path: Path) -> None:
    two_configs(tmp_path)
    entries, cache = ResultsFolder(tmp_path).entries(), CampaignCache()
    cache.read_small_campaigns(entries)
    row = campaigns_data_frame(entries, cache.cached_figures).iloc[0]
    assert (row["Kind"], row["Problem"], row["Main metric"]) == ("command", "./bench -n 2", "busbw 16.20 GB/s")
    assert row["Throughput (GiB/s)"] != row["Throughput (GiB/s)"]
    assert (row["Status"], row["Fastest config"]) == ("verified", "tuned")


def test_chosen_results_have_a_table_charts_and_a_verdict(tmp_path: Path) -> None:
    two_configs(tmp_path)
    loaded = CampaignCache().load(ResultsFolder(tmp_path).entries())
    content = make_results_content(loaded, metric="Throughput", axis_unit=ABSOLUTE, dataset_names=())
    (table,) = content.of_commands
    assert [column.heading for column in table] == ["./bench -n 2", "busbw (GB/s)", "wall (ms)", "Launches", "Failed"]
    assert [column.cells for column in table][1] == ["13.50", "16.20"]
    assert content.figures == ()
    assert [chart.title for chart in content.charts] == [
        "busbw, more is better",
        "busbw of every launch, in their order",
        "wall, less is better",
        "wall of every launch, in their order",
        "Speed-up in busbw over the baseline",
    ]
    ((title, verdict),) = content.verdicts
    assert (title, verdict.partition(" (")[0]) == ("tuned against base", "FASTER: 1.200 × as fast in busbw")


def test_merges_and_commands_are_shown_together_but_not_compared(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    one_config(tmp_path)
    loaded = CampaignCache().load(ResultsFolder(tmp_path).entries())
    content = make_results_content(loaded, metric="Throughput", axis_unit=ABSOLUTE, dataset_names=())
    assert content.figures
    assert content.of_commands
    assert "have no common metric" in content.unjudged


def test_the_choices_of_merges_are_hidden_for_commands(tmp_path: Path) -> None:
    folder = two_configs(tmp_path / "results")
    view = board(tmp_path / "results")
    view.results.choose_campaigns([folder.name])
    update(view.results)
    assert view.results.metric not in visible_parts(view.results.layout)


def test_history_offers_the_metrics_of_the_command(tmp_path: Path) -> None:
    for _ in range(3):
        one_config(tmp_path / "results")
    view = board(tmp_path / "results")
    update(view.history)
    update(view.history)
    assert list(view.history.metric.options) == ["busbw", "wall"]
    assert list(view.history.choice.options) == ["base: ./bench -n 2"]
    assert "busbw of base: ./bench -n 2 over 3 results: level 13.50 GB/s" in texts(view.history.layout)
    view.history.metric.value = "wall"
    update(view.history)
    assert "level 1,350 ms" in texts(view.history.layout)

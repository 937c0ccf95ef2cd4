"""The Network tab: measured and published series in the same panels."""

from __future__ import annotations

import shutil
from pathlib import Path

import panel as pn

from merge_bench.dashboard.network_tab import make_network_content
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.report.campaign_figures import CampaignCache, LoadedCampaign
from merge_bench.view.plot import WhiskerMarks
from tests.helpers.synthetic_campaigns import write_campaign
from tests.view.dashboard.boards import board, texts, update
from tests.view.dashboard.samples import probing

CAMPAIGNS = Path(__file__).parents[2] / "data" / "campaigns"


def load(results: Path) -> list[LoadedCampaign]:
    return CampaignCache().load(ResultsFolder(results).entries())


def test_configs_and_placements_are_series_of_the_panels_of_latency_and_bandwidth(tmp_path: Path) -> None:
    probing(tmp_path)
    found = make_network_content(load(tmp_path), ())
    latency, bandwidth = found.charts
    assert "Latency" in latency.title
    assert "Bandwidth" in bandwidth.title
    assert [group.label for group in latency.groups] == [
        "tcp, one host",
        "tcp, two hosts",
        "optimized, one host",
        "optimized, two hosts",
    ]
    assert found.frame is not None
    assert len(found.frame) == 2 * 2 * 2 * 10
    assert set(found.frame["Launches"]) == {3}


def test_published_series_stand_in_the_same_panel(tmp_path: Path) -> None:
    probing(tmp_path)
    found = make_network_content(load(tmp_path), ("nthu-hw4-latency",))
    labels = [group.label for group in found.charts[0].groups]
    assert any("published" in label for label in labels)
    assert any("tcp" in label for label in labels)


def test_a_published_dataset_alone_is_enough() -> None:
    assert make_network_content([], ("nthu-hw4-latency",)).charts
    assert make_network_content([], ()).charts == ()


def test_a_campaign_of_merges_is_refused_with_a_sentence(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    found = make_network_content(load(tmp_path), ("nthu-hw4-latency",))
    assert "contains results of merges" in found.problems[0]
    assert found.charts


def test_the_table_has_the_values_that_the_charts_draw() -> None:
    """Of a collective these are the extremes over ranks, which one launch has, too."""
    folder = Path(__file__).parents[2] / "data" / "campaigns" / "reduce-scatter"
    found = make_network_content(
        CampaignCache().load([entry for entry in ResultsFolder(folder.parent).entries() if entry.folder == folder]), ()
    )
    assert found.frame is not None
    drawn = {
        (low, high)
        for chart in found.charts
        for _, mark in chart.marks_with_groups
        if isinstance(mark, WhiskerMarks)
        for low, high in zip(mark.start, mark.end, strict=True)
    }
    table = found.frame
    assert (table["Least"] < table["Median"]).all()
    assert drawn == set(zip(table["Least"], table["Most"], strict=True))


def test_without_a_measurement_the_command_that_makes_one_is_shown_and_nobody_elses_data(tmp_path: Path) -> None:
    view = board(tmp_path)
    for _ in range(2):
        update(view.network)
    assert "<code>python -m merge_bench probe p2p</code>" in texts(view.network.layout)
    assert view.network.datasets.value == []
    assert view.network.parts.select(pn.pane.Bokeh) == []
    view.network.datasets.value = ["nthu-hw4-latency"]
    update(view.network)
    assert view.network.parts.select(pn.pane.Bokeh)


def test_a_measurement_of_the_real_command_is_listed_by_its_title_and_shown_at_once(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "p2p", tmp_path / "p2p")
    view = board(tmp_path)
    for _ in range(2):
        update(view.network)
    assert list(view.network.choice.options) == ["22 Nov 11:01 · Network measurement p2p: tcp · done"]
    assert len(view.network.parts.select(pn.pane.Bokeh)) == 2

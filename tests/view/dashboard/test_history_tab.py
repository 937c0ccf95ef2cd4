"""The History tab: the level and its shifts, and the way to the two results."""

from __future__ import annotations

import html
from pathlib import Path

import panel as pn
import pytest

from merge_bench.regressions.view import series_sentence
from merge_bench.view.text import capitalize
from tests.analysis.history.made_up import Nights, write
from tests.helpers.synthetic_campaigns import write_campaign
from tests.view.dashboard.boards import board, list_again, texts, update


@pytest.fixture(autouse=True)
def _own_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_it_shows_the_conclusion_the_chart_and_each_shift_with_what_differs_and_a_click_compares(
    tmp_path: Path,
) -> None:
    write(tmp_path / "results", Nights())
    view = board(tmp_path / "results")
    update(view.history)
    update(view.history)
    document = view.history.read_update().document
    assert document is not None
    first, *rest = view.history.parts.objects
    conclusion = html.unescape(first.value).replace("\u00a0%", " %")  # a number stays beside its unit
    assert capitalize(series_sentence(document, document.series[0])) in conclusion
    assert " %" not in html.unescape(first.value)
    assert len(view.history.parts.select(pn.pane.Bokeh)) == 1
    shown = texts(rest[-1])
    assert "at 0030-tcp" in shown
    assert "UCX version 1.20.0 → 1.21.0" in shown
    (button,) = view.history.parts.select(pn.widgets.Button)
    button.clicks += 1
    assert view.tabs.value == "Results"
    update(view.results)
    assert [entry.folder.name for entry in view.results.chosen_campaigns] == ["0029-tcp", "0030-tcp"]
    compared = texts(view.results.parts)
    assert "Not compared: A: tcp and B: tcp differ in UCX version" in compared
    assert "Differences between the runs" in compared
    assert "<td>1.20.0</td><td>1.21.0</td>" in compared


def test_a_series_and_a_metric_can_be_chosen_and_nothing_is_read_again_until_a_result_has_ended(tmp_path: Path) -> None:
    write(tmp_path / "results", Nights(count=16, shift=99))
    write(tmp_path / "results", Nights(count=3, config="other"))
    view = board(tmp_path / "results")
    update(view.history)
    update(view.history)
    assert {name.partition(":")[0] for name in view.history.choice.options} == {"tcp", "other"}
    view.history.choice.value = next(value for name, value in view.history.choice.options.items() if "other" in name)
    view.history.metric.value = "wall"
    update(view.history)
    assert "Wall of other: 1,000,000 rows per chunk, 2 workers over 3 results" in texts(view.history.parts)
    before = view.history.read_update()
    write_campaign(tmp_path / "results", end=None)  # goes on
    list_again(view)
    assert view.history.read_update() is before
    write(tmp_path / "more", Nights(count=4, config="other"))[3].rename(tmp_path / "results" / "new")
    list_again(view)
    update(view.history)
    assert "over 4 results" in texts(view.history.parts)
    view.history.metric.value = "bandwidth"
    update(view.history)
    assert "over 4 results" in texts(view.history.parts)


def test_without_results_there_is_a_sentence(tmp_path: Path) -> None:
    view = board(tmp_path / "results")
    update(view.history)
    assert "<code>python -m merge_bench run --chunk 1e6</code>" in texts(view.history.parts)


def test_names_in_records_are_text(tmp_path: Path) -> None:
    write(tmp_path / "results", Nights(config="<img src=x>", count=16, shift=99))
    view = board(tmp_path / "results")
    update(view.history)
    assert "&lt;img src=x&gt;" in texts(view.history.parts)
    assert "<img" not in texts(view.history.parts)

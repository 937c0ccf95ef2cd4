"""The table of the Results tab: rows and the choice of them, while campaigns come and go."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import panel as pn
import pytest

from merge_bench.dashboard.results_tab import ResultsView
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.report.campaign_figures import CampaignCache
from tests.helpers.synthetic_campaigns import Script, write_campaign
from tests.view.dashboard.boards import board, build, list_again, texts, update
from tests.view.dashboard.samples import hostile, interleaved


def test_a_campaign_keeps_its_place_and_stays_chosen_when_others_come_and_when_one_is_deleted(tmp_path: Path) -> None:
    mine = interleaved(tmp_path)
    view = board(tmp_path)
    build(view)
    update(view.results)
    before = list(view.results.table.value["Folder"])
    place = before.index(mine.name)
    view.results.table.selection = [place]
    later = write_campaign(tmp_path)
    os.utime(later / "records.jsonl")
    list_again(view)
    update(view.results)
    assert list(view.results.table.value["Folder"]) == [*before, later.name]
    assert view.results.table.selection == [place]
    assert [entry.folder for entry in view.results.chosen_entries] == [mine]
    assert "FASTER" in texts(view.results.parts)
    shutil.rmtree(later)
    list_again(view)
    update(view.results)
    assert list(view.results.table.value["Folder"]) == [*before, later.name]
    assert view.results.table.value["Status"].iloc[-1] == "deleted"


def test_what_is_chosen_before_new_rows_have_reached_the_browser_is_what_was_meant(tmp_path: Path) -> None:
    mine = interleaved(tmp_path)
    view = board(tmp_path)
    build(view)
    update(view.results)
    place = list(view.results.table.value["Folder"]).index(mine.name)
    write_campaign(tmp_path)
    list_again(view)
    found = view.results.read_update()
    view.results.table.selection = [place]
    view.results.show_update(found)
    update(view.results)
    assert [entry.folder for entry in view.results.chosen_entries] == [mine]
    assert view.results.table.selection == [place]


def results_view(results: Path, patience: float) -> ResultsView:
    """The tab by itself."""
    return ResultsView(ResultsFolder(results).entries, CampaignCache(), patience)


def test_rows_change_only_once_the_browser_has_built_the_table(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, end=None)
    view = results_view(tmp_path, patience=1e9)
    view.table.page_size = 10
    update(view)
    place = list(view.table.value["Folder"]).index(folder.name)
    assert view.table.value["Status"].iloc[place] == "unfinished"
    with (folder / "records.jsonl").open("ab") as stream:
        stream.write(b'{"schema":1,"kind":"end","time":1.0,"status":0}\n')
    view.replace_table()
    before = view.table.value
    update(view)
    assert view.table.value is before
    view.table.page_size = 10
    update(view)
    assert view.table.value["Status"].iloc[place] == "verified"


@pytest.mark.slow
def test_a_table_that_never_tells_that_it_is_built_makes_way_for_one_with_the_new_rows(tmp_path: Path) -> None:
    interleaved(tmp_path)
    view = results_view(tmp_path, patience=-1.0)
    view.table.selection = [0]
    before = view.table
    write_campaign(tmp_path, Script(config="fresh"))
    update(view)
    now = view.table
    assert now is not before
    assert view.layout.select(pn.widgets.Tabulator) == [now]
    assert "fresh" in list(now.value["Configs"])
    assert now.selection == [0]
    update(view)
    assert view.table is now


def test_what_is_chosen_stays_so_when_the_tab_is_left(tmp_path: Path) -> None:
    interleaved(tmp_path)
    view = board(tmp_path)
    view.tabs.value = "Results"
    view.results.table.selection = [0]
    before = view.results.table
    view.tabs.value = "Live"
    view.tabs.value = "Results"
    assert view.results.table is not before
    assert view.results.table.selection == [0]
    assert view.results.layout.select(pn.widgets.Tabulator) == [view.results.table]


def test_an_answer_is_not_worked_out_again_unless_something_changed(tmp_path: Path) -> None:
    interleaved(tmp_path)
    view = board(tmp_path)
    update(view.results)
    view.results.table.selection = [0]
    first = view.results.read_update().content
    assert first.verdicts
    assert view.results.read_update().content is first
    view.results.metric.value = "Bandwidth"
    assert view.results.read_update().content is not first


def test_without_an_own_result_the_command_that_makes_one_is_shown(tmp_path: Path) -> None:
    command = "<code>python -m merge_bench run --chunk 1e6</code>"
    view = board(tmp_path)
    update(view.results)
    assert command in texts(view.results.layout)
    write_campaign(tmp_path)
    list_again(view)
    update(view.results)
    assert command not in texts(view.results.layout)


def test_too_many_chosen_campaigns_are_a_sentence(tmp_path: Path) -> None:
    for _ in range(13):
        write_campaign(tmp_path)
    view = board(tmp_path)
    update(view.results)
    view.results.table.selection = list(range(13))
    update(view.results)
    assert "at most 12" in texts(view.results.layout)


def test_tables_show_plain_text_alone(tmp_path: Path) -> None:
    hostile(tmp_path)
    view = board(tmp_path)
    update(view.results)
    formats = view.results.table.formatters
    texts_of = [name for name, kind in view.results.table.value.dtypes.items() if kind == "object"]
    assert texts_of
    assert all(formats[name] == {"type": "plaintext"} for name in texts_of)

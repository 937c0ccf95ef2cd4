"""The Live tab: it follows a campaign, names the slowest worker, and links Dask's dashboard."""

from __future__ import annotations

import contextlib
import html
import io
import os
import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import panel as pn
import pytest
from bokeh.core.properties import value

from merge_bench.analysis.documents import run_documents
from merge_bench.analysis.summary import summarize_campaign
from merge_bench.dashboard.app import Dashboard
from merge_bench.dashboard.live_data import make_live_campaign_state
from merge_bench.records.reader import read_campaign
from merge_bench.report.next_step import next_step_after_recorded_tuning
from merge_bench.report.run import print_campaign_report
from merge_bench.tune.result import ended_tuning_result_of
from merge_bench.view.text import as_html, format_gib
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign
from tests.view.dashboard.boards import board, drawn_in, held, list_again, texts, update, visible_cards, visible_parts

CAMPAIGNS = Path(__file__).parents[2] / "data" / "campaigns"
BY_WORKER = "Bandwidth of each worker, last iterations"


@pytest.mark.slow
def test_without_a_run_the_live_tab_says_how_to_make_one(tmp_path: Path) -> None:
    view = board(tmp_path)
    update(view.live)
    assert "<code>python -m merge_bench run --chunk 1e6</code>" in texts(view.live.layout)
    assert shown_cards(view) == []


def test_the_tab_names_result_host_date_and_ucx(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "run", tmp_path / "run")
    view = board(tmp_path)
    update(view.live)
    assert "20261122T105951Z-tcp-e0a9d0 · host vm · 2026-11-22 10:59 UTC · UCX 1.21.0" in texts(view.live.layout)


@pytest.mark.parametrize(("workers", "mapped"), [(3, False), (4, True)])
def test_pairs_are_a_map_from_four_workers_and_a_table_below(workers: int, mapped: bool, tmp_path: Path) -> None:
    write_campaign(tmp_path, Script(plan=plan(workers)))
    view = board(tmp_path)
    update(view.live)
    card = visible_cards(view.live.layout)["Pairs of workers, last iteration"]
    assert drawn_in(card).visible == mapped
    table = "\n".join(str(part.value) for part in visible_parts(card) if isinstance(part, pn.widgets.StaticText))
    assert ("Rate in GiB/s, from row to column" in table) != mapped
    assert ("0.373" in table) != mapped


def test_the_live_tab_follows_the_newest_campaign_and_then_the_next(tmp_path: Path) -> None:
    write_campaign(tmp_path, Script(config="first"))
    view = board(tmp_path)
    update(view.live)
    assert "config first;" in texts(view.live.layout)
    later = write_campaign(tmp_path, Script(config="second"))
    os.rename(later, tmp_path / "99999999T000000Z-second-ffffff")
    list_again(view)
    update(view.live)
    assert "config second;" in texts(view.live.layout)


def test_points_are_added_once_and_all_of_them_when_a_campaign_is_chosen(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, end=None)
    view = board(tmp_path)
    update(view.live)
    (points,) = drawn_in(visible_cards(view.live.layout)["Throughput of each iteration"]).renderers
    source = points.data_source
    assert list(source.data["number"]) == [1, 2, 3]
    records = folder / "records.jsonl"
    more = [line for line in records.read_bytes().splitlines(keepends=True) if b'"iteration"' in line][-1:]
    with records.open("ab") as stream:
        stream.writelines(more)
    update(view.live)
    update(view.live)
    assert list(source.data["number"]) == [1, 2, 3, 4]


def test_the_slowest_worker_is_named_and_hatched(tmp_path: Path) -> None:
    def slow(worker: Any) -> Any:
        flight = worker.flight_seconds
        slower = msgspec.structs.replace(flight, left=0.08) if worker.rank == 2 else flight
        return msgspec.structs.replace(worker, flight_seconds=slower)

    write_campaign(tmp_path, Script(plan=plan(4), worker=slow))
    view = board(tmp_path)
    update(view.live)
    assert "<b>rank 2</b> (node0)" in texts(view.live.layout)
    usual, slowest = drawn_in(visible_cards(view.live.layout)[BY_WORKER]).renderers
    assert (list(usual.data_source.data["at"]), list(slowest.data_source.data["at"])) == ([0, 1, 3], [2])
    assert (usual.glyph.hatch_pattern, slowest.glyph.hatch_pattern) == (None, value("right_diagonal_line"))


def test_workers_of_the_same_bandwidth_have_no_slowest(tmp_path: Path) -> None:
    write_campaign(tmp_path)
    view = board(tmp_path)
    update(view.live)
    assert "Launch 0: all workers have the same bandwidth." in texts(view.live.layout)


def ticks_of_workers(view: Dashboard) -> dict[int, str]:
    return dict(drawn_in(visible_cards(view.live.layout)[BY_WORKER]).xaxis[0].major_label_overrides)


def text_of_workers(view: Dashboard) -> str:
    return texts(visible_cards(view.live.layout)[BY_WORKER])


def test_a_worker_that_sent_nothing_has_its_place_and_is_not_said_to_be_as_fast_as_the_other(tmp_path: Path) -> None:
    view = live_of("one-sender", tmp_path)
    assert ticks_of_workers(view) == {0: "0", 1: "1: sent nothing in these 3 iterations"}
    places = drawn_in(visible_cards(view.live.layout)[BY_WORKER]).x_range
    assert (places.start, places.end) == (-0.5, 1.5)
    assert ">Launch 0, rank 1: sent nothing in these 3 iterations.<" in text_of_workers(view)
    assert "same bandwidth" not in texts(view.live.layout)


def test_before_the_first_iteration_every_worker_has_its_place_without_a_figure(tmp_path: Path) -> None:
    shutil.copytree(CAMPAIGNS / "one-sender", tmp_path / "one-sender")
    records = tmp_path / "one-sender" / "records.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    timed = next(at for at, line in enumerate(lines) if b'"iteration"' in line and b'"warmup":false' in line)
    records.write_bytes(b"".join(lines[:timed]))
    with held(tmp_path / "one-sender"):
        view = board(tmp_path)
        update(view.live)
        assert BY_WORKER in shown_cards(view)
        assert ticks_of_workers(view) == {0: "0: no figure yet", 1: "1: no figure yet"}
        assert ">Launch 0, ranks 0 and 1: no figure yet.<" in text_of_workers(view)


def test_workers_of_the_same_bandwidth_are_named_if_another_one_has_none(tmp_path: Path) -> None:
    def silent(worker: Any) -> Any:
        none = msgspec.structs.replace(worker.sent_bytes, left=0, right=0)
        return msgspec.structs.replace(worker, sent_bytes=none) if worker.rank == 2 else worker

    write_campaign(tmp_path, Script(plan=plan(4), worker=silent))
    view = board(tmp_path)
    update(view.live)
    said = "Launch 0: ranks 0, 1 and 3 have the same bandwidth, rank 2: sent nothing in these 3 iterations."
    assert said in text_of_workers(view)


def test_a_link_limit_that_was_exceeded_is_said_with_the_words_of_the_command(tmp_path: Path) -> None:
    warned = [
        caution
        for document in run_documents(summarize_campaign(read_campaign(CAMPAIGNS / "run")))
        for caution in document.warnings
    ]
    (said,) = [caution for caution in warned if caution.code == "limit-exceeded"]
    status = above_the_cards(live_of("run", tmp_path))
    assert as_html(said.message) in status
    assert "--link-rounds 100" in status
    assert "limit-exceeded" not in above_the_cards(live_of("tables", tmp_path / "within"))


@pytest.mark.parametrize(("kind", "launch"), [("sweep", True), ("run", False)])
def test_the_numbers_name_their_launch_if_there_are_several(kind: str, launch: bool, tmp_path: Path) -> None:
    names = [name for name, _ in large_figures(going_on(kind, tmp_path))]
    assert ("Launch" in names) == launch
    assert {"Throughput", "Bandwidth", "Wall-clock", "Config", "Verified"} <= set(names)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sweep", "run"])
def test_beside_a_conclusion_no_large_figure_is_of_the_last_launch(kind: str, tmp_path: Path) -> None:
    """They are of the whole campaign, and of its fastest config."""
    view = live_of(kind, tmp_path)
    assert conclusion_shown(view)
    documents = run_documents(summarize_campaign(read_campaign(tmp_path / kind)))
    best = max(documents, key=lambda each: each.throughput_bytes_per_second.median or 0.0)
    figures = dict(large_figures(view))
    names = ["Verified", "Wall-clock", "Throughput", "Bandwidth", "Limited by"]
    assert list(figures) == (names if kind == "run" else [names[0], "Fastest config", *names[1:]])
    assert figures["Throughput"] == f"{format_gib(best.throughput_bytes_per_second.median)} GiB/s"
    assert best.bottleneck is not None
    assert figures["Limited by"] == best.bottleneck.what
    assert "Of the last launch" not in above_the_cards(view)


def test_without_pages_of_dask_the_option_is_named_that_makes_them(tmp_path: Path) -> None:
    view = board(tmp_path)
    update(view.live)
    assert "--dask-dashboard" not in texts(view.live.layout)  # nothing ran
    write_campaign(tmp_path)
    list_again(view)
    update(view.live)
    shown = texts(view.live.layout)
    assert "--dask-dashboard" in shown
    assert "<a " not in shown


def test_dask_pages_are_linked_while_the_launch_goes_on_if_they_have_the_address_of_a_page(tmp_path: Path) -> None:
    address = "http://127.0.0.1:8787/status"
    others = ("javascript:alert(1)", "http://a/' onclick='x", 'http://a/"><script>', "file:///etc/passwd", "")
    folders = [
        write_campaign(tmp_path, Script(dashboard=each, end_status=None), end=None) for each in (address, *others)
    ]
    view = board(tmp_path)

    def shown(folder: Path) -> str:
        view.live.choice.value = str(folder)
        update(view.live)
        return texts(view.live.layout)

    assert "<a " not in shown(folders[0])  # no process writes it any more
    with contextlib.ExitStack() as locks:
        for folder in folders:
            locks.enter_context(held(folder))
        list_again(view)
        assert f'<a href="{address}" target="_blank"' in shown(folders[0])
        for folder in folders[1:]:
            assert "launch 0: " in shown(folder)
            assert "<a " not in shown(folder)


def shown_cards(view: Dashboard) -> list[str]:
    return list(visible_cards(view.live.layout))


def above_the_cards(view: Dashboard) -> str:
    """What the tab says in no card: how far the campaign is, and the large figures."""
    return "\n".join(str(part.value) for part in view.live.layout if isinstance(part, pn.widgets.StaticText))


def live_of(kind: str, results: Path) -> Dashboard:
    shutil.copytree(CAMPAIGNS / kind, results / kind)
    view = board(results)
    update(view.live)
    return view


def going_on(kind: str, results: Path) -> Dashboard:
    """The tab before the end of a campaign."""
    shutil.copytree(CAMPAIGNS / kind, results / kind)
    records = results / kind / "records.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join(line for line in lines if b'"kind":"end"' not in line))
    with held(results / kind):
        view = board(results)
        update(view.live)
    return view


def large_figures(view: Dashboard) -> list[tuple[str, str]]:
    """Name and text of each."""
    tile = r'class="tile">(?:<span[^>]*>)?([^<]*)(?:<span.*?)?<b class="\w*" title="([^"]*)"'
    return re.findall(tile, above_the_cards(view))


@pytest.mark.parametrize("kind", ["run", "sweep", "tables", "failed", "import", "tune"])
def test_what_the_command_warned_of_stands_in_the_live_tab_once_it_has_ended(kind: str, tmp_path: Path) -> None:
    view = live_of(kind, tmp_path)
    said = [
        caution for one in run_documents(summarize_campaign(read_campaign(tmp_path / kind))) for caution in one.warnings
    ]
    assert said
    assert "Warnings and remedies" in shown_cards(view)
    assert all(as_html(caution.message) in texts(view.live.layout) for caution in said)


@pytest.mark.slow
def test_there_is_no_card_for_nothing(tmp_path: Path) -> None:
    assert shown_cards(live_of("p2p", tmp_path)) == ["Warnings and remedies"]
    assert len(shown_cards(live_of("run", tmp_path / "r"))) == 8
    conclusion, *imported = shown_cards(live_of("import", tmp_path / "i"))
    assert conclusion == "Conclusion"
    assert imported == ["Throughput of each iteration", "Bandwidth of each iteration", "Warnings and remedies"]


def test_a_number_that_was_not_measured_is_not_shown_and_each_quantity_has_one_unit(tmp_path: Path) -> None:
    numbers = [text for _, text in large_figures(going_on("baseline", tmp_path))]
    assert [each.split(" ", 1)[-1] for each in numbers] == ["checks, all passed", "GiB/s", "ms", "default"]
    assert [text for _, text in large_figures(live_of("p2p", tmp_path / "p"))] == ["tcp"]


def test_the_live_tab_says_where_a_tuning_and_a_network_measurement_are_shown(tmp_path: Path) -> None:
    assert "<b>Tuning</b> tab" in texts(live_of("tune", tmp_path).live.layout)
    network = texts(live_of("mpi", tmp_path / "p").live.layout)
    assert "<b>Network</b> tab" in network
    assert 'aria-label="iterations: ' not in network  # which are not recorded one by one


def test_a_legend_names_only_what_is_there(tmp_path: Path) -> None:
    layout = live_of("run", tmp_path).live.layout
    legends = [visible_cards(layout)[f"{what} of each worker"][1].value for what in ("Time", "Memory")]
    named = [re.findall(r"</span> ([^<]+)</span>", legend) for legend in legends]
    assert named == [["partition alone", "exchange alone", "join", "other"], ["peak", "above imports", "its input"]]
    assert legends[1].startswith("Launch 0: ")
    assert not any(pane.object.legend for pane in layout.select(pn.pane.Bokeh))


def test_every_config_is_named_in_full_however_many_there_are(tmp_path: Path) -> None:
    view = live_of("tune", tmp_path)
    legend = visible_cards(view.live.layout)["Throughput of each iteration"][1]
    assert legend.height is None
    assert all(f"{name}</span>" in legend.value for name in ("default", "rendezvous-scheme=rkey_ptr"))


def test_a_campaign_whose_end_is_recorded_has_ended_although_its_process_has_not() -> None:
    state = make_live_campaign_state(read_campaign(CAMPAIGNS / "run"), running=True)
    assert not state.running
    assert any("is slow in partition" in note.message for note in state.notes)


def test_campaigns_are_offered_by_title_and_two_of_the_same_are_told_apart(tmp_path: Path) -> None:
    view = live_of("run", tmp_path)
    shutil.copytree(CAMPAIGNS / "run", tmp_path / "again")
    list_again(view)
    update(view.live)
    title = "22 Nov 10:59 · tcp: 20,000 rows per chunk, 2 workers · done"
    assert sorted(view.live.choice.options) == [f"{title} (again)", f"{title} (run)", "the newest"]


def test_a_check_that_is_missing_is_no_passed_one(tmp_path: Path) -> None:
    """The terminal said UNVERIFIED, and this tab that all checks had passed."""
    whole = write_campaign(tmp_path, Script())
    campaign = read_campaign(whole)
    assert make_live_campaign_state(campaign, running=False).checks == "2 checks, all passed"
    lines = (whole / "records.jsonl").read_bytes().splitlines(keepends=True)
    last = max(at for at, line in enumerate(lines) if b'"kind":"verification"' in line)
    (whole / "records.jsonl").write_bytes(b"".join(lines[:last] + lines[last + 1 :]))
    assert make_live_campaign_state(read_campaign(whole), running=False).checks == "1 check, others are missing"


def conclusion_shown(view: Dashboard) -> str:
    """The text of the card below the tiles; empty if it is hidden."""
    parts, card = list(view.live.layout), visible_cards(view.live.layout).get("Conclusion")
    if card is None:
        return ""
    (tiles,) = [part for part in parts if 'class="tiles"' in str(getattr(part, "value", ""))]
    assert parts.index(tiles) < parts.index(card)
    text = re.sub('<span class="unbroken">([^<]*)</span>', r"\1", card[1].value)
    return html.unescape(re.sub("<[^>]*>", " ", text))


@pytest.mark.parametrize("kind", ["run", "sweep", "failed", "interrupted", "baseline", "import"])
def test_an_ended_campaign_begins_with_what_the_terminal_printed(kind: str, tmp_path: Path) -> None:
    """The page showed figures of the last launch only: no limit, no verdict, no next step."""
    view = live_of(kind, tmp_path)
    campaign = read_campaign(tmp_path / kind)
    printed = io.StringIO()
    warnings = {caution for document in run_documents(summarize_campaign(campaign)) for caution in document.warnings}
    print_campaign_report(campaign, details=False, file=printed, warnings_above=warnings)
    lines = printed.getvalue().partition("Records: ")[0]
    words = [word for word in lines.split() if not set(word) <= set("─")]
    assert "Next:" in words
    assert set(words) - set(conclusion_shown(view).split()) == set()


def test_an_ended_tuning_begins_with_its_outcome_and_the_next_step(tmp_path: Path) -> None:
    shown = conclusion_shown(live_of("tune", tmp_path))
    campaign = read_campaign(tmp_path / "tune")
    assert ended_tuning_result_of(campaign).outcome_heading in shown
    assert f"Next: {next_step_after_recorded_tuning(campaign).with_program_as_typed().command}" in " ".join(
        shown.split()
    )


def test_a_campaign_that_goes_on_has_no_conclusion_yet(tmp_path: Path) -> None:
    view = going_on("sweep", tmp_path)
    assert conclusion_shown(view) == ""
    assert "Of the last launch" in above_the_cards(view)
    assert "Of the last launch" not in above_the_cards(going_on("run", tmp_path / "single"))

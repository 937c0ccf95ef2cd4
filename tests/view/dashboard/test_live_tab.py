"""The Live tab: it follows a campaign, names the slowest worker, and links Dask's dashboard."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bokeh.core.properties import value

from tests.helpers.runs import ROOT
from tests.helpers.synthetic_campaigns import Script, plan, write_campaign
from tests.probe.samples import write_campaign as write_probe
from tests.view.dashboard.boards import board, list_again, texts, update


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the records' lock, as their writer does."""
    with (folder / "records.jsonl").open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def test_without_a_run_the_live_tab_says_how_to_make_one(tmp_path: Path) -> None:
    view = board(tmp_path)
    update(view.live)
    assert "This folder contains no runs yet" in texts(view.live.layout)


def test_without_a_run_a_published_result_is_shown_until_there_is_one(tmp_path: Path) -> None:
    """Empty axes would show nothing."""
    view = board(tmp_path)
    update(view.live)
    shown = texts(view.live.layout)
    assert "Throughput of every iteration" in shown
    assert "Pairs of workers" not in shown
    write_campaign(tmp_path)
    list_again(view)
    update(view.live)
    shown = texts(view.live.layout)
    assert "Throughput of every iteration" not in shown
    assert "Pairs of workers" in shown


def test_a_network_measurement_has_no_axes_of_merges(tmp_path: Path) -> None:
    write_probe(tmp_path)
    view = board(tmp_path)
    update(view.live)
    shown = texts(view.live.layout)
    assert "its figures are in the <b>Network</b> tab" in shown
    assert "Pairs of workers" not in shown


def test_the_tab_names_result_host_date_and_ucx(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests" / "data" / "campaigns" / "run", tmp_path / "run")
    view = board(tmp_path)
    update(view.live)
    assert "20261122T105951Z-tcp-e0a9d0 · host vm · 2026-11-22 10:59 UTC · UCX 1.21.0" in texts(view.live.layout)


@pytest.mark.parametrize(("workers", "mapped"), [(3, False), (4, True)])
def test_pairs_are_a_map_from_four_workers_and_a_table_below(workers: int, mapped: bool, tmp_path: Path) -> None:
    write_campaign(tmp_path, Script(plan=plan(workers)))
    view = board(tmp_path)
    update(view.live)
    assert view.live._figures[2].figure.visible == mapped
    assert view.live._rates.visible != mapped
    assert ("Rate in GiB/s, from row to column" in view.live._rates.value) != mapped
    assert ("0.373" in view.live._rates.value) != mapped


def test_the_live_tab_follows_the_newest_campaign_and_then_the_next(tmp_path: Path) -> None:
    write_campaign(tmp_path, Script(config="first"))
    view = board(tmp_path)
    update(view.live)
    assert ">first</b>" in texts(view.live.layout)
    later = write_campaign(tmp_path, Script(config="second"))
    os.rename(later, tmp_path / "99999999T000000Z-second-ffffff")
    list_again(view)
    update(view.live)
    assert ">second</b>" in texts(view.live.layout)


def test_points_are_added_once_and_all_of_them_when_a_campaign_is_chosen(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, end=None)
    view = board(tmp_path)
    source = view.live._charts[0]._source
    update(view.live)
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
    usual, slowest = view.live._figures[0].figure.renderers
    assert (list(usual.data_source.data["at"]), list(slowest.data_source.data["at"])) == ([0, 1, 3], [2])
    assert (usual.glyph.hatch_pattern, slowest.glyph.hatch_pattern) == (None, value("right_diagonal_line"))


def test_without_pages_of_dask_the_option_is_named_that_makes_them(tmp_path: Path) -> None:
    shown = texts(board(tmp_path).live.layout)
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

"""The history of a command: its own main metric, shifts in it, and the gate against its level."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import merge_bench
from merge_bench.config.options import RunOptions
from merge_bench.errors import UsageError
from merge_bench.records.reader import read_campaign
from merge_bench.regressions.document import HistorySeries, accept_level, load_history
from merge_bench.regressions.gates import RegressionGate
from tests.analysis.history.made_up import FIRST_NIGHT, Nights, dated, write
from tests.helpers.command_campaigns import BUSBW, WALL, command_plan, interleaved_runs, write_commands

LATENCY = {"name": "latency", "unit": "us", "better": "less", "source": "re:(.*)", "pick": "last"}
SHIFT = 20


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_nights(
    results: Path, count: int = 24, factor: float = 1.0, metrics: Sequence[dict[str, Any]] = (BUSBW, WALL), **plan: Any
) -> list[Path]:
    """Nightly results of a command; from the result `SHIFT` on, its main metric has `factor` times the value."""
    random = np.random.default_rng(5)
    name = str(metrics[0]["name"])
    folders = []
    for night in range(count):
        level = 10.0 * (factor if night >= SHIFT else 1.0)
        values = (level * np.exp(random.normal(0.0, 0.01, 5))).tolist()
        walls = (0.1 * np.exp(random.normal(0.0, 0.01, 5))).tolist()
        runs = interleaved_runs({"tcp": walls}, {name: {"tcp": values}})
        folder = write_commands(results, runs, plan=command_plan(5, metrics, **plan))
        dated(folder, FIRST_NIGHT + 86400 * night)
        folders.append(folder.rename(results / f"{night:04d}-command-{name}"))
    return folders


def only_series(results: Path, **options: Any) -> HistorySeries:
    (series,) = load_history([results], **options).series
    return series


def gate(results: Path, *fail_on: str) -> RegressionGate:
    options = RunOptions(against="history", fail_on=fail_on, results=str(results))
    found = RegressionGate.from_options(options, choice_count=1, run_count=1)
    assert found is not None
    return found


def test_the_level_of_a_command_is_that_of_its_main_metric(tmp_path: Path) -> None:
    write_nights(tmp_path, factor=0.9)
    found = load_history([tmp_path])
    assert (found.metric, found.unit) == ("busbw", "GB/s")
    (series,) = found.series
    assert (series.metric, series.unit, series.better, series.main_metric) == ("busbw", "GB/s", "more", "busbw")
    assert series.series["command"] == "./bench -n 2"
    assert [(shift.result, shift.better) for shift in series.shifts] == [(SHIFT, False)]
    assert series.shifts[0].change == pytest.approx(-0.1, abs=0.02)
    assert all(result.verified for result in series.results)
    wall = only_series(tmp_path, metric="wall")
    assert (wall.metric, wall.unit, wall.better, wall.main_metric, wall.shifts) == ("wall", "s", "less", "busbw", [])


def test_a_data_frame_names_the_metric_of_each_series(tmp_path: Path) -> None:
    write_nights(tmp_path, 2)
    write(tmp_path, Nights(count=3, shift=99))
    frame = merge_bench.history(tmp_path, frame="polars")
    found = frame.group_by("metric", "unit").len().rows()
    assert set(found) == {("busbw", "GB/s", 2), ("throughput", "B/s", 3)}
    only = merge_bench.history(tmp_path, frame="polars", command="./bench", metric="wall")
    assert only.select("metric", "unit").rows() == [("wall", "s")] * 2


def test_less_is_better_where_the_command_says_so(tmp_path: Path) -> None:
    write_nights(tmp_path, factor=0.9, metrics=(LATENCY, WALL))
    assert [(shift.result, shift.better) for shift in only_series(tmp_path).shifts] == [(SHIFT, True)]


def test_a_metric_that_nothing_has_is_refused(tmp_path: Path) -> None:
    write_nights(tmp_path, 2)
    with pytest.raises(UsageError, match=r"metric 'speed' is none of throughput, .*, join, busbw$"):
        load_history([tmp_path], metric="speed")
    with pytest.raises(UsageError, match=r"has a throughput$"):
        load_history([tmp_path], metric="throughput")


def test_commands_and_merges_in_one_folder(tmp_path: Path) -> None:
    write_nights(tmp_path, 3)
    write_nights(tmp_path, 3, metrics=(LATENCY, WALL))
    write(tmp_path, Nights(count=3, shift=99))
    found = load_history([tmp_path])
    assert {(each.metric, each.unit) for each in found.series} == {
        ("busbw", "GB/s"),
        ("latency", "us"),
        ("throughput", "B/s"),
    }
    assert (found.metric, found.unit) == ("", "")
    walls = load_history([tmp_path], metric="wall")
    assert (walls.metric, walls.unit, len(walls.series)) == ("wall", "s", 3)
    merges = load_history([tmp_path], metric="throughput")
    assert (merges.metric, merges.unit, len(merges.series)) == ("throughput", "B/s", 1)


def test_another_command_is_another_series(tmp_path: Path) -> None:
    for folder in write_nights(tmp_path, 2):
        folder.rename(folder.with_name(f"{folder.name}-first"))
    write_nights(tmp_path, 3, argv=["./bench", "-n", "4"])
    assert sorted(len(series.results) for series in load_history([tmp_path]).series) == [2, 3]
    assert len(only_series(tmp_path, command="-n 4").results) == 3
    with pytest.raises(UsageError, match=r" with config tcp is of a command that contains '-n 8'$"):
        load_history([tmp_path], command="-n 8", config="tcp")
    with pytest.raises(UsageError, match=rf"^no result in {re.escape(str(tmp_path))} is of a command .* 'other'$"):
        load_history([tmp_path], command="other", metric="speed")


def test_a_command_without_the_metric_is_named(tmp_path: Path) -> None:
    write_nights(tmp_path, 2)
    with pytest.raises(UsageError, match=r"with command bench has a throughput$"):
        load_history([tmp_path], command="bench", metric="throughput")


@pytest.mark.parametrize(
    ("metrics", "factor", "verdict", "status"),
    [
        ((BUSBW, WALL), 0.9, "SLOWER", 5),
        ((BUSBW, WALL), 1.1, "FASTER", 0),
        ((LATENCY, WALL), 1.1, "SLOWER", 5),
        ((LATENCY, WALL), 0.9, "FASTER", 0),
    ],
)
def test_a_night_is_held_against_the_level_in_the_main_metric(
    tmp_path: Path, metrics: Sequence[dict[str, Any]], factor: float, verdict: str, status: int
) -> None:
    folders = write_nights(tmp_path, SHIFT + 1, factor, metrics)
    document, found = gate(tmp_path, "slower").judge_campaign(read_campaign(folders[-1]))
    assert (document.comparisons[0].metric, document.comparisons[0].verdict) == (metrics[0]["name"], verdict)
    assert document.comparisons[0].level_of == SHIFT
    assert found == status


def test_the_first_nights_of_a_command_have_nothing_to_be_held_against(tmp_path: Path) -> None:
    folders = write_nights(tmp_path, 3)
    document, status = gate(tmp_path, "slower").judge_campaign(read_campaign(folders[-1]))
    needed = f"nothing was compared: 3 earlier results of this command are needed, and {tmp_path} has 2"
    assert (document.notes, status) == ([needed], 5)


def test_a_loss_passes_once_it_is_accepted(tmp_path: Path) -> None:
    folders = write_nights(tmp_path, 36, factor=0.9)
    judge = functools.partial(gate(tmp_path, "slower").judge_campaign, read_campaign(folders[-1]))
    assert judge()[1] == 5
    with pytest.raises(UsageError, match="compares the busbw; accept a level without --metric wall"):
        accept_level(load_history([tmp_path], metric="wall"), accepted_by="ann", reason="it stays")
    accept_level(load_history([tmp_path]), accepted_by="ann", reason="it stays")
    assert judge()[1] == 0
    accepted = only_series(tmp_path).shifts[0].accepted
    assert accepted is not None
    assert accepted.by == "ann"


def test_one_earlier_night_with_the_noise_of_the_others(tmp_path: Path) -> None:
    folders = write_nights(tmp_path, SHIFT + 1, 0.8)
    one, last = read_campaign(folders[3]), read_campaign(folders[-1])
    document, status = RegressionGate(one, ("slower",), 0.02).judge_campaign(last)
    busbw = document.comparisons[0]
    assert (busbw.metric, busbw.verdict, busbw.caveats, status) == ("busbw", "SLOWER", [], 5)
    for folder in folders[4:-1]:
        shutil.rmtree(folder)
    document, _ = RegressionGate(one, ("slower",), 0.02).judge_campaign(last)
    assert document.comparisons[0].caveats  # nothing shows how far nights lie apart


def test_a_night_in_which_every_launch_failed_is_no_result(tmp_path: Path) -> None:
    write_nights(tmp_path, 3)
    runs = interleaved_runs(
        {"tcp": [0.1] * 5},
        {"busbw": {"tcp": [1.0] * 5}},
        failures=dict.fromkeys([("tcp", block) for block in range(5)], "check-failed"),
    )
    failed = write_commands(tmp_path, runs, plan=command_plan(5))
    assert len(only_series(tmp_path).results) == 3
    assert gate(tmp_path, "slower").judge_campaign(read_campaign(failed))[1] == 5

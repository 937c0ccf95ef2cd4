"""The benchmark that holds forecasts against measurements, without its test hosts; and the result that is stored."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.predict_validation import HEADINGS, TARGETS, Target, chosen, compare, rows_of, table, validate, worst
from merge_bench.errors import UsageError
from tests.helpers.benchmark_commands import refusal

ROOT = Path(__file__).resolve().parents[3]
STORED = ROOT / "results" / "curated" / "predict-cpu-2026-11" / "predict.json"
FORECAST = {
    "wall_seconds": {"value": 1.1, "interval": [1.0, 1.2]},
    "phases_seconds": {"exchange": 0.9},
    "bandwidth_bytes_per_second": {"value": 9e6, "interval": [8e6, 9.5e6]},
    "limit": "join",
}
MEASURED = {
    "wall_seconds": {"median": 1.0},
    "phases_seconds": {"exchange": 1.0},
    "bandwidth_bytes_per_second": {"harmonic_mean": 1e7},
}


def found(target: Target) -> dict[str, Any]:
    return {**asdict(target), "compared": compare(FORECAST, MEASURED, at_once=target.at_once)}


def test_wall_exchange_and_bandwidth_stand_beside_what_was_measured() -> None:
    rows = rows_of(found(Target(4, 2, rates=(0.5,))), 100.0)
    assert all(len(row) == len(HEADINGS) for row in rows)
    assert rows[0] == ["4", "2", "50", "apart", "wall (ms)", "1100", "1000 to 1200", "1000", "+10.0"]
    assert [row[-1] for row in rows] == ["+10.0", "-10.0", "-10.0"]


def test_with_phases_at_once_only_the_wall_is_compared() -> None:
    (row,) = rows_of(found(Target(4, at_once=True)), 100.0)
    assert row[3:5] == ["at once", "wall (ms)"]


def test_the_slowest_link_is_what_a_cluster_with_different_ones_is_forecast_by() -> None:
    mixed = Target(4, rates=(2.0, 1.0, 0.5, 1.0))
    assert mixed.what_if == ["nic=0.5x"]
    assert rows_of(found(mixed), 100.0)[0][2] == "200 / 100 / 50 / 100"
    assert Target(4).what_if == []


def test_clusters_are_chosen_by_name() -> None:
    assert len({target.name for target in TARGETS}) == len(TARGETS)
    assert chosen(["8x1", "4x1@0.5"]) == (Target(4, rates=(0.5,)), Target(8))
    assert chosen([]) == TARGETS
    with pytest.raises(UsageError, match=r"--only 9x1: unknown name; choose from 2x1@0\.5, 4x1"):
        chosen(["9x1"])


def test_the_worst_wall_counts_whether_it_is_too_long_or_too_short() -> None:
    document: dict[str, Any] = {
        "time": 0.0,
        "git": {"commit": "0123456789abcdef"},
        "hardware": {"cores": 2, "cpu_model": "CPU"},
        "load_average": [0.25, 1, 1],
        "asked": {"rate": 100.0, "launches": 2, "iterations": 4},
        "goal": 0.15,
        "targets": [found(Target(4)), found(Target(8))],
    }
    document["targets"][1]["compared"][0]["error"] = -0.2
    assert worst(document) == 0.2
    assert table(document).startswith(
        "1970-01-01, 2 cores of CPU, load average 0.2 at the beginning, commit 0123456789ab;"
    )
    assert table(document).endswith("The wall is off by at most 20.0 %; the goal is 15 %.")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--only", "9x9"], "--only 9x9: unknown name"),
        (["--show", "/no/such/file.json"], "/no/such/file.json contains no results of this command"),
        (["--launches", "0"], "0 is not in the range x>=1"),
    ],
)
def test_wrong_options_are_one_sentence_and_status_2(
    options: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = refusal(validate, *options, capsys=capsys)
    assert sentence in errors
    assert len(errors.strip().splitlines()) == 1


def test_the_documented_table_is_that_of_the_stored_result() -> None:
    stored = json.loads(STORED.read_text())
    _, rows, ending = table(stored).split("\n\n")
    assert f"\n\n{rows}\n\n{ending}\n\n" in (ROOT / "docs" / "measurements.md").read_text()


def test_the_stored_result_holds_every_cluster_and_meets_the_goal_where_links_are_alike() -> None:
    stored = json.loads(STORED.read_text())
    assert [each["name"] for each in stored["targets"]] == [target.name for target in TARGETS]
    assert stored["failures"] == []
    alike = [each for each in stored["targets"] if len(each["rates"]) == 1]
    assert worst({"targets": alike}) <= stored["goal"] == 0.15
    for each in stored["targets"]:
        for one in each["compared"]:
            assert one["error"] == pytest.approx(one["forecast"] / one["measured"] - 1)
    assert stored["git"]["commit"]

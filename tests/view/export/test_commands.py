"""`export` of a command: its metrics under names that the programs of each format accept."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_campaigns import BUSBW, WALL, command_plan, interleaved_runs, write_commands
from tests.view.export.test_exporters import bencher, export, samples, valid_for_bencher

RATES = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]


def ran(tmp_path: Path, **metric: Any) -> Path:
    own = BUSBW | metric
    runs = interleaved_runs(
        {"base": [1.0] * 6, "tuned": [2.0] * 6}, {own["name"]: dict.fromkeys(("base", "tuned"), RATES)}
    )
    return write_commands(tmp_path, runs, plan=command_plan(metrics=[own, WALL]))


def test_a_row_for_each_launch(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(export(ran(tmp_path)).stdout)))
    assert [float(row["busbw"]) for row in rows if row["config"] == "tuned"] == RATES
    assert {row["command"] for row in rows} == {"./bench -n 2"}


def test_gauges_of_each_metric(tmp_path: Path) -> None:
    found = samples(ran(tmp_path))
    labels = {"config": "base", "command": "./bench -n 2"}
    assert found["merge_bench_command_value"][0] == (labels | {"metric": "busbw", "unit": "GB/s"}, 12.5)
    assert [value for _, value in found["merge_bench_wall_seconds"]] == [1.0, 2.0]
    assert found["merge_bench_verified"][0] == (labels, 1.0)
    assert found["merge_bench_complete_launches"][0] == (labels, 6.0)


@pytest.mark.parametrize(
    ("name", "unit", "measure"),
    [
        ("busbw", "GB/s", "busbw-gb-s"),
        ("Avg time", None, "avg-time-value"),
        ("x" * 80, "s", "x" * 64),
        ("größe", "µ", "gr-e"),
        ("—", "µ", "value"),
    ],
)
def test_measures_have_names_that_bencher_accepts(tmp_path: Path, name: str, unit: str | None, measure: str) -> None:
    found = bencher(ran(tmp_path, name=name, unit=unit))
    valid_for_bencher(found)
    assert list(found) == ["base: ./bench -n 2", "tuned: ./bench -n 2"]
    figures = found["tuned: ./bench -n 2"]
    assert figures["wall-seconds"]["value"] == 2.0
    assert figures[measure] == {"value": 12.5, "lower_value": 10.0, "upper_value": 15.0}

"""The benchmark that holds forecasts against measurements, without its test hosts; and the results that are stored."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks import predict_validation
from benchmarks.predict_validation import (
    HEADINGS,
    LINKS,
    ONE_HOST,
    PARTS,
    Target,
    chosen,
    compare,
    ending,
    inside_with_error_of_others,
    log_errors,
    rows_of,
    spread_of_launches,
    table,
    turns_on_a_core,
    validate,
    walls_inside,
)
from merge_bench.errors import UsageError
from merge_bench.forecast.fit import HOST_ERROR, LINK_ERROR, SHARED_CORES_ERROR
from tests.helpers.benchmark_commands import refusal

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "results" / "curated" / "predict-cpu-2026-11"
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


def found(target: Target, walls: tuple[float, ...] = (0.9, 1.0)) -> dict[str, Any]:
    return {
        **asdict(target),
        "model_error": 0.0,
        "launch_walls": list(walls),
        "compared": compare(FORECAST, MEASURED, at_once=target.at_once),
    }


def document(*targets: dict[str, Any]) -> dict[str, Any]:
    return {
        "time": 0.0,
        "git": {"commit": "0123456789abcdef"},
        "hardware": {"cores": 2, "cpu_model": "CPU"},
        "load_average": [0.25, 1, 1],
        "asked": {"on": LINKS, "rate": 100.0, "launches": 2, "iterations": 4},
        "goal": 0.8,
        "targets": list(targets),
        "failures": [],
    }


def stored(part: str) -> dict[str, Any]:
    return dict(json.loads((STORED / f"{part}.json").read_bytes()))


def test_wall_exchange_and_bandwidth_stand_beside_what_was_measured() -> None:
    rows = rows_of(found(Target(4, 2, rates=(0.5,))), 100.0)
    assert all(len(row) == len(HEADINGS) for row in rows)
    assert rows[0] == [
        "4", "2", "250,000", "50", "apart", "wall (ms)", "1100", "1000 to 1200", "1000", "+10.0", "1 of 2",
    ]  # fmt: skip
    assert [row[-2] for row in rows] == ["+10.0", "-10.0", "-10.0"]


def test_with_phases_at_once_only_the_wall_is_compared() -> None:
    (row,) = rows_of(found(Target(4, at_once=True)), 100.0)
    assert row[4:6] == ["at once", "wall (ms)"]


def test_one_worker_has_only_a_wall() -> None:
    alone = {**FORECAST, "bandwidth_bytes_per_second": None}
    assert [each["what"] for each in compare(alone, MEASURED, at_once=False)] == ["wall_seconds"]


def test_the_slowest_link_and_the_cores_are_what_a_cluster_is_forecast_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict_validation, "machine_cores", lambda: 2)
    mixed = Target(4, rates=(2.0, 1.0, 0.5, 1.0))
    assert mixed.what_if == ["nic=0.5x", "cores=0.5"]
    assert rows_of(found(mixed), 100.0)[0][3] == "200 / 100 / 50 / 100"
    assert Target(2).what_if == []
    assert Target(1, 8).what_if == []


def test_clusters_are_chosen_by_name() -> None:
    for part in PARTS.values():
        assert len({target.name for target in part.targets}) == len(part.targets)
        assert not {target.name for target in part.targets} & {target.name for target in part.fitted}
    assert chosen(PARTS[LINKS], ["8x1", "2x1@0.5"]) == (Target(2, rates=(0.5,)), Target(8))
    assert chosen(PARTS[ONE_HOST], ["1x4:1e6"]) == (Target(1, 4, rows=1_000_000),)
    assert chosen(PARTS[LINKS], []) == PARTS[LINKS].targets
    with pytest.raises(UsageError, match=r"--only 9x1: unknown name; choose from 2x1@0\.5, 4x1"):
        chosen(PARTS[LINKS], ["9x1"])


def test_walls_inside_their_intervals_are_counted_and_errors_are_those_of_logarithms() -> None:
    inside, outside = found(Target(4)), found(Target(8))
    outside["compared"][0] |= {"measured": 1.3, "error": 1.1 / 1.3 - 1}
    both = document(inside, outside)
    assert walls_inside(both) == 1
    assert log_errors(both) == pytest.approx([math.log(1 / 1.1), math.log(1.3 / 1.1)])
    assert spread_of_launches(both) == pytest.approx(math.log(1 / 0.9) / 2**0.5)
    assert ending(both).startswith("1 of 2 walls are inside their intervals; the goal is 80 %.")
    assert table(both).startswith("1970-01-01, 2 cores of CPU, load average 0.2 at the beginning, commit 0123456789ab;")


def test_an_interval_can_be_made_with_the_error_of_the_other_clusters() -> None:
    target = found(Target(4))  # forecast 1.1, interval 1.0 to 1.2
    target["compared"][0] |= {"measured": 1.3}
    assert not inside_with_error_of_others(target, 0.0)
    assert inside_with_error_of_others(target, 0.1)
    target["model_error"] = 0.04  # of which the interval is nearly made
    target["compared"][0] |= {"measured": 1.19}
    assert inside_with_error_of_others(target, 0.04)
    assert not inside_with_error_of_others(target, 0.0)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--only", "9x9"], "--only 9x9: unknown name"),
        (["--on", "moon"], "'moon' is not one of"),
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


@pytest.mark.parametrize("part", PARTS)
def test_stored_results_are_of_clusters_of_the_benchmark(part: str) -> None:
    result = stored(part)
    names = [target["name"] for target in result["targets"]]
    assert names == [target.name for target in PARTS[part].targets if target.name in names]
    assert result["git"]["commit"]
    assert not result["git"]["dirty"]
    for target in result["targets"]:
        assert len(target["launch_walls"]) == result["asked"]["launches"]
        for compared in target["compared"]:
            assert compared["error"] == pytest.approx(compared["forecast"] / compared["measured"] - 1)


def test_at_least_nine_of_eleven_stored_walls_are_inside_their_intervals() -> None:
    results = [stored(part) for part in PARTS]
    walls = sum(len(result["targets"]) for result in results)
    assert walls >= 11
    assert [result["failures"] for result in results] == [[], []]
    assert sum(map(walls_inside, results)) >= 9 / 11 * walls


def test_the_errors_that_intervals_are_made_with_are_not_below_those_of_the_stored_validation() -> None:
    one_host, links = stored(ONE_HOST), stored(LINKS)
    by_sharing: dict[bool, list[Any]] = {False: [], True: []}
    for target in one_host["targets"]:
        turns = turns_on_a_core(target["hosts"], target["per_host"], one_host["hardware"]["cores"])
        by_sharing[turns > 1].append(target)
    for result, targets, error_used in (
        (one_host, by_sharing[False], HOST_ERROR),
        (one_host, by_sharing[True], SHARED_CORES_ERROR),
        (links, links["targets"], LINK_ERROR),
    ):
        errors = log_errors({"targets": targets})
        mean_square = sum(each**2 for each in errors) / len(errors)
        assert mean_square <= error_used**2 + spread_of_launches(result) ** 2


@pytest.mark.parametrize("part", PARTS)
def test_the_documented_tables_are_those_of_the_stored_results(part: str) -> None:
    for page, only_walls in (("measurements.md", False), ("predict.md", True)):
        _, rows, _ = table(stored(part), only_walls=only_walls).split("\n\n")
        assert f"\n\n{rows}\n\n" in (ROOT / "docs" / page).read_text()

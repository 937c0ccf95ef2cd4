"""The document of ``--json``, the warnings and the tables of a campaign of a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from merge_bench.analysis import aggregate, dataframes
from merge_bench.analysis.aggregate import VerificationState, complete_launches, verification_state
from merge_bench.analysis.bottleneck import compare_exchange_with_probes
from merge_bench.errors import UsageError
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from tests.analysis.summaries import append, codes, document
from tests.helpers.command_campaigns import BUSBW, HOW, WALL, command_plan, interleaved_runs, write_commands
from tests.helpers.synthetic_campaigns import interleaved, write_campaign

WALLS = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5]
RATES = [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
FAILURES = ("command-failed", "check-failed", "command-timeout", "metric-missing")


def alone(tmp_path: Path, *, plan: dict[str, Any] | None = None, **more: Any) -> Path:
    """One config, six launches."""
    return write_commands(tmp_path, interleaved_runs({"base": WALLS}, {"busbw": {"base": RATES}}, **more), plan=plan)


def test_the_figures_of_every_metric(tmp_path: Path) -> None:
    found = document(alone(tmp_path))
    assert [(each["name"], each["unit"], each["better"]) for each in found["metrics"]] == [
        ("busbw", "GB/s", "more"),
        ("wall", "s", "less"),
    ]
    busbw, wall = (each["spread"] for each in found["metrics"])
    assert (busbw["median"], busbw["ci95"], busbw["min"], busbw["max"]) == (12.5, [10.0, 15.0], 10.0, 15.0)
    assert wall == found["wall_seconds"]
    assert wall["median"] == pytest.approx(1.25)
    assert found["plan"]["command"]["argv"] == ["./bench", "-n", "2"]
    assert (found["measured"]["launches"], found["measured"]["planned_launches"]) == (6, 6)
    assert (found["verified"], found["verification"]["how"], found["verification"]["checks"]) == (True, HOW, 6)
    assert (found["warnings"], found["error"]) == ([], None)


def test_a_command_has_no_figures_of_merges(tmp_path: Path) -> None:
    found = document(alone(tmp_path))
    assert found["throughput_bytes_per_second"]["median"] is None
    assert found["bandwidth_bytes_per_second"]["harmonic_mean"] is None
    assert found["bandwidth_bytes_per_second"]["per_worker"] == found["peak_memory_bytes"]["per_worker"] == []
    nothing = ("bottleneck", "link", "memory_rate", "energy", "result_rows", "imported")
    assert [found[name] for name in nothing] == [None] * len(nothing)
    assert found["measured"]["data_bytes"] is None
    (run,) = read_campaign(alone(tmp_path)).runs
    assert compare_exchange_with_probes(run, []) is None
    assert "metrics" not in document(write_campaign(tmp_path))  # nor a merge those of a command


@pytest.mark.parametrize("code", FAILURES)
def test_a_launch_that_fails_does_not_count(tmp_path: Path, code: str) -> None:
    folder = alone(tmp_path, failures={("base", 5): code})
    found = document(folder)
    assert found["metrics"][0]["spread"]["max"] == 14.0
    assert found["error"]["code"] == code
    assert codes(found) == ["failed-launches"]
    assert found["warnings"][0]["message"] == "1 of 6 launches failed; the numbers are from the 5 complete launches"
    assert found["verified"]  # of those that count
    (run,) = read_campaign(folder).runs
    assert verification_state(run, complete_launches(run)) is VerificationState.VERIFIED


def test_a_command_that_always_fails_has_no_numbers(tmp_path: Path) -> None:
    found = document(alone(tmp_path, failures=dict.fromkeys([("base", block) for block in range(6)], "check-failed")))
    assert [each["spread"]["median"] for each in found["metrics"]] == [None, None]
    assert (found["verified"], found["verification"]["state"]) == (False, "missing")
    assert found["warnings"][0]["message"] == "6 of 6 launches failed; none is complete, so there are no numbers"


def test_an_interruption_says_what_it_cut_short(tmp_path: Path) -> None:
    found = document(alone(tmp_path, failures={("base", 5): "interrupted"}))
    assert found["error"]["message"].endswith(" in launch 5 before the command ended")
    assert codes(found) == []


def test_a_check_that_was_not_made_is_missed(tmp_path: Path) -> None:
    folder = alone(tmp_path)
    records = folder / "records.jsonl"
    kept = [line for line in records.read_text().splitlines(keepends=True) if '"verification"' not in line]
    records.write_text("".join(kept))
    found = document(folder)
    assert (found["verified"], codes(found)) == (False, ["not-verified"])
    append(folder, s.VerificationLine(launch=0, after=0, ok=False, how=HOW))
    found = document(folder)
    assert (found["verification"]["state"], codes(found), found["error"]["message"]) == (
        "wrong",
        ["wrong-result"],
        "the result is wrong",
    )
    assert "merge" not in json.dumps([found["warnings"], found["error"]])


def test_a_sweep_has_the_figures_of_every_config(tmp_path: Path) -> None:
    rates = {"base": RATES, "tuned": [2 * rate for rate in RATES]}
    found = document(write_commands(tmp_path, interleaved_runs({"base": WALLS, "tuned": WALLS}, {"busbw": rates})))
    assert [one["metrics"][0]["spread"]["median"] for one in found["runs"]] == [12.5, 25.0]


def test_a_row_for_every_launch(tmp_path: Path) -> None:
    folder = alone(tmp_path, failures={("base", 1): "check-failed", ("base", 2): "command-timeout"})
    campaign = read_campaign(folder)
    columns, rows = dataframes.make_flat_table([campaign], lambda _: {})
    assert list(columns) == [*dataframes.COMMAND_COLUMNS, "busbw"]
    assert [row["busbw"] for row in rows] == [10.0, 11.0, None, 13.0, 14.0, 15.0]
    assert [row["wall_seconds"] for row in rows] == [1.0, 1.1, None, 1.3, 1.4, 1.5]
    assert [row["complete"] for row in rows] == [True, False, False, True, True, True]
    assert [row["failure"] for row in rows[:4]] == [None, "check-failed", "command-timeout", None]
    assert {(row["command"], row["verification"], row["block"] == row["launch"]) for row in rows} == {
        ("./bench -n 2", "verified", True)
    }
    assert list(dataframes.launch_rows(campaign)) == list(dataframes.iteration_rows(campaign))
    assert aggregate.throughput(campaign.launches[0], campaign.launches[0].timed_iterations[0]) is None


def test_a_metric_may_be_called_like_another_column(tmp_path: Path) -> None:
    named = [BUSBW | {"name": name} for name in ("launch", "throughput")]
    values = {"launch": {"base": RATES}, "throughput": {"base": RATES}}
    runs = interleaved_runs({"base": WALLS}, values)
    campaign = read_campaign(write_commands(tmp_path, runs, plan=command_plan(metrics=[*named, WALL])))
    columns, rows = dataframes.make_flat_table([campaign], lambda _: {})
    assert list(columns)[-2:] == ["launch_value", "throughput"]
    assert [(row["launch"], row["launch_value"], row["throughput"]) for row in rows] == [
        (at, rate, rate) for at, rate in enumerate(RATES)
    ]


def test_merges_and_commands_are_tables_of_their_own(tmp_path: Path) -> None:
    merges = read_campaign(write_campaign(tmp_path, *interleaved({"base": WALLS})))
    with pytest.raises(UsageError, match=r"^commands and merges have different columns"):
        dataframes.make_flat_table([merges, read_campaign(alone(tmp_path))], lambda _: {})

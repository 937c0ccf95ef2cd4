"""The command line: gates, exit statuses, what goes where."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from merge_bench import cli
from merge_bench.analysis.compare import METRICS
from merge_bench.config.options import BY_KEY
from merge_bench.config.parsers import parse_percent
from merge_bench.records import schema as s
from merge_bench.regressions.gates import GATES
from tests.analysis.compare.test_document import SIX, failing, faster
from tests.helpers.command_line import exit_status
from tests.helpers.synthetic_campaigns import Script, interleaved, launches, write_campaign


def ended(*words: str | Path) -> int:
    """The exit status of the command."""
    return exit_status("compare", *words)


def campaign(tmp_path: Path, by: float, **changes: Any) -> Path:
    return write_campaign(tmp_path, *interleaved({"base": SIX, "tuned": faster(by)}, **changes))


@pytest.mark.parametrize(
    ("by", "statuses"),
    [
        (1.25, {"slower": 0, "inconclusive": 0, "not-faster": 0}),
        (0.80, {"slower": 5, "inconclusive": 0, "not-faster": 5}),
        (1.0, {"slower": 0, "inconclusive": 0, "not-faster": 5}),
        (1.0199, {"slower": 0, "inconclusive": 5, "not-faster": 5}),
    ],
)
def test_gates_let_pass_what_they_should(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    by: float,
    statuses: dict[str, int],
) -> None:
    folder = campaign(tmp_path, by)
    assert ended(folder) == 0
    for gate, status in statuses.items():
        capsys.readouterr()
        assert ended(folder, "--fail-on", gate) == status
        told = capsys.readouterr().err
        assert told.startswith(f"merge_bench: --fail-on {gate}: tuned is ") if status else told == ""


def test_gates_may_be_combined(tmp_path: Path) -> None:
    folder = campaign(tmp_path, 1.0199)
    assert ended(folder, "--fail-on", "slower", "--fail-on", "inconclusive") == 5
    assert ended(folder, "--fail-on", "slower,inconclusive") == 5


@pytest.mark.parametrize("gate", GATES)
def test_a_config_that_crashes_passes_no_gate(tmp_path: Path, gate: str) -> None:
    scripts = failing(interleaved({"base": SIX, "tuned": faster(1.25)}), "tuned", 2)
    assert ended(write_campaign(tmp_path, *scripts), "--fail-on", gate) == 5


def test_a_launch_that_was_interrupted_is_no_crash(tmp_path: Path) -> None:
    seven = [*SIX, 0.16]
    scripts = interleaved({"base": seven, "tuned": [wall / 1.25 for wall in seven]})
    scripts[-1] = replace(scripts[-1], end_status=None)
    assert ended(write_campaign(tmp_path, *scripts, end=None), "--fail-on", "not-faster") == 0


def test_the_gate_is_about_the_metric_asked_for(tmp_path: Path) -> None:
    folder = campaign(tmp_path, 0.8)
    assert ended(folder, "--fail-on", "slower", "--metric", "bandwidth") == 0
    assert ended(folder, "--fail-on", "slower", "--metric", "wall") == 5


def test_a_gate_on_what_was_not_measured_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = campaign(tmp_path, 1.25, exchange="dask")
    assert ended(folder, "--metric", "bandwidth") == 2
    assert "--metric bandwidth cannot be compared: " in capsys.readouterr().err


def test_a_gate_on_what_one_of_two_candidates_lacks_is_wrong_usage(tmp_path: Path) -> None:
    scripts = interleaved({"base": SIX, "tuned": SIX})
    dask = interleaved({"dask": SIX}, plan_index=1, first=12, exchange="dask")
    folder = write_campaign(tmp_path, *scripts, *dask)
    assert ended(folder, "--metric", "bandwidth") == 0
    assert ended(folder, "--metric", "bandwidth", "--fail-on", "slower") == 2


def test_an_aa_comparison_beside_others_holds_no_gate(tmp_path: Path) -> None:
    scripts = [
        replace(each, variables={}) if each.config != "tuned" else each
        for each in interleaved({"base": SIX, "again": faster(0.8), "tuned": faster(1.5)})
    ]
    assert ended(write_campaign(tmp_path, *scripts), "--fail-on", "slower") == 0


def test_a_wrong_result_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(check: s.VerificationLine) -> s.VerificationLine:
        return msgspec.structs.replace(check, ok=False)

    def folder(config: str) -> Path:
        scripts: list[Script] = interleaved({"base": SIX, "tuned": faster(1.25)})
        return write_campaign(
            tmp_path, *(replace(each, check=wrong) if each.config == config else each for each in scripts)
        )

    assert ended(folder("tuned"), "--fail-on", "slower", "--json") == 4
    found = json.loads(capsys.readouterr().out)
    assert found["error"]["code"] == "wrong-result"
    assert {each["verdict"] for each in found["comparisons"]} == {"WRONG"}
    assert ended(folder("base"), "--json") == 4
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "wrong-result"


def test_json_is_one_document_also_where_a_gate_is_not_met(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(campaign(tmp_path, 0.8), "--fail-on", "slower", "--json") == 5
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["error"] == {
        "code": "gate-not-met",
        "message": "--fail-on slower: tuned is SLOWER in throughput",
        "host": None,
        "rank": None,
    }
    one = found["comparisons"][0]
    assert {"baseline", "candidate", "metric", "verdict", "ratio", "interval", "launches", "p"} <= one.keys()
    assert (one["baseline"], one["candidate"], one["verdict"], one["launches"]) == ("base", "tuned", "SLOWER", 6)


def test_markdown_is_printed_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(campaign(tmp_path, 1.25), "--markdown") == 0
    assert "\n### tuned against base" in capsys.readouterr().out
    assert ended(campaign(tmp_path, 1.25), "--markdown", "--json") == 2


def test_the_threshold_is_a_percentage(tmp_path: Path) -> None:
    folder = campaign(tmp_path, 1.05)
    assert ended(folder, "--fail-on", "not-faster") == 0
    assert ended(folder, "--fail-on", "not-faster", "--threshold", "10%") == 5


@pytest.mark.parametrize(("words", "share"), [("2%", 0.02), (" 0.5 %", 0.005), ("0%", 0.0), (".5%", 0.005)])
def test_percentages_as_people_write_them(words: str, share: float) -> None:
    assert parse_percent(words) == share


@pytest.mark.parametrize("words", ["2", "0.02", "100%", "-1%", "two%", "", "%", "nan%", "1e1%"])
def test_anything_else_is_no_percentage(words: str) -> None:
    with pytest.raises(ValueError, match="write it like 2%"):
        parse_percent(words)


@pytest.mark.parametrize("words", [[], ["nowhere"], ["--threshold", "2", "nowhere"], ["--metric", "speed", "nowhere"]])
def test_wrong_usage_ends_with_2_and_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(*words) == 2
    told = capsys.readouterr().err
    assert told.startswith("merge_bench: ")
    assert told.count("\n") == 1


def test_what_is_not_comparable_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write_campaign(tmp_path, *launches(6))
    other = write_campaign(tmp_path, *interleaved({"tuned": SIX}, rows_per_chunk=25_000_000))
    assert ended(one, other) == 2
    assert "rows per chunk (1,000,000 and 25,000,000)" in capsys.readouterr().err
    assert ended(one, other, "--anyway") == 0
    assert ended(one, other, "--fail-on", "slower") == 5
    assert ended(one, other, "--fail-on", "slower", "--markdown") == 5
    capsys.readouterr()
    assert ended(one, other, "--fail-on", "slower", "--allow-no-baseline") == 0
    assert capsys.readouterr().out.rstrip().endswith("--allow-no-baseline")
    assert ended(one, other, "--anyway", "--json", "--fail-on", "slower") in (0, 5)


def test_the_options_offer_every_metric_and_every_gate() -> None:
    for command in ("compare", "history"):
        (help,) = (
            each.help or ""
            for each in cli.cli.commands[command].params
            if isinstance(each, click.Option) and each.name == "metric"
        )
        assert {metric.name for metric in METRICS} <= set(re.findall(r"\w+", help))
    assert BY_KEY["fail_on"].parse(",".join(GATES)) == tuple(GATES)

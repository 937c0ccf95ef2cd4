"""`python -m benchmarks.goals` as it is typed: what it writes, adds to and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks.goal import targets
from benchmarks.goals import goals, in_order, others
from tests.helpers.benchmark_commands import refusal


@pytest.fixture
def invoke() -> Callable[..., Result]:
    """Calls the command in this process."""
    return lambda *words: CliRunner().invoke(goals, words)


@pytest.mark.slow
def test_help_is_measured_and_added_to_goals_of_an_earlier_run(tmp_path: Path, invoke: Callable[..., Result]) -> None:
    file = tmp_path / "last.json"
    before = [targets.Result(target, [31.0]).to_json() for target in (targets.DASK, targets.HELP)]
    file.write_text(json.dumps({"schema": 1, "blocks": 3, "goals": before}))
    done = invoke("--only", "help", "--blocks", "1", "--output", str(file), "--add")
    assert done.exit_code in (0, 1), done.output  # a machine that is busy may miss the goal
    dask, own = json.loads(file.read_text())["goals"]
    assert (dask["goal"], dask["values"], dask["run"]) == ("dask", [31.0], {"schema": 1, "blocks": 3})
    assert (own["goal"], len(own["values"])) == ("help", 1)
    assert 0.01 < own["value"] < 31.0
    assert "run" not in own
    lines = done.stdout.splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == [dask["what"], own["what"]]
    assert lines[1].startswith("| `--help` | ≤ 0.3 s | ")
    again = in_order(others(json.loads(file.read_text()), []))
    assert [each["run"]["blocks"] for each in again] == [3, 1]
    shown = invoke("--show", str(file))
    assert shown.stdout == done.stdout
    assert shown.exit_code == done.exit_code


def test_a_wrong_name_or_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "x.json"
    wrong.write_text("{}")
    for words, sentence in (
        (("--only", "x"), "unknown name"),
        (("--show", str(wrong)), "contains no results"),
        (("--only", "help", "--add"), "--add needs --output"),
        (("--only", "help", "--add", "--output", str(wrong)), "contains no results"),
    ):
        errors = refusal(goals, *words, capsys=capsys)
        assert sentence in errors
        assert len(errors.splitlines()) == 1

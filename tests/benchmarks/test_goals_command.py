"""`python -m benchmarks.goals` as it is typed: what it writes, adds to and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.goal import targets
from benchmarks.goal.running import in_order, others, to_json
from benchmarks.goal.targets import judge
from benchmarks.goals import goals
from tests.helpers.benchmark_commands import refusal

ROOT = Path(__file__).resolve().parents[2]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "benchmarks.goals", *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=200, check=False, cwd=ROOT)


def test_help_is_measured_and_written(tmp_path: Path) -> None:
    file = tmp_path / "new" / "last.json"
    done = command("--only", "help", "--blocks", "1", "--output", str(file))
    assert done.returncode in (0, 1), done.stderr  # a machine that is busy may miss the goal
    (goal,) = json.loads(file.read_text())["goals"]
    assert goal["value"] > 0.01
    assert done.stdout.splitlines()[2].startswith("| `--help` | ≤ 0.5 s | ")
    shown = command("--show", str(file))
    assert shown.stdout == done.stdout
    assert shown.returncode == done.returncode


def test_goals_can_be_added_to_those_of_an_earlier_run(tmp_path: Path) -> None:
    file = tmp_path / "last.json"
    before = [to_json(judge(target, (31.0,), ())) for target in (targets.DASK, targets.HELP)]
    file.write_text(json.dumps({"schema": 1, "blocks": 3, "goals": before}))
    done = command("--only", "help", "--blocks", "1", "--output", str(file), "--add")
    dask, own = json.loads(file.read_text())["goals"]
    assert (dask["goal"], dask["values"], dask["run"]) == ("dask", [31.0], {"schema": 1, "blocks": 3})
    assert (own["goal"], len(own["values"])) == ("help", 1)
    assert own["value"] < 31
    assert "run" not in own
    assert [line.split("|")[1].strip() for line in done.stdout.splitlines()[2:]] == [dask["what"], own["what"]]
    again = in_order(others(json.loads(file.read_text()), []))
    assert [each["run"]["blocks"] for each in again] == [3, 1]


def test_a_wrong_name_or_file_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "x.json"
    wrong.write_text("{}")
    for words, sentence in (
        (("--only", "x"), "there is no such name"),
        (("--show", str(wrong)), "holds no results"),
        (("--only", "help", "--add"), "--add needs --output"),
        (("--only", "help", "--add", "--output", str(wrong)), "holds no results"),
    ):
        errors = refusal(goals, *words, monkeypatch=monkeypatch, capsys=capsys)
        assert sentence in errors
        assert len(errors.splitlines()) == 1

"""A wrong engine is refused with the same sentence wherever it is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import merge_bench
from merge_bench.campaign.planned_launches import plan_runs
from merge_bench.cli import cli
from merge_bench.config.options import RunOptions
from merge_bench.errors import UsageError
from merge_bench.merge.engines import engine_choices

SENTENCE = f"'spark' is not one of {', '.join(engine_choices())}"


def test_in_a_config(tmp_path: Path) -> None:
    file = tmp_path / "a.cfg"
    file.write_text("\nMERGE_BENCH_ENGINE=spark\n")
    with pytest.raises(UsageError) as caught:
        plan_runs(str(file), RunOptions())
    assert str(caught.value) == f"{file}:2: MERGE_BENCH_ENGINE: {SENTENCE}"


def test_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGE_BENCH_ENGINE", "spark")
    with pytest.raises(UsageError) as caught:
        plan_runs(None, RunOptions())
    assert str(caught.value) == f"environment variable MERGE_BENCH_ENGINE: {SENTENCE}"


def test_from_python_and_on_the_command_line() -> None:
    with pytest.raises(UsageError) as caught:
        merge_bench.run(engine="spark")
    assert str(caught.value) == f"engine: {SENTENCE}"
    said = CliRunner().invoke(cli, ["run", "--engine", "spark"])
    assert said.exit_code == 2
    assert SENTENCE in said.output

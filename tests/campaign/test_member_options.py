"""Options whose values are the files of a folder: a wrong one is refused wherever it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import merge_bench
from merge_bench.campaign import options_of_run
from merge_bench.campaign.planned_launches import plan_runs
from merge_bench.cli import cli
from merge_bench.cluster.launchers import launcher_choices
from merge_bench.config.check import check_config
from merge_bench.config.options import RunOptions
from merge_bench.config.reader import read_config
from merge_bench.errors import UsageError

LAUNCHERS = f"'nothing' is not one of {', '.join(launcher_choices())}"


def test_in_a_config(tmp_path: Path) -> None:
    file = tmp_path / "a.cfg"
    file.write_text("MERGE_BENCH_LAUNCHER=nothing\n")
    with pytest.raises(UsageError) as caught:
        plan_runs(str(file), RunOptions())
    assert str(caught.value) == f"{file}:1: MERGE_BENCH_LAUNCHER: {LAUNCHERS}"
    checked = check_config(read_config(file, {}), {}, ucx_origin="wheel", known_options=options_of_run())
    assert [(each.state, each.message) for each in checked.variables if each.line] == [("invalid", LAUNCHERS)]


def test_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERGE_BENCH_LAUNCHER", "nothing")
    with pytest.raises(UsageError) as caught:
        plan_runs(None, RunOptions())
    assert str(caught.value) == f"environment variable MERGE_BENCH_LAUNCHER: {LAUNCHERS}"


def test_from_python_and_on_the_command_line() -> None:
    with pytest.raises(UsageError) as caught:
        merge_bench.run(launcher="nothing")
    assert str(caught.value) == f"launcher: {LAUNCHERS}"
    said = CliRunner().invoke(cli, ["run", "--launcher", "nothing"])
    assert (said.exit_code, LAUNCHERS in said.output) == (2, True)

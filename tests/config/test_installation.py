"""What depends on where the package lies: a checkout, an environment, or a folder of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from click.testing import CliRunner

from merge_bench.campaign.planned_launches import plan_runs
from merge_bench.cli import cli
from merge_bench.config.installation import checkout_folder, python_path_variables, setup_command
from merge_bench.config.options import RunOptions
from merge_bench.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


ASK = """
import json
from merge_bench.config.installation import checkout_folder, setup_command, python_path_variables
folder = checkout_folder()
print(json.dumps([folder and str(folder), setup_command("cu12"), python_path_variables({"PYTHONPATH": "/mine"})]))
"""


def test_an_environment_within_a_repository_is_no_checkout(tmp_path: Path) -> None:
    """The package is in it, and all its processes find it there; what is around it is somebody else's."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    venv.create(tmp_path / ".venv", symlinks=True)
    package = next((tmp_path / ".venv" / "lib").glob("python*")) / "site-packages" / "merge_bench"
    (package / "config").mkdir(parents=True)
    for name in ("__init__.py", "config/__init__.py", "config/installation.py"):
        shutil.copy(ROOT / "merge_bench" / name, package / name)
    python = tmp_path / ".venv" / "bin" / "python"
    done = subprocess.run([python, "-c", ASK], env={}, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [None, "pip install 'merge-bench[cu12]'", {}]


def test_a_checkout_is_found_by_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert checkout_folder() == ROOT
    assert setup_command("cu12") == "./run-cluster.sh --setup-only --stack cu12"
    assert setup_command(replace_present=True) == "rm -r ./.venv; ./run-cluster.sh --setup-only"
    assert python_path_variables({}) == {"PYTHONPATH": str(ROOT)}
    assert python_path_variables({"PYTHONPATH": "/mine"}) == {"PYTHONPATH": f"{ROOT}:/mine"}


def test_the_command_is_known_though_the_working_folder_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert setup_command() == f"{ROOT}/run-cluster.sh --setup-only"


def test_without_ucxx_a_run_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ucxx", None)  # as if it were not installed
    with pytest.raises(UsageError, match=r"package ucxx, which is not installed .*run-cluster\.sh --setup-only"):
        plan_runs(None, RunOptions())
    plan_runs(None, RunOptions().with_command_line_values(exchange="dask"))


def test_within_dask_a_mistake_is_a_sentence_and_status_2() -> None:
    done = CliRunner().invoke(cli, ["--config", "no-such.cfg"])
    assert done.exit_code == 2
    assert done.stderr.startswith("merge_bench: no-such.cfg is neither a file nor a shipped config")
    assert cli.commands.keys() >= {"run", "configs"}

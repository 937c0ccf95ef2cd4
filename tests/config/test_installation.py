"""What depends on where the package lies: a checkout, an environment, or a folder of its own."""

from __future__ import annotations

import importlib.util
import site
import subprocess
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from click.testing import CliRunner

from merge_bench.campaign import campaign
from merge_bench.campaign.planned_launches import plan_runs
from merge_bench.cli import cli
from merge_bench.config import installation
from merge_bench.config.installation import checkout, how_to_set_up, search_path
from merge_bench.config.options import RunOptions
from merge_bench.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def in_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if the package had been installed, into an environment within somebody's repository."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    package = tmp_path / ".venv" / "site-packages" / "merge_bench"
    package.mkdir(parents=True)
    monkeypatch.setattr(installation, "PACKAGE", package)
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(package.parent)])
    return package


def test_a_checkout_is_told_from_an_environment(in_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkout() is None
    assert how_to_set_up("cu12") == "pip install 'merge-bench[cu12]'"
    monkeypatch.setattr(installation, "PACKAGE", ROOT / "merge_bench")
    monkeypatch.chdir(ROOT)
    assert checkout() == ROOT
    assert how_to_set_up("cu12") == "./run-cluster.sh --setup-only --stack cu12"
    assert how_to_set_up(anew=True) == "rm -r ./.venv; ./run-cluster.sh --setup-only"


def test_the_command_is_known_though_the_working_folder_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert how_to_set_up() == f"{ROOT}/run-cluster.sh --setup-only"


def test_the_repository_around_an_environment_is_not_recorded(in_environment: Path) -> None:
    assert campaign.git_state() is None


def test_processes_find_the_package_that_started_them(in_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert search_path({"PYTHONPATH": "/mine"}) == {}
    monkeypatch.setattr(installation, "PACKAGE", ROOT / "merge_bench")
    assert search_path({}) == {"PYTHONPATH": str(ROOT)}
    assert search_path({"PYTHONPATH": "/mine"}) == {"PYTHONPATH": f"{ROOT}:/mine"}


def test_without_ucxx_a_run_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "ucxx" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(UsageError, match=r"package ucxx, which is not installed .*run-cluster\.sh --setup-only"):
        plan_runs(None, RunOptions())
    plan_runs(None, RunOptions().given(exchange="dask"))


def test_within_dask_a_mistake_is_a_sentence_and_status_2() -> None:
    done = CliRunner().invoke(cli, ["--config", "no-such.cfg"])
    assert done.exit_code == 2
    assert done.stderr.startswith("merge_bench: no-such.cfg is neither a file nor a shipped config")
    assert cli.commands.keys() >= {"run", "configs"}

"""The gates of conftest.py, tried on a small suite in a pytest of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

SUITE = """
import pytest

def test_runs(): pass

@pytest.mark.xfail
def test_known_defect(): assert False

@pytest.mark.gpu
def test_on_gpu(): pass

@pytest.mark.ucx_releases
def test_of_a_release(): pytest.skip("offline")

@pytest.mark.soak
def test_for_hours(): raise AssertionError("soak ran unasked")
"""
SKIPS = "\ndef test_skips(): pytest.skip('no sshd')\n"
MODULE = "import pytest\npytest.skip('no tool', allow_module_level=True)\n"
CLUSTERS = """
import subprocess, sys
import pytest

def start(*words):
    with pytest.raises(FileNotFoundError):
        subprocess.Popen(["/no/such/python", *words])

def test_help(): start("-m", "merge_bench", "run", "--help")
def test_compare(): start("-m", "merge_bench", "compare", "a", "b")
def test_scheduler(): start("-P", "-m", "dask", "scheduler", "--port", "0")
def test_run(): start("-P", "-m", "merge_bench", "run", "--chunk", "1e4")
def test_no_verb(): start("-m", "merge_bench", "--chunk", "1e4")
def test_shell(): subprocess.run("mpirun -n 2 hostname", shell=True)

@pytest.fixture(scope="module")
def cluster(): start("-m", "dask", "worker")
def test_fixture(cluster): pass

@pytest.mark.cluster
def test_marked(): start("-P", "-m", "merge_bench", "run")
"""

IN_A_FOLDER_OF_CLUSTERS = """
import subprocess
import pytest

def test_of_a_folder_of_clusters():
    with pytest.raises(FileNotFoundError):
        subprocess.Popen(["/no/such/python", "-m", "merge_bench", "run"])
"""

Run = tuple[int, str]


def run(folder: Path, ci: str, files: Mapping[str, str], *arguments: str) -> Run:
    """The exit status and the output of a suite of these files."""
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  gpu: x\n  soak: x\n  cluster: x\n  ucx_releases: x\n")
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    # A PATH without nvidia-smi: a machine without a GPU.
    environment = os.environ | {"CI": ci, "PATH": str(folder / "no-commands"), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", *arguments],
        cwd=folder,
        timeout=120,
        env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def in_ci(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A suite with skips, where skips fail."""
    files = {"test_suite.py": SUITE + SKIPS, "test_module.py": MODULE}
    return run(tmp_path_factory.mktemp("ci"), "true", files, "--continue-on-collection-errors")


@pytest.fixture(scope="module")
def outside_ci(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A suite with skips, and with tests that start clusters; soak tests are asked for."""
    files = {
        "test_suite.py": SUITE + SKIPS,
        "test_module.py": MODULE,
        "runs/test_a_run.py": IN_A_FOLDER_OF_CLUSTERS,
        "test_clusters.py": CLUSTERS,
    }
    return run(tmp_path_factory.mktemp("outside"), "", files, "--soak")


def failed(output: str) -> set[str]:
    lines = (line for line in output.splitlines() if line.startswith(("FAILED", "ERROR")))
    return {line.split()[1].rpartition("::")[2] for line in lines}


def test_what_cannot_run_in_ci_may_skip(tmp_path: Path) -> None:
    status, output = run(tmp_path, "true", {"test_suite.py": SUITE})
    assert status == 0, output
    assert "1 passed, 2 skipped, 1 deselected, 1 xfailed" in output.splitlines()[-1]


def test_any_other_skip_fails_in_ci_with_its_reason(in_ci: Run) -> None:
    status, output = in_ci
    assert status == 1
    assert "not allowed to skip when CI=true, yet it did: no sshd" in output
    assert "1 failed, 1 passed, 2 skipped" in output.splitlines()[-1]


def test_a_skipped_module_fails_in_ci(in_ci: Run) -> None:
    _, output = in_ci
    assert "yet it did: no tool" in output
    assert failed(output) == {"test_skips", "test_module.py"}


def test_outside_ci_a_skip_is_only_shown(outside_ci: Run) -> None:
    _, output = outside_ci
    assert "no sshd" in output
    assert "no tool" in output
    assert not failed(output) & {"test_skips", "test_module.py"}


def test_soak_runs_when_asked_for(outside_ci: Run) -> None:
    status, output = outside_ci
    assert status == 1
    assert "soak ran unasked" in output


def test_a_test_that_starts_a_cluster_has_to_be_marked(outside_ci: Run) -> None:
    _, output = outside_ci
    wrong = {"test_scheduler", "test_run", "test_no_verb", "test_shell", "test_fixture"}
    assert failed(output) == {*wrong, "test_for_hours"}
    assert (
        "it starts a cluster and is not marked so (pytest.mark.cluster): /no/such/python -P -m dask scheduler" in output
    )


def test_fast_leaves_out_what_starts_clusters_needs_a_gpu_or_takes_minutes(tmp_path: Path) -> None:
    files = {
        "test_suite.py": SUITE + "\n@pytest.mark.cluster\ndef test_on_a_cluster(): assert False\n",
        "runs/test_a_run.py": "assert False, 'it is not even imported'\n",
    }
    status, output = run(tmp_path, "true", files, "--fast")
    assert status == 0, output
    assert "1 passed, 1 skipped, 3 deselected, 1 xfailed" in output.splitlines()[-1]

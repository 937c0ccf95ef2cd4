"""The gates of conftest.py, tried on a small suite in a pytest of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest

def test_runs(): pass

@pytest.mark.xfail
def test_known_defect(): assert False

@pytest.mark.gpu
def test_on_gpu(): pass

@pytest.mark.soak
def test_for_hours(): raise AssertionError("soak ran unasked")
"""
SKIPS = "\ndef test_skips(): pytest.skip('no sshd')\n"
MODULE = "import pytest\npytest.skip('no tool', allow_module_level=True)\n"


def run(folder: Path, ci: str, *arguments: str) -> tuple[int, str]:
    # A PATH without nvidia-smi: a machine without a GPU.
    environment = os.environ | {"CI": ci, "PATH": str(folder / "no-commands"), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  gpu: x\n  soak: x\n  cluster: x\n")
    (tmp_path / "test_suite.py").write_text(SUITE)
    return tmp_path


def test_what_cannot_run_in_ci_may_skip(suite: Path) -> None:
    status, output = run(suite, "true")
    assert status == 0, output
    assert "1 passed, 1 skipped, 1 deselected, 1 xfailed" in output.splitlines()[-1]


def test_any_other_skip_fails_in_ci_with_its_reason(suite: Path) -> None:
    (suite / "test_suite.py").write_text(SUITE + SKIPS)
    status, output = run(suite, "true")
    assert status == 1
    assert "not allowed to skip when CI=true, yet it did: no sshd" in output
    assert "1 failed, 1 passed, 1 skipped" in output.splitlines()[-1]


def test_a_skipped_module_fails_in_ci(suite: Path) -> None:
    (suite / "test_module.py").write_text(MODULE)
    status, output = run(suite, "true")
    assert status != 0
    assert "yet it did: no tool" in output


def test_outside_ci_a_skip_is_only_shown(suite: Path) -> None:
    (suite / "test_suite.py").write_text(SUITE + SKIPS)
    (suite / "test_module.py").write_text(MODULE)
    status, output = run(suite, "")
    assert status == 0, output
    assert "no sshd" in output
    assert "no tool" in output


def test_soak_runs_when_asked_for(suite: Path) -> None:
    status, output = run(suite, "", "--soak")
    assert status == 1
    assert "soak ran unasked" in output


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


def test_a_test_that_starts_a_cluster_has_to_be_marked(suite: Path) -> None:
    (suite / "test_suite.py").write_text(CLUSTERS)
    status, output = run(suite, "")
    assert status == 1
    failed = {
        line.split()[1].rpartition("::")[2] for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))
    }
    assert failed == {"test_scheduler", "test_run", "test_no_verb", "test_shell", "test_fixture"}
    assert (
        "it starts a cluster and is not marked so (pytest.mark.cluster): /no/such/python -P -m dask scheduler" in output
    )


def test_fast_leaves_out_what_starts_clusters_needs_a_gpu_or_takes_minutes(suite: Path) -> None:
    (suite / "test_suite.py").write_text(SUITE + "\n@pytest.mark.cluster\ndef test_on_a_cluster(): assert False\n")
    (suite / "runs").mkdir()
    (suite / "runs" / "test_a_run.py").write_text("def test_of_a_folder_of_clusters(): assert False\n")
    status, output = run(suite, "true", "--fast")
    assert status == 0, output
    assert "1 passed, 4 deselected, 1 xfailed" in output.splitlines()[-1]

"""`python -m merge_bench` with a Python that cannot run it: one sentence that says what to type, and status 2."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from merge_bench.config import installation

ROOT = Path(__file__).resolve().parents[2]
READABLE = ("__init__.py", "__main__.py", "config/__init__.py", "config/installation.py")
BARE = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout as far as these files go, in a path with a space."""
    root = tmp_path / "a clone"
    (root / "merge_bench" / "config").mkdir(parents=True)
    for name in READABLE:
        shutil.copy(ROOT / "merge_bench" / name, root / "merge_bench" / name)
    shutil.copy(ROOT / "run-cluster.sh", root)
    return root


def typed(
    *words: str, cwd: Path, python: Sequence[str] = (str(BARE), "-S"), **environment: str
) -> subprocess.CompletedProcess[str]:
    """With a Python that has no packages at all: not even those of the user or of its installation."""
    return subprocess.run(
        [*python, "-m", "merge_bench", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("merge_bench: ")
    return line


@pytest.mark.cluster
def test_without_packages_it_says_to_take_the_checkouts_own_python(clone: Path, tmp_path: Path) -> None:
    (clone / ".venv/bin").mkdir(parents=True)
    (clone / ".venv/bin/python").touch()
    line = sentence(typed("--chunk", "25e6", "--on", "a b", cwd=clone))
    assert "lacks click and" in line
    assert line.endswith("run: .venv/bin/python -m merge_bench --chunk 25e6 --on 'a b'")
    (tmp_path / "elsewhere").mkdir()
    line = sentence(typed(cwd=tmp_path / "elsewhere", PYTHONPATH=str(clone)))
    assert line.endswith(f"run: '{clone}/.venv/bin/python' -m merge_bench")


def test_without_an_environment_it_says_how_to_set_one_up(clone: Path) -> None:
    done = typed("doctor", "--json", cwd=clone)
    assert sentence(done).endswith("set .venv up first: ./run-cluster.sh --setup-only")
    assert json.loads(done.stdout)["error"]["code"] == "usage"


def test_where_it_was_installed_it_names_what_to_install(clone: Path) -> None:
    (clone / "run-cluster.sh").unlink()
    assert "pip install 'merge-bench[cpu]'" in sentence(typed(cwd=clone))


def test_a_spoilt_environment_is_made_anew(clone: Path) -> None:
    venv.create(clone / ".venv", symlinks=True)
    packages = next((clone / ".venv" / "lib").glob("python*")) / "site-packages"
    for name in installation.REQUIRED[1:]:
        (packages / f"{name}.py").touch()
    said = sentence(typed(cwd=clone, python=[str(clone / ".venv" / "bin" / "python")]))
    assert f"lacks {installation.REQUIRED[0]} that" in said
    assert said.endswith("rm -r ./.venv; ./run-cluster.sh --setup-only")


def test_an_old_python_is_told_so() -> None:
    assert "is Python 3.9, but merge_bench needs 3.11 or newer; " in str(
        installation.python_refusal(["doctor"], (3, 9))
    )


@pytest.mark.parametrize("name", READABLE)
def test_what_runs_first_can_be_read_by_old_pythons(name: str) -> None:
    text = (ROOT / "merge_bench" / name).read_text()
    ast.parse(text, feature_version=(3, 6))
    assert not re.search("^from __future__", text, re.MULTILINE)


@pytest.mark.slow
def test_here_nothing_is_refused_and_a_broken_package_is_not_hidden(tmp_path: Path) -> None:
    assert installation.python_refusal(["run"]) is None
    (tmp_path / "rich.py").write_text("import a_module_that_is_not_there\n")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[1:] = ['doctor']; from merge_bench.__main__ import main; main()"],
        env={"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in done.stderr


def test_every_dependency_is_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    assert {*installation.REQUIRED, "tpchgen-cli"} == named  # which is a program, and missed when it is asked for
    assert project["requires-python"] == ">=" + ".".join(map(str, installation.LEAST))

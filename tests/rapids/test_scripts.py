"""cluster/locks/check-wheels.sh and update.sh, up to the installation of packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.rapids.sources import ROOT

BASH = shutil.which("bash") or "/bin/bash"


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BASH, *map(str, words)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--writ"], "check-wheels.sh has no option '--writ'; it takes --folder DIR and --write."),
        (["--folder"], "--folder needs a folder name."),
    ],
)
def test_a_wrong_option_is_one_sentence(words: list[str], message: str) -> None:
    done = run(ROOT / "cluster/locks/check-wheels.sh", *words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"merge_bench: {message}\n")


def test_help_tells_options_and_status() -> None:
    done = run(ROOT / "cluster/locks/check-wheels.sh", "--help")
    assert done.returncode == 0
    assert "--folder DIR" in done.stdout
    assert "Exit status: 0" in done.stdout
    assert "set -" not in done.stdout


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter").write_text("dear")
    done = run(ROOT / "cluster/locks/check-wheels.sh", "--folder", tmp_path / "mine")
    assert done.returncode == 3
    assert "was not created by this script" in done.stderr
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["letter"]


@pytest.mark.parametrize(("resolved", "checked"), [("rmm==1", False), ("rmm==2", True)])
def test_the_wheels_are_checked_when_their_lock_changed(tmp_path: Path, resolved: str, checked: bool) -> None:
    locks, commands = tmp_path / "cluster/locks", tmp_path / "bin"
    commands.mkdir()
    for stack in ("cpu", "cu12", "cu13", "dev"):
        (locks / stack).mkdir(parents=True)
        (locks / stack / "requirements.lock").write_text("rmm==1\n")
    shutil.copy(ROOT / "cluster/locks/update.sh", locks)
    (locks / "check-wheels.sh").write_text(f'#!{BASH}\necho "checked: $*"\n')
    # Stands for the resolver: its last argument is the lock.
    (commands / "uv").write_text(f'#!{BASH}\nprintf "%s\\n" "{resolved}" >"${{@: -1}}"\n')
    for file in (locks / "check-wheels.sh", commands / "uv"):
        file.chmod(0o755)
    done = run(locks / "update.sh", PATH=f"{commands}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    assert ("checked: --write" in done.stdout) == checked

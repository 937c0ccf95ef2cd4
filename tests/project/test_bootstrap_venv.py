"""cluster/bootstrap.sh: a .venv that is made once, and made anew only if it has to be."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.project.scripts import BASH, PYTHON, ROOT, Miniature, call, command, run

pytestmark = pytest.mark.slow

# Nothing listens on the discard port of loopback, so every attempt to fetch something fails at once.
NOWHERE = "http://127.0.0.1:9/"
NO_NETWORK = dict.fromkeys(("PIP_INDEX_URL", "UV_INDEX_URL", "http_proxy", "https_proxy", "HTTPS_PROXY"), NOWHERE)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that really makes the first environment, which takes seconds, and later ones as copies of it."""
    folder = tmp_path_factory.mktemp("python")
    first = f"{folder}/first"
    script = f'[[ "$1 $2" == \'-m venv\' ]] || exec {PYTHON} "$@"\n'
    command(folder, "python", f'set -e\n{script}[ -d {first} ] || {PYTHON} -m venv {first}\ncp -a {first} "$3"')
    return folder / "python"


@pytest.fixture
def miniature(tmp_path: Path, python: Path) -> Miniature:
    return Miniature(tmp_path, python)


def test_venv_is_made_once_and_remade_when_stale(miniature: Miniature) -> None:
    first = miniature.setup()
    assert first.returncode == 0, first.stderr
    assert "Setting up .venv with the cpu packages" in first.stderr
    assert miniature.installed() == "1.0"
    assert first.stdout == ""

    shutil.move(miniature.wheels, miniature.wheels.with_name("away"))
    again = miniature.setup()
    assert again.returncode == 0, again.stderr
    assert "Setting up" not in again.stderr
    shutil.move(miniature.wheels.with_name("away"), miniature.wheels)

    # Each of these alone makes it stale.
    stale = [
        'rm "$VENV_STAMP"',  # what an interrupted installation leaves behind
        'ln -sf /nonexistent/python3 "$VENV/bin/python"',
        'sed -i s/^python=.*/python=3.9/ "$VENV_STAMP"',
        'sed -i s,^root=.*,root=/where/it/was, "$VENV_STAMP"',
        'echo "# changed" >>"$(lock_file cpu)"',
    ]
    files = (miniature.venv / ".merge-bench-stack", miniature.root / "cluster/locks/cpu/requirements.lock")
    kept = {path: path.read_text() for path in files}
    python = miniature.venv / "bin/python"
    link = python.readlink()
    for damage in stale:
        done = call(f"venv_is_current cpu; {damage}; ! venv_is_current cpu", miniature.root)
        assert done.returncode == 0, damage
        for path, text in kept.items():
            path.write_text(text)
        python.unlink()
        python.symlink_to(link)

    # Another stack only on request; and remade from the start: nothing of the old one stays.
    miniature.lock("2.0", stack="cu13")
    (miniature.venv / "half").touch()
    said = miniature.setup("cu13").stderr
    assert "replacing them with the cu13 packages" in said
    assert "Setting up" in said
    assert miniature.installed() == "2.0"
    assert not (miniature.venv / "half").exists()


def test_two_starts_at_once_share_one_installation(miniature: Miniature) -> None:
    start = [BASH, str(miniature.root / "run-cluster.sh"), "--setup-only", "--stack", "cpu"]
    both = [
        subprocess.Popen(start, env=os.environ | miniature.environment, stderr=subprocess.PIPE, text=True) for _ in "ab"
    ]
    said = [process.communicate(timeout=300)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert sum("Setting up" in text for text in said) == 1
    assert miniature.installed() == "1.0"


def test_a_wrong_hash_ends_with_a_sentence_and_no_finished_venv(miniature: Miniature) -> None:
    lock = miniature.root / "cluster/locks/cpu/requirements.lock"
    lock.write_text("tiny==1.0 --hash=sha256:" + "0" * 64 + "\n")
    done = miniature.setup()
    assert done.returncode == 3
    assert "Installing packages failed" in done.stderr
    assert not (miniature.root / ".venv/.merge-bench-stack").exists()


def test_a_venv_of_someone_elses_is_left_alone(miniature: Miniature) -> None:
    (miniature.root / ".venv").mkdir()
    (miniature.root / ".venv/precious").touch()
    done = miniature.setup()
    assert done.returncode == 3
    assert "was not created by this script" in done.stderr
    assert (miniature.root / ".venv/precious").exists()


def test_second_start_needs_no_network(tmp_path: Path) -> None:
    done = run([ROOT / "run-cluster.sh", "--setup-only"], NO_NETWORK | {"HOME": str(tmp_path)}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Setting up" not in done.stderr
    assert done.stdout == ""


def test_installed_packages_fit_together() -> None:
    done = run([ROOT / ".venv/bin/python", "-I", "-m", "pip", "check"])
    assert done.returncode == 0, done.stdout


def test_an_installation_without_a_terminal_says_how_far_it_is(tmp_path: Path) -> None:
    fed = "{ echo Collecting a; sleep 1.5; echo Collecting b; sleep 1.5; echo done; }"
    done = call(f"{fed} | count_packages {tmp_path}/log 2", MERGE_BENCH_SETUP_SILENCE="1")
    lines = done.stderr.splitlines()  # a busy machine may print a line more
    assert lines[0] == "merge_bench: 1 of 2 packages downloaded"
    assert lines[-1] == "merge_bench: 2 packages downloaded, installing them"
    assert (tmp_path / "log").read_text() == "Collecting a\nCollecting b\ndone\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_python_that_only_the_user_who_made_the_environment_may_execute_is_named(miniature: Miniature) -> None:
    assert miniature.setup().returncode == 0
    python = miniature.venv / "bin/python"
    hidden = miniature.root / "hidden"
    shutil.copytree(python.resolve().parent, hidden / "bin", symlinks=True)
    hidden.chmod(0o700)
    python.unlink()
    python.symlink_to(hidden / "bin" / python.name)
    for folder in miniature.root.parents:
        folder.chmod(folder.stat().st_mode | 0o005) if folder.is_relative_to("/tmp") else None
    as_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = run([*as_other, BASH, miniature.root / "run-cluster.sh", "--setup-only", "--stack", "cpu"])
    assert done.returncode == 3
    assert f"You cannot execute the Python of .venv ({hidden}/bin/python)" in done.stderr
    assert "PYTHON=/usr/bin/python3 ./run-cluster.sh --setup-only" in done.stderr

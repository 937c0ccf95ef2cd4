"""Scratch folders: gone after a run, and after the next one where a run was killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from merge_bench.cluster import scratch
from tests.helpers.runs import environment

HOLD = (
    "import sys; from merge_bench.cluster import scratch;"
    " print(scratch.make_folder('node'), flush=True); sys.stdin.read()"
)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def other_process(temp: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that holds a scratch folder until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], env=environment(temp), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    (folder / "worker").mkdir()
    (folder / "worker" / "file").touch()
    return process, folder


def test_a_folder_is_readable_by_its_user_only_and_gone_when_removed() -> None:
    folder = scratch.make_folder("tls")
    assert folder.name.startswith("merge-bench-tls-")
    assert folder.stat().st_mode & 0o077 == 0
    scratch.remove_folder(folder)
    scratch.remove_folder(folder)
    assert not folder.exists()


def test_what_a_killed_run_left_is_removed_by_the_next_one(temporary: Path) -> None:
    process, left = other_process(temporary)
    process.kill()
    process.communicate()
    assert left.is_dir()
    folder = scratch.make_folder()
    assert not left.exists()
    scratch.remove_folder(folder)


def test_the_folder_of_a_run_that_lives_stays(temporary: Path) -> None:
    process, living = other_process(temporary)
    mine = scratch.make_folder()
    also = scratch.make_folder()
    assert (living / "worker" / "file").exists()
    assert mine.is_dir()
    process.kill()
    process.communicate()
    scratch.remove_folder(mine)
    scratch.remove_folder(also)


@pytest.mark.parametrize("name", ["merge-bench-mine", "merge-bench-other-host"])
def test_folders_without_a_lock_of_this_host_stay(temporary: Path, name: str) -> None:
    strange = temporary / name
    strange.mkdir()
    (strange / ".in-use-some-other-host").touch()
    scratch.remove_folder(scratch.make_folder())
    assert strange.is_dir()

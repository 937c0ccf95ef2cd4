"""Scratch folders: gone after a run, and after the next one where a run was killed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from merge_bench.cluster import supervisor
from tests.helpers.runs import environment

HOLD = (
    "import sys; from merge_bench.cluster import supervisor;"
    " print(supervisor.make_scratch_folder('node'), flush=True); sys.stdin.read()"
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
    folder = supervisor.make_scratch_folder("tls")
    assert folder.name.startswith("merge-bench-tls-")
    assert folder.stat().st_mode & 0o077 == 0
    supervisor.remove_scratch_folder(folder)
    supervisor.remove_scratch_folder(folder)
    assert not folder.exists()


def test_what_a_killed_run_left_is_removed_by_the_next_one(temporary: Path) -> None:
    process, left = other_process(temporary)
    process.kill()
    process.communicate()
    assert left.is_dir()
    folder = supervisor.make_scratch_folder()
    assert not left.exists()
    supervisor.remove_scratch_folder(folder)


def test_the_folder_of_a_run_that_lives_stays(temporary: Path) -> None:
    process, living = other_process(temporary)
    mine = supervisor.make_scratch_folder()
    also = supervisor.make_scratch_folder()
    assert (living / "worker" / "file").exists()
    assert mine.is_dir()
    process.kill()
    process.communicate()
    supervisor.remove_scratch_folder(mine)
    supervisor.remove_scratch_folder(also)


@pytest.mark.parametrize("name", ["merge-bench-mine", "merge-bench-other-host"])
def test_folders_without_a_lock_of_this_host_stay(temporary: Path, name: str) -> None:
    strange = temporary / name
    strange.mkdir()
    (strange / ".in-use-some-other-host").touch()
    supervisor.remove_scratch_folder(supervisor.make_scratch_folder())
    assert strange.is_dir()

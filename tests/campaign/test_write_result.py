"""The folder of ``--write-result`` is checked before anything is launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.campaign.planned_launches import plan_runs
from merge_bench.errors import UsageError
from tests.helpers.plans import given


def planned_folder(folder: Path) -> str | None:
    """The folder in the plan of a small merge."""
    (planned,) = plan_runs(None, given(chunk=(1000,), workers=2, write_result=str(folder)))
    return planned.plan.write_result


def test_a_folder_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--write-result /proc/x cannot be written: "):
        planned_folder(Path("/proc/x"))


def test_the_check_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new/merged", "empty"):
        assert planned_folder(tmp_path / name) == str(tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_the_path_has_no_parent_steps_unless_they_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere" / "inner").mkdir(parents=True)
    (tmp_path / "here" / "link").symlink_to(tmp_path / "elsewhere" / "inner")
    assert planned_folder(tmp_path / "here" / ".." / "merged") == str(tmp_path / "merged")
    behind_link = tmp_path / "here" / "link" / ".." / "merged"
    assert planned_folder(behind_link) == str(behind_link)

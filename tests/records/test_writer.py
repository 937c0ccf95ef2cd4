"""The folder, and lines that are on the disk when `write` returns."""

from __future__ import annotations

import errno
import os
import re
import threading
from pathlib import Path

import pytest

from merge_bench.errors import RunFailed, UsageError
from merge_bench.records import schema as s
from merge_bench.records import writer as writer_module
from merge_bench.records.writer import CampaignWriter, make_safe_folder_name
from tests.helpers.strict_records import validate


def warning(code: str = "x") -> s.WarningLine:
    return s.WarningLine(code=code, message="m")


def codes(writer: CampaignWriter) -> list[str]:
    records = [validate(line) for line in writer.records.read_bytes().splitlines()]
    return [record.code for record in records if isinstance(record, s.WarningLine)]


def test_the_folder_is_named_by_time_config_and_an_id(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path / "new" / "results", "optimized.cfg") as writer:
        assert writer.folder.parent == tmp_path / "new" / "results"
        assert re.fullmatch(r"\d{8}T\d{6}Z-optimized-[0-9a-f]{6}", writer.folder.name)
        assert writer.campaign_id == writer.folder.name
        assert writer.logs.is_dir()
        assert writer.records.read_bytes() == b""


def test_two_campaigns_of_one_second_have_two_folders(tmp_path: Path) -> None:
    folders = set()
    for _ in range(5):
        with CampaignWriter.create(tmp_path, "a") as writer:
            folders.add(writer.folder)
    assert len(folders) == 5


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("optimized.cfg", "optimized"),
        ("../../etc/passwd", "etc-passwd"),
        ("my tuned/best.cfg", "my-tuned-best"),
        (".hidden", "hidden"),
        ("-rf", "rf"),
        ("a\0b\nc", "a-b-c"),
        ("größe", "gr-e"),
        ("..", "config"),
        ("", "config"),
        ("x" * 300, "x" * 60),
        ("v1.2_b", "v1.2_b"),
    ],
)
def test_config_names_become_safe_parts_of_a_folder_name(name: str, safe: str) -> None:
    assert make_safe_folder_name(name) == safe


def test_a_line_is_synced_before_write_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CampaignWriter.create(tmp_path, "a") as writer:
        synced: list[bytes] = []
        monkeypatch.setattr(os, "fsync", lambda _: synced.append(writer.records.read_bytes()))
        writer.write(warning("one"))
        writer.write(warning("two"))
        lines = writer.records.read_bytes().splitlines(keepends=True)
    assert synced == [lines[0], lines[0] + lines[1]]


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "a") as writer:

        def work(thread: int) -> None:
            for index in range(20):
                writer.write(s.WarningLine(code=f"{thread}-{index}", message="m" * 5000))

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes(writer)) == sorted(f"{thread}-{index}" for thread in range(6) for index in range(20))


def test_a_folder_that_cannot_be_made_is_a_wrong_usage_that_names_it(tmp_path: Path) -> None:
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(UsageError, match=rf"{re.escape(str(taken))}.*: File exists; choose another folder$"):
        CampaignWriter.create(taken, "a")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_only_a_full_disk_asks_for_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def full(folder: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(writer_module, "_reserve_disk_space", full)
    with pytest.raises(UsageError, match=r"choose another folder, or delete files to make space$"):
        CampaignWriter.create(tmp_path, "a")


def test_a_full_disk_fails_the_run_and_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with CampaignWriter.create(tmp_path, "a") as writer:
        writer.write(warning("before"))
        real = os.write
        left = [10]

        def filling(descriptor: int, data: bytes) -> int:
            if not left[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            count = real(descriptor, bytes(data)[: left[0]])
            left[0] -= count
            return count

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", filling)
            with pytest.raises(RunFailed, match=rf"{re.escape(str(writer.folder))}.*No space left on device"):
                writer.write(warning("lost"))
        writer.write(warning("after"))
        assert codes(writer) == ["before", "after"]


def test_what_does_not_fit_the_schema_is_not_written(tmp_path: Path) -> None:
    with CampaignWriter.create(tmp_path, "a") as writer:
        with pytest.raises(ValueError, match="LaunchEndLine"):
            writer.write(s.LaunchEndLine(launch=-1, status=0, seconds=1.0))
        assert writer.records.read_bytes() == b""


def test_a_closed_writer_refuses(tmp_path: Path) -> None:
    writer = CampaignWriter.create(tmp_path, "a")
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write(warning())

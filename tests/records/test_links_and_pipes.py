"""Nothing that is written follows a link, and only regular files are read."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from merge_bench.config.files import open_regular_file, open_without_links, read_regular_file, replace_file
from merge_bench.errors import RunFailed, UsageError
from merge_bench.records.reader import read_campaign, read_campaign_line
from merge_bench.records.timeline import read_timeline
from merge_bench.records.writer import LOGS, RECORDS, CampaignWriter
from merge_bench.report.page import write_html_report
from tests.helpers.mutations import CAMPAIGNS


def test_a_report_is_not_written_through_a_link(tmp_path: Path) -> None:
    folder, other = tmp_path / "result", tmp_path / "authorized_keys"
    shutil.copytree(CAMPAIGNS / "run", folder)
    other.write_text("mine")
    (folder / "report.html").symlink_to(other)
    page = write_html_report([read_campaign(folder)], None)
    assert other.read_text() == "mine"
    assert not page.is_symlink()
    assert "<html" in page.read_text()
    assert not [each for each in folder.iterdir() if each.name.startswith(".merge-bench")]


@pytest.mark.parametrize("target", ["a file", "/dev/null", "nothing"])
def test_a_link_is_replaced_whatever_it_points_to(tmp_path: Path, target: str) -> None:
    link, other = tmp_path / "x", tmp_path / target
    if target == "a file":
        other.write_text("mine")
    link.symlink_to(other)
    with replace_file(link) as stream:
        stream.write(b"new")
    assert (link.is_symlink(), link.read_bytes()) == (False, b"new")
    assert target != "a file" or other.read_text() == "mine"
    assert target != "nothing" or not other.exists()


def test_a_pipe_that_nobody_reads_is_an_error_and_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"), replace_file(tmp_path / "pipe"):
        pass


def test_logs_and_records_are_not_appended_through_a_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "log").symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        open_without_links(str(tmp_path / "log"), os.O_WRONLY | os.O_APPEND)
    with pytest.raises(OSError, match="not a regular file"):
        open_without_links("/dev/null", os.O_WRONLY | os.O_APPEND)
    shutil.copytree(CAMPAIGNS / "interrupted", tmp_path / "records")
    (tmp_path / "records" / RECORDS).rename(tmp_path / "elsewhere")
    (tmp_path / "records" / RECORDS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunFailed, match="symbolic links"):
        CampaignWriter.resume(tmp_path / "records")
    shutil.copytree(CAMPAIGNS / "interrupted", tmp_path / "logs")
    shutil.rmtree(tmp_path / "logs" / LOGS, ignore_errors=True)
    (tmp_path / "logs" / LOGS).symlink_to(tmp_path)
    with pytest.raises(RunFailed):
        CampaignWriter.resume(tmp_path / "logs")


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    records = tmp_path / RECORDS
    if kind == "pipe":
        os.mkfifo(records)
    elif kind == "device":
        records.symlink_to("/dev/zero")
    else:
        import socket

        socket.socket(socket.AF_UNIX).bind(str(records))
    began = time.monotonic()
    for read in (read_campaign, read_timeline, open_regular_file):
        with pytest.raises((UsageError, OSError), match=RECORDS):
            read(records)
    assert read_campaign_line(records.parent) is None
    assert time.monotonic() - began < 5


def test_the_limits_are_said(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"a" * 2000)
    with pytest.raises(UsageError, match="larger than 1 KiB"):
        read_regular_file(file, 1 << 10)
    shutil.copy(CAMPAIGNS / "run" / RECORDS, tmp_path / RECORDS)
    with pytest.raises(UsageError, match=r"line 1 of .* is longer than"):
        read_campaign(tmp_path, longest_line=1 << 10)


@pytest.mark.parametrize(
    ("umask", "before", "after"), [(0o022, 0o600, 0o600), (0o077, 0o644, 0o600), (0o022, 0o664, 0o644)]
)
def test_who_could_not_read_the_old_file_cannot_read_the_new_one(
    umask: int, before: int, after: int, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.touch()
    file.chmod(before)
    own = os.umask(umask)
    try:
        with replace_file(file) as stream:
            stream.write(b"new")
    finally:
        os.umask(own)
    assert file.stat().st_mode & 0o777 == after

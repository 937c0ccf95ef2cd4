"""`report` as a command: where it writes, what it refuses, and that nothing measured is ever lost."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from merge_bench.cli import main
from merge_bench.report.page import html
from tests.helpers.synthetic_campaigns import write_campaign
from tests.helpers.terminals import terminal

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `report` with these words; gives the status, standard output and standard error.

    The page's drawings fail at once, which saves most of the time; `test_page.py` is about them.
    """
    monkeypatch.setattr(html, "make_bokeh_figure", lambda *_, **__: None)

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["merge-bench", "report", *map(str, words)])
        status = 0
        try:
            main()
        except SystemExit as leave:
            status = int(leave.code or 0)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_the_page_lies_in_the_campaigns_folder_by_default(tmp_path: Path, report: Run) -> None:
    folder = write_campaign(tmp_path)
    assert report(folder) == (0, f"{folder / 'report.html'}\n", "")
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_a_person_at_a_terminal_reads_what_the_seconds_go_to(tmp_path: Path, report: Run) -> None:
    folder = write_campaign(tmp_path)
    with terminal(400) as lines:
        assert report(folder) == (0, f"{folder / 'report.html'}\n", "")
    assert lines == [f"merge_bench: writing {folder / 'report.html'} …"]


def test_a_result_may_be_its_records(tmp_path: Path, report: Run) -> None:
    folder = write_campaign(tmp_path)
    status, out, _ = report(folder / "records.jsonl", "--output", tmp_path / "x.html")
    assert (status, out) == (0, f"{tmp_path / 'x.html'}\n")
    assert not (folder / "report.html").exists()


def test_markdown_and_figures_come_beside_the_page(tmp_path: Path, report: Run) -> None:
    folder = write_campaign(tmp_path)
    status, out, err = report(folder, "--markdown", tmp_path / "m.md", "--figures", tmp_path / "f")
    assert status == 0
    assert out.split() == [str(folder / "report.html"), str(tmp_path / "m.md")]
    pictures = sorted((tmp_path / "f").iterdir())
    assert err == f"merge_bench: wrote {len(pictures) // 2} figures to {tmp_path / 'f'}\n"
    assert (
        "![Phases of each worker in an iteration](<f/figure-01-phases-of-each-worker-in-an-iteration.png>)"
        in (tmp_path / "m.md").read_text()
    )
    for picture in pictures:
        if picture.suffix == ".svg":
            assert ElementTree.parse(picture).getroot().tag.endswith("svg")
        else:
            assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_second_time_gives_the_same_but_for_the_nonce(tmp_path: Path, report: Run) -> None:
    folder = write_campaign(tmp_path)
    report(folder)
    first = (folder / "report.html").stat().st_ino
    assert report(folder)[0] == 0
    assert (folder / "report.html").stat().st_ino != first  # replaced whole
    assert {path.name for path in folder.iterdir()} == {"records.jsonl", "logs", "report.html"}


def test_records_are_never_overwritten(tmp_path: Path, report: Run) -> None:
    folder, other = write_campaign(tmp_path / "a"), write_campaign(tmp_path / "b")
    before = [(each / "records.jsonl").read_bytes() for each in (folder, other)]
    (tmp_path / "link.html").symlink_to(folder / "records.jsonl")
    for option in ("--output", "--markdown"):
        for target in (folder / "records.jsonl", other / "records.jsonl", tmp_path / "link.html"):
            status, _, err = report(folder, option, target)
            assert status == 2
            assert "is a records file, which is never overwritten" in err
    assert [(each / "records.jsonl").read_bytes() for each in (folder, other)] == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "no RESULT given; give the path of a campaign folder or of its records.jsonl"),
        (["{}", "{}"], "is named twice"),
        (["{}", "--output", "/no/such/x.html"], "--output /no/such/x.html: there is no folder /no/such"),
        (["{}", "--output", "{}"], "is a folder; name a file"),
        (["{}", "--output", "x", "--markdown", "x"], "two options write to x"),
        (["{}", "--reference", "nobody"], "there is no published dataset 'nobody'; choose from "),
        (["{}", "--reference", "gadi-v100-optimized-small"], "as a RESULT instead"),
        (["{}/logs"], "contains no records.jsonl"),
        (["{}", "--figures", "{}/records.jsonl"], "records.jsonl: File exists"),
    ],
)
def test_a_wrong_usage_is_one_sentence_and_writes_nothing(
    tmp_path: Path, report: Run, words: list[str], sentence: str
) -> None:
    folder = write_campaign(tmp_path)
    status, out, err = report(*(word.format(folder) for word in words))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    assert {path.name for path in folder.iterdir()} == {"records.jsonl", "logs"}


def test_damaged_records_are_refused_by_line(tmp_path: Path, report: Run) -> None:
    folder = write_campaign(tmp_path)
    path = folder / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"{\n", *lines[2:]]))
    status, _, err = report(folder)
    assert status == 2
    assert "line 3 of" in err


@pytest.mark.skipif(os.geteuid() != 0, reason="the folder of device files belongs to root")
def test_a_full_disk_is_told_and_leaves_what_was_there(tmp_path: Path, report: Run) -> None:
    status, out, err = report(write_campaign(tmp_path), "--output", "/dev/full")
    assert (status, out) == (3, "")
    assert err == "merge_bench: cannot write /dev/full: No space left on device\n"


def test_published_results_are_listed(report: Run) -> None:
    status, out, _ = report("--reference", "list")
    assert status == 0
    listed = {line.split()[0] for line in out.splitlines()}
    assert {"gadi-v100", "gadi-v100-settings", "cuhk-reduce-scatter"} <= listed
    assert "gadi-v100-optimized-small" not in listed


def test_published_results_of_every_kind_are_shown(tmp_path: Path, report: Run) -> None:
    names = ("gadi-v100", "gadi-v100-settings")
    status, *_ = report(write_campaign(tmp_path), *(word for name in names for word in ("--reference", name)))
    assert status == 0
    page = next(tmp_path.glob("*/report.html")).read_text()
    assert "Published: Team NTHU-1, 2022 APAC HPC-AI, Table 3; NCI Gadi" in page
    assert "rendezvous over active messages" in page

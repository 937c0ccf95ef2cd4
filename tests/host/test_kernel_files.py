"""Small files of /proc and /sys, and files that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.host import kernel_files


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def test_a_missing_file_is_unknown(file: Path) -> None:
    for read in (kernel_files.read_text, kernel_files.read_number, kernel_files.read_bracketed_word):
        assert read(file) is None
    assert kernel_files.list_file_names(file) == []
    assert kernel_files.read_named_values(file) == kernel_files.read_named_byte_counts(file) == {}


@pytest.mark.parametrize(("text", "number"), [("12\n", 12), ("-1\n", -1), ("max\n", None), ("1 2\n", None), ("", None)])
def test_a_number_is_the_whole_file(file: Path, text: str, number: int | None) -> None:
    file.write_text(text)
    assert kernel_files.read_number(file) == number


def test_fields_are_text_and_kilobytes_are_bytes(file: Path) -> None:
    file.write_text("MemTotal:  \t 2 kB\nHugePages_Free: 3\nmodel name\t: a: b\n\nno field\n")
    assert kernel_files.read_named_values(file) == {"MemTotal": "2 kB", "HugePages_Free": "3", "model name": "a: b"}
    assert kernel_files.read_named_byte_counts(file) == {"MemTotal": 2048, "HugePages_Free": 3}


@pytest.mark.parametrize(("text", "chosen"), [("always [madvise] never\n", "madvise"), ("cubic\n", "cubic")])
def test_the_chosen_word_is_in_brackets(file: Path, text: str, chosen: str) -> None:
    file.write_text(text)
    assert kernel_files.read_bracketed_word(file) == chosen


def test_names_are_sorted(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).touch()
    assert kernel_files.list_file_names(tmp_path) == ["a", "b"]

"""Messages on standard error: whole in a pipe, in lines that end between words on a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from merge_bench.errors import WarningMessage, print_message
from merge_bench.view.streams import print_warnings
from tests.helpers.terminals import terminal

LONG = "6 launches take about 84 seconds (as 3 earlier launches of the same problem on this host took, without waiting)"


def on_terminal(columns: int, *warnings: WarningMessage, message: str = "") -> list[str]:
    """The lines that a terminal of so many columns gets."""
    with terminal(columns) as lines:
        if message:
            print_message(message)
        print_warnings(warnings)
    return lines


def test_a_terminal_gets_lines_that_end_between_words() -> None:
    lines = on_terminal(60, message=LONG)
    assert max(map(len, lines)) <= 60
    assert " ".join(line.strip() for line in lines) == f"merge_bench: {LONG}"
    assert all(line.startswith("  ") for line in lines[1:])


@pytest.mark.parametrize("same", [True, False], ids=["one stream", "two streams"])
def test_a_warning_stands_above_the_report_only_where_both_go_to_the_same_place(tmp_path: Path, same: bool) -> None:
    program = (
        "from merge_bench.errors import WarningMessage, print_warning, warnings_already_printed;"
        "print_warning(WarningMessage('code', 'text', 'remedy'));"
        "print([each.code for each in warnings_already_printed()])"
    )
    with (tmp_path / "out").open("w+") as out:
        errors = subprocess.STDOUT if same else subprocess.DEVNULL
        subprocess.run([sys.executable, "-c", program], stdout=out, stderr=errors, check=True)
    assert (tmp_path / "out").read_text().splitlines()[-1] == ("['code']" if same else "[]")


def test_a_remedy_keeps_its_indent() -> None:
    lines = on_terminal(40, WarningMessage("slow-thing", "one", "word " * 12 + "end"))
    assert lines[0] == "merge_bench: warning: slow-thing: one"
    assert lines[1].startswith("  → word")
    assert len(lines) > 2
    assert all(line.startswith("    ") and line[4] != " " for line in lines[2:])


@pytest.mark.parametrize(
    "copied",
    [
        "pip install 'merge-bench[dashboard]'",
        "--wait-for-quiet 5m",
        "/a/path/that/is/longer/than/the/terminal/records.jsonl",
        "`sysctl -w a.b=c`",
    ],
)
def test_what_is_copied_is_not_cut(copied: str) -> None:
    for columns in range(16, 70):
        lines = on_terminal(columns, message=f"this host has no such thing; use {copied}, or another host")
        assert any(copied in line for line in lines), lines


@pytest.mark.parametrize("columns", [0, 400])
def test_a_terminal_of_unknown_width_and_a_wide_one_get_one_line(columns: int) -> None:
    assert on_terminal(columns, message=LONG) == [f"merge_bench: {LONG}"]


def test_a_pipe_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_message(LONG, LONG)
    assert capsys.readouterr().err == f"merge_bench: {LONG}\n  → {LONG}\n"

"""Failures on standard error: always for a pipe, and for a terminal unless the page beside it has them."""

from __future__ import annotations

import sys

import pytest

from merge_bench.cli.campaigns import say_failures
from merge_bench.records.schema import FailureLine
from tests.view.report.test_text import Terminal

FAILURE = FailureLine(launch=0, code="interrupted", message="interrupted by SIGINT", log_tail="last words")


@pytest.mark.parametrize(
    ("same", "printed", "times"),
    [(True, ["interrupted by SIGINT after 3 iterations"], 0), (True, [], 1), (False, ["interrupted by SIGINT"], 1)],
    ids=["on the page", "not on the page", "another program reads it"],
)
def test_a_terminal_gets_a_failure_once(
    same: bool, printed: list[str], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = Terminal()
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setattr("merge_bench.cli.campaigns.one_stream", lambda: same)
    say_failures([FAILURE], printed=printed)
    assert errors.getvalue().count(FAILURE.message) == times
    assert "last words" in errors.getvalue()

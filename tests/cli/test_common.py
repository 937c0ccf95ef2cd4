"""What commands have in common: failures on standard error, and the options that the records keep."""

from __future__ import annotations

import sys

import pytest
from click import Command

from merge_bench.cli.common import given_options, say_failures
from merge_bench.cli.run import run
from merge_bench.cli.tune import tune
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
    monkeypatch.setattr("merge_bench.cli.common.stdout_is_stderr", lambda: same)
    say_failures([FAILURE], printed=printed)
    assert errors.getvalue().count(FAILURE.message) == times
    assert "last words" in errors.getvalue()


@pytest.mark.parametrize(
    ("command", "words", "options"),
    [
        (
            run,
            ["mine.cfg", "--chunk=1e6", "--fresh", "--on", "a", "--on", "b", "--timeout", "5s"],
            {"config": "mine.cfg", "chunk": "1e6", "fresh": True, "on": ["a", "b"], "timeout": "5s"},
        ),
        (tune, ["mine.cfg", "--budget", "10m"], {"config": "mine.cfg", "budget": "10m"}),
        (run, [], {}),
    ],
)
def test_options_are_recorded_as_they_were_typed(
    command: Command, words: list[str], options: dict[str, object]
) -> None:
    with command.make_context(str(command.name), list(words)):
        assert given_options() == options

"""What commands have in common: failures on standard error, and the options that the records keep."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from click import Command
from msgspec.structs import replace

from merge_bench.cli.common import print_failures, typed_options
from merge_bench.cli.run import run
from merge_bench.cli.tune import tune
from merge_bench.records.schema import FailureLine

FAILURE = FailureLine(launch=0, code="interrupted", message="interrupted by SIGINT", log_tail="last words")


@pytest.mark.parametrize(
    ("same", "printed", "times"),
    [(True, ["interrupted by SIGINT after 3 iterations"], 0), (True, [], 1), (False, ["interrupted by SIGINT"], 1)],
    ids=["on the page", "not on the page", "another program reads it"],
)
def test_a_reader_of_both_streams_gets_a_failure_once(
    same: bool, printed: list[str], times: int, tmp_path: Path
) -> None:
    names = ("both", "both") if same else ("output", "errors")
    with (
        open(tmp_path / names[0], "a") as output,
        open(tmp_path / names[1], "a") as errors,
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        print_failures([FAILURE], printed_texts=printed)
    text = (tmp_path / names[1]).read_text()
    assert text.count(FAILURE.message) == times
    assert "last words" in text


def test_launches_that_failed_alike_are_printed_once_with_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    other = replace(FAILURE, launch=2, log_tail="other words")
    print_failures([FAILURE, other, replace(FAILURE, launch=1)])
    text = capsys.readouterr().err
    assert text.count("last words") == text.count("other words") == 1
    assert text.count(f"{FAILURE.message} (in 2 launches)\n") == text.count(f"{FAILURE.message}\n") == 1


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
        assert typed_options() == options

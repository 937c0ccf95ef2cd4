"""Options that take names: lists, names with commas and blanks, options that are repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner

from merge_bench.cli.common import add_options
from merge_bench.config import parsers
from merge_bench.config.option import format_command_line, format_option_value, options_from_python
from merge_bench.config.options import BY_KEY, OPTIONS, RunOptions, resolve_options
from merge_bench.config.reader import ConfigFile
from merge_bench.errors import UsageError


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b", ("a", "b")),
        (" a , b c ", ("a", "b c")),
        ('"a,b"', ("a,b",)),
        ('" id", x', (" id", "x")),
        ('"say ""hi"""', ('say "hi"',)),
        ('5" pipe,b', ('5" pipe', "b")),
        ('"",b', ("", "b")),
    ],
)
def test_a_name_in_quotes_keeps_commas_and_blanks(text: str, names: tuple[str, ...]) -> None:
    assert parsers.parse_columns(text) == names
    assert parsers.parse_columns(format_option_value(names)) == names


@pytest.mark.parametrize("text", ["", "a,", ",a", "a,,b", "a,a"])
def test_empty_names_and_names_that_are_there_twice_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="contains"):
        parsers.parse_columns(text)


def test_a_list_of_a_program_means_its_names_as_they_are() -> None:
    found = options_from_python(RunOptions, {"on": ["a,b", " id"], "columns": ["x"], "left_on": "a,b"}, OPTIONS)
    assert (found.on, found.columns, found.left_on) == (("a,b", " id"), ("x",), ("a", "b"))
    assert format_command_line({"on": ["a,b", " id"]}, OPTIONS) == ["--on", '"a,b"," id"']


@pytest.mark.parametrize(
    ("words", "on"),
    [
        (["--on", "a,b"], ("a", "b")),
        (["--on", "a,b", "--on", " id"], ("a,b", " id")),
        (["--on", '"a,b"'], ("a,b",)),
        ([], None),
    ],
)
def test_each_value_of_a_repeated_option_is_one_name(words: list[str], on: tuple[str, ...] | None) -> None:
    found: dict[str, Any] = {}

    @click.command()
    @add_options("options", RunOptions, [BY_KEY["on"]])
    def command(options: RunOptions) -> None:
        found["on"] = options.on

    assert CliRunner().invoke(command, words).exit_code == 0
    assert found["on"] == on
    wrong = CliRunner().invoke(command, ["--on", "a,"])
    assert (wrong.exit_code, "--on" in wrong.output) == (2, True)


def test_partition_writes_takes_its_former_name_and_value(config_of: Callable[[str], ConfigFile]) -> None:
    assert options_from_python(RunOptions, {"stores": "lines"}, OPTIONS).partition_writes == "streaming"
    config = config_of("MERGE_BENCH_STORES=lines\n")
    assert resolve_options(RunOptions(), config, {}).partition_writes == "streaming"
    with pytest.raises(UsageError, match="are one option"):
        options_from_python(RunOptions, {"stores": "auto", "partition_writes": "auto"}, OPTIONS)

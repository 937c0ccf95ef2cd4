"""The commands in README.md: they are what the program takes, and come after the line that makes them work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from merge_bench.cli import cli
from merge_bench.config.shipped import find_config

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
ENTER = "source .venv/bin/activate"
# What follows two spaces and a # is for people.
COMMANDS = [
    re.sub(r"\s{2,}#.*", "", line.strip().removeprefix("$ ")) for line in re.findall("^    .*$", TEXT, re.MULTILINE)
]
CALLS = [line.removeprefix("python -m merge_bench") for line in COMMANDS if line.startswith("python -m merge_bench")]


def options_of(words: list[str]) -> dict[str, object]:
    """What click makes of a command line; it ends the test where the program would refuse it."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and (found := command.get_command(context, words[0])):
        command, words = found, words[1:]
    if command is cli:
        command = cli.commands["run"]
    return command.make_context("merge-bench", words).params


def test_the_environment_is_entered_before_anything_needs_it() -> None:
    for section in TEXT.split("\n## ")[1:]:
        lines = [line.strip().removeprefix("$ ") for line in section.splitlines() if line.startswith("    ")]
        first = next((at for at, line in enumerate(lines) if line.startswith(("python ", "merge-bench"))), None)
        if first is not None:
            assert ENTER in lines[:first], section[:60]


@pytest.mark.parametrize("words", CALLS)
def test_every_command_is_one_that_the_program_takes(words: str) -> None:
    given = [word for word in shlex.split(words) if word != "--help"]
    found = options_of(given)
    if given[:1] != ["predict"]:  # which names a config of the results
        named = [found.get("config"), found.get("baseline"), *(found.get("configs") or ())]  # type: ignore[misc]
        assert all(find_config(str(name)).is_file() for name in named if name)


def test_commands_are_found_at_all() -> None:
    assert len(CALLS) > 20

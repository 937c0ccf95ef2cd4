"""The commands in the README and the docs: the program takes them, and the README enters the environment first."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from merge_bench.cli import cli
from merge_bench.config.shipped import find_config
from merge_bench.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ENTER = "source .venv/bin/activate"
CALL = re.compile(r"^ {4,}(?:\$ )?(?:python -m merge_bench|merge-bench)\b(.*)$")
SYNTAX = re.compile(r"…|\[|\bRESULT\b|\bRESULTS\b|:::|\||<|WHAT|CFG|<<|&$")
"""Lines with these show a syntax, or are cut."""


def calls(page: Path) -> Iterator[str]:
    """What follows the program's name. Two spaces begin a remark, and a backslash goes on in the next line."""
    text = re.sub(r"\s*\\\n\s*", " ", page.read_text(encoding="utf-8"))
    for line in text.splitlines():
        found = CALL.match(line)
        if found and not SYNTAX.search(words := re.sub(r"(?<=\S)\s{2,}.*|\s>\s.*", "", found[1])):
            yield words


CALLS = [pytest.param(words, id=f"{page.name}:{words.strip()[:60]}") for page in PAGES for words in calls(page)]


def options_of(words: list[str]) -> dict[str, object]:
    """What click makes of a command line; it ends the test where the program would refuse it."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and (found := command.get_command(context, words[0])):
        command, words = found, words[1:]
    if command is cli:
        command = cli.commands["run"]
    return command.make_context("merge-bench", words).params


def test_the_readme_enters_the_environment_before_anything_needs_it() -> None:
    for section in README.read_text(encoding="utf-8").split("\n## ")[1:]:
        lines = [line.strip().removeprefix("$ ") for line in section.splitlines() if line.startswith("    ")]
        first = next((at for at, line in enumerate(lines) if line.startswith(("python ", "merge-bench "))), None)
        if first is not None:
            assert ENTER in lines[:first], section[:60]


@pytest.mark.parametrize("words", CALLS)
def test_every_command_is_one_that_the_program_takes(words: str) -> None:
    given = [word for word in shlex.split(words) if word not in ("--help", "--version")]
    try:
        options_of(given)
    except click.exceptions.Exit:
        pytest.fail(f"{words} only prints a text")


def test_configs_in_the_readme_exist() -> None:
    for words in calls(README):
        found = options_of([word for word in shlex.split(words) if word != "--help"])
        named = [found.get("config"), found.get("named"), found.get("baseline"), *(found.get("configs") or ())]  # type: ignore[misc]
        for name in filter(None, named):
            assert find_config(str(name)).is_file()


def test_commands_are_found_at_all() -> None:
    assert len(CALLS) > 60
    assert len(list(calls(README))) >= 5
    with pytest.raises((click.UsageError, UsageError)):
        options_of(["--no-such-option"])


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120

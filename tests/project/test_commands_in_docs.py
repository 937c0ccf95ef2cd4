"""The commands in the README and the docs: the programs take them, and each is run by ``--soak`` or has a reason."""

from __future__ import annotations

import importlib
import shlex
from collections import Counter
from pathlib import Path

import click
import pytest

from merge_bench.cli import cli
from merge_bench.config.shipped import find_config_file
from merge_bench.errors import UsageError
from tests.project.examples import PAGES, ROOT, Example, all_examples, examples, read_table

README = ROOT / "README.md"
ENTER = "source .venv/bin/activate"
EXAMPLES = list({example.key: example for example in all_examples()}.values())
SET_UP_ONLY = ("--setup-only", "--stack")


def options_of(words: list[str], program: str = "merge_bench") -> dict[str, object]:
    """What click makes of a command line; it ends the test where the program would refuse it."""
    if program.startswith("benchmarks."):
        module = importlib.import_module(program)
        takes = [one for one in vars(module).values() if isinstance(one, click.Command)]
        assert takes or not words
        return takes[0].make_context(program, words).params if takes else {}
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group) and words and (found := command.get_command(context, words[0])):
        command, words = found, words[1:]
    if command is cli:
        command = cli.commands["run"]
    return command.make_context("merge-bench", words).params


def given(example: Example) -> list[str]:
    """Its words, without those that only print a text."""
    return [word for word in shlex.split(example.words) if word not in ("--help", "--version")]


def test_the_readme_enters_the_environment_before_anything_needs_it() -> None:
    for section in README.read_text(encoding="utf-8").split("\n## ")[1:]:
        lines = [line.strip().removeprefix("$ ") for line in section.splitlines() if line.startswith("    ")]
        first = next((at for at, line in enumerate(lines) if line.startswith(("python ", "merge-bench "))), None)
        if first is not None:
            assert ENTER in lines[:first], section[:60]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"{example.page}:{example.key[:60]}")
def test_every_command_is_one_that_the_program_takes(example: Example) -> None:
    words = given(example)
    if example.program == "run-cluster.sh" and SET_UP_ONLY[0] in words:
        return
    try:
        options_of(words, example.program)
    except click.exceptions.Exit:
        pytest.fail(f"{example.words} only prints a text")


def test_every_command_is_run_by_soak_or_has_a_reason() -> None:
    table, keys = read_table(), {example.key for example in EXAMPLES}
    listed = [*table.runs, *table.reasons]
    assert [key for key, times in Counter(listed).items() if times > 1] == []
    assert keys - set(listed) == set(), "add an entry to tests/project/examples.toml"
    assert set(listed) - keys == set(), "these commands are in no page any more"


def test_what_soak_runs_is_a_command_of_the_same_kind() -> None:
    kinds = {example.key: example.program for example in EXAMPLES}
    for key, run in read_table().runs.items():
        options_of(
            shlex.split(run.removeprefix(kinds[key]).replace("--help", "")), kinds[key].replace("run-cluster.sh", "")
        )


def test_configs_in_the_readme_exist() -> None:
    for example in examples(README):
        found = options_of(given(example))
        several = (each for key in ("config_names", "configs") for each in found.get(key) or ())
        for name in filter(None, [found.get("config"), found.get("baseline"), *several]):
            assert find_config_file(str(name)).is_file()


def test_commands_are_found_at_all(tmp_path: Path) -> None:
    assert len(EXAMPLES) > 90
    assert len(list(examples(README))) >= 5
    assert {page.parent.name for page in PAGES} >= {"docs", "reference"}
    with pytest.raises((click.UsageError, UsageError)):
        options_of(["--no-such-option"])
    page = tmp_path / "page.md"
    lines = (
        "    $ UCX_TLS=tcp python -m merge_bench transports \\",
        "        --json > a.json",
        "    ./run-cluster.sh a.cfg  # x",
    )
    page.write_text("\n".join(lines))
    assert [example.key for example in examples(page)] == ["transports --json", "run-cluster.sh a.cfg"]


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120

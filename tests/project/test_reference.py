"""The reference pages are those that the sources give today."""

from __future__ import annotations

from typing import Any

import pytest

from merge_bench.cli import cli
from merge_bench.config.options import OPTIONS
from tools.reference import DOCS, FOLDER, measured, options
from tools.reference.pages import pages

RUN = "run python -m tools.reference"


def test_no_other_file_lies_among_the_reference_pages() -> None:
    assert {f"reference/{path.name}" for path in FOLDER.iterdir()} <= set(pages())


@pytest.mark.parametrize("name", pages())
def test_each_page_is_made_from_the_sources_of_today(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], RUN


def test_every_option_of_every_command_has_a_row_or_is_one_of_run() -> None:
    sections = pages()["reference/options.md"].split("\n## ")[1:]
    assert len(sections) == len(list(options.commands(cli))) > 15
    for name, command in options.commands(cli):
        (section,) = (section for section in sections if section.startswith(f"`{name}`\n"))
        for parameter in (each for each in command.params if not getattr(each, "hidden", False)):
            assert all(f"`{word}" in section or f", {word}" in section for word in parameter.opts[:1] if "-" in word)


def test_options_of_run_name_their_variable() -> None:
    text = pages()["reference/options.md"]
    assert [
        option.command_line_name
        for option in OPTIONS
        if (f"`{option.environment_variable}`" in text) != option.in_config
    ] == []


def test_a_table_without_its_conditions_is_refused() -> None:
    given: dict[str, Any] = {"title": "t", "place": 1, "command": "c", "machine": "m", "when": "2026", "about": "a"}
    table: dict[str, Any] = {"columns": ["a", "b"], "rows": [["1", "2"]]}
    assert measured.Campaign(**given, **table)
    for wrong in ({**given, "machine": ""}, {**given, "when": ""}, {**given, "rows": [["1"]]}):
        with pytest.raises(ValueError, match="t: a row of another width"):
            measured.Campaign(**{**table, **wrong})

"""Every figure of README and docs follows from a stored result, or its page says that it is not stored."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.project import claims
from tests.project.claims import Claim, ClaimsList, blocks, check_page, pages, read_list
from tools.reference import measured

ALL_PAGES = pages()
PAGE = "page.md"
STORED = "## Figures\n\nOn one GPU a merge takes **2.5 ms** with\none worker (1.25 to 4.0), `--budget 5m`.\n"
RESULT = {"steps": [{"name": "one", "wall": 0.00251, "range": [0.00125, 0.004]}], "git": {"dirty": False}}


@pytest.fixture
def listed(tmp_path: Path) -> ClaimsList:
    """A stored result, and the figures that `STORED` has of it."""
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    one = 'gpu.steps["one"]'
    figures = {"2.5": f"1e3 * {one}.wall", "1.25": f"1e3 * min({one}.range)", "4.0": f"1e3 * {one}.range[1]"}
    claim = Claim(PAGE, "**2.5 ms** with one worker (1.25 to 4.0)", figures)
    return ClaimsList({"gpu": tmp_path / "result.json"}, (claim,), {}, {})


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_figure_of_a_page_has_a_stored_result_or_says_that_it_is_not_stored(page: str) -> None:
    assert "\n".join(check_page(page, ALL_PAGES[page], read_list())) == ""


def test_every_listed_page_exists() -> None:
    listed = read_list()
    named = {*(claim.page for claim in listed.stored), *listed.settings, *listed.examples}
    assert named <= set(ALL_PAGES)
    assert len(listed.stored) > 50


def test_the_goals_were_measured_with_committed_sources() -> None:
    assert [path.name for path in measured.RESULTS.iterdir() if not claims.was_committed(path)] == []


def test_a_figure_that_follows_from_its_result_is_right(listed: ClaimsList) -> None:
    assert check_page(PAGE, STORED, listed) == []


@pytest.mark.parametrize(("right", "wrong"), [("2.5", "2.6"), ("1.25", "1.24"), ("4.0", "4.1")])
def test_a_wrong_figure_is_found_also_where_the_list_has_it(listed: ClaimsList, right: str, wrong: str) -> None:
    text = STORED.replace(right, wrong)
    *unlisted, missing = check_page(PAGE, text, listed)
    assert any(wrong in words for words in unlisted)
    assert all("follows from no stored result" in words for words in unlisted)
    assert listed.stored[0].text in missing
    (claim,) = listed.stored
    figures = {wrong if number == right else number: expression for number, expression in claim.figures.items()}
    claim = Claim(PAGE, claim.text.replace(right, wrong), figures)
    (differs,) = check_page(PAGE, text, dataclasses.replace(listed, stored=(claim,)))
    assert f'"{wrong}" in "{claim.text}" is ' in differs
    assert "in the stored result" in differs


@pytest.mark.parametrize(
    "figure",
    [
        "7.1 ms", "72 s", "0.3 µs", "14 minutes", "9.5 GiB/s", "8 Gbit/s", "12.5 %", "5, 15 and 24 %", "2,000 ns",
        "from 1.4 to 1.1 times", "three times as fast", "twice as fast", "19 of 100", "0.9 × (0.8 to 1.1)",
        "0.82 to 5.37", "1.5 to 2 MB", "4.13 MiB",
    ],
)  # fmt: skip
def test_a_figure_without_a_source_is_found(listed: ClaimsList, figure: str) -> None:
    for addition in (f"\nIt was {figure} there.\n", f"\n| what | how |\n| --- | --- |\n| it | {figure} |\n"):
        problems = check_page(PAGE, STORED + addition, listed)
        assert problems
        assert all("follows from no stored result" in words for words in problems)
    for paragraph in ("It was not stored.\n\n", f"Not this.\n\n    $ it\n    {figure}\n\n    {figure}\n\n"):
        marked = paragraph.replace("not stored", f"{figure} (not stored)")
        assert check_page(PAGE, f"{STORED}\n{marked}", listed) == []


def test_a_table_without_units_has_figures(listed: ClaimsList) -> None:
    table = "\n| what | times |\n| --- | --- |\n| 3 rows | 4.2 (of 3) |\n| `x` | a 5 |\n"
    (problems,) = check_page(PAGE, STORED + table, listed)
    assert '"4.2 (of 3)"' in problems


def test_the_mark_holds_for_a_paragraph_and_the_table_or_list_after_it(listed: ClaimsList) -> None:
    table, items = "| a | b |\n| --- | --- |\n| c | 3 ms |\n", "- 4 ms\n- and\n  5 ms\n"
    assert check_page(PAGE, f"{STORED}\nAs here, not\nstored:\n\n{table}\n{items}", listed) == []
    problems = check_page(PAGE, f"{STORED}\nNot stored: not\nstored.\n\n{table}\nElse:\n\n{items}\n6 ms\n", listed)
    assert [words.split('"')[1] for words in problems] == ["4 ms", "5 ms", "6 ms"]


def test_settings_and_explained_examples_are_listed_and_only_where_they_are_needed(listed: ClaimsList) -> None:
    text = f"{STORED}\nA limit of 60 s, and that took 4 s.\n"
    others = dataclasses.replace(listed, settings={PAGE: ("limit of 60 s",)}, examples={PAGE: ("took 4 s",)})
    assert check_page(PAGE, text, others) == []
    needless = dataclasses.replace(others, settings={PAGE: ("limit of 60 s", "A limit")})
    assert check_page(PAGE, text, needless) == [f'{PAGE}: claims.toml lists "A limit", and no such figure is there']


def test_a_page_says_that_the_sources_of_a_result_were_not_committed(listed: ClaimsList) -> None:
    (file,) = listed.files.values()
    changed = file.with_name("changed.json")
    changed.write_text(json.dumps({**RESULT, "git": {"dirty": True}}))
    dirty = dataclasses.replace(listed, files={"gpu": changed})
    assert check_page(PAGE, STORED, dirty) == [f'{PAGE}: does not say that results are of "uncommitted" changes: gpu']
    assert check_page(PAGE, f"{STORED}\nOf uncommitted changes.\n", dirty) == []


@pytest.mark.parametrize(
    ("name", "stored", "committed"),
    [
        ("records.jsonl", {"git": {"dirty": False}}, True),
        ("records.jsonl", {"git": {"dirty": True}}, False),
        ("a.json", {"git": {"dirty": False}, "goals": [{"run": {"git": {"dirty": True}}}, {}]}, False),
        ("a.json", {"git": None}, False),
        ("a.json", {}, False),
    ],
)
def test_a_result_tells_whether_its_sources_were_committed(
    tmp_path: Path, name: str, stored: dict[str, Any], committed: bool
) -> None:
    (tmp_path / name).write_text(json.dumps(stored))
    assert claims.was_committed(tmp_path / name) is committed
    (tmp_path / "summary.json").write_text(json.dumps({"git": {"dirty": committed}}))
    assert claims.was_committed(tmp_path / name) is not committed


def test_an_expression_has_to_use_a_stored_result(listed: ClaimsList) -> None:
    (claim,) = listed.stored
    constant = Claim(PAGE, claim.text, {**claim.figures, "2.5": "2.5"})
    (problems,) = check_page(PAGE, STORED, dataclasses.replace(listed, stored=(constant,)))
    assert problems == f'{PAGE}: "2.5" is not in "{claim.text}", or its expression uses no stored result'


def test_headings_and_examples_are_no_prose() -> None:
    text = "# 5 ms\n\n1. One\n   two\n    - three\n\n    code\n\n    more\n\n| a |\n| --- |\n| b |\n\n```\nc\n```\n"
    assert [(block.line, block.text) for block in blocks(text)] == [(3, "1. One two"), (5, "- three"), (13, "| b |")]

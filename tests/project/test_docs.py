"""The documentation: links and anchors exist, sources name pages that exist, and pages stay few, short and narrow."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unicodedata import category

import pytest

from tools.reference import NOTICE

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DECISIONS = DOCS / "decisions.md"
BY_HAND = sorted(path for path in DOCS.glob("*.md") if path != DECISIONS and NOTICE not in path.read_text("utf-8"))
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "results/README.md")]
PAGES = [*TOP, *sorted(DOCS.rglob("*.md"))]
MOST_PAGES, MOST_LINES, MOST_CHARACTERS = 20, 300, 120
MOST_DECISIONS, MOST_LINES_OF_DECISIONS = 60, 900
PARTS = ("- **Context.** ", "- **Decision.** ", "- *Alternatives weighed.*\n  - ")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(<?([^)>\s]+)>?\)")
MENTION = re.compile(r"(?<![\w/])docs/[\w/.-]*\w")
SOURCES = ("*.py", "*.toml", "*.cfg", "*.sh", "*.ipynb", "*.md", "*.sbatch", "*.qsub")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them: `-1`, `-2`, … tell equal headings apart."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.*?) *$", _prose(page), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = "".join(letter for letter in plain.lower() if letter in "- " or _of_a_word(letter)).replace(" ", "-")
        again = sum(one == anchor or re.fullmatch(rf"{re.escape(anchor)}-\d+", one) is not None for one in found)
        found.append(f"{anchor}-{again}" if again else anchor)
    return frozenset(found)


def _of_a_word(letter: str) -> bool:
    return category(letter)[0] in "LM" or category(letter) in ("Nd", "Pc")


def _prose(page: Path) -> str:
    """A page without its code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.M)


def links(page: Path) -> Iterator[str]:
    """What a page links to inside the repository."""
    text = re.sub(r"`[^`\n]*`", lambda code: "" if "[" in code[0] else code[0], _prose(page))
    yield from (target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_and_anchor_exists(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, new = set[Path](), [ROOT / "README.md"]
    while new:
        page = new.pop()
        if page in reached or page.suffix != ".md" or page == DECISIONS:
            continue
        reached.add(page)
        new += [(page.parent / target.partition("#")[0]).resolve() for target in links(page) if target[0] != "#"]
    assert set(PAGES) - reached <= {DECISIONS, ROOT / "results" / "README.md"}


def test_sources_name_pages_that_exist() -> None:
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *SOURCES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found = [
        (name, mention)
        for name in files
        if name != "CHANGELOG.md" and (ROOT / name).is_file()
        for mention in MENTION.findall((ROOT / name).read_text(encoding="utf-8"))
    ]
    assert len(found) > 30
    assert [(name, mention) for name, mention in found if not (ROOT / mention).exists()] == []


def test_pages_stay_few_and_short() -> None:
    assert len([*BY_HAND, DECISIONS]) <= MOST_PAGES
    lengths = {page.name: len(page.read_text(encoding="utf-8").splitlines()) for page in BY_HAND}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


@pytest.mark.parametrize("page", [*TOP, DECISIONS, *BY_HAND], ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_is_long_unless_it_is_one_address(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > MOST_CHARACTERS and " " in line.strip()] == []


def test_decisions_stay_few_and_have_alternatives() -> None:
    text = DECISIONS.read_text(encoding="utf-8")
    records = re.findall(r"^### (\d+)\. [^\n]+\n(.*?)(?=^##|\Z)", text, re.M | re.S)
    assert [int(number) for number, _ in records] == [*range(1, len(records) + 1)]
    assert len(records) <= MOST_DECISIONS
    assert len(text.splitlines()) <= MOST_LINES_OF_DECISIONS
    assert [number for number, record in records if any(record.count(part) != 1 for part in PARTS)] == []


def test_decisions_name_modules_that_exist() -> None:
    named = set(re.findall(r"`([\w/]+/[\w.]+\.py)`", DECISIONS.read_text(encoding="utf-8")))
    assert named
    assert {name for name in named if not any((top / name).exists() for top in (ROOT, ROOT / "merge_bench"))} == set()


def test_a_wrong_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`-c: d!\n\n# A b-c d\n\n[x](#a-b-c-d) `[y](no.md)` `z` [`z`](gone.md#w) [w](ftp://a)\n\n    [v](c.md)\n"
    )
    assert anchors(page) == {"a-b-c-d", "a-b-c-d-1"}
    assert list(links(page)) == ["#a-b-c-d", "gone.md#w"]

"""Figures in README and docs, and the stored results that they follow from: `claims.toml` has the list."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from tools.reference import NOTICE, measured

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("claims.toml")
DECISIONS = ROOT / "docs" / "decisions.md"
PAGES = [
    ROOT / "README.md",
    *sorted(
        path for path in (ROOT / "docs").glob("*.md") if path != DECISIONS and NOTICE not in path.read_text("utf-8")
    ),
]
NOT_STORED = "not stored"
"""Marks figures without a stored result: in their paragraph or item, or in the paragraph before their table."""
UNCOMMITTED = "uncommitted"
"""Stands on each page with figures of a result whose sources were not committed."""

_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBER = r"\d(?:[\d,]*\d)?(?:\.\d+)?(?:e\d+)?"
_WORD = "|".join(_WORDS[1:])
_UNIT = r"(?:ms|µs|ns|s|seconds?|minutes?|hours?|(?:[GMTk]i?)(?:B|bit)/s|×(?! \d)|%)(?![\w/])"
_SIZE = r"[GMTk]i?B\b"
_DECIMAL = r"\d[\d,]*\.\d+"
_LIST = rf"(?:from )?{_NUMBER}(?:(?:,? (?:to|and|or|instead of) |, |–){_NUMBER})*"
FIGURE = re.compile(
    rf"(?<![\w.,/×-])(?:{_LIST} ?{_UNIT}"
    rf"|{_LIST} times(?! (?:larger|smaller)\b)"
    rf"|(?:{_WORD}) times as |twice as "
    rf"|{_NUMBER} of (?:the )?(?:{_NUMBER})(?= |[.,:;)]|$)"
    rf"|(?<=\(){_NUMBER}(?: to |–){_NUMBER}"
    rf"|{_NUMBER} × \("
    rf"|{_DECIMAL}(?: to |–){_NUMBER}(?: {_SIZE})?|{_DECIMAL} {_SIZE})"
)
"""A number with a unit of time, rate, ratio or share, "n of m", an interval, or a decimal size in bytes."""
_CELL = re.compile(rf"(?:{_NUMBER}|{_UNIT}|times|of|to|at|each|blocks?|more|or|and|the|[-–(),;%×…*\s])*")
_ANY = re.compile(rf"(?<![\w.])(?:{_NUMBER})(?![\w])|\b(?:{_WORD}|twice)\b")
_ITEM = r"\s*(?:[-*]|\d+\.) |\|"
_MASKED = re.compile(r"`[^`]*`|\]\([^)]*\)|https?://\S+")


@dataclass(frozen=True)
class Block:
    """A paragraph, an item of a list or a row of a table, as one line.

    `line`: its number in the page, from 1; `stored`: whether it is free of the mark `NOT_STORED`, and so is the
    paragraph before, if this is an item or a row.
    """

    line: int
    text: str
    stored: bool

    def figures(self) -> Iterator[tuple[int, int]]:
        """Begin and end of each figure in `text`; code and addresses have none."""
        text = _MASKED.sub(lambda code: "_" * len(code[0]), self.text)
        yield from (match.span() for match in FIGURE.finditer(text))
        if self.text.startswith("|"):
            for cell in list(re.finditer(r"(?<=\| )[^|]+(?= \|)", text))[1:]:
                if re.search(r"\d", cell[0]) and _CELL.fullmatch(cell[0]):
                    yield cell.span()


def blocks(text: str) -> list[Block]:
    """The prose and the tables of a page: without examples (indented or fenced), headings, headings of tables, and what
    `tools.reference` writes between two comments.
    """
    parts: list[tuple[int, str]] = []
    code = fenced = generated = False
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        code = (code and not line.strip()) or (line.startswith("    ") and (code or not before.strip()))
        if line.startswith("<!--"):
            generated = "written by: python -m tools.reference" in line
        if fenced or code or generated or line.startswith(("```", "#", "<!--")) or not line.strip():
            parts.append((number, ""))
        elif re.match(_ITEM, line) or not parts or not parts[-1][1]:
            parts.append((number, line))
        else:
            parts[-1] = (parts[-1][0], f"{parts[-1][1]} {line}")
        before = line
    page_blocks: list[Block] = []
    paragraph_stored = True
    for (number, part), (_, following) in zip(parts, [*parts[1:], (0, "")], strict=True):
        line = re.sub(r"\s+", " ", part).strip()
        if not line:
            continue
        paragraph_stored = paragraph_stored if re.match(_ITEM, line) else NOT_STORED not in line
        if not any(re.match(r"\| ?:?--", row) for row in (line, following)):
            page_blocks.append(Block(number, line, paragraph_stored and NOT_STORED not in line))
    return page_blocks


class Record:
    """A dictionary or a list of a stored result: keys are attributes, and values select the items of a list.

    Iterating gives items, or the values of a dictionary.
    """

    def __init__(self, stored: Any) -> None:
        self._stored = stored

    def __getattr__(self, key: str) -> Any:
        return self[key]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(self._stored, list) and isinstance(key, (str, tuple)):
            values = [key] if isinstance(key, str) else key
            (item,) = (item for item in self._stored if all(value in item.values() for value in values))
            return as_record(item)
        return as_record(self._stored[key])

    def __iter__(self) -> Iterator[Any]:
        yield from map(as_record, self._stored.values() if isinstance(self._stored, dict) else self._stored)

    def __len__(self) -> int:
        return len(self._stored)


FUNCTIONS: Mapping[str, Any] = {
    "GiB": 2**30,
    **{each.__name__: each for each in (abs, float, len, max, median, min, sorted, sum)},
}
"""What expressions can use besides the names of files."""


def as_record(stored: Any) -> Any:
    """`stored`, or a `Record` of it if it is a dictionary or a list."""
    return Record(stored) if isinstance(stored, (dict, list)) else stored


@cache
def read_result(path: Path) -> Any:
    """A stored result: a JSON or TOML document, or the lines of a `.jsonl` file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".toml":
        return tomllib.loads(text)
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def was_committed(path: Path) -> bool:
    """Whether the sources that measured this result were; a part of a result counts as `summary.json` beside it.

    A result that does not say so counts as one of sources that were not.
    """
    whole = path.with_name("summary.json")
    stored = read_result(whole if whole.exists() else path)
    head = stored[0] if isinstance(stored, list) else stored
    if path.suffix == ".toml":
        return re.fullmatch(r"[0-9a-f]{7,40}", head.get("commit", "")) is not None
    runs = [head, *(goal["run"] for goal in head.get("goals", []) if "run" in goal)]
    return all((run.get("git") or {"dirty": True})["dirty"] is False for run in runs)


@dataclass(frozen=True)
class Claim:
    """Words of a page whose figures follow from stored results.

    `figures`: for each number, as the page has it, an expression; see `claims.toml`.
    """

    page: str
    text: str
    figures: Mapping[str, str]


@dataclass(frozen=True)
class ClaimsList:
    """`claims.toml`.

    `files`: stored results by the names that expressions use; `settings`, `examples`: for each page, words whose
    figures were not measured, and words that explain an example's output.
    """

    files: Mapping[str, Path]
    stored: tuple[Claim, ...]
    settings: Mapping[str, tuple[str, ...]]
    examples: Mapping[str, tuple[str, ...]]

    def without_result(self, page: str) -> tuple[str, ...]:
        """Words of a page whose figures need no stored result."""
        return (*self.settings.get(page, ()), *self.examples.get(page, ()))

    def names_in(self, expression: str) -> set[str]:
        """The names of the files that an expression uses."""
        return {name for name in re.findall(r"(?<![\w.\"'])[a-z]\w*", expression) if name in self.files}

    def value_of(self, expression: str) -> float:
        """What an expression gives today."""
        files = {name: as_record(read_result(self.files[name])) for name in self.names_in(expression)}
        return float(eval(expression, {"__builtins__": {}, **FUNCTIONS, **files}))


@cache
def read_list(path: Path = LIST) -> ClaimsList:
    """Read `claims.toml`."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    return ClaimsList(
        {name: ROOT / file for name, file in tables["files"].items()},
        tuple(Claim(**claim) for claim in tables["stored"]),
        *({page: tuple(words) for page, words in tables[kind].items()} for kind in ("settings", "examples")),
    )


def number_shown(number: str) -> tuple[float, float]:
    """A number as a page has it, and half of the last digit that it shows."""
    if number == "twice" or number in _WORDS:
        return (2 if number == "twice" else _WORDS.index(number) + 1), 0.5
    digits = number.replace(",", "")
    return float(digits), 0.5 * 10.0 ** -len(digits.partition(".")[2])


def check_page(page: str, text: str, listed: ClaimsList) -> list[str]:
    """A sentence for each figure of a page that is wrong or has no source, and for each claim that is not there."""
    problems: list[str] = []
    claims = [claim for claim in listed.stored if claim.page == page]
    unused = {*(claim.text for claim in claims), *listed.without_result(page)}
    for block in blocks(text):
        others = [(span, words) for words in listed.without_result(page) for span in _spans(words, block.text)]
        stored = [(span, claim) for claim in claims for span in _spans(claim.text, block.text)]
        unused -= {claim.text for _, claim in stored}
        for begin, end in block.figures() if block.stored else ():
            around = [claim for (first, last), claim in stored if first <= begin and end <= last]
            named = {words for (first, last), words in others if first <= begin and end <= last}
            unused -= named
            numbers = {number for claim in around for number in claim.figures}
            if not named and not numbers.issuperset(_ANY.findall(block.text[begin:end])):
                problems.append(
                    f'{page}:{block.line}: "{block.text[begin:end]}" in "{block.text[:60]}…" follows from no stored'
                    ' result: list it in tests/project/claims.toml, or write "not stored" in its paragraph'
                )
    problems += [f"{page}: {words}" for claim in claims for words in check_claim(claim, listed)]
    files = {name for claim in claims for expression in claim.figures.values() for name in listed.names_in(expression)}
    uncommitted = sorted(name for name in files if not was_committed(listed.files[name]))
    if uncommitted and UNCOMMITTED not in text:
        problems.append(f'{page}: does not say that results are of "{UNCOMMITTED}" changes: {", ".join(uncommitted)}')
    return problems + [f'{page}: claims.toml lists "{words}", and no such figure is there' for words in sorted(unused)]


def _spans(words: str, text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(re.escape(words), text)]


def check_claim(claim: Claim, listed: ClaimsList) -> Iterator[str]:
    """A sentence for each figure that differs from its stored result, or has none."""
    for number, expression in claim.figures.items():
        if number not in _ANY.findall(claim.text) or not listed.names_in(expression):
            yield f'"{number}" is not in "{claim.text}", or its expression uses no stored result'
            continue
        value, (shown, half) = listed.value_of(expression), number_shown(number)
        if abs(value - shown) > half * (1 + 1e-9):
            yield f'"{number}" in "{claim.text}" is {value:.6g} in the stored result: {" ".join(expression.split())}'


def pages() -> dict[str, str]:
    """The pages that are written by hand, and the tables of `results/curated/` on the page of measurements."""
    tables = (part for table in measured.stored_tables() for part in measured.section(table))
    by_hand = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}
    return {**by_hand, "docs/measurements.md": "\n\n".join(tables)}

"""How each number is defined, for reports that have room to say so; the words are in `definitions.toml`."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Definition:
    """A term, what it means, and the further headings of columns and rows that it explains."""

    term: str
    text: str
    headings: tuple[str, ...]


@cache
def definitions() -> tuple[Definition, ...]:
    """All of them, in the order in which they are read."""
    text = (resources.files("merge_bench.report") / "definitions.toml").read_text(encoding="utf-8")
    return tuple(
        Definition(one["term"], one["text"], tuple(one.get("headings", ())))
        for one in tomllib.loads(text)["definition"]
    )


def find(heading: str) -> int | None:
    """Which of `definitions` explains the heading of a column or of a row, its unit aside."""
    return _by_heading().get(_key(heading))


@cache
def _by_heading() -> dict[str, int]:
    return {_key(name): at for at, one in enumerate(definitions()) for name in (one.term, *one.headings)}


def _key(heading: str) -> str:
    """Without case, line ends and the unit: ``Peak above\\nimports (GiB)`` → ``peak above imports``."""
    return re.sub(r"\s*\((?:%|×|[KMG]?i?B(?:/s)?|[nµm]?s)\)$", "", " ".join(heading.split())).casefold()

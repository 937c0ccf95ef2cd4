"""How each number is defined, for reports that have room to say so; the words are in `definitions.toml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

import msgspec

_UNIT = re.compile(r"\s*\((?:%|×|[KMG]?i?B(?:/s)?|[nµm]?s)\)$")


@dataclass(frozen=True)
class Definition:
    """A term and its meaning; `headings`: further headings of columns and rows that it explains.

    `unit`: its unit in the records; `group`: its heading in docs/reference/definitions.md; `in_reports`: whether
    reports list it.
    """

    term: str
    text: str
    group: str
    headings: tuple[str, ...] = ()
    unit: str = ""
    in_reports: bool = True


@cache
def definitions() -> tuple[Definition, ...]:
    """The definitions that reports list, in the order in which they are read."""
    return tuple(one for one in all_definitions() if one.in_reports)


@cache
def all_definitions() -> tuple[Definition, ...]:
    """All definitions of `definitions.toml`."""
    text = (resources.files("merge_bench.view") / "definitions.toml").read_text(encoding="utf-8")
    return msgspec.toml.decode(text, type=dict[str, tuple[Definition, ...]])["definition"]


def find_definition(heading: str) -> int | None:
    """The index, in `definitions`, of the one that explains the heading of a column or row; None if none does."""
    title = " ".join(heading.split())
    return _by_heading().get(title, _by_heading().get(_UNIT.sub("", title)))


@cache
def _by_heading() -> dict[str, int]:
    return {name: at for at, one in enumerate(definitions()) for name in (one.term, *one.headings)}

"""How every number is defined, and every term of the project, from `definitions.toml`."""

from __future__ import annotations

from merge_bench.view.text import load_definitions
from tools.reference import page, table

_INTRO = """\
How each number is computed, and what the project's terms mean. Reports show those that their tables need. *Unit* is
that of the records; reports show GiB/s, ms and GiB, with the unit in each heading."""


def text() -> str:
    """The page."""
    terms = load_definitions()
    parts = [_INTRO]
    for group in dict.fromkeys(one.group for one in terms):
        rows = ([one.term, one.unit, one.text] for one in terms if one.group == group)
        parts += [f"## {group}", table(["term", "unit", "means"], rows)]
    return page("Definitions", *parts)

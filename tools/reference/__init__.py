"""The generated pages: of options, structures of records and documents, configs, definitions, and what was measured.

`python -m tools.reference` writes them and the JSON Schemas; `test_reference` fails when they are stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "reference"
NOTICE = "<!-- Generated. To change it, change its source and run: python -m tools.reference -->"


def page(title: str, *parts: str) -> str:
    """The text of a page."""
    return "\n\n".join((f"# {title}", NOTICE, *parts)) + "\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown. Bars inside cells are escaped, and line ends become spaces."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in cells)} |" for cells in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")

"""Tables of any length as a page shows them: in view, scrolling, folded, or thinned."""

from __future__ import annotations

from dataclasses import dataclass

from merge_bench.view.numbers import thin
from merge_bench.view.report.blocks import Table
from merge_bench.view.report.definitions import find
from merge_bench.view.text import cut

LONG = 24
"""Rows in view; more of them scroll..."""
FOLDED = 200
"""...and more than these are folded."""
MOST = 2000
"""Rows in the report at all."""


@dataclass(frozen=True)
class Head:
    """A column's heading and its unit; `definition`: which of `definitions` explains it."""

    text: str
    unit: str
    is_text: bool
    definition: int | None


@dataclass(frozen=True)
class View:
    """A table as it is shown; `folded`: what stands on it while it is closed; `note`: what was left out."""

    heads: tuple[Head, ...]
    rows: tuple[tuple[str, ...], ...]
    mark: str | None
    scrolls: bool
    folded: str | None
    note: str | None


def view(table: Table) -> View:
    """How `table` is shown."""
    rows = table.rows
    kept = thin(len(rows), MOST)
    note = f"{len(kept)} of {len(rows)} rows, evenly chosen; all are in the records." if len(kept) < len(rows) else None
    return View(
        heads=tuple(_head(column.heading, column.text) for column in table.columns),
        rows=tuple(tuple(cut(cell) for cell in rows[at]) for at in kept),
        mark=table.mark,
        scrolls=LONG < len(kept) <= FOLDED,
        folded=f"{len(kept):,} rows" if len(kept) > FOLDED else None,
        note=note,
    )


def _head(heading: str, is_text: bool) -> Head:
    text = " ".join(heading.split())
    name, bracket, unit = text.rpartition(" (")
    if not bracket or not unit.endswith(")"):
        name, unit = text, ""
    return Head(name, unit.removesuffix(")"), is_text, find(text))

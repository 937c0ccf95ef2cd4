"""Tables of any length as a page shows them: in view, scrolling, folded, or thinned."""

from __future__ import annotations

from dataclasses import dataclass

from merge_bench.view.numbers import thin
from merge_bench.view.report.blocks import Table
from merge_bench.view.text import cut

LONG = 24
"""Rows in view; more of them scroll..."""
FOLDED = 200
"""...and more than these are folded."""
MOST = 2000
"""Rows in the report at all."""


@dataclass(frozen=True)
class View:
    """A table's rows as they are shown; `folded`: what stands on them while closed; `note`: what was left out."""

    rows: tuple[tuple[str, ...], ...]
    scrolls: bool
    folded: str | None
    note: str | None


def view(table: Table) -> View:
    """How `table` is shown."""
    rows = table.rows
    kept = thin(len(rows), MOST)
    note = f"{len(kept)} of {len(rows)} rows, evenly chosen; all are in the records." if len(kept) < len(rows) else None
    return View(
        rows=tuple(tuple(cut(cell) for cell in rows[at]) for at in kept),
        scrolls=LONG < len(kept) <= FOLDED,
        folded=f"{len(kept):,} rows" if len(kept) > FOLDED else None,
        note=note,
    )


def name_and_unit(heading: str) -> tuple[str, str]:
    """What a column's heading names, and the unit that it ends with, if any."""
    text = " ".join(heading.split())
    name, bracket, unit = text.rpartition(" (")
    return (name, unit.removesuffix(")")) if bracket and unit.endswith(")") else (text, "")

"""Tables and text as GitHub-flavoured Markdown. What comes from records is data, never markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from merge_bench.view.report.layout import Column


def escaped(text: str) -> str:
    """`text` as Markdown shows it: what a config or a path holds is no markup."""
    clean = "".join(letter if letter.isprintable() else " " for letter in text)
    return re.sub(r"([\\`*_|<>\[\]#~&])", r"\\\1", " ".join(clean.split()))


def code(text: str) -> str:
    """`text` on a line, as code."""
    return f"`{' '.join(text.replace('`', '').split())}`"


def fenced(text: str) -> Iterator[str]:
    """Lines as code, in a fence that they do not hold."""
    lines = ["".join(x if x.isprintable() else "\ufffd" for x in line) for line in text.split("\n")]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence, *lines, fence)


def table(
    columns: Sequence[Column], drawn: Column | None = None, mark: str = "", *, markup: bool = False
) -> Iterator[str]:
    """A table without its empty columns; `drawn` has cells that are Markdown already, `mark` ends every row.

    `markup`: the cells of all columns are Markdown already.
    """
    shown = [column for column in columns if any(column.cells)]
    cells = [[cell.replace("|", "\\|") if markup else escaped(cell) for cell in column.cells] for column in shown]
    if drawn is not None:
        shown, cells = [*shown, drawn], [*cells, [cell.replace("|", "\\|") for cell in drawn.cells]]
    if mark:
        shown, cells = [*shown, Column("", [mark], text=True)], [*cells, [f"**{mark}**"] * len(cells[0])]
    yield f"| {' | '.join(escaped(column.heading) for column in shown)} |"
    yield f"| {' | '.join('---' if column.text else '---:' for column in shown)} |"
    for row in zip(*cells, strict=True):
        yield f"| {' | '.join(row)} |"

"""A comparison as GitHub-flavoured Markdown, for a comment or a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from merge_bench.proof import UNVERIFIED
from merge_bench.report import comparison as parts
from merge_bench.report.layout import Column


def markdown(document: parts.Document, *, metric: str) -> str:
    """The document of ``compare``; `metric` is what the sentences are about."""
    lines = [f"* {name} {_code(path)}" for name, path in parts.lettered(document)]
    for comparisons in parts.by_pair(document):
        chosen = parts.about(comparisons, metric)
        lines += ["", f"### {_escaped(parts.title(chosen))}", "", f"**{_escaped(parts.sentence(chosen))}**", ""]
        if any(each["ratio"] is not None for each in comparisons):
            strips = parts.strip_column(comparisons)
            drawn = Column(strips.heading, [_code(each) if each else "" for each in strips.cells], text=True)
            lines += _table(parts.metric_columns(comparisons), drawn, "" if chosen["verified"] else UNVERIFIED)
        if found := parts.of_pair(document, chosen):
            lines += ["", *_table(parts.difference_columns(found))]
    if document["notes"]:
        lines += ["", "Notes:", "", *(f"* {_escaped(note)}" for note in document["notes"])]
    return "\n".join(lines)


def _table(columns: Sequence[Column], drawn: Column | None = None, mark: str = "") -> Iterator[str]:
    """A table; `drawn` has cells that are Markdown already, `mark` stands at the end of every row."""
    shown = [column for column in columns if any(column.cells)]
    cells = [[_escaped(cell) for cell in column.cells] for column in shown]
    if drawn is not None:
        shown, cells = [*shown, drawn], [*cells, [cell.replace("|", "\\|") for cell in drawn.cells]]
    if mark:
        shown, cells = [*shown, Column("", [mark], text=True)], [*cells, [f"**{mark}**"] * len(cells[0])]
    yield f"| {' | '.join(_escaped(column.heading) for column in shown)} |"
    yield f"| {' | '.join('---' if column.text else '---:' for column in shown)} |"
    for row in zip(*cells, strict=True):
        yield f"| {' | '.join(row)} |"


def _escaped(text: str) -> str:
    """`text` as Markdown shows it: what a config or a path holds is no markup."""
    return re.sub(r"([\\`*_|<>\[\]#~])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    return f"`{text.replace('`', '')}`"

"""The report as one GitHub-flavoured Markdown text, with links to its pictures where they were drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from merge_bench.view.numbers import thin
from merge_bench.view.report import markdown as md
from merge_bench.view.report.blocks import Block, Code, Drawing, Heading, Line, NamedValues, Table
from merge_bench.view.report.definitions import definitions
from merge_bench.view.report.full.build import Report
from merge_bench.view.report.full.tables import FOLDED
from merge_bench.view.report.layout import Column
from merge_bench.view.text import cut

_MOST = 400
"""Rows of a table."""


def render(report: Report, pictures: Mapping[int, str]) -> str:
    """The text; `pictures`: the path of a drawing's picture by its number among the drawings, from 1."""
    loud = report.alarm or bool(report.verified)
    lines = [
        f"# {md.escaped(report.title)}",
        "",
        md.escaped(report.about),
        "",
        f"{'> **' if loud else '> '}{md.escaped(report.state)}",
    ]
    lines[-1] += "**" * loud
    lines += ["", md.escaped(report.verified)] if report.verified else []
    drawings = 0
    for section in report.sections:
        lines += ["", f"## {md.escaped(section.title)}"]
        for block in section.blocks:
            drawings += isinstance(block, Drawing)
            lines += ["", *_block(block, pictures.get(drawings))]
    lines += ["", "## Definitions", ""]
    lines += [f"* **{md.escaped(one.term)}**: {md.escaped(one.text)}" for one in definitions()]
    return "\n".join(lines) + "\n"


def _block(block: Block, picture: str | None) -> Iterator[str]:
    match block:
        case Heading(text):
            yield f"### {md.escaped(text)}"
        case Line(text, style):
            strong = "**" if "bold" in style else ""
            yield f"{strong}{md.escaped(cut(text, 4000))}{strong}"
        case NamedValues(rows, mark):
            for name, value in rows:
                marked = f" **{mark}**" if mark and name.endswith(")") else ""
                yield f"* {md.escaped(name)}: {md.escaped(cut(value, 2000))}{marked}"
        case Code(text):
            yield from md.fenced(text)
        case Table():
            yield from _table(block)
        case Drawing(chart) if picture:
            yield f"![{md.escaped(chart.title)}](<{picture}>)"
            yield ""
            yield f"*{md.escaped(chart.note)}*"


def _table(table: Table) -> Iterator[str]:
    """A long one is folded, a very long one thinned."""
    count = len(table.rows)
    kept = thin(count, _MOST)
    columns = [Column(c.heading, [cut(c.cells[at]) for at in kept], c.text) for c in table.columns]
    if count > FOLDED:
        yield f"<details><summary>{count:,} rows</summary>"
        yield ""
    yield from md.table(columns, mark=table.mark or "")
    if len(kept) < count:
        yield ""
        yield f"{len(kept)} of {count} rows, evenly chosen; all are in the records."
    if count > FOLDED:
        yield ""
        yield "</details>"

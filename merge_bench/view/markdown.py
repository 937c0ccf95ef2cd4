"""Renders pages as GitHub-flavoured Markdown. What comes from records is data, never markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from merge_bench.view.content import (
    FOLDED,
    Block,
    Code,
    Column,
    Drawing,
    Heading,
    Line,
    NamedValues,
    NextCommand,
    Report,
    Table,
)
from merge_bench.view.text import cut, definitions, thin

_MOST_ROWS = 400
"""Rows of a table at most; of more, some are left out."""


def render_report(report: Report, pictures: Mapping[int, str]) -> str:
    """A report as Markdown; `pictures`: the path of a drawing's picture by the drawing's number, from 1."""
    strong = "**" if report.alarm or report.verified else ""
    lines = [f"# {escaped(report.title)}", "", escaped(report.about), ""]
    lines += [f"> {strong}{escaped(report.state)}{strong}"]
    lines += ["", escaped(report.verified)] if report.verified else []
    drawings = 0
    for section in report.sections:
        lines += ["", f"## {escaped(section.title)}"]
        for block in section.blocks:
            drawings += isinstance(block, Drawing)
            lines += ["", *_block_lines(block, pictures.get(drawings))]
    lines += ["", "## Definitions", ""]
    lines += [f"* **{escaped(one.term)}**: {escaped(one.text)}" for one in definitions()]
    return "\n".join(lines) + "\n"


def render(blocks: Sequence[Block]) -> str:
    return "\n\n".join("\n".join(_block_lines(block, None)) for block in blocks)


def escaped(text: str) -> str:
    clean = "".join(letter if letter.isprintable() else " " for letter in text)
    return re.sub(r"([\\`*_|<>\[\]#~&])", r"\\\1", " ".join(clean.split()))


def table(columns: Sequence[Column], mark: str = "", *, markup: bool = False) -> Iterator[str]:
    """The lines of a table without empty columns; `mark` ends rows; `markup`: whether cells are Markdown already."""

    def in_markup(text: str, *, code: bool) -> str:
        if code and text:
            return f"`{' '.join(text.replace('`', '').split())}`".replace("|", "\\|")
        return text.replace("|", "\\|") if markup else escaped(text)

    shown = [column for column in columns if any(column.cells)]
    cells = [[in_markup(cell, code=column.code) for cell in column.cells] for column in shown]
    if mark:
        shown, cells = [*shown, Column("", [mark], text=True)], [*cells, [f"**{mark}**"] * len(cells[0])]
    yield f"| {' | '.join(escaped(column.heading) for column in shown)} |"
    yield f"| {' | '.join('---' if column.text else '---:' for column in shown)} |"
    for row in zip(*cells, strict=True):
        yield f"| {' | '.join(row)} |"


def _block_lines(block: Block, picture: str | None) -> Iterator[str]:
    """The lines of one block as Markdown; `picture`: the path of its picture, if it is a drawing."""
    match block:
        case Heading(text):
            yield f"### {escaped(text)}"
        case Line(text, style):
            strong = "**" if "bold" in style else ""
            yield f"{strong}{escaped(cut(text, 4000))}{strong}"
        case NamedValues():
            for name, value, mark in block.marked:
                yield f"* {escaped(name)}: {escaped(cut(value, 2000))}" + (f" **{mark}**" if mark else "")
        case Code(text):
            yield from _fenced_code(text)
        case NextCommand(command, does):
            yield from ("### Next", "", f"This command {escaped(does)}:", "", *_fenced_code(command))
        case Table():
            yield from _folding_table(block)
        case Drawing(chart) if picture:
            yield from (f"![{escaped(chart.title)}](<{picture}>)", "", f"*{escaped(chart.note)}*")


def _fenced_code(text: str) -> Iterator[str]:
    """The lines of a code block, with a fence longer than any that `text` contains."""
    lines = ["".join(x if x.isprintable() else "\ufffd" for x in line) for line in text.split("\n")]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence, *lines, fence)


def _folding_table(block: Table) -> Iterator[str]:
    """The lines of a table; a long one is folded, and a very long one lacks some rows, too."""
    count = len(block.rows)
    kept = thin(count, _MOST_ROWS)
    columns = [replace(column, cells=[cut(column.cells[at]) for at in kept]) for column in block.columns]
    yield from (f"<details><summary>{count:,} rows</summary>", "") if count > FOLDED else ()
    yield from table(columns, mark=block.mark or "")
    if len(kept) < count:
        yield from ("", f"{len(kept)} of {count} rows, evenly chosen; all are in the records.")
    yield from ("", "</details>") if count > FOLDED else ()

"""Renders pages as GitHub-flavoured Markdown. What comes from records is data, never markup."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from merge_bench.view.content import (
    FOLDED,
    Block,
    ChartBlock,
    CodeBlock,
    Column,
    Heading,
    NamedValues,
    NextCommandBlock,
    Paragraph,
    ReportContent,
    Table,
)
from merge_bench.view.text import evenly_spread_indexes, report_definitions, truncate

_MOST_ROWS = 400
"""Rows of a table at most; of more, some are left out."""


def render_report(report: ReportContent, picture_paths: Mapping[int, str]) -> str:
    """Render a report as Markdown; `picture_paths`: the path of each chart's picture, by the chart's number from 1."""
    strong = "**" if report.alarm or report.verified else ""
    lines = [f"# {escape_markdown(report.title)}", "", escape_markdown(report.about), ""]
    lines += [f"> {strong}{escape_markdown(report.state)}{strong}"]
    lines += ["", escape_markdown(report.verified)] if report.verified else []
    drawings = 0
    for section in report.sections:
        lines += ["", f"## {escape_markdown(section.title)}"]
        for block in section.blocks:
            drawings += isinstance(block, ChartBlock)
            lines += ["", *_markdown_block_lines(block, picture_paths.get(drawings))]
    lines += ["", "## Definitions", ""]
    listed = [one for one in report_definitions() if not (report.of_commands and one.of_merges)]
    lines += [f"* **{escape_markdown(one.term)}**: {escape_markdown(one.text)}" for one in listed]
    return "\n".join(lines) + "\n"


def render_blocks(blocks: Sequence[Block]) -> str:
    """Render the blocks of a page as Markdown, without drawings."""
    return "\n\n".join("\n".join(_markdown_block_lines(block, None)) for block in blocks)


def escape_markdown(text: str) -> str:
    """Escape the marks of Markdown in a text, and put it on one line."""
    clean = "".join(letter if letter.isprintable() else " " for letter in text)
    return re.sub(r"([\\`*_|<>\[\]#~&])", r"\\\1", " ".join(clean.split()))


def markdown_table_lines(columns: Sequence[Column], row_mark: str = "", *, are_markdown: bool = False) -> Iterator[str]:
    """The lines of a Markdown table without empty columns; `row_mark`: a word that ends every row.

    `are_markdown`: whether cells are Markdown already.
    """

    def markdown_cell_text(text: str, *, code: bool) -> str:
        if code and text:
            return f"`{' '.join(text.replace('`', '').split())}`".replace("|", "\\|")
        return text.replace("|", "\\|") if are_markdown else escape_markdown(text)

    shown = [column for column in columns if any(column.cells)]
    cells = [[markdown_cell_text(cell, code=column.code) for cell in column.cells] for column in shown]
    if row_mark:
        shown, cells = [*shown, Column("", [row_mark], text=True)], [*cells, [f"**{row_mark}**"] * len(cells[0])]
    yield f"| {' | '.join(escape_markdown(column.heading) for column in shown)} |"
    yield f"| {' | '.join('---' if column.text else '---:' for column in shown)} |"
    for row in zip(*cells, strict=True):
        yield f"| {' | '.join(row)} |"


def _markdown_block_lines(block: Block, picture_path: str | None) -> Iterator[str]:
    """The Markdown lines of one block of a page; `picture_path`: the path of a chart's picture."""
    match block:
        case Heading(text):
            yield f"### {escape_markdown(text)}"
        case Paragraph(text, style):
            strong = "**" if "bold" in style else ""
            yield f"{strong}{escape_markdown(truncate(text, 4000))}{strong}"
        case NamedValues():
            for name, value, mark in block.names_values_and_marks:
                yield f"* {escape_markdown(name)}: {escape_markdown(truncate(value, 2000))}" + (
                    f" **{mark}**" if mark else ""
                )
        case CodeBlock(text):
            yield from _fenced_code_lines(text)
        case NextCommandBlock(command, does):
            yield from ("### Next", "", f"This command {escape_markdown(does)}:", "", *_fenced_code_lines(command))
        case Table():
            yield from _collapsible_table_lines(block)
        case ChartBlock(chart) if picture_path:
            yield from (f"![{escape_markdown(chart.title)}](<{picture_path}>)", "", f"*{escape_markdown(chart.note)}*")


def _fenced_code_lines(text: str) -> Iterator[str]:
    """The lines of a Markdown code block, with a fence longer than any that `text` contains."""
    lines = ["".join(x if x.isprintable() else "\ufffd" for x in line) for line in text.split("\n")]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence, *lines, fence)


def _collapsible_table_lines(table: Table) -> Iterator[str]:
    """The Markdown lines of a table; a long one is collapsed, and a very long one lacks some rows, too."""
    count = len(table.rows)
    kept = evenly_spread_indexes(count, _MOST_ROWS)
    columns = [replace(column, cells=[truncate(column.cells[at]) for at in kept]) for column in table.columns]
    yield from (f"<details><summary>{count:,} rows</summary>", "") if count > FOLDED else ()
    yield from markdown_table_lines(columns, row_mark=table.row_mark or "")
    if len(kept) < count:
        yield from ("", f"{len(kept)} of {count} rows, evenly chosen; all are in the records.")
    yield from ("", "</details>") if count > FOLDED else ()

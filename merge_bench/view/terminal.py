"""Renders a page for a terminal and for a pipe.

In a pipe there is no colour, no line drawing and no wrapping, so that a line is a row and tools can read it.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from merge_bench.errors import PLAIN, mark_unprintable, wrap_text
from merge_bench.view.content import (
    Block,
    CodeBlock,
    Column,
    Heading,
    NamedValues,
    NextCommandBlock,
    PageBuilder,
    Paragraph,
    Table,
)
from merge_bench.view.streams import unescaped_stream

_UNWRAPPED_COLUMNS = 100_000
"""The width of a page whose lines are never wrapped."""


@contextlib.contextmanager
def print_page_at_exit(file: TextIO | None = None, width: int | None = None) -> Iterator[PageBuilder]:
    """Yield an empty page, and print it on `file` (standard output) when the ``with`` block ends.

    The page has lines and colours if `file` is a terminal that knows Unicode; otherwise it is plain, without spaces at
    the ends of lines. `width`: columns of the terminal; by default as many as it has.
    """
    stream = file or sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    terminal = Console(file=unescaped_stream(stream), width=width, markup=False, highlight=False, emoji=False)
    if terminal.is_terminal and encoding.lower().startswith("utf"):
        yield (page := PageBuilder(plain=False))
        for block in page.blocks:
            _print_block(block, terminal, plain=False)
    else:
        yield (page := PageBuilder())
        buffer = io.StringIO()
        console = Console(file=buffer, width=_UNWRAPPED_COLUMNS, color_system=None, markup=False, highlight=False)
        for block in page.blocks:
            _print_block(block, console, plain=True)
        text = "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())
        stream.write(text.encode(encoding, PLAIN).decode(encoding))
    stream.flush()


def height_in_lines(blocks: Sequence[Block], width: int) -> int:
    """The number of lines that `blocks` take on a terminal with `width` columns of characters."""
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        for block in blocks:
            _print_block(block, console, plain=False)
    return sum(max(-(-cell_len(line) // width), 1) for line in capture.get().splitlines())


def _print_block(block: Block, console: Console, *, plain: bool) -> None:
    """Print one block of a page; drawings are left out."""
    match block:
        case Heading(text):
            console.print()
            console.print(Text(mark_unprintable(text, "\n"), style="bold cyan"))
        case Paragraph(text, style, unbroken=True):
            console.print(Text(mark_unprintable(text, "\n"), style=style), soft_wrap=True)
        case Paragraph(text, style, indent):  # a command, and an option with its value, stay on one line
            text, room = mark_unprintable(text, "\n"), console.width - indent
            words = Text(text if len(text) <= room else wrap_text(text, room), style=style)
            console.print(Padding(words, (0, 0, 0, indent)) if indent else words)
        case NamedValues():
            grid = RichTable.grid(padding=(0, 3, 0, 0))
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, value, mark in block.names_values_and_marks:
                grid.add_row(
                    Text(mark_unprintable(name, "\n")),
                    Text(mark_unprintable(f"{value}  {mark}" if mark else value, "\n")),
                )
            console.print(grid)
        case Table():
            for at, columns in enumerate(_split_columns_to_fit(block, console, plain=plain)):
                if at:
                    console.print()
                _print_table(columns, block.row_mark, console, plain=plain)
        case CodeBlock(text):
            console.print(Text(mark_unprintable(text, "\n")), soft_wrap=True)
        case NextCommandBlock(command, does):
            _print_block(Paragraph(f"Next: {command}", "bold", unbroken=True), console, plain=plain)
            _print_block(Paragraph(f"      ({does})", "dim"), console, plain=plain)


def _split_columns_to_fit(table: Table, console: Console, *, plain: bool) -> list[list[Column]]:
    """Split a wide table into tables that fit: each has the first group of columns, and as many others as fit."""
    first, *others = table.groups
    tables = [list(first)]
    for group in others:
        if _make_rich_table([*tables[-1], *group], table.row_mark, console, plain=plain)[1].maximum <= console.width:
            tables[-1] += group
            continue
        if len(tables[-1]) > len(first):
            tables.append(list(first))
        for column in group:
            size = _make_rich_table([*tables[-1], column], table.row_mark, console, plain=plain)[1]
            if len(tables[-1]) > len(first) and size.minimum > console.width:
                tables.append(list(first))
            tables[-1].append(column)
    return tables


def _print_table(columns: Sequence[Column], row_mark: str | None, console: Console, *, plain: bool) -> None:
    """Print one table; columns are narrowed so that words stay whole, if the longest of each column fit."""
    drawn, size = _make_rich_table(columns, row_mark, console, plain=plain)
    if not plain and size.minimum <= console.width < size.maximum:
        for column, width in zip(
            drawn.columns, _choose_column_widths(columns, console.width - size.maximum), strict=False
        ):
            column.width = width
    console.print(drawn)


class _TopAlignedText(Text):
    """The text of a table cell, at the top of its row, where other cells may take several lines."""

    vertical = "top"


def _make_rich_table(
    columns: Sequence[Column], row_mark: str | None, console: Console, *, plain: bool
) -> tuple[RichTable, Measurement]:
    """Make a table of rich; returns it, and its least width (with whole words) and greatest width (whole cells)."""
    table = RichTable(
        box=None if plain else box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 2 if plain else 1, 0, 0),
        header_style="bold",
    )
    for column in columns:
        heading = Text(mark_unprintable(column.heading.replace("\n", " ") if plain else column.heading, "\n"))
        table.add_column(heading, justify="left" if column.text else "right", overflow="fold", vertical="bottom")
    if row_mark:
        table.add_column(Text(""), style="bold yellow", no_wrap=True)
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(
            *(_TopAlignedText(mark_unprintable(cell, "\n")) for cell in row), *([row_mark] if row_mark else [])
        )
    return table, Measurement.get(console, console.options.update_width(_UNWRAPPED_COLUMNS), table)


def _choose_column_widths(columns: Sequence[Column], spare_width: int) -> list[int]:
    """Choose the width of each column so that its longest word fits; wide columns are narrowed most.

    `spare_width`: the screen's width minus what all cells need; it is negative.
    """
    texts = [[*column.heading.split("\n"), *column.cells] for column in columns]
    least = [max(cell_len(word) for text in lines for word in (text.split() or [""])) for lines in texts]
    widths = [max(cell_len(line) for text in lines for line in (text.splitlines() or [""])) for lines in texts]
    while spare_width < 0:
        at = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
        if widths[at] <= least[at]:
            break
        widths[at] -= 1
        spare_width += 1
    return widths

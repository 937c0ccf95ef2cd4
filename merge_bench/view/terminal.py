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

from merge_bench.errors import PLAIN, visible, wrapped
from merge_bench.view.content import Block, Code, Column, Heading, Line, NamedValues, NextCommand, Page, Table
from merge_bench.view.streams import raw

_UNWRAPPED = 100_000
"""Columns of a page whose lines are never wrapped."""


@contextlib.contextmanager
def page_on(file: TextIO | None, width: int | None = None) -> Iterator[Page]:
    """A page that is printed on `file` (standard output) when the block ends.

    It is drawn if that is a terminal which knows Unicode, plain otherwise, without spaces at the ends of lines.
    `width`: of a terminal, asked from it if not given.
    """
    stream = file or sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    terminal = Console(file=raw(stream), width=width, markup=False, highlight=False, emoji=False)
    if terminal.is_terminal and encoding.lower().startswith("utf"):
        yield (page := Page(plain=False))
        render(page, terminal)
    else:
        yield (page := Page())
        buffer = io.StringIO()
        render(page, Console(file=buffer, width=_UNWRAPPED, color_system=None, markup=False, highlight=False))
        text = "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())
        stream.write(text.encode(encoding, PLAIN).decode(encoding))
    stream.flush()


def render(page: Page, console: Console) -> None:
    """Print every block of `page`."""
    for block in page.blocks:
        _print(block, console, plain=page.plain)


def height(blocks: Sequence[Block], width: int) -> int:
    """How many lines of a terminal of `width` columns they take."""
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        for block in blocks:
            _print(block, console, plain=False)
    return sum(max(-(-cell_len(line) // width), 1) for line in capture.get().splitlines())


def _print(block: Block, console: Console, *, plain: bool) -> None:
    match block:
        case Heading(text):
            console.print()
            console.print(Text(_shown(text), style="bold cyan"))
        case Line(text, style, unbroken=True):
            console.print(Text(_shown(text), style=style), soft_wrap=True)
        case Line(text, style, indent):  # a command, and an option with its value, stay on one line
            text, room = _shown(text), console.width - indent
            words = Text(text if len(text) <= room else wrapped(text, room), style=style)
            console.print(Padding(words, (0, 0, 0, indent)) if indent else words)
        case NamedValues():
            grid = RichTable.grid(padding=(0, 3, 0, 0))
            grid.add_column(style="dim", no_wrap=True)
            grid.add_column(overflow="fold")
            for name, value, mark in block.marked:
                grid.add_row(Text(_shown(name)), Text(_shown(f"{value}  {mark}" if mark else value)))
            console.print(grid)
        case Table():
            for at, columns in enumerate(_tables(block, console, plain=plain)):
                if at:
                    console.print()
                _print_table(columns, block.mark, console, plain=plain)
        case Code(text):
            console.print(Text(_shown(text)), soft_wrap=True)
        case NextCommand(command, does):
            _print(Line(f"Next: {command}", "bold", unbroken=True), console, plain=plain)
            _print(Line(f"      ({does})", "dim"), console, plain=plain)


def _shown(text: str) -> str:
    """Texts out of records may have any character, and only line ends are obeyed."""
    return visible(text, "\n")


def _tables(table: Table, console: Console, *, plain: bool) -> list[list[Column]]:
    """As many groups of columns as fit beside the first one; a group whose words do not fit is cut."""
    first, *others = table.groups
    tables = [list(first)]

    def size(columns: Sequence[Column]) -> Measurement:
        return _measured(_drawn(columns, table.mark, plain=plain), console)

    for group in others:
        if size([*tables[-1], *group]).maximum <= console.width:
            tables[-1] += group
            continue
        if len(tables[-1]) > len(first):
            tables.append(list(first))
        for column in group:
            if len(tables[-1]) > len(first) and size([*tables[-1], column]).minimum > console.width:
                tables.append(list(first))
            tables[-1].append(column)
    return tables


def _print_table(columns: Sequence[Column], mark: str | None, console: Console, *, plain: bool) -> None:
    """Words stay whole if there is room for the longest of each."""
    drawn = _drawn(columns, mark, plain=plain)
    size = _measured(drawn, console)
    if not plain and size.minimum <= console.width < size.maximum:
        for column, width in zip(drawn.columns, _widths(columns, console.width - size.maximum), strict=False):
            column.width = width
    console.print(drawn)


def _measured(table: RichTable, console: Console) -> Measurement:
    """Columns of the screen that it takes with its words whole, and with its cells whole."""
    return Measurement.get(console, console.options.update_width(_UNWRAPPED), table)


class _Cell(Text):
    """A cell of a row in which another one may take several lines; headings stand at the bottom."""

    vertical = "top"


def _drawn(columns: Sequence[Column], mark: str | None, *, plain: bool) -> RichTable:
    table = RichTable(
        box=None if plain else box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 2, 0, 0) if plain else (0, 1, 0, 0),
        header_style="bold",
    )
    for column in columns:
        heading = column.heading.replace("\n", " ") if plain else column.heading
        table.add_column(
            Text(_shown(heading)), justify="left" if column.text else "right", overflow="fold", vertical="bottom"
        )
    if mark:
        table.add_column(Text(""), style="bold yellow", no_wrap=True)
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*(_Cell(_shown(cell)) for cell in row), *([mark] if mark else []))
    return table


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """A width for each column, so that its longest word fits; the first that are wide give up most.

    `room`: what there is more than all cells need, so less than 0.
    """
    texts = [[*column.heading.split("\n"), *column.cells] for column in columns]
    least = [max(cell_len(word) for text in lines for word in (text.split() or [""])) for lines in texts]
    widths = [max(cell_len(line) for text in lines for line in (text.splitlines() or [""])) for lines in texts]
    while room < 0:
        at = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
        if widths[at] <= least[at]:
            break
        widths[at] -= 1
        room += 1
    return widths

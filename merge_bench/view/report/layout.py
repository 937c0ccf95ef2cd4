"""How a report is laid out: tables and headings, for a terminal and for a pipe.

In a pipe there is no colour, no line drawing and no wrapping, so that a line is a row and tools can read it.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO, TypeVar

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from merge_bench.errors import PLAIN, visible, wrapped
from merge_bench.view.numbers import NULL
from merge_bench.view.streams import raw

if TYPE_CHECKING:
    from merge_bench.view.plot.marks import Chart

_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)
UNWRAPPED = 100_000
"""Columns of a page whose lines are never wrapped."""


@dataclass(frozen=True)
class Column:
    """A column: its heading (with the unit on its second line), its cells, and whether it is text."""

    heading: str
    cells: Sequence[str]
    text: bool = False


def by_row(headings: Sequence[str], rows: Iterable[Sequence[str]], text: Container[int] = ()) -> list[Column]:
    """The columns of a table that is made row by row; `text`: which of them are text, counted from 0."""
    return [Column(name, cells, at in text) for at, (name, *cells) in enumerate(zip(headings, *rows, strict=True))]


def by_pair(cells: Mapping[tuple[int, int], str], *, text: bool = False) -> list[Column]:
    """A square of what was found from one rank (row) to another (column)."""
    ranks = sorted({rank for pair in cells for rank in pair})
    senders = Column("from \\ to", [str(rank) for rank in ranks])
    return [senders, *(Column(str(to), [cells.get((sender, to), "·") for sender in ranks], text) for to in ranks)]


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """The items that have the same key together, in their order; keys in the order in which they first occur."""
    found: dict[_Key, list[_Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def shown(text: str) -> str:
    """`text` as a page has it: texts out of records may have any character, and only line ends are obeyed."""
    return visible(text, "\n")


class _Cell(Text):
    """A cell of a row in which another one may take several lines; headings stand at the bottom."""

    vertical = "top"


@dataclass
class Page:
    """What a report is written on. `notes` collects why a value is absent; `end` prints them.

    `plain`: without colours and drawn lines; `whole`: it folds long tables itself, and gets them whole.
    """

    console: Console
    plain: bool
    whole: bool = False
    notes: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        """Start a section."""
        self.console.print()
        self.console.print(Text(shown(text), style="bold cyan"))

    def line(self, text: str, style: str = "", *, indent: int = 0) -> None:
        """A paragraph; a command, and an option with its value, stay on one line of a terminal."""
        room = self.console.width - indent
        text = shown(text)
        words = Text(text if len(text) <= room else wrapped(text, room), style=style)
        self.console.print(Padding(words, (0, 0, 0, indent)) if indent else words)

    def unbroken(self, text: str, style: str = "") -> None:
        """A line that can be copied whole: only the terminal itself breaks it where it ends."""
        self.console.print(Text(shown(text), style=style), soft_wrap=True)

    def paragraphs(self, heading: str, lines: Sequence[str]) -> None:
        """A section of lines, if there are any."""
        if lines:
            self.heading(heading)
        for line in lines:
            self.line(line)

    def pairs(self, *rows: tuple[str, str], mark: str | None = None) -> None:
        """Names and values, one a row; `mark` stands beside those whose name has a unit."""
        table = Table.grid(padding=(0, 3, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in rows:
            text = f"{value}  {mark}" if mark and name.endswith(")") else value
            table.add_row(Text(shown(name)), Text(shown(text)))
        self.console.print(table)

    def table(self, *columns: Column, mark: str | None = None) -> None:
        """A table; `mark` stands at the end of every row. Words stay whole if there is room for the longest of each."""
        drawn = self._drawn(columns, mark)
        narrow, unlimited = self._measured(drawn)
        if not self.plain and narrow <= self.console.width < unlimited:
            filled = [column for column in columns if any(column.cells)]
            for column, width in zip(drawn.columns, _widths(filled, self.console.width - unlimited), strict=False):
                column.width = width
        self.console.print(drawn)

    def _measured(self, table: Table) -> tuple[int, int]:
        """Columns of the screen that it takes with its words whole, and with its cells whole."""
        found = Measurement.get(self.console, self.console.options.update_width(UNWRAPPED), table)
        return found.minimum, found.maximum

    def _drawn(self, columns: Iterable[Column], mark: str | None) -> Table:
        drawing = None if self.plain else box.SIMPLE_HEAD
        gap = (0, 2, 0, 0) if self.plain else (0, 1, 0, 0)
        table = Table(box=drawing, show_edge=False, pad_edge=False, padding=gap, header_style="bold")
        filled = [column for column in columns if any(column.cells)]
        for column in filled:
            heading = column.heading.replace("\n", " ") if self.plain else column.heading
            table.add_column(
                Text(shown(heading)), justify="left" if column.text else "right", overflow="fold", vertical="bottom"
            )
        if mark:
            table.add_column(Text(""), style="bold yellow", no_wrap=True)
        for row in zip(*(column.cells for column in filled), strict=True):
            table.add_row(*(_Cell(shown(cell)) for cell in row), *([mark] if mark else []))
        return table

    def wide_table(self, first: Sequence[Column], *parts: Sequence[Column], mark: str | None = None) -> None:
        """A table of all columns; if they do not fit, one for each of `parts`, with the columns `first` before it.

        A part whose words do not fit is cut into several of as many columns as do.
        """
        whole = list(itertools.chain(*parts))
        if self._measured(self._drawn([*first, *whole], mark))[1] <= self.console.width:
            parts = (whole,)
        for at, group in enumerate(group for part in parts for group in self._cut(first, part, mark)):
            if at:
                self.line("")
            self.table(*first, *group, mark=mark)

    def _cut(self, first: Sequence[Column], part: Sequence[Column], mark: str | None) -> list[list[Column]]:
        """The columns of `part`, in groups whose words fit beside `first`."""
        groups: list[list[Column]] = [[]]
        for column in part:
            needed = self._measured(self._drawn([*first, *groups[-1], column], mark))[0]
            if groups[-1] and needed > self.console.width:
                groups.append([])
            groups[-1].append(column)
        return groups

    def next_step(self, command: str, does: str) -> None:
        """The command worth typing next, and what it does."""
        self.unbroken(f"Next: {command}", "bold")
        self.line(f"      ({does})", "dim")

    def drawing(self, make: Callable[[], Chart]) -> None:
        """A drawing, which text cannot show: `make` is not called."""

    def note(self, text: str) -> None:
        """Remember why something is absent."""
        if text not in self.notes:
            self.notes.append(text)

    def end(self) -> None:
        """Print the notes and forget them."""
        for text in self.notes:
            self.line(f"{NULL}  {text}", "dim")
        self.notes.clear()


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """A width for each column, so that its longest word fits; the first that are wide give up most.

    `room`: what there is more than all cells need, so less than 0.
    """
    texts = [[*column.heading.split("\n"), *column.cells] for column in columns]
    least = [max(cell_len(word) for text in each for word in (text.split() or [""])) for each in texts]
    widths = [max(cell_len(line) for text in each for line in (text.splitlines() or [""])) for each in texts]
    while room < 0:
        at = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
        if widths[at] <= least[at]:
            break
        widths[at] -= 1
        room += 1
    return widths


@contextlib.contextmanager
def page_on(file: TextIO | None, width: int | None = None) -> Iterator[Page]:
    """A page on `file` (standard output), which has it when the block ends.

    It is drawn if that is a terminal which knows Unicode, plain otherwise, without spaces at the ends of lines.
    `width`: of a terminal, asked from it if not given.
    """
    stream = file or sys.stdout
    encoding = getattr(stream, "encoding", None) or "utf-8"
    terminal = Console(file=raw(stream), width=width, markup=False, highlight=False, emoji=False)
    if terminal.is_terminal and encoding.lower().startswith("utf"):
        yield Page(terminal, plain=False)
    else:
        buffer = io.StringIO()
        yield Page(Console(file=buffer, width=UNWRAPPED, color_system=None, markup=False, highlight=False), plain=True)
        text = "".join(f"{line.rstrip()}\n" for line in buffer.getvalue().splitlines())
        stream.write(text.encode(encoding, PLAIN).decode(encoding))
    stream.flush()

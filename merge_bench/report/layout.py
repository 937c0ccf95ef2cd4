"""How a report is laid out: tables, numbers and headings, for a terminal and for a pipe.

In a pipe there is no colour, no line drawing and no wrapping, so that a line is a row and tools can read it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from merge_bench.units import GIB, MIB

if TYPE_CHECKING:
    from merge_bench.plot.charts import Chart
    from merge_bench.plot.series import Panel

NULL = "-"
_UNWRAPPED = 100_000
_NARROW = 130


@dataclass(frozen=True)
class Column:
    """A column: its heading (with the unit on its second line), its cells, and whether it is text."""

    heading: str
    cells: Sequence[str]
    text: bool = False


@dataclass
class Page:
    """What a report is written on. `notes` collects why a value is absent; `end` prints them.

    `plain`: without colours and drawn lines; `whole`: it folds long tables itself, and gets them whole.
    """

    console: Console
    plain: bool
    whole: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def narrow(self) -> bool:
        """Whether a wide table had better be two."""
        return self.console.width < _NARROW

    def heading(self, text: str) -> None:
        """Start a section."""
        self.console.print()
        self.console.print(Text(text, style="bold cyan"))

    def line(self, text: str, style: str = "", *, indent: int = 0) -> None:
        """A paragraph."""
        words = Text(text, style=style)
        self.console.print(Padding(words, (0, 0, 0, indent)) if indent else words)

    def pairs(self, rows: Sequence[tuple[str, str]], mark: str | None = None) -> None:
        """Names and values, one a row; `mark` stands beside those whose name has a unit."""
        table = Table.grid(padding=(0, 3, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in rows:
            shown = f"{value}  {mark}" if mark and name.endswith(")") else value
            table.add_row(Text(name), Text(shown))
        self.console.print(table)

    def table(self, columns: Sequence[Column], mark: str | None = None) -> None:
        """A table; `mark` stands at the end of every row."""
        drawing = None if self.plain else box.SIMPLE_HEAD
        gap = (0, 2, 0, 0) if self.plain else (0, 1, 0, 0)
        table = Table(box=drawing, show_edge=False, pad_edge=False, padding=gap, header_style="bold")
        shown = [column for column in columns if any(column.cells)]
        for column in shown:
            heading = column.heading.replace("\n", " ") if self.plain else column.heading
            table.add_column(
                Text(heading), justify="left" if column.text else "right", overflow="fold", vertical="bottom"
            )
        if mark:
            table.add_column(Text(""), style="bold yellow", no_wrap=True)
        for row in zip(*(column.cells for column in shown), strict=True):
            table.add_row(*(Text(cell) for cell in row), *([mark] if mark else []))
        self.console.print(table)

    def drawing(self, make: Callable[[], Chart | Panel]) -> None:
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


def open_page(file: TextIO, width: int | None = None) -> Page:
    """A page on `file`: drawn if that is a terminal which knows Unicode, plain otherwise; `width` is a terminal's."""
    terminal = Console(file=file, width=width, markup=False, highlight=False, emoji=False)
    if terminal.is_terminal and _encoding(file).lower().startswith("utf"):
        return Page(terminal, plain=False)
    buffer = io.StringIO()
    return Page(Console(file=buffer, width=_UNWRAPPED, color_system=None, markup=False, highlight=False), plain=True)


def close_page(page: Page, file: TextIO) -> None:
    """Hand a plain page to `file`, without spaces at the ends of lines; a terminal has it already."""
    if page.plain and isinstance(page.console.file, io.StringIO):
        text = "".join(f"{line.rstrip()}\n" for line in page.console.file.getvalue().splitlines())
        encoding = _encoding(file)
        file.write(text.encode(encoding, "replace").decode(encoding))
    file.flush()


def _encoding(file: TextIO) -> str:
    return getattr(file, "encoding", None) or "utf-8"


def number(value: float | None) -> str:
    """Three digits or more, and never scientific: ``1,234``, ``12.37``, ``0.371``, ``0.0123``."""
    if value is None:
        return NULL
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 1 or size == 0:
        return f"{value:.2f}"
    if size >= 0.1:
        return f"{value:.3f}"
    return f"{value:.4f}" if size >= 0.001 else f"{value:.7f}"


def gib(value: float | None) -> str:
    """Bytes, or bytes per second, in GiB."""
    return number(None if value is None else value / GIB)


def mib(value: float | None) -> str:
    """Bytes in MiB."""
    return number(None if value is None else value / MIB)


def ms(value: float | None) -> str:
    """Seconds in milliseconds."""
    return number(None if value is None else value * 1e3)


def rows(value: float | None) -> str:
    """A count of rows."""
    return NULL if value is None else f"{value:,.0f}"

"""A report as data: sections of headings, lines, tables, code and drawings, which HTML and Markdown are made of."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rich.console import Console

from merge_bench.view.report.layout import UNWRAPPED, Column, Page

if TYPE_CHECKING:
    from merge_bench.view.plot.marks import Chart


@dataclass(frozen=True)
class Heading:
    """Begins a part of a section."""

    text: str


@dataclass(frozen=True)
class Line:
    """A paragraph; `style` in the words of `Page.line`."""

    text: str
    style: str = ""
    indent: int = 0


@dataclass(frozen=True)
class NamedValues:
    """Names and values; `mark` stands beside those whose name has a unit."""

    rows: tuple[tuple[str, str], ...]
    mark: str | None = None


@dataclass(frozen=True)
class Table:
    """Columns of the same length; `mark` stands at the end of every row."""

    columns: tuple[Column, ...]
    mark: str | None = None

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells, row by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


@dataclass(frozen=True)
class Code:
    """Text as it is: commands, settings, the end of a log."""

    text: str


@dataclass(frozen=True)
class Drawing:
    """A chart."""

    chart: Chart


Block = Heading | Line | NamedValues | Table | Code | Drawing


@dataclass
class Section:
    """A titled part of the report.

    `folded`: shown closed, with the sentence `note` beside its title; `inner`: part of the section before it.
    """

    title: str
    folded: bool = False
    note: str = ""
    inner: bool = False
    blocks: list[Block] = field(default_factory=list)


class Recorder(Page):
    """A page that remembers what was put on it. `source`: the results of the drawings to come."""

    def __init__(self) -> None:
        super().__init__(Console(file=io.StringIO(), width=UNWRAPPED, color_system=None), plain=True, whole=True)
        self.sections: list[Section] = []
        self.source = ""

    def section(self, title: str, *, folded: bool = False, note: str = "", inner: bool = False) -> None:
        """Start a section; the arguments are those of `Section`."""
        self.sections.append(Section(title, folded, note, inner))

    def heading(self, text: str) -> None:
        """Start a part of the section."""
        self._add(Heading(text))

    def line(self, text: str, style: str = "", *, indent: int = 0) -> None:
        """A paragraph; an empty one is room on paper, which a page has anyway."""
        if text:
            self._add(Line(text, style, indent))

    def pairs(self, *rows: tuple[str, str], mark: str | None = None) -> None:
        """Names and values."""
        self._add(NamedValues(rows, mark))

    def table(self, *columns: Column, mark: str | None = None) -> None:
        """A table, without the columns that are empty."""
        shown = tuple(column for column in columns if any(column.cells))
        if shown:
            self._add(Table(shown, mark))

    def code(self, text: str) -> None:
        """Text as it is."""
        self._add(Code(text))

    def next_step(self, command: str, does: str) -> None:
        """The command to copy, below what it does."""
        self.heading("Next")
        self.line(f"This command {does}:")
        self.code(command)

    def drawing(self, make: Callable[[], Chart]) -> None:
        """A drawing of the results that `source` names, if it shows anything that the first section does not show."""
        drawing = Drawing(replace(make(), source=self.source))
        if not drawing.chart.empty and drawing not in self.sections[0].blocks:
            self._add(drawing)

    def _add(self, block: Block) -> None:
        self.sections[-1].blocks.append(block)

"""What is shown to people, as data: sections of headings, lines, tables, code and drawings.

Functions that write a report put blocks on a `Page`; `terminal`, `markdown` and the HTML report render them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from merge_bench.errors import Caution
from merge_bench.view.numbers import NULL

if TYPE_CHECKING:
    from merge_bench.view.plot.marks import Chart

FOLDED = 200
"""Rows of a table; more of them are folded on a page."""
_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class Column:
    """A column: its heading (with the unit on its second line), its cells, and whether it is text.

    `code`: cells whose letters stand below each other.
    """

    heading: str
    cells: Sequence[str]
    text: bool = False
    code: bool = False


@dataclass(frozen=True)
class Heading:
    """Begins a part of a section."""

    text: str


@dataclass(frozen=True)
class Line:
    """A paragraph; `style`: as rich names it; `unbroken`: it can be copied whole."""

    text: str
    style: str = ""
    indent: int = 0
    unbroken: bool = False


@dataclass(frozen=True)
class NamedValues:
    """Names and values; `mark` stands beside those whose name has a unit."""

    rows: tuple[tuple[str, str], ...]
    mark: str | None = None

    @property
    def marked(self) -> list[tuple[str, str, str]]:
        """Name, value and the mark that it has, if any."""
        return [(name, value, self.mark if self.mark and name.endswith(")") else "") for name, value in self.rows]


@dataclass(frozen=True)
class Table:
    """Groups of columns of the same length; `mark` stands at the end of every row.

    Where there is no room for all groups side by side, the first one is repeated beside the others.
    """

    groups: tuple[tuple[Column, ...], ...]
    mark: str | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of all groups."""
        return tuple(chain(*self.groups))

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells, row by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


@dataclass(frozen=True)
class Code:
    """Text as it is: commands, settings, the end of a log."""

    text: str


@dataclass(frozen=True)
class NextCommand:
    """The command worth typing next, and what it does."""

    command: str
    does: str


@dataclass(frozen=True)
class Drawing:
    """A chart."""

    chart: Chart


Block: TypeAlias = Heading | Line | NamedValues | Table | Code | NextCommand | Drawing


@dataclass
class Section:
    """A titled part of a report.

    `folded`: shown closed, with the sentence `note` beside its title; `inner`: part of the section before it.
    """

    title: str
    folded: bool = False
    note: str = ""
    inner: bool = False
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Page:
    """What a report is written on, block by block.

    `plain`: for a pipe, where a line is a row; `whole`: for HTML or Markdown, which draws and folds long tables
    itself. `source`: the results of the drawings to come. `notes` collects why a value is absent; `end` prints them.
    """

    plain: bool = True
    whole: bool = False
    source: str = ""
    sections: list[Section] = field(default_factory=lambda: [Section("")])
    notes: list[str] = field(default_factory=list)

    @property
    def blocks(self) -> list[Block]:
        """The blocks of all sections."""
        return [block for section in self.sections for block in section.blocks]

    def section(self, title: str, *, folded: bool = False, note: str = "", inner: bool = False) -> None:
        """Start a section; the arguments are those of `Section`."""
        self.sections.append(Section(title, folded, note, inner))

    def heading(self, text: str) -> None:
        """Start a part of the section."""
        self._add(Heading(text))

    def line(self, text: str, style: str = "", *, indent: int = 0) -> None:
        """A paragraph; an empty one is room on a terminal, which a page has anyway."""
        if text or not self.whole:
            self._add(Line(text, style, indent))

    def unbroken(self, text: str, style: str = "") -> None:
        """A line that can be copied whole: only the terminal itself breaks it where it ends."""
        self._add(Line(text, style, unbroken=True))

    def paragraphs(self, heading: str, lines: Sequence[str]) -> None:
        """A part of lines, if there are any."""
        if lines:
            self.heading(heading)
        for line in lines:
            self.line(line)

    def pairs(self, *rows: tuple[str, str], mark: str | None = None) -> None:
        """Names and values."""
        self._add(NamedValues(rows, mark))

    def table(self, *columns: Column, mark: str | None = None) -> None:
        """A table, without the columns that are empty."""
        self.wide_table(columns, mark=mark)

    def wide_table(self, first: Sequence[Column], *parts: Sequence[Column], mark: str | None = None) -> None:
        """A table of all columns; if they do not fit, several with the columns `first` in each."""
        groups = [tuple(column for column in group if any(column.cells)) for group in (first, *parts)]
        if any(groups):
            self._add(Table(tuple(groups), mark))

    def code(self, text: str) -> None:
        """Text as it is."""
        self._add(Code(text))

    def next_step(self, command: str, does: str) -> None:
        """The command worth typing next, and what it does."""
        self._add(NextCommand(command, does))

    def drawing(self, make: Callable[[], Chart]) -> None:
        """A drawing, which text cannot show, if it shows anything that the first section does not show."""
        if self.whole:
            self.chart(make())

    def chart(self, chart: Chart) -> None:
        """The same of a chart that has been made."""
        drawing = Drawing(replace(chart, source=self.source))
        if not chart.empty and all(drawing not in section.blocks for section in self.sections[:2]):
            self._add(drawing)

    def warnings(self, cautions: Collection[Caution], heading: str = "Warnings") -> None:
        """Code, message and remedy of each, as lines."""
        if cautions and heading:
            self.heading(heading)
        for caution in cautions:
            self.line(f"{caution.code}: {caution.message}", "yellow")
            if caution.remedy:
                self.line(f"→ {caution.remedy}", indent=2)

    def note(self, text: str) -> None:
        """Remember why something is absent."""
        if text not in self.notes:
            self.notes.append(text)

    def end(self) -> None:
        """Print the notes and forget them."""
        for text in self.notes:
            self.line(f"{NULL}  {text}", "dim")
        self.notes.clear()

    def _add(self, block: Block) -> None:
        self.sections[-1].blocks.append(block)


@dataclass(frozen=True)
class Report:
    """A report for looking at, keeping and sending.

    `about`: when and where it was measured, and with what; `state`: why the numbers are not verified, or the figures
    of a run, a verdict or the outcome of a tuning, whose numbers are `verified`; `alarm`: whether that is shown as an
    alarm; `decided`: whether a comparison or a tuning that it is about, if any, decided anything.
    """

    title: str
    about: str
    state: str
    alarm: bool
    sections: tuple[Section, ...]
    verified: str = ""
    decided: bool = True


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
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups

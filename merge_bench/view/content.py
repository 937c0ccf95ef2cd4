"""What is shown to people, as data: sections of headings, lines, tables, code and drawings.

Functions that write a report put blocks on a `PageBuilder`; `terminal`, `markdown` and the HTML report render them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from merge_bench.errors import WarningMessage
from merge_bench.view.text import NULL

if TYPE_CHECKING:
    from merge_bench.view.plot import Chart

FOLDED = 200
"""Rows of a table; more of them are folded on a page."""
LARGEST_MATRIX = 8
"""Ranks of a table with a cell for each pair, at most."""
_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, with the unit on a second line, and its cells.

    `text`: whether cells are text, not numbers; `code`: whether cells are in a font of fixed width.
    """

    heading: str
    cells: Sequence[str]
    text: bool = False
    code: bool = False


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; `style`: a style of rich, such as ``bold red``; `unbroken`: whether it is never wrapped."""

    text: str
    style: str = ""
    indent: int = 0
    unbroken: bool = False


@dataclass(frozen=True)
class NamedValues:
    """Names with their values; `row_mark`: a word such as ``unverified`` beside values whose name has a unit."""

    rows: tuple[tuple[str, str], ...]
    row_mark: str | None = None

    @property
    def names_values_and_marks(self) -> list[tuple[str, str, str]]:
        """The rows, each as name, value and mark; the mark is empty for a row without one."""
        return [
            (name, value, self.row_mark if self.row_mark and name.endswith(")") else "") for name, value in self.rows
        ]


@dataclass(frozen=True)
class Table:
    """A table, as groups of columns of the same length; `row_mark`: a word such as ``unverified`` that ends every row.

    Where there is no room for all groups side by side, there are several tables, each with the first group.
    """

    groups: tuple[tuple[Column, ...], ...]
    row_mark: str | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(chain(*self.groups))

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return list(zip(*(column.cells for column in self.columns), strict=True))


@dataclass(frozen=True)
class CodeBlock:
    """Text that keeps its spaces and line ends: commands, settings, the end of a log."""

    text: str


@dataclass(frozen=True)
class NextCommandBlock:
    """A command that the reader is advised to type next; `does`: what the command does, as a phrase."""

    command: str
    does: str


@dataclass(frozen=True)
class ChartBlock:
    chart: Chart


Block: TypeAlias = Heading | Paragraph | NamedValues | Table | CodeBlock | NextCommandBlock | ChartBlock


@dataclass
class Section:
    """A titled part of a report.

    `folded`: shown closed, with the sentence `note` beside its title; `nested`: part of the section before it.
    """

    title: str
    folded: bool = False
    note: str = ""
    nested: bool = False
    blocks: list[Block] = field(default_factory=list)


@dataclass
class PageBuilder:
    """Collects the blocks of a report, which functions add one after the other.

    `plain`: whether the page is for a pipe, where a line is a row; `whole`: whether it is for HTML or Markdown, which
    have drawings and fold long tables. `source`: the results that the next drawings show. `notes`: why values are
    absent.
    """

    plain: bool = True
    whole: bool = False
    source: str = ""
    sections: list[Section] = field(default_factory=lambda: [Section("")])
    notes: list[str] = field(default_factory=list)

    @property
    def blocks(self) -> list[Block]:
        return [block for section in self.sections for block in section.blocks]

    def start_section(self, title: str, *, folded: bool = False, note: str = "", nested: bool = False) -> None:
        """Start a section; the blocks that follow are added to it."""
        self.sections.append(Section(title, folded, note, nested))

    def add_heading(self, text: str) -> None:
        self._add_block(Heading(text))

    def add_paragraph(self, text: str, style: str = "", *, indent: int = 0) -> None:
        """Add a paragraph; an empty one is an empty line of text, and left out of HTML and Markdown."""
        if text or not self.whole:
            self._add_block(Paragraph(text, style, indent))

    def add_unwrapped_line(self, text: str, style: str = "") -> None:
        """Add a line that is not wrapped, so that it can be copied."""
        self._add_block(Paragraph(text, style, unbroken=True))

    def add_paragraphs(self, heading: str, lines: Sequence[str]) -> None:
        """Add a heading with paragraphs, if there are any paragraphs."""
        if lines:
            self.add_heading(heading)
        for line in lines:
            self.add_paragraph(line)

    def add_named_values(self, *rows: tuple[str, str], row_mark: str | None = None) -> None:
        """Add rows of a name and a value; `row_mark`: a word as ``unverified`` for values whose name has a unit."""
        self._add_block(NamedValues(rows, row_mark))

    def add_table(self, *columns: Column, row_mark: str | None = None) -> None:
        """Add a table without its empty columns; `row_mark`: a word such as ``unverified`` that ends every row."""
        self.add_wide_table(columns, row_mark=row_mark)

    def add_wide_table(
        self, first_columns: Sequence[Column], *parts: Sequence[Column], row_mark: str | None = None
    ) -> None:
        """Add a table of groups of columns; where they do not fit, they become several tables.

        Each of these tables has the columns `first_columns`; `row_mark`: a word such as ``unverified`` that ends every
        row.
        """
        groups = [tuple(column for column in group if any(column.cells)) for group in (first_columns, *parts)]
        if any(groups):
            self._add_block(Table(tuple(groups), row_mark))

    def add_code_block(self, text: str) -> None:
        self._add_block(CodeBlock(text))

    def add_next_command(self, command: str, purpose: str) -> None:
        self._add_block(NextCommandBlock(command, purpose))

    def add_lazy_chart(self, make_chart: Callable[[], Chart]) -> None:
        """Make a chart and add it, unless the page is text, which has no drawings."""
        if self.whole:
            self.add_chart(make_chart())

    def add_chart(self, chart: Chart, heading: str = "") -> None:
        """Add a chart below a heading, unless one of the first two sections already has it.

        If the chart is empty, only the heading is added.
        """
        drawing = ChartBlock(replace(chart, source=self.source))
        if any(drawing in section.blocks for section in self.sections[:2]):
            return
        if heading:
            self.add_heading(heading)
        if not chart.is_empty:
            self._add_block(drawing)

    def add_warnings(self, cautions: Collection[WarningMessage], heading: str = "Warnings") -> None:
        """Add warnings with their remedies below a heading, if there are any warnings."""
        if cautions and heading:
            self.add_heading(heading)
        for caution in cautions:
            self.sections[-1].blocks += warning_paragraphs(caution)

    def collect_footnote(self, text: str) -> None:
        """Remember a sentence on why a value is absent, for `add_collected_footnotes`; the same sentence only once."""
        if text not in self.notes:
            self.notes.append(text)

    def add_collected_footnotes(self) -> None:
        """Add the sentences that `collect_footnote` remembered to the page, and forget them."""
        for text in self.notes:
            self.add_paragraph(f"{NULL}  {text}", "dim")
        self.notes.clear()

    def _add_block(self, block: Block) -> None:
        self.sections[-1].blocks.append(block)


@dataclass(frozen=True)
class ReportContent:
    """The content of a report, which HTML or Markdown shows.

    `about`: when, where and with what its results were measured; `state`: a sentence that says why numbers are not
    verified, or else the figures of a run, a verdict or the outcome of a tuning; `alarm`: whether `state` is an alarm;
    `verified`: a sentence about verification, if `state` says nothing about it; `decided`: whether the comparison or
    tuning decided anything; `of_commands`: whether the report is about commands alone.
    """

    title: str
    about: str
    state: str
    alarm: bool
    sections: tuple[Section, ...]
    verified: str = ""
    decided: bool = True
    of_commands: bool = False


def warning_paragraphs(caution: WarningMessage) -> list[Block]:
    """The paragraphs of a warning: its code and message, and its remedy."""
    remedy: list[Block] = [Paragraph(f"→ {caution.remedy}", indent=2)] if caution.remedy else []
    return [Paragraph(f"{caution.code}: {caution.message}", "yellow"), *remedy]


def columns_from_rows(
    headings: Sequence[str], rows: Iterable[Sequence[str]], text_columns: Container[int] = ()
) -> list[Column]:
    """Make the columns of a table from its rows; `text_columns`: the indexes of columns of text, from 0."""
    return [
        Column(name, cells, at in text_columns) for at, (name, *cells) in enumerate(zip(headings, *rows, strict=True))
    ]


def rank_matrix_columns(cells: Mapping[tuple[int, int], str], *, are_texts: bool = False) -> list[Column]:
    """Make the columns of a table with a cell for each pair of sending rank (row) and receiving rank (column).

    The list is empty for more than `LARGEST_MATRIX` ranks. `are_texts`: whether cells are text, not numbers.
    """
    ranks = sorted({rank for pair in cells for rank in pair})
    if len(ranks) > LARGEST_MATRIX:
        return []
    senders = Column("from \\ to", [str(rank) for rank in ranks])
    return [senders, *(Column(str(to), [cells.get((sender, to), "·") for sender in ranks], are_texts) for to in ranks)]


def group_by_key(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Group items by key, in the order in which keys first occur."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups

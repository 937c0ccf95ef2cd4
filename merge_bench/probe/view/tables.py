"""Tables of network measurements: which rows each has, what its columns are called, and its footnotes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from merge_bench.probe.ranks.ucc import SHARP_ASKED
from merge_bench.probe.shared.base import ALL_TO_ALL, COLLECTIVE, PING_PONG, kind_of_test, placement_text
from merge_bench.records.probe_rows import Row
from merge_bench.view.content import Page, grouped
from merge_bench.view.text import binary

TOGETHER = (COLLECTIVE, ALL_TO_ALL)
"""Kinds of tests that all ranks take part in."""
MOST_SIDE_BY_SIDE = 4
"""Pairs of ranks that get columns, or tables, of their own; more are the rows of one table."""
OTHER_LANES, WRONG, REMARK = "!", "!!", "*"


@dataclass(frozen=True)
class Line:
    """One series in a table: a label that differs from the table's other series, and its rows by size."""

    label: str
    config: str
    published: bool
    rows: tuple[Row, ...]

    def row_at(self, size: int) -> Row | None:
        """The row with messages of this size."""
        return self._by_size.get(size)

    @cached_property
    def _by_size(self) -> dict[int, Row]:
        return {row.size: row for row in self.rows}


@dataclass(frozen=True)
class Table:
    """The series that stand in one table. `by_pair`: so many pairs of ranks that each is a row."""

    kind: str
    title: str
    lines: tuple[Line, ...]
    by_pair: bool = False


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """The tables of `rows`.

    Several configs are compared: a table for each test, placement and pair, with a column a config. One config: a table
    for each test (all tests of a ping-pong together), with a column a placement. Collectives: a table for each series.
    All-to-all: a table for each set of ranks, with all configs and backends.
    Published rows join the table of the same test and placement if there is just one; else they have their own.
    """
    measured = [row for row in rows if row.source is None]
    several = len({row.config for row in measured}) > 1
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in measured:
        many = len({other.ranks for other in measured if _same_test(other, row)}) > MOST_SIDE_BY_SIDE
        groups.setdefault(
            _group_key(row, apart=several, by_pair=many and kind_of_test(row) not in TOGETHER), []
        ).append(row)
    for row in rows:
        if row.source is not None:
            _group_of_published(groups, row).append(row)
    return [_make_table(found, by_pair=bool(key[1])) for key, found in groups.items()]


def _same_test(row: Row, other: Row) -> bool:
    return (row.probe, row.test, row.memory) == (other.probe, other.test, other.memory)


def _group_key(row: Row, *, apart: bool, by_pair: bool) -> tuple[object, ...]:
    kind = kind_of_test(row)
    if kind == COLLECTIVE:
        return kind, False, row.series
    if kind == ALL_TO_ALL:
        return kind, False, row.placement, row.ranks, row.memory, row.count is not None
    test = "" if kind == PING_PONG and not apart else row.test
    place = (row.placement, row.ranks) if apart and not by_pair else ()
    return kind, by_pair, row.probe, test, row.memory, place


def _group_of_published(groups: dict[tuple[object, ...], list[Row]], row: Row) -> list[Row]:
    kind = kind_of_test(row)
    alike = [
        found
        for (_, by_pair, *_), found in groups.items()
        if not by_pair
        and kind != COLLECTIVE
        and any(_same_test(one, row) and one.placement == row.placement and one.source is None for one in found)
    ]
    if len(alike) == 1:
        return alike[0]
    series = row.series if kind == COLLECTIVE else (row.test if kind != PING_PONG else "", row.memory)
    return groups.setdefault((kind, False, "published", row.source, series), [])


def _make_table(rows: Sequence[Row], *, by_pair: bool) -> Table:
    def several(of: Callable[[Row], object]) -> bool:
        return len({of(row) for row in rows}) > 1

    tests, placements = several(lambda row: row.test), several(lambda row: row.placement)
    pairs = {(row.placement, row.ranks) for row in rows if row.ranks}
    ranks = len(pairs) > len({placement for placement, _ in pairs})
    title: list[Callable[[Row], str]] = []
    heading: list[Callable[[Row], str]] = []
    for varies, of in (
        (several(lambda row: (row.config, row.source)), lambda row: row.config),
        (tests, lambda row: row.test),
        (placements, lambda row: placement_text(row.placement)),
        (ranks, _ranks_text),
    ):
        (heading if varies else title).append(of)
    if not ranks and len(pairs) > 1:
        title.remove(_ranks_text)  # the placements have a pair each

    def joined(row: Row, parts: Sequence[Callable[[Row], str]]) -> str:
        return ", ".join(filter(None, (of(row) for of in parts)))

    lines = [
        Line(
            label=(joined(mine[0], heading) or mine[0].config) + _origin_suffix(mine[0]),
            config=mine[0].config,
            published=mine[0].source is not None,
            rows=tuple(sorted(mine, key=lambda row: (row.size, row.count or 0))),
        )
        for mine in grouped(rows, lambda row: (row.series, row.source)).values()
    ]
    memory = ", cuda memory" if rows[0].memory == "cuda" else ""
    return Table(kind_of_test(rows[0]), joined(rows[0], title) + memory, tuple(lines), by_pair)


def _origin_suffix(row: Row) -> str:
    if row.source is None:
        return ""
    return " (file)" if row.from_file else " (published)"


def _ranks_text(row: Row) -> str:
    if kind_of_test(row) in TOGETHER:
        return f"{len(row.ranks)} ranks" if row.ranks else ""
    return f"rank {row.ranks[0]} to {row.ranks[1]}" if len(row.ranks) == 2 else ""


def mark_of_row(row: Row | None) -> str:
    """The mark beside a row that a footnote explains: a wrong result, other transports, or a remark; else empty."""
    if row is None:
        return ""
    if row.wrong:
        return WRONG
    return OTHER_LANES if row.as_requested is False else REMARK if row.note else ""


def write_footnotes(page: Page, table: Table) -> None:
    """Write below `table` how each of its series was measured; series with the same sentences together."""
    for sentences, lines in grouped(table.lines, lambda line: tuple(_footnote_sentences(line.rows))).items():
        (first, _), *rest = sentences
        page.line(f"{_joined_labels([line.label for line in lines])}: {first}", "dim")
        for text, style in rest:
            page.line(text, style, indent=2)


def _footnote_sentences(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The footnotes of a series, each a sentence with its style."""
    first = rows[0]
    notes = [(f"{REMARK} {note}", "yellow") for note in dict.fromkeys(row.note for row in rows) if note]
    requested = ", ".join(f"{name}={value}" for name, value in first.requested.items())
    lanes = list(dict.fromkeys(lane for row in rows for lane in row.selected))
    if first.source is not None:
        facts = [(f"requested: {requested}", "dim")] if requested else []
        facts += [(f"selected: {', '.join(lanes)}", "dim")] if lanes else []
        return [(f"{first.source}; {first.method}", ""), *facts, *notes]
    counts = sorted({row.launches for row in rows})
    number = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    how = "one launch" if counts == [1] else f"medians over {number} launches"
    return [
        (f"{how}; {' / '.join(dict.fromkeys(row.method for row in rows))}{_hosts_text(rows)}", ""),
        (f"requested: {requested or 'nothing'}", "dim"),
        (f"selected: {', '.join(lanes) or 'not known'}", "dim"),
        (f"protocols: {_protocols_text(rows) or 'not known'}", "dim"),
        *_doubt_sentences(rows, first.requested.get("UCX_TLS"), lanes),
        *notes,
    ]


def _hosts_text(rows: Sequence[Row]) -> str:
    """The names of the hosts of `rows`; their number if they are many."""
    hosts = list(dict.fromkeys(row.hosts for row in rows if row.hosts))
    if len(hosts) != 1:
        return ""
    names = list(dict.fromkeys(hosts[0]))
    return f"; on {' and '.join(names) if len(names) < 3 else f'{len(names)} hosts'}"


def _doubt_sentences(rows: Sequence[Row], requested: str | None, lanes: Sequence[str]) -> list[tuple[str, str]]:
    doubts = []
    other = [row for row in rows if row.as_requested is False]
    if other and other[0].test.endswith(SHARP_ASKED):
        carried = " / ".join(dict.fromkeys(row.protocol or "?" for row in other))
        doubts.append(
            (
                f"{OTHER_LANES} {_sizes_text(other, rows)}: {carried} was used although SHARP was requested",
                "bold yellow",
            )
        )
    elif other:
        though = f" although UCX_TLS={requested} was requested" if requested else ", not only the requested ones"
        doubts.append(
            (f"{OTHER_LANES} {_sizes_text(other, rows)}: UCX selected {', '.join(lanes) or '?'}{though}", "bold yellow")
        )
    if requested is not None and not lanes:
        doubts.append(("unknown whether the requested transports were used", "dim"))
    wrong = [row for row in rows if row.wrong]
    if wrong:
        doubts.append(
            (
                f"{WRONG} {_sizes_text(wrong, rows)}: WRONG RESULT; the table shows the number of wrong elements",
                "bold red",
            )
        )
    return doubts


def _sizes_text(marked: Sequence[Row], rows: Sequence[Row]) -> str:
    if len(marked) == len(rows):
        return "every size"
    return binary(marked[0].size) if len(marked) == 1 else f"{len(marked)} of {len(rows)} sizes"


def _protocols_text(rows: Sequence[Row]) -> str:
    """The protocol of each run of measured sizes that have the same, as text."""
    if all(row.protocol is None for row in rows):
        return ""
    runs = [list(run) for _, run in groupby(rows, lambda row: row.protocol)]
    return "; ".join(f"{_size_span(run)} {run[0].protocol or 'not known'}" for run in runs)


def _size_span(run: Sequence[Row]) -> str:
    return binary(run[0].size) if len(run) == 1 else f"{binary(run[0].size)} to {binary(run[-1].size)}"


def _joined_labels(labels: Sequence[str]) -> str:
    return "; ".join(labels) if len(labels) <= 8 else f"all {len(labels)}"

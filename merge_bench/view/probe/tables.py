"""Which rows of network measurements stand in one table, and what its columns are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from merge_bench.probe.shared.base import ALL_TO_ALL, COLLECTIVE, PING_PONG, kind_of, placed
from merge_bench.records.probe_rows import Row
from merge_bench.view.report.layout import grouped
from merge_bench.view.text import visible

TOGETHER = (COLLECTIVE, ALL_TO_ALL)
"""Kinds of tests that all ranks take part in."""
MOST_SIDE_BY_SIDE = 4
"""Pairs of ranks that get columns, or tables, of their own; more are the rows of one table."""


@dataclass(frozen=True)
class Line:
    """One series in a table: a label that differs from the table's other series, and its rows by size."""

    label: str
    config: str
    published: bool
    rows: tuple[Row, ...]

    def at(self, size: int) -> Row | None:
        """The row of this size."""
        return self._by_size.get(size)

    @cached_property
    def _by_size(self) -> dict[int, Row]:
        return {row.size: row for row in self.rows}


@dataclass(frozen=True)
class Table:
    """Rows that stand in one table. `by_pair`: so many pairs of ranks that each is a row."""

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
        groups.setdefault(_key(row, apart=several, by_pair=many and kind_of(row) not in TOGETHER), []).append(row)
    for row in rows:
        if row.source is not None:
            _home(groups, row).append(row)
    return [_table(found, by_pair=bool(key[1])) for key, found in groups.items()]


def _same_test(one: Row, other: Row) -> bool:
    return (one.probe, one.test, one.memory) == (other.probe, other.test, other.memory)


def _key(row: Row, *, apart: bool, by_pair: bool) -> tuple[object, ...]:
    kind = kind_of(row)
    if kind == COLLECTIVE:
        return kind, False, row.series
    if kind == ALL_TO_ALL:
        return kind, False, row.placement, row.ranks, row.memory, row.count is not None
    test = "" if kind == PING_PONG and not apart else row.test
    place = (row.placement, row.ranks) if apart and not by_pair else ()
    return kind, by_pair, row.probe, test, row.memory, place


def _home(groups: dict[tuple[object, ...], list[Row]], row: Row) -> list[Row]:
    kind = kind_of(row)
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


def _table(rows: Sequence[Row], *, by_pair: bool) -> Table:
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
        (placements, lambda row: placed(row.placement)),
        (ranks, _ranks),
    ):
        (heading if varies else title).append(of)
    if not ranks and len(pairs) > 1:
        title.remove(_ranks)  # the placements have a pair each

    def joined(row: Row, parts: Sequence[Callable[[Row], str]]) -> str:
        return visible(", ".join(filter(None, (of(row) for of in parts))))

    lines = [
        Line(
            label=(joined(mine[0], heading) or visible(mine[0].config)) + _origin(mine[0]),
            config=mine[0].config,
            published=mine[0].source is not None,
            rows=tuple(sorted(mine, key=lambda row: (row.size, row.count or 0))),
        )
        for mine in grouped(rows, lambda row: (row.series, row.source)).values()
    ]
    memory = ", cuda memory" if rows[0].memory == "cuda" else ""
    return Table(kind_of(rows[0]), joined(rows[0], title) + memory, tuple(lines), by_pair)


def _origin(row: Row) -> str:
    if row.source is None:
        return ""
    return " (file)" if row.from_file else " (published)"


def _ranks(row: Row) -> str:
    if kind_of(row) in TOGETHER:
        return f"{len(row.ranks)} ranks" if row.ranks else ""
    return f"rank {row.ranks[0]} to {row.ranks[1]}" if len(row.ranks) == 2 else ""

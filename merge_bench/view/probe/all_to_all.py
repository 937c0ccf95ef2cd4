"""The tables of `probe all-to-all`: backends and configs side by side, for one set of ranks."""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.probe.shared.base import SLOWEST, WORKER_RATE, Measure
from merge_bench.records.probe_rows import Row
from merge_bench.view.numbers import NULL, number, ratio
from merge_bench.view.probe.footnotes import mark
from merge_bench.view.probe.tables import Line, Table
from merge_bench.view.report.layout import Column, Page
from merge_bench.view.text import visible

EQUAL, UNEVEN = "the same size for each pair", "parcels of a merge, both frames, sizes as its partition makes them"
CONVENTION = (
    "Time: median over rounds of the slowest rank. GB/s: bytes that a rank sends to others ÷ time (mean over ranks;"
    " 1 GB = 10⁹ B); with equal sizes this is the bus bandwidth (S ÷ t) · (n − 1) ÷ n of nccl-tests, where S is the"
    " send buffer of a rank."
)
NO_LIMIT = (
    "No share of the link: two ranks that send to each other are all of this pattern, so there is no other exchange to"
    " compare it with. Give the rate of the link, for example --link-limit 12.5GB/s."
)
_LIMITS = {
    "given": "the rate of --link-limit",
    "ring": "what each rank sends to the next rank alone, in the same launch",
}


def write_all_to_all(page: Page, table: Table, baseline: str | None) -> None:
    """One table: a row for each size, and for each backend and config time, rate, share of the link, and a ratio."""
    rows = [row for line in table.lines for row in line.rows]
    uneven = rows[0].count is not None
    page.heading(f"All-to-all, {table.title}: {UNEVEN if uneven else EQUAL}")
    points = sorted({(row.size, row.count or 0) for row in rows})
    columns = [Column("Rows of\na chunk", [f"{count:,}" for _, count in points])] if uneven else []
    columns.append(Column("Mean size\n(B)" if uneven else "Size\n(B)", [f"{size:,}" for size, _ in points]))
    by_line = [_at(line, points) for line in table.lines]
    blocks = [
        _figures(line, found, _against(table, by_line, line, baseline))
        for line, found in zip(table.lines, by_line, strict=True)
    ]
    page.wide_table(columns, *blocks)


def write_convention(page: Page, rows: Sequence[Row]) -> None:
    """What the columns mean, once below all tables."""
    page.line(CONVENTION, "dim")
    for origin in dict.fromkeys(row.link_limit_from for row in rows if row.link_limit_from):
        page.line(f"Of link: what the busiest rank reached of {_LIMITS.get(origin, visible(origin))}.", "dim")
    if any(row.link_limit is None and len(row.ranks) == 2 for row in rows):
        page.line(NO_LIMIT, "dim")


def _at(line: Line, points: Sequence[tuple[int, int]]) -> list[Row | None]:
    known = {(row.size, row.count or 0): row for row in line.rows}
    return [known.get(point) for point in points]


def _against(
    table: Table, by_line: Sequence[list[Row | None]], line: Line, baseline: str | None
) -> tuple[str, list[Row | None]] | None:
    """The line that another is held against: the baseline's of the same test, else the first of its config."""
    test = line.rows[0].test
    alike = [other for other in table.lines if other.config == baseline and other.rows[0].test == test]
    same = [other for other in table.lines if other.config == line.config]
    base = next(iter(alike if baseline not in (None, line.config) else same), line)
    return None if base is line else (base.label, by_line[table.lines.index(base)])


def _figures(line: Line, rows: Sequence[Row | None], base: tuple[str, list[Row | None]] | None) -> list[Column]:
    label = visible(line.label)
    columns = [
        Column(f"{label}\n(µs)", [_value(SLOWEST, row) for row in rows]),
        Column(f"{label}\n(GB/s)", [_value(WORKER_RATE, row) for row in rows]),
    ]
    shares = [None if row is None else row.link_share for row in rows]
    if any(share is not None for share in shares):
        columns.append(Column("of link", [NULL if share is None else f"{share:.1%}" for share in shares]))
    if base is not None:
        name, others = base
        columns.append(Column(f"÷ {visible(name)}\n(GB/s)", [_ratio(*pair) for pair in zip(rows, others, strict=True)]))
    columns.append(Column("", [mark(row) for row in rows], text=True))
    return columns


def _value(measure: Measure, row: Row | None) -> str:
    found = measure.of(row)
    return number(None if found is None else found.median)


def _ratio(row: Row | None, other: Row | None) -> str:
    mine, base = WORKER_RATE.of(row), WORKER_RATE.of(other)
    return ratio(mine.median / base.median if mine and base and base.median else None)

"""The rows of network measurements as tables for people: one config beside another, one placement beside another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

from merge_bench.errors import Caution
from merge_bench.probe.shared.base import (
    ALL_TO_ALL,
    BUS,
    COLLECTIVE,
    ONE_WAY,
    PING_PONG,
    RATE,
    THROUGHPUT,
    TIME,
    Measure,
    family,
    measure_of,
    placed,
)
from merge_bench.records.probe_rows import Range, Row
from merge_bench.view.numbers import NULL, binary, number, thin
from merge_bench.view.probe.all_to_all import write_all_to_all, write_convention
from merge_bench.view.probe.footnotes import footnotes, mark
from merge_bench.view.probe.tables import Line, Table, tables_of
from merge_bench.view.report.layout import Column, Page, grouped, page_on
from merge_bench.view.report.run_sections import warnings as write_warnings
from merge_bench.view.text import visible

_SHOWN = 40
_PIPE = 1 << 30
_GAP = 2
_PAIR_SIZES = 4
_CONCLUSIONS = 6
_UNITS = {ONE_WAY.unit: "", RATE.unit: "1 MB = 10⁶ B, as OSU counts", BUS.unit: "1 GB = 10⁹ B"}
_CONVENTION = (
    f"mean time t ({TIME.unit}), bus bandwidth (S ÷ t) · (N − 1) ÷ N ({BUS.unit}; {_UNITS[BUS.unit]}), "
    "S: bytes of the whole source vector of each of N ranks"
)


def print_rows(
    rows: Sequence[Row],
    *,
    baseline: str | None = None,
    warnings: Sequence[Caution] = (),
    remarks: Sequence[str] = (),
    records: Sequence[object] = (),
    file: TextIO | None = None,
    width: int | None = None,
) -> None:
    """Print the tables of `rows` on `file` (standard output).

    Parameters
    ----------
    baseline
        The config that the others are held against; speed-ups are ratios of medians, > 1 is better than it.
    warnings
        Shown below the tables, with their remedies.
    remarks, records
        Sentences for the end, and where the records are.
    file
        A terminal gets lines, and about 40 of many sizes; anything else plain aligned text with all of them.
    width
        Columns of a terminal; asked from it if not given.
    """
    with page_on(file, width) as page:
        write_rows(page, rows, baseline=baseline)
        if warnings:
            page.heading("Warnings")
            write_warnings(page, warnings)
        page.paragraphs("Remarks", [visible(remark) for remark in remarks])
        if records:
            page.heading("Records")
        for record in records:
            page.unbroken(visible(str(record)))


def write_rows(page: Page, rows: Sequence[Row], *, baseline: str | None = None) -> None:
    """What `probe p2p` found, then the tables of `rows`, held against the config `baseline`, and what is below them."""
    for sentence in _conclusions(rows):
        page.line(sentence)
    tables = tables_of(rows)
    for table in tables:
        if table.kind == ALL_TO_ALL:
            write_all_to_all(page, table, baseline)
        elif table.kind == COLLECTIVE:
            _collective(page, table, _held_against(tables, table, baseline))
        elif table.by_pair:
            _pairs(page, table)
        else:
            _comparison(page, table, baseline)
        footnotes(page, table)
    if together := [row for table in tables if table.kind == ALL_TO_ALL for line in table.lines for row in line.rows]:
        write_convention(page, together)


def _conclusions(rows: Sequence[Row]) -> list[str]:
    """For each series of `probe p2p` the rate of its largest message and the latency of its smallest, with the lanes.

    Empty for more series than a person reads; then the tables of pairs say it.
    """
    measured = [row for row in rows if row.probe == "p2p" and row.source is None]
    series = grouped(measured, lambda row: (row.config, family(row.test), row.placement, row.memory, row.ranks))
    tests, pairs = ({key[at] for key in series} for at in (1, 4))
    found = []
    for (config, test, placement, memory, ranks), mine in series.items():
        of = [config, *([test] if len(tests) > 1 else []), placed(placement)]
        of += [f"{memory} memory"] if memory != "host" else []
        of += [f"ranks {' and '.join(map(str, ranks))}"] if len(pairs) > 1 else []
        parts = []
        for measure, name, pick in ((RATE, "", max), (ONE_WAY, " one way", min)):
            known = [row for row in mine if measure_of(row) is measure and measure.of(row) is not None]
            if known:
                row = pick(known, key=lambda each: each.size)
                parts.append(f"{_median(measure.of(row))} {measure.unit}{name} at {binary(row.size)}")
        lanes = dict.fromkeys(lane for row in mine for lane in row.selected)
        parts += [f"over {' and '.join(lanes)}"] if lanes else []
        found.append(f"{visible(', '.join(of))}: {visible(', '.join(parts))}.")
    return found if len(found) <= _CONCLUSIONS else []


def _comparison(page: Page, table: Table, baseline: str | None) -> None:
    ping_pong = table.kind == PING_PONG
    first = measure_of(table.lines[0].rows[0])
    measures = (ONE_WAY, THROUGHPUT) if ping_pong else (first,)
    page.heading(f"{table.title or 'Ping-pong'}: {' and '.join(_named(measure) for measure in measures)}")
    sizes = sorted({row.size for line in table.lines for row in line.rows})
    small = [size for size in sizes if ping_pong and size < 1024]
    for some, unit in ((small, 1), ([size for size in sizes if size not in small], 1024 if ping_pong else 1)):
        if some:
            _by_size(page, table, measures, some, unit, baseline)
    if any(line.config == baseline for line in table.lines) and _compared(table, baseline):
        page.line(f"Speed-up: ratio of medians; above 1 is better than {visible(str(baseline))}.", "dim")


def _named(measure: Measure) -> str:
    unit_note = _UNITS[measure.unit]
    return f"{measure.title} ({measure.unit}{'; ' * bool(unit_note)}{unit_note})"


def _compared(table: Table, baseline: str | None) -> list[Line]:
    """The lines that are held against the baseline's: those of other configs that were measured, too."""
    return [line for line in table.lines if line.config != baseline and not line.published]


def _by_size(
    page: Page, table: Table, measures: Sequence[Measure], sizes: Sequence[int], unit: int, baseline: str | None
) -> None:
    # On a terminal some of many sizes, evenly, with the first and the last.
    some = sizes if page.plain else [sizes[at] for at in thin(len(sizes), _SHOWN)]
    base = next((line for line in table.lines if line.config == baseline and not line.published), None)
    first = Column("Size\n(KiB)" if unit > 1 else "Size\n(B)", [_in_units(size, unit) for size in some])
    # A test that was not measured at these sizes has no columns.
    lines = [line for line in table.lines if any(line.at(size) is not None for size in some)]
    blocks: list[list[Column]] = []
    for line in lines:
        rows = [line.at(size) for size in some]
        ratios: list[str] = []
        if base is not None and line in _compared(table, baseline):
            ratios = [_speed_up(measures[0], base.at(size), row) for size, row in zip(some, rows, strict=True)]
        speed_up = Column(f"Speed-up over\n{visible(base.label)}", ratios) if base is not None and ratios else None
        columns = _figures(line, rows, measures, speed_up)
        blocks.append([*columns, Column("", [mark(row) for row in rows], text=True)])
    always = lines.index(base) if base in lines else None
    for part, chosen in enumerate(_abreast([first], blocks, always, page)):
        if part:
            page.line("")
        page.table(*chosen)
    if len(some) < len(sizes):
        page.line(f"Shown: {len(some)} of {len(sizes)} sizes; use --csv, --json or a pipe to get all.", "dim")


def _in_units(size: int, unit: int) -> str:
    return f"{size // unit:,}" if size % unit == 0 else f"{size / unit:,.2f}"


def _abreast(
    first: list[Column], blocks: Sequence[list[Column]], always: int | None, page: Page
) -> Iterator[list[Column]]:
    """As many blocks of columns as stand side by side; `always` is repeated in each table that has room for two."""
    room = _PIPE if page.plain else page.console.width
    kept = [*first, *(blocks[always] if always is not None else [])]
    if any(_width([*kept, *block]) > room for block in blocks):
        kept, always = list(first), None
    columns = list(kept)
    for index, block in enumerate(blocks):
        if index == always:
            continue
        if len(columns) > len(kept) and _width([*columns, *block]) > room:
            yield columns
            columns = list(kept)
        columns += block
    yield columns


def _width(columns: Sequence[Column]) -> int:
    shown = [column for column in columns if any(column.cells)]
    return sum(max(map(len, [*column.heading.split("\n"), *column.cells])) + _GAP for column in shown)


def _figures(
    line: Line, rows: Sequence[Row | None], measures: Sequence[Measure], speed_up: Column | None
) -> list[Column]:
    """The columns of a line; those of a measure that has no value are left out. `speed_up`: of the first measure."""
    columns = []
    for measure in measures:
        values = [measure.of(row) for row in rows]
        if not any(values) and measure is not measures[0]:
            continue
        columns.append(Column(f"{line.label}\n({measure.unit})", [_median(value) for value in values]))
        if measure is measures[0]:
            several = any(row.launches > 1 for row in line.rows)
            columns += [Column(f"min–max\n({measure.unit})", [_ends(value) for value in values])] if several else []
            columns += [speed_up] if speed_up is not None else []
    return columns


def _median(value: Range | None) -> str:
    return number(None if value is None else value.median)


def _ends(value: Range | None) -> str:
    return NULL if value is None else f"{number(value.low)}–{number(value.high)}"


def _speed_up(measure: Measure, base: Row | None, row: Row | None) -> str:
    old, new = measure.of(base), measure.of(row)
    if old is None or new is None or not old.median or not new.median:
        return NULL
    ratio = old.median / new.median if measure.less_is_better else new.median / old.median
    return number(ratio) if ratio >= 0.1 else f"{ratio:.2g}"


def _pairs(page: Page, table: Table) -> None:
    """Many pairs: one a row, at a few sizes."""
    measure = measure_of(table.lines[0].rows[0])
    page.heading(f"{table.title}: {_named(measure)}")
    sizes = sorted({row.size for line in table.lines for row in line.rows})
    some = [sizes[at] for at in thin(len(sizes), _PAIR_SIZES)]
    columns = [
        Column("Pair", [line.label for line in table.lines], text=True),
        Column("Placement", [placed(line.rows[0].placement) for line in table.lines], text=True),
    ]
    for size in some:
        values = [_median(measure.of(line.at(size))) for line in table.lines]
        columns.append(Column(f"{binary(size)}\n({measure.unit})", values))
    worst = [max((mark(row) for row in line.rows), key=len) for line in table.lines]
    page.table(*columns, Column("", worst, text=True))
    page.line("Medians at a few sizes; use --csv or --json to get all sizes with their ranges.", "dim")


def _held_against(tables: Sequence[Table], table: Table, baseline: str | None) -> Line | None:
    """What a collective is held against: the baseline's series of the same test, or the first test of its config."""
    line = table.lines[0]
    if line.published:
        return None
    measured = [other.lines[0] for other in tables if other.kind == COLLECTIVE and not other.lines[0].published]
    test = line.rows[0].test
    same_test = [other for other in measured if other.config == baseline and other.rows[0].test == test]
    same_config = [other for other in measured if other.config == line.config]
    found = next(iter(same_test if baseline not in (None, line.config) else same_config), None)
    return found if found is not line else None


def _collective(page: Page, table: Table, base: Line | None) -> None:
    (line,) = table.lines
    rows = line.rows
    page.heading(f"{rows[0].probe}, {table.title}: {_CONVENTION}")
    sizes = [
        Column("Count", ["" if row.count is None else f"{row.count:,}" for row in rows]),
        Column("Size of whole\nvector (B)", [f"{row.size:,}" for row in rows]),
    ]
    times = [
        Column("Time avg\n(µs)", [_median(TIME.of(row)) for row in rows]),
        Column("min\n(µs)", [_scaled(row.seconds_ranks[0], TIME) for row in rows]),
        Column("max\n(µs)", [_scaled(row.seconds_ranks[1], TIME) for row in rows]),
    ]
    if base is not None:
        other = base.config if base.config != line.config else base.rows[0].test
        ratios = [_speed_up(TIME, base.at(row.size), row) for row in rows]
        times.append(Column(f"Speed-up over\n{visible(other)}", ratios))
    rates = [
        Column("Bus bandwidth avg\n(GB/s)", [_median(BUS.of(row)) for row in rows]),
        Column("max\n(GB/s)", [_scaled(row.bandwidth_ranks[1], BUS) for row in rows]),
        Column("min\n(GB/s)", [_scaled(row.bandwidth_ranks[0], BUS) for row in rows]),
        Column("Wrong\nelements", [NULL if row.wrong is None else f"{row.wrong:,}" for row in rows]),
        Column("", [mark(row) for row in rows], text=True),
    ]
    page.wide_table(sizes, times, rates)
    page.line("min and max are over ranks and launches.", "dim")


def _scaled(value: float | None, measure: Measure) -> str:
    return number(None if value is None else value / measure.scale)

"""The rows of network measurements as tables for people: one config beside another, one placement beside another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TextIO

from merge_bench.campaign.importers import importers
from merge_bench.errors import WarningMessage
from merge_bench.probe.ranks.ucc import SHARP_ASKED
from merge_bench.probe.shared import (
    ALL_TO_ALL,
    BUS,
    COLLECTIVE,
    ONE_WAY,
    OPERATION,
    PING_PONG,
    RATE,
    RATE_TEST,
    SLOWEST,
    TIME,
    WORKER_RATE,
    RowQuantity,
    placement_text,
    test_family_name,
)
from merge_bench.probe.shared.stored_rows import chart_quantity_of_row, row_test_kind, table_quantities_of_row
from merge_bench.records.probe_rows import MedianAndRange, ProbeRow
from merge_bench.units import count_with_noun
from merge_bench.view.content import Column, PageBuilder, group_by_key
from merge_bench.view.suggested_command import service_machine_suffix
from merge_bench.view.terminal import print_page_at_exit
from merge_bench.view.text import NULL, evenly_spread_indexes, format_number, format_ratio, format_with_binary_prefix

_SHOWN = 40
_PAIR_SIZES = 4
_SUMMARY_SIZES = 6
_CONCLUSIONS = 6
_UNITS = {ONE_WAY.unit: "", RATE.unit: "1 MB = 10⁶ B, as OSU counts", BUS.unit: "1 GB = 10⁹ B"}
_COLLECTIVE = (
    f"mean time t ({TIME.unit}), bus bandwidth (S ÷ t) · (N − 1) ÷ N ({BUS.unit}; {_UNITS[BUS.unit]}), "
    "S: bytes of the whole source vector of each of N ranks"
)
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
_DELAY = "-delay"
_MPI = {"std": "MPI_Send", "buff": "MPI_Bsend", "osu_latency": "MPI", "osu_bw": "MPI"}
WITHOUT = "For UCX's own times beside these, run `probe p2p` with the same --results."
TOGETHER = (COLLECTIVE, ALL_TO_ALL, OPERATION)
"""Kinds of tests that all ranks take part in."""
MOST_SIDE_BY_SIDE = 4
"""Pairs of ranks that get columns, or tables, of their own; more are the rows of one table."""
OTHER_LANES, WRONG, REMARK = "!", "!!", "*"


def print_row_tables(
    rows: Sequence[ProbeRow],
    *,
    baseline: str | None = None,
    warnings: Sequence[WarningMessage] = (),
    remarks: Sequence[str] = (),
    records: Sequence[object] = (),
    file: TextIO | None = None,
    width: int | None = None,
) -> None:
    """Print the tables of measured rows of probes on `file`, by default standard output.

    A terminal shows about 40 of many sizes, a pipe all.

    `baseline`: the config that others are compared with; a speed-up is a ratio of medians, above 1 if it is better;
    `remarks`, `records`: sentences for the end, and where the records are.
    """
    with print_page_at_exit(file, width) as page:
        write_row_tables(page, rows, baseline=baseline)
        page.add_warnings(warnings)
        page.add_paragraphs("Remarks", remarks)
        if records:
            page.add_heading("Records")
        for record in records:
            page.add_unwrapped_line(str(record))


def print_mpi_summary(
    rows: Sequence[ProbeRow],
    ucx_rows: Sequence[ProbeRow],
    *,
    warnings: Sequence[WarningMessage] = (),
    remarks: Sequence[str] = (),
    records: Sequence[object] = (),
    file: TextIO | None = None,
    width: int | None = None,
) -> None:
    """Print the short output of `probe mpi`: times at a few sizes for each config, placement and pair of ranks.

    `ucx_rows`: rows of `probe p2p` on this host, for the column beside MPI's; other parameters as of
    `print_row_tables`.
    """
    with print_page_at_exit(file, width) as page:
        tables = group_by_key(rows, lambda row: (row.config, row.placement, row.ranks))
        for (config, placement, ranks), mine in tables.items():
            of = f", ranks {ranks[0]} and {ranks[1]}" if len(ranks) == 2 and len(tables) > 1 else ""
            beside = [row for row in ucx_rows if row.placement == placement]
            _write_mpi_and_ucx_table(page, f"{config}, {placement_text(placement)}{of}", mine, beside)
        if rows:
            method = rows[0].method.partition(", one message")[0]
            page.add_paragraph(f"{method}; medians over {count_with_noun(rows[0].launches, 'launch')}", "dim")
            ours = next((each for each in ucx_rows if each.placement in {row.placement for row in rows}), None)
            page.add_paragraph(f"UCX: probe p2p, {ours.method}, config {ours.config}" if ours else WITHOUT, "dim")
            stored = f", or `show {records[0]} --details`" if len(records) == 1 else ""
            page.add_paragraph(f"All sizes, ranges and lanes: --details{stored}", "dim")
        page.add_warnings(warnings)
        for remark in remarks:
            page.add_paragraph(remark)
        for path in records:
            page.add_unwrapped_line(f"Records: {path}{service_machine_suffix()}")


def write_row_tables(page: PageBuilder, rows: Sequence[ProbeRow], *, baseline: str | None = None) -> None:
    """Write tables of measured rows with footnotes, compared with a baseline config; sentences on `p2p` come first."""
    for sentence in _p2p_conclusions(rows):
        page.add_paragraph(sentence)
    tables = make_series_tables(rows)
    together = [series for table in tables if table.kind == COLLECTIVE for series in table.series]
    for table in tables:
        if table.kind == ALL_TO_ALL:
            _write_all_to_all_table(page, table, baseline)
        elif table.kind == COLLECTIVE:
            _write_reduce_scatter_table(page, table, _speed_up_base_series(table.series[0], together, baseline))
        elif table.by_pair:
            _write_rank_pair_table(page, table)
        else:
            _write_comparison_tables(page, table, baseline)
        _write_footnotes(page, table)
    if exchanged := [
        row for table in tables if table.kind == ALL_TO_ALL for series in table.series for row in series.rows
    ]:
        _write_all_to_all_legend(page, exchanged)


def _p2p_conclusions(rows: Sequence[ProbeRow]) -> list[str]:
    """Return a sentence for each series of `probe p2p`: bandwidth at the largest size, latency at the smallest, lanes.

    Empty for more than 6 series; then the tables show these figures.
    """
    measured = [row for row in rows if row.probe == "p2p" and row.source is None]
    series = group_by_key(
        measured, lambda row: (row.config, test_family_name(row.test), row.placement, row.memory, row.ranks)
    )
    tests, pairs = ({key[at] for key in series} for at in (1, 4))
    sentences = []
    for (config, test, placement, memory, ranks), mine in series.items():
        of = [config, *([test] if len(tests) > 1 else []), placement_text(placement)]
        of += [f"{memory} memory"] if memory != "host" else []
        of += [f"ranks {' and '.join(map(str, ranks))}"] if len(pairs) > 1 else []
        parts = []
        for quantity, name, pick in ((RATE, "", max), (ONE_WAY, " one way", min)):
            valued = [
                row for row in mine if chart_quantity_of_row(row) is quantity and quantity.value_range(row) is not None
            ]
            if valued:
                row = pick(valued, key=lambda row: row.size)
                parts.append(
                    f"{_median_text(quantity, row)} {quantity.unit}{name} at {format_with_binary_prefix(row.size)}"
                )
        lanes = dict.fromkeys(lane for row in mine for lane in row.selected)
        parts += [f"over {' and '.join(lanes)}"] if lanes else []
        sentences.append(f"{', '.join(of)}: {', '.join(parts)}.")
    return sentences if len(sentences) <= _CONCLUSIONS else []


def _write_comparison_tables(page: PageBuilder, table: SeriesTable, baseline: str | None) -> None:
    ping_pong = table.kind == PING_PONG
    rows = [row for series in table.series for row in series.rows]
    quantities = table_quantities_of_row(rows[0])
    if not ping_pong:
        quantities = tuple(each for each in quantities if any(map(each.value_range, rows))) or quantities[:1]
    page.add_heading(
        f"{table.title or 'Ping-pong'}: {' and '.join(_quantity_heading(quantity) for quantity in quantities)}"
    )
    sizes = sorted({row.size for series in table.series for row in series.rows})
    small = [size for size in sizes if ping_pong and size < 1024]
    for group, unit in ((small, 1), ([size for size in sizes if size not in small], 1024 if ping_pong else 1)):
        if group:
            _write_size_table(page, table, quantities, group, unit, baseline)
    if any(series.config == baseline for series in table.series) and _series_compared_with_baseline(table, baseline):
        page.add_paragraph(f"Speed-up: ratio of medians; above 1 is better than {baseline}.", "dim")


def _quantity_heading(quantity: RowQuantity) -> str:
    return f"{quantity.title} ({'; '.join(filter(None, (quantity.unit, _UNITS[quantity.unit])))})"


def _series_compared_with_baseline(table: SeriesTable, baseline: str | None) -> list[TableSeries]:
    """Return the series of a table that are compared with the baseline: those of other configs, no published ones."""
    return [series for series in table.series if series.config != baseline and not series.published]


def _write_size_table(
    page: PageBuilder,
    table: SeriesTable,
    quantities: Sequence[RowQuantity],
    sizes: Sequence[int],
    size_unit_bytes: int,
    baseline: str | None,
) -> None:
    # On a terminal some of many sizes, evenly, with the first and the last.
    shown_sizes = sizes if page.plain else [sizes[at] for at in evenly_spread_indexes(len(sizes), _SHOWN)]
    base = next((series for series in table.series if series.config == baseline and not series.published), None)
    first = [
        Column(
            "Size\n(KiB)" if size_unit_bytes > 1 else "Size\n(B)",
            [_size_text(size, size_unit_bytes) for size in shown_sizes],
        )
    ]
    # A test that was not measured at these sizes has no columns.
    lines = [series for series in table.series if any(size in series.by_size for size in shown_sizes)]
    blocks: list[list[Column]] = []
    for series in lines:
        rows, speed_up = [series.by_size.get(size) for size in shown_sizes], None
        if base is not None and series in _series_compared_with_baseline(table, baseline):
            pairs = zip((base.by_size.get(size) for size in shown_sizes), rows, strict=True)
            speed_up = Column(f"Speed-up over\n{base.label}", [_speed_up_text(quantities[0], *pair) for pair in pairs])
        blocks.append([*_series_columns(series, rows, quantities, speed_up), _footnote_mark_column(rows)])
    if base in lines:  # beside the others wherever a terminal has no room for all
        first += blocks.pop(lines.index(base))
    page.add_wide_table(first, *blocks)
    if len(shown_sizes) < len(sizes):
        page.add_paragraph(
            f"Shown: {len(shown_sizes)} of {len(sizes)} sizes; use --csv, --json or a pipe to get all.", "dim"
        )


def _size_text(size_bytes: int, unit_bytes: int) -> str:
    return f"{size_bytes // unit_bytes:,}" if size_bytes % unit_bytes == 0 else f"{size_bytes / unit_bytes:,.2f}"


def _series_columns(
    series: TableSeries, rows: Sequence[ProbeRow | None], quantities: Sequence[RowQuantity], speed_up: Column | None
) -> list[Column]:
    """Return the table columns of one series: medians of each quantity that has a value, and minimum to maximum.

    `speed_up`: the column with the speed-up, put after the first quantity.
    """
    columns = []
    for quantity in quantities:
        values = [quantity.value_range(row) for row in rows]
        if not any(values) and quantity is not quantities[0]:
            continue
        columns.append(_median_column(f"{series.label}\n({quantity.unit})", quantity, rows))
        if quantity is quantities[0]:
            if any(row.launches > 1 for row in series.rows):
                columns.append(Column(f"min–max\n({quantity.unit})", [_min_max_text(value) for value in values]))
            columns += [speed_up] if speed_up is not None else []
    return columns


def _median_column(heading: str, quantity: RowQuantity, rows: Sequence[ProbeRow | None]) -> Column:
    return Column(heading, [_median_text(quantity, row) for row in rows])


def _median_text(quantity: RowQuantity, row: ProbeRow | None) -> str:
    value = quantity.value_range(row)
    return format_number(None if value is None else value.median)


def _footnote_mark_column(rows: Sequence[ProbeRow | None]) -> Column:
    return Column("", [_footnote_mark(row) for row in rows], text=True)


def _min_max_text(value: MedianAndRange | None) -> str:
    return NULL if value is None else f"{format_number(value.low)}–{format_number(value.high)}"


def _speed_up_value_text(value: float | None) -> str:
    return format_number(value) if value is None or value >= 0.1 else f"{value:.2g}"


def _speed_up_text(
    quantity: RowQuantity,
    base_row: ProbeRow | None,
    row: ProbeRow | None,
    format_value: Callable[[float | None], str] = _speed_up_value_text,
) -> str:
    old, new = quantity.value_range(base_row), quantity.value_range(row)
    if old is None or new is None or not old.median or not new.median:
        return format_value(None)
    return format_value(old.median / new.median if quantity.less_is_better else new.median / old.median)


def _write_rank_pair_table(page: PageBuilder, table: SeriesTable) -> None:
    """Write the table of many pairs of ranks: a row for each pair, a column for each of a few message sizes."""
    quantity = chart_quantity_of_row(table.series[0].rows[0])
    page.add_heading(f"{table.title}: {_quantity_heading(quantity)}")
    sizes = sorted({row.size for series in table.series for row in series.rows})
    shown_sizes = [sizes[at] for at in evenly_spread_indexes(len(sizes), _PAIR_SIZES)]
    rows_by_size = [(size, [series.by_size.get(size) for series in table.series]) for size in shown_sizes]
    page.add_table(
        Column("Pair", [series.label for series in table.series], text=True),
        Column("Placement", [placement_text(series.rows[0].placement) for series in table.series], text=True),
        *(
            _median_column(f"{format_with_binary_prefix(size)}\n({quantity.unit})", quantity, at_size)
            for size, at_size in rows_by_size
        ),
        Column("", [max((_footnote_mark(row) for row in series.rows), key=len) for series in table.series], text=True),
    )
    page.add_paragraph("Medians at a few sizes; use --csv or --json to get all sizes with their ranges.", "dim")


def _speed_up_base_series(
    series: TableSeries, all_series: Sequence[TableSeries], baseline: str | None
) -> TableSeries | None:
    """Return the series that `series` is compared with: the baseline's, or its own config's first test; or None."""
    measured = [other for other in all_series if not other.published]
    same_test = [other for other in measured if other.config == baseline and other.rows[0].test == series.rows[0].test]
    same_config = [other for other in measured if other.config == series.config]
    base = next(iter(same_test if baseline not in (None, series.config) else same_config), None)
    return None if base is series or series.published else base


def _write_reduce_scatter_table(page: PageBuilder, table: SeriesTable, base_series: TableSeries | None) -> None:
    """Write the table of one series of reduce-scatter, with speed-ups over `base_series`."""
    (series,) = table.series
    rows = series.rows
    page.add_heading(f"{rows[0].probe}, {table.title}: {_COLLECTIVE}")
    sizes = [
        Column("Count", ["" if row.count is None else f"{row.count:,}" for row in rows]),
        Column("Size of whole\nvector (B)", [f"{row.size:,}" for row in rows]),
    ]
    times = [
        _median_column("Time avg\n(µs)", TIME, rows),
        Column("min\n(µs)", [_value_in_unit_text(row.seconds_ranks[0], TIME) for row in rows]),
        Column("max\n(µs)", [_value_in_unit_text(row.seconds_ranks[1], TIME) for row in rows]),
    ]
    if base_series is not None:
        other = base_series.config if base_series.config != series.config else base_series.rows[0].test
        ratios = [_speed_up_text(TIME, base_series.by_size.get(row.size), row) for row in rows]
        times.append(Column(f"Speed-up over\n{other}", ratios))
    rates = [
        _median_column("Bus bandwidth avg\n(GB/s)", BUS, rows),
        Column("max\n(GB/s)", [_value_in_unit_text(row.bandwidth_ranks[1], BUS) for row in rows]),
        Column("min\n(GB/s)", [_value_in_unit_text(row.bandwidth_ranks[0], BUS) for row in rows]),
        Column("Wrong\nelements", [NULL if row.wrong is None else f"{row.wrong:,}" for row in rows]),
        _footnote_mark_column(rows),
    ]
    page.add_wide_table(sizes, times, rates)
    page.add_paragraph("min and max are over ranks and launches.", "dim")


def _value_in_unit_text(value: float | None, quantity: RowQuantity) -> str:
    return format_number(None if value is None else value / quantity.scale)


def _write_all_to_all_table(page: PageBuilder, table: SeriesTable, baseline: str | None) -> None:
    """Write a table of all-to-all with time, rate, share of the link and ratio for each size, backend and config."""
    rows = [row for series in table.series for row in series.rows]
    uneven = rows[0].count is not None
    page.add_heading(f"All-to-all, {table.title}: {UNEVEN if uneven else EQUAL}")
    points = sorted({(row.size, row.count or 0) for row in rows})
    sizes = [Column("Rows of\na chunk", [f"{count:,}" for _, count in points])] if uneven else []
    sizes.append(Column("Mean size\n(B)" if uneven else "Size\n(B)", [f"{size:,}" for size, _ in points]))

    def rows_at_points(series: TableSeries) -> list[ProbeRow | None]:
        by_point = {(row.size, row.count or 0): row for row in series.rows}
        return [by_point.get(point) for point in points]

    blocks = []
    for series in table.series:
        measured, base = rows_at_points(series), _speed_up_base_series(series, table.series, baseline)
        shares = [None if row is None else row.link_share for row in measured]
        columns = [
            _median_column(f"{series.label}\n(µs)", SLOWEST, measured),
            _median_column(f"{series.label}\n(GB/s)", WORKER_RATE, measured),
        ]
        if any(share is not None for share in shares):
            columns.append(Column("of link", [NULL if share is None else f"{share:.1%}" for share in shares]))
        if base is not None:
            ratios = [
                _speed_up_text(WORKER_RATE, *pair, format_ratio)
                for pair in zip(rows_at_points(base), measured, strict=True)
            ]
            columns.append(Column(f"÷ {base.label}\n(GB/s)", ratios))
        blocks.append([*columns, _footnote_mark_column(measured)])
    page.add_wide_table(sizes, *blocks)


def _write_all_to_all_legend(page: PageBuilder, rows: Sequence[ProbeRow]) -> None:
    """Write an explanation of the columns of all-to-all tables, once below all of them."""
    page.add_paragraph(CONVENTION, "dim")
    for origin in dict.fromkeys(row.link_limit_from for row in rows if row.link_limit_from):
        page.add_paragraph(f"Of link: what the busiest rank reached of {_LIMITS.get(origin, origin)}.", "dim")
    if any(row.link_limit is None and len(row.ranks) == 2 for row in rows):
        page.add_paragraph(NO_LIMIT, "dim")


def _write_mpi_and_ucx_table(
    page: PageBuilder, title: str, mpi_rows: Sequence[ProbeRow], ucx_rows: Sequence[ProbeRow]
) -> None:
    """Write a table of MPI's times at a few message sizes, beside the times of UCX without MPI.

    `mpi_rows`, `ucx_rows`: rows of `probe mpi`, and of `probe p2p`.
    """
    latencies = [row for row in mpi_rows if row_test_kind(row) != RATE_TEST]
    tests = list(dict.fromkeys(row.test.removesuffix(_DELAY) for row in latencies))
    sizes = sorted({row.size for row in mpi_rows})
    sizes = [sizes[at] for at in evenly_spread_indexes(len(sizes), _SUMMARY_SIZES)]
    times = {(row.test.removesuffix(_DELAY), row.size): row for row in latencies}
    rates = {row.size: row for row in mpi_rows if row.bandwidth_median is not None and row.test in ("std", "osu_bw")}
    ours = {row.size: row for row in ucx_rows}
    page.add_heading(f"{title}: time of a message in one direction")
    columns = [Column("Size", [format_with_binary_prefix(size) for size in sizes])]
    for test in tests:
        at_sizes = [times.get((test, size)) for size in sizes]
        columns.append(_median_column(f"{_MPI.get(test, test)}\n(µs)", ONE_WAY, at_sizes))
    if ours and tests:
        columns.append(_median_column("UCX\n(µs)", ONE_WAY, [ours.get(size) for size in sizes]))
        ratios = [_speed_up_text(ONE_WAY, times.get((tests[0], size)), ours.get(size), format_ratio) for size in sizes]
        columns.append(Column(f"{_MPI.get(tests[0], tests[0])}\n÷ UCX", ratios))
    rated = _MPI["osu_bw" if "osu_latency" in tests else "std"]
    page.add_table(*columns, _median_column(f"{rated}\n(MB/s)", RATE, [rates.get(size) for size in sizes]))


class TableSeries:
    """One series in a table: its label, unique in that table, and its rows sorted by size."""

    def __init__(self, label: str, rows: Sequence[ProbeRow]) -> None:
        self.label, self.config, self.published = label, rows[0].config, rows[0].source is not None
        self.rows = sorted(rows, key=lambda row: (row.size, row.count or 0))
        self.by_size = {row.size: row for row in self.rows}


@dataclass(frozen=True)
class SeriesTable:
    """A table to print: its title, and all its series.

    `by_pair`: whether each series is a row of the table, because there are many pairs of ranks.
    """

    kind: str
    title: str
    series: Sequence[TableSeries]
    by_pair: bool


def make_series_tables(rows: Sequence[ProbeRow]) -> list[SeriesTable]:
    """Group measured and published rows into the tables that are printed.

    Several configs are compared: a table for each test, placement and pair, with a column a config. One config: a table
    for each test (all tests of a ping-pong together), with a column a placement. Collectives: a table for each series.
    All-to-all: a table for each set of ranks, with all configs and backends. Published rows join the table of the same
    test and placement if there is just one; else they have their own.
    """
    measured = [row for row in rows if row.source is None]
    several = len({row.config for row in measured}) > 1
    groups: dict[tuple[object, ...], list[ProbeRow]] = {}
    for row in measured:
        many = len({other.ranks for other in measured if _is_same_test(other, row)}) > MOST_SIDE_BY_SIDE
        key = _table_group_key(row, several_configs=several, by_pair=many and row_test_kind(row) not in TOGETHER)
        groups.setdefault(key, []).append(row)
    for row in rows:
        if row.source is not None:
            _table_group_of_published_row(groups, row).append(row)
    return [_make_series_table(found, by_pair=bool(key[1])) for key, found in groups.items()]


def _is_same_test(row: ProbeRow, other_row: ProbeRow) -> bool:
    return (row.probe, row.test, row.memory) == (other_row.probe, other_row.test, other_row.memory)


def _table_group_key(row: ProbeRow, *, several_configs: bool, by_pair: bool) -> tuple[object, ...]:
    kind = row_test_kind(row)
    if kind == COLLECTIVE:
        return kind, False, row.series_key
    if kind == ALL_TO_ALL:
        return kind, False, row.placement, row.ranks, row.memory, row.count is not None
    test = "" if kind == PING_PONG and not several_configs else row.test
    place = (row.placement, row.ranks) if several_configs and not by_pair else ()
    return kind, by_pair, row.probe, test, row.memory, place


def _table_group_of_published_row(groups: dict[tuple[object, ...], list[ProbeRow]], row: ProbeRow) -> list[ProbeRow]:
    kind = row_test_kind(row)
    alike = [
        found
        for (_, by_pair, *_), found in groups.items()
        if not by_pair
        and kind != COLLECTIVE
        and any(_is_same_test(one, row) and one.placement == row.placement and one.source is None for one in found)
    ]
    if len(alike) == 1:
        return alike[0]
    series = row.series_key if kind == COLLECTIVE else (row.test if kind != PING_PONG else "", row.memory)
    return groups.setdefault((kind, False, "published", row.source, series), [])


def _make_series_table(rows: Sequence[ProbeRow], *, by_pair: bool) -> SeriesTable:
    def rows_differ_in(value_of_row: Callable[[ProbeRow], object]) -> bool:
        return len({value_of_row(row) for row in rows}) > 1

    tests, placements = rows_differ_in(lambda row: row.test), rows_differ_in(lambda row: row.placement)
    pairs = {(row.placement, row.ranks) for row in rows if row.ranks}
    ranks = len(pairs) > len({placement for placement, _ in pairs})
    title: list[Callable[[ProbeRow], str]] = []
    heading: list[Callable[[ProbeRow], str]] = []
    for varies, of in (
        (rows_differ_in(lambda row: (row.config, row.source)), lambda row: row.config),
        (tests, lambda row: row.test),
        (placements, lambda row: placement_text(row.placement)),
        (ranks, _ranks_text),
    ):
        (heading if varies else title).append(of)
    if not ranks and len(pairs) > 1:
        title.remove(_ranks_text)  # the placements have a pair each

    def join_row_texts(row: ProbeRow, text_functions: Sequence[Callable[[ProbeRow], str]]) -> str:
        return ", ".join(filter(None, (of(row) for of in text_functions)))

    lines = []
    for mine in group_by_key(rows, lambda row: (row.series_key, row.source)).values():
        origin = "" if mine[0].source is None else " (file)" if mine[0].is_from_user_file else " (published)"
        lines.append(TableSeries((join_row_texts(mine[0], heading) or mine[0].config) + origin, mine))
    memory = ", cuda memory" if rows[0].memory == "cuda" else ""
    return SeriesTable(row_test_kind(rows[0]), join_row_texts(rows[0], title) + memory, lines, by_pair)


def _ranks_text(row: ProbeRow) -> str:
    if row_test_kind(row) in TOGETHER:
        return f"{len(row.ranks)} ranks" if row.ranks else ""
    return f"rank {' to '.join(map(str, row.ranks))}" if len(row.ranks) in (1, 2) else ""


def _footnote_mark(row: ProbeRow | None) -> str:
    """Return the footnote mark of a row: for a wrong result, other transports than requested, or a remark."""
    if row is None or row.wrong:
        return WRONG if row else ""
    return OTHER_LANES if row.as_requested is False else REMARK if row.note else ""


def _write_footnotes(page: PageBuilder, table: SeriesTable) -> None:
    """Write below `table` how each series was measured; series with the same sentences share one footnote."""
    for sentences, lines in group_by_key(table.series, lambda line: tuple(_footnote_sentences(line.rows))).items():
        (first, _), *rest = sentences
        labels = "; ".join(series.label for series in lines) if len(lines) <= 8 else f"all {len(lines)}"
        page.add_paragraph(f"{labels}: {first}", "dim")
        for text, style in rest:
            page.add_paragraph(text, style, indent=2)


def _footnote_sentences(rows: Sequence[ProbeRow]) -> list[tuple[str, str]]:
    """Return the footnotes of a series, each a sentence with its text style: method, transports, protocols, doubts."""
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
        (f"requested: {requested or ('not known' if first.probe in importers() else 'nothing')}", "dim"),
        (f"selected: {', '.join(lanes) or 'not known'}", "dim"),
        (f"protocols: {_protocols_text(rows) or 'not known'}", "dim"),
        *_doubt_footnotes(rows, first.requested.get("UCX_TLS"), lanes),
        *notes,
    ]


def _hosts_text(rows: Sequence[ProbeRow]) -> str:
    """Return the names of the hosts of `rows`, or their number if they are many."""
    hosts = list(dict.fromkeys(row.hosts for row in rows if row.hosts))
    if len(hosts) != 1:
        return ""
    names = list(dict.fromkeys(hosts[0]))
    return f"; on {' and '.join(names) if len(names) < 3 else f'{len(names)} hosts'}"


def _doubt_footnotes(
    rows: Sequence[ProbeRow], requested_transports: str | None, lanes: Sequence[str]
) -> list[tuple[str, str]]:
    doubts = []
    other = [row for row in rows if row.as_requested is False]
    if other:
        used = f"UCX selected {', '.join(lanes) or '?'}"
        though = (
            f" although UCX_TLS={requested_transports} was requested"
            if requested_transports
            else ", not only the requested ones"
        )
        if other[0].test.endswith(SHARP_ASKED):
            used = f"{' / '.join(dict.fromkeys(row.protocol or '?' for row in other))} was used"
            though = " although SHARP was requested"
        doubts.append((f"{OTHER_LANES} {_marked_sizes_text(other, rows)}: {used}{though}", "bold yellow"))
    if requested_transports is not None and not lanes:
        doubts.append(("unknown whether the requested transports were used", "dim"))
    if wrong := [row for row in rows if row.wrong]:
        result = "WRONG RESULT; the table shows the number of wrong elements"
        doubts.append((f"{WRONG} {_marked_sizes_text(wrong, rows)}: {result}", "bold red"))
    return doubts


def _marked_sizes_text(marked_rows: Sequence[ProbeRow], all_rows: Sequence[ProbeRow]) -> str:
    if len(marked_rows) == len(all_rows):
        return "every size"
    return (
        format_with_binary_prefix(marked_rows[0].size)
        if len(marked_rows) == 1
        else f"{len(marked_rows)} of {len(all_rows)} sizes"
    )


def _protocols_text(rows: Sequence[ProbeRow]) -> str:
    """Return a text with UCX's protocol for each range of message sizes: ``1 B to 8 KiB short; …``."""
    if all(row.protocol is None for row in rows):
        return ""
    runs = [list(run) for _, run in groupby(rows, lambda row: row.protocol)]
    spans = (
        " to ".join(dict.fromkeys((format_with_binary_prefix(run[0].size), format_with_binary_prefix(run[-1].size))))
        for run in runs
    )
    return "; ".join(f"{span} {run[0].protocol or 'not known'}" for span, run in zip(spans, runs, strict=True))

"""The short output of `probe mpi`: a few sizes, MPI's times beside those that UCX reached without MPI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from merge_bench.errors import Caution
from merge_bench.probe.shared.base import ONE_WAY, RATE_TEST, kind_of, placed
from merge_bench.records.probe_rows import Row
from merge_bench.view.numbers import binary, number, ratio, thin
from merge_bench.view.report.layout import Column, Page, grouped, page_on
from merge_bench.view.report.next_step import elsewhere
from merge_bench.view.report.run_sections import warnings as write_warnings
from merge_bench.view.text import visible

SIZES = 6
DELAY = "-delay"
NAMES = {"std": "MPI_Send", "buff": "MPI_Bsend", "osu_latency": "MPI", "osu_bw": "MPI"}
WITHOUT = "For UCX's own times beside these, run `probe p2p` with the same --results."


def print_summary(
    rows: Sequence[Row], ucx: Sequence[Row], *, warnings: Sequence[Caution] = (), remarks: Sequence[str] = (),
    records: Sequence[object] = (), file: TextIO | None = None, width: int | None = None,
) -> None:  # fmt: skip
    """Print a table for each config, placement and pair of ranks; other parameters as of `print_rows`.

    `ucx`: rows of `probe p2p` on this host, for the column beside MPI's.
    """
    with page_on(file, width) as page:
        tables = grouped(rows, lambda row: (row.config, row.placement, row.ranks))
        for (config, placement, ranks), mine in tables.items():
            of = f", ranks {ranks[0]} and {ranks[1]}" if len(ranks) == 2 and len(tables) > 1 else ""
            beside = [each for each in ucx if each.placement == placement]
            _table(page, f"{visible(config)}, {placed(placement)}{of}", mine, beside)
        if rows:
            page.line(visible(f"{rows[0].method.partition(', one message')[0]}; medians over {rows[0].launches}"
                              f" launch{'es' * (rows[0].launches > 1)}"), "dim")  # fmt: skip
            ours = next((each for each in ucx if each.placement in {row.placement for row in rows}), None)
            page.line(visible(f"UCX: probe p2p, {ours.method}, config {ours.config}") if ours else WITHOUT, "dim")
            page.line("All sizes, ranges and lanes: --details, or `show --details` of the records.", "dim")
        if warnings:
            page.heading("Warnings")
            write_warnings(page, warnings)
        for remark in remarks:
            page.line(visible(remark))
        for each in records:
            page.unbroken(visible(f"Records: {each}{elsewhere()}"))


def _table(page: Page, title: str, rows: Sequence[Row], ucx: Sequence[Row]) -> None:
    latencies = [row for row in rows if kind_of(row) != RATE_TEST]
    tests = list(dict.fromkeys(row.test.removesuffix(DELAY) for row in latencies))
    sizes = sorted({row.size for row in rows})
    sizes = [sizes[at] for at in thin(len(sizes), SIZES)]
    times = {(row.test.removesuffix(DELAY), row.size): row for row in latencies}
    rates = {row.size: row for row in rows if row.bandwidth_median is not None and row.test in ("std", "osu_bw")}
    ours = {row.size: row for row in ucx}
    page.heading(f"{title}: time of a message in one direction")
    columns = [Column("Size", [binary(size) for size in sizes])]
    for test in tests:
        name = NAMES.get(test, test)
        columns.append(Column(f"{name}\n(µs)", [_micros(times.get((test, size))) for size in sizes]))
    if ours and tests:
        columns.append(Column("UCX\n(µs)", [_micros(ours.get(size)) for size in sizes]))
        pairs = [(times.get((tests[0], size)), ours.get(size)) for size in sizes]
        columns.append(Column(f"{NAMES.get(tests[0], tests[0])}\n÷ UCX", [_ratio(*pair) for pair in pairs]))
    columns.append(Column(f"{NAMES.get('osu_bw' if 'osu_latency' in tests else 'std')}\n(MB/s)",
                          [_rate(rates.get(size)) for size in sizes]))  # fmt: skip
    page.table(*columns)


def _micros(row: Row | None) -> str:
    value = ONE_WAY.of(row)
    return number(None if value is None else value.median)


def _rate(row: Row | None) -> str:
    return number(None if row is None or row.bandwidth_median is None else row.bandwidth_median / 1e6)


def _ratio(mpi: Row | None, ucx: Row | None) -> str:
    if mpi is None or ucx is None or not mpi.seconds_median or not ucx.seconds_median:
        return ratio(None)
    return ratio(mpi.seconds_median / ucx.seconds_median)

"""The part of the report about transports: configured, selected, by message size, and what the devices counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TextIO

from merge_bench.analysis.documents import Lane, Pair, Protocols, Traffic, TransportsDocument
from merge_bench.records.schema import SizeRange
from merge_bench.report.bindings import write_bindings
from merge_bench.view.content import Column, Page, by_pair, by_row, grouped
from merge_bench.view.numbers import mib
from merge_bench.view.terminal import page_on

_PAIRS_SHOWN = 6
_LARGEST_MATRIX = 8
_PERIOD_HEADINGS = {"iterations": "Timed\niterations (MiB)", "link": "Link\nmeasurement (MiB)"}


def print_survey(document: TransportsDocument, *, show_available: bool, file: TextIO | None = None) -> None:
    """Print the transports of a cluster on `file` (standard output)."""
    with page_on(file) as page:
        write_selected(page, document.pairs, document.requested)
        write_matrix(page, document.pairs)
        write_protocols(page, group_by_protocols(document.pairs))
        write_bindings(page, document.bindings)
        if show_available:
            write_available(page, document.available)
        page.warnings(document.warnings)


def group_by_protocols(pairs: Sequence[Pair]) -> Sequence[Protocols]:
    """Group pairs of workers that have the same protocols, for `write_protocols`."""
    return [
        Protocols(pairs=[(pair.from_rank, pair.to_rank) for pair in alike], ranges=list(ranges))
        for ranges, alike in grouped(pairs, lambda pair: tuple(pair.protocols)).items()
    ]


def write_selected(page: Page, lanes: Sequence[Lane], requested: Mapping[str, str]) -> None:
    """Put the configured and the selected transports on a page; worker pairs with the same transports share a row."""
    if not lanes:
        return
    page.heading("Transports that UCX selected")
    if requested:
        page.line("configured: " + ", ".join(f"{name}={value}" for name, value in requested.items()))
    groups = grouped(lanes, lambda lane: (", ".join(lane.transports) or "none", lane.placement or ""))
    if len(groups) == 1:
        transports, placement = next(iter(groups))
        where = f", {placement}" if placement else ""
        page.line(f"selected: {transports} (all {len(lanes)} pairs{where})")
        return
    rows = [
        (_pairs_text([(lane.from_rank, lane.to_rank) for lane in alike]), placement, transports)
        for (transports, placement), alike in groups.items()
    ]
    page.table(*by_row(("Pairs", "Placement", "Transports selected"), rows, range(3)))


def write_matrix(page: Page, lanes: Sequence[Lane]) -> None:
    """Put a matrix of the transports from each worker to each other on a page, if workers are few."""
    cells = {(lane.from_rank, lane.to_rank): " ".join(lane.transports) or "none" for lane in lanes}
    if len({rank for pair in cells for rank in pair}) <= _LARGEST_MATRIX:
        page.heading("Transports from a worker (row) to another (column)")
        page.table(*by_pair(cells, text=True))


def write_protocols(page: Page, groups: Sequence[Protocols]) -> None:
    """Put a table of the protocols that UCX selected, by memory and message size, on a page."""
    rows = [(one.pairs, each) for one in groups for each in one.ranges]
    if not rows:
        return
    several = len(groups) > 1
    page.heading("Protocols that UCX selected, by message size")
    page.table(
        Column("Pairs", [_pairs_text(pairs) for pairs, _ in rows] if several else [], text=True),
        Column("Memory", [each.memory for _, each in rows], text=True),
        Column("Bytes", [_size_range_text(each) for _, each in rows]),
        Column("Protocol", [each.protocol + (" *" if each.estimated else "") for _, each in rows], text=True),
        Column("Transports", [each.transports for _, each in rows], text=True),
    )
    if any(each.estimated for _, each in rows):
        page.line("* Expected by the sender; in a rendezvous transfer, the receiver chooses the protocol.", "dim")


def write_traffic(page: Page, counts: Sequence[Traffic]) -> None:
    """Put a table of the bytes that each host's ranks sent, and that its network devices counted, on a page."""
    if not counts:
        return
    hosts = list(dict.fromkeys(one.host for one in counts))
    periods = [period for period in _PERIOD_HEADINGS if any(one.during == period for one in counts)]
    by_key = {(one.host, one.during): one for one in counts}
    rows: list[list[str]] = []
    for host in hosts:
        counts_here = [by_key.get((host, period)) for period in periods]
        rows.append([host, "sent by its ranks", *(mib(one.sent if one else None) for one in counts_here)])
        devices = [one.devices if one else {} for one in counts_here]
        moved = [name for each in devices for name, count in each.items() if count.sent or count.received]
        for name in dict.fromkeys(moved):
            cells = [mib(each[name].sent if name in each else None) for each in devices]
            rows.append([host, f"counted by {name}", *cells])
    page.heading("Bytes sent, as counted by ranks and by network devices")
    page.table(*by_row(("Host", "Bytes", *(_PERIOD_HEADINGS[period] for period in periods)), rows, range(2)))
    page.line("Device counters include headers and all programs of the host; shared memory has no counter.", "dim")


def write_available(page: Page, hosts: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
    """Put a table of the transports that UCX could use on each host on a page; hosts with the same share a row."""
    groups = grouped(hosts, lambda host: tuple(sorted((name, *devices) for name, devices in hosts[host].items())))
    page.heading("Transports available on each host")
    rows = [(", ".join(names), name, ", ".join(devices)) for key, names in groups.items() for name, *devices in key]
    page.table(*by_row(("Hosts", "Transport", "Devices"), rows, range(3)))


def _pairs_text(pairs: Sequence[tuple[int, int]]) -> str:
    """``0→1, 0→2``: pairs of ranks; of many, the first ones and their number."""
    more = f", … ({len(pairs)} pairs)" if len(pairs) > _PAIRS_SHOWN else ""
    return ", ".join(f"{a}→{b}" for a, b in pairs[:_PAIRS_SHOWN]) + more


def _size_range_text(sizes: SizeRange) -> str:
    """``1,024 to 8,191``: the bytes of a range of message sizes."""
    first, last = sizes.first_bytes, sizes.last_bytes
    if last is None:
        return f"{first:,} and more"
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"

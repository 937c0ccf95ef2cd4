"""The rows of network measurements as CSV: a row a row, SI units in the names of columns, the same columns always."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from merge_bench.records.outputs import replacing
from merge_bench.records.probe_rows import Row

COLUMNS = (
    "probe", "test", "method", "config", "placement", "ranks", "hosts", "memory", "size_bytes", "count_elements",
    "launches", "seconds", "seconds_min_of_launches", "seconds_max_of_launches", "seconds_min_of_ranks",
    "seconds_max_of_ranks", "bandwidth_bytes_per_second", "bandwidth_min_of_launches_bytes_per_second",
    "bandwidth_max_of_launches_bytes_per_second", "bandwidth_min_of_ranks_bytes_per_second",
    "bandwidth_max_of_ranks_bytes_per_second", "messages_per_second", "wrong_elements", "requested_transports",
    "selected_transports", "protocol", "as_requested", "source", "note", "seconds_mean_of_ranks",
    "bus_bandwidth_bytes_per_second", "link_limit_bytes_per_second", "link_limit_from", "link_share",
)  # fmt: skip


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write `rows` into the file `path`; what is unknown is an empty cell.

    Raises
    ------
    OSError
        If it cannot be written; what was there before stays.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(value) for value in _flat(row)] for row in rows)
    with replacing(path) as stream:
        stream.write(text.getvalue().encode("utf-8", "surrogateescape"))


def _flat(row: Row) -> tuple[Any, ...]:
    """The values of `COLUMNS`; lists are words as a shell splits them."""
    return (
        row.probe, row.test, row.method, row.config, row.placement, _words(row.ranks),
        _words(row.hosts), row.memory, row.size, row.count, row.launches, row.seconds_median,
        *(row.seconds_range or (None, None)), *row.seconds_ranks, row.bandwidth_median,
        *(row.bandwidth_range or (None, None)), *row.bandwidth_ranks, row.messages_per_second,
        row.wrong, _words(f"{name}={value}" for name, value in row.requested.items()),
        _words(row.selected), row.protocol, row.as_requested, row.source, row.note, row.seconds_mean,
        row.bus_bandwidth, row.link_limit, row.link_limit_from, row.link_share,
    )  # fmt: skip


def _words(values: Any) -> str:
    return shlex.join(str(value) for value in values)


def _cell(value: Any) -> Any:
    """`value` for a `csv.writer`, which makes an empty cell of None."""
    return str(value).lower() if isinstance(value, bool) else value

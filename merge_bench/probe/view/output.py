"""Output beside the tables: CSV, drawings and published rows. Options are checked before anything is measured.

The CSV has the same columns always, with SI units in their names.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from merge_bench.analysis import published
from merge_bench.errors import UsageError
from merge_bench.probe.view.charts import panels_of
from merge_bench.probe.view.documents import ReferencesDocument
from merge_bench.records.campaign import Campaign
from merge_bench.records.outputs import replacing
from merge_bench.records.probe_rows import Row
from merge_bench.view.plot.draw import check_plots, draw, write_each
from merge_bench.view.streams import print_document

COLUMNS = (
    "probe", "test", "method", "config", "placement", "ranks", "hosts", "memory", "size_bytes", "count_elements",
    "launches", "seconds", "seconds_min_of_launches", "seconds_max_of_launches", "seconds_min_of_ranks",
    "seconds_max_of_ranks", "bandwidth_bytes_per_second", "bandwidth_min_of_launches_bytes_per_second",
    "bandwidth_max_of_launches_bytes_per_second", "bandwidth_min_of_ranks_bytes_per_second",
    "bandwidth_max_of_ranks_bytes_per_second", "messages_per_second", "wrong_elements", "requested_transports",
    "selected_transports", "protocol", "as_requested", "source", "note", "seconds_mean_of_ranks",
    "bus_bandwidth_bytes_per_second", "link_limit_bytes_per_second", "link_limit_from", "link_share",
)  # fmt: skip
LIST = "list"
"""The value of --reference that prints the names of published results."""


@dataclass(frozen=True)
class Output:
    """Files to write, and published rows to show beside the measured ones."""

    csv_file: Path | None = None
    plots: tuple[Path, ...] = ()
    references: tuple[Row, ...] = ()


def check_outputs(csv_file: str | None, plots: Sequence[str], references: Sequence[str]) -> Output:
    """What ``--csv``, ``--plot`` and ``--reference`` ask for, checked before anything is measured.

    Raises
    ------
    UsageError
        If a file cannot be written, cannot be drawn, or is named twice, or a published result is not known.
    """
    table = Path(csv_file) if csv_file else None
    drawings = check_plots(plots, [("--csv", table)] if table is not None else [])
    try:
        rows = tuple(row for name in dict.fromkeys(references) for row in published.network_rows(name))
    except UsageError as error:
        raise UsageError(f"--reference: {error}") from None
    return Output(table, drawings, rows)


def print_references(*, as_json: bool) -> None:
    """Print the published network measurements that `--reference` can name, each with where it is from."""
    datasets = sorted(published.datasets().items())
    citations = {name: found.cite for name, found in datasets if found.kind == published.NETWORK}
    if as_json:
        print_document(ReferencesDocument(references=citations))
        return
    width = max(map(len, citations), default=0)
    for name, cite in citations.items():
        print(f"{name:{width}}  {cite}")


def write_files(output: Output, rows: Sequence[Row], campaigns: Sequence[Campaign]) -> list[str]:
    """Write the CSV and the drawings of `rows`, which `campaigns` measured; returns a message for each failure."""
    files: dict[Path, Callable[[Path], object]] = {}
    if output.csv_file is not None:
        files[output.csv_file] = partial(write_csv, rows)
    files |= dict.fromkeys(output.plots, lambda file: draw(panels_of(rows), file, campaigns))
    return [f"{problem}; the records contain all measurements" for problem in write_each(files)]


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
    writer.writerows([_csv_cell(value) for value in _csv_values(row)] for row in rows)
    with replacing(path) as stream:
        stream.write(text.getvalue().encode("utf-8", "surrogateescape"))


def _csv_values(row: Row) -> tuple[Any, ...]:
    """The values of a row in the order of `COLUMNS`; a list becomes words as a shell splits them."""
    return (
        row.probe, row.test, row.method, row.config, row.placement, _shell_words(row.ranks),
        _shell_words(row.hosts), row.memory, row.size, row.count, row.launches, row.seconds_median,
        *(row.seconds_range or (None, None)), *row.seconds_ranks, row.bandwidth_median,
        *(row.bandwidth_range or (None, None)), *row.bandwidth_ranks, row.messages_per_second,
        row.wrong, _shell_words(f"{name}={value}" for name, value in row.requested.items()),
        _shell_words(row.selected), row.protocol, row.as_requested, row.source, row.note, row.seconds_mean,
        row.bus_bandwidth, row.link_limit, row.link_limit_from, row.link_share,
    )  # fmt: skip


def _shell_words(values: Any) -> str:
    return shlex.join(str(value) for value in values)


def _csv_cell(value: Any) -> Any:
    """`value` for a `csv.writer`, which makes an empty cell of None."""
    return str(value).lower() if isinstance(value, bool) else value

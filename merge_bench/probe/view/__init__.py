"""Network measurements for people: documents, CSV, drawings, published rows; tables and charts beside.

Options are checked before anything is measured. The CSV has the same columns always, with SI units in their names.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from merge_bench.analysis import published
from merge_bench.analysis.documents import Failure
from merge_bench.config.files import replace_file
from merge_bench.errors import Caution, UsageError
from merge_bench.probe.view.charts import make_panels
from merge_bench.records.campaign import Campaign
from merge_bench.records.probe_rows import ProbeRow
from merge_bench.view.plot.draw import check_plot_files, draw_file, write_each_file
from merge_bench.view.streams import print_document

COLUMNS = tuple(
    """
    probe test method config placement ranks hosts memory size_bytes count_elements launches seconds
    seconds_min_of_launches seconds_max_of_launches seconds_min_of_ranks seconds_max_of_ranks bandwidth_bytes_per_second
    bandwidth_min_of_launches_bytes_per_second bandwidth_max_of_launches_bytes_per_second
    bandwidth_min_of_ranks_bytes_per_second bandwidth_max_of_ranks_bytes_per_second messages_per_second wrong_elements
    requested_transports selected_transports protocol as_requested source note seconds_mean_of_ranks
    bus_bandwidth_bytes_per_second link_limit_bytes_per_second link_limit_from link_share
    """.split()  # noqa: SIM905
)
_FIELDS = tuple(
    """
    probe test method config placement ranks hosts memory size count launches seconds_median seconds_range seconds_ranks
    bandwidth_median bandwidth_range bandwidth_ranks messages_per_second wrong requested selected protocol as_requested
    source note seconds_mean bus_bandwidth link_limit link_limit_from link_share
    """.split()  # noqa: SIM905
)
"""The fields of a row whose values the columns have; a range is two columns."""
LIST = "list"
"""The value of --reference that prints the names of published results."""


class ProbeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of one campaign, or of several and of files: `records` has the path of the one, or of each."""

    document_version: Literal[1] = 1
    records: str | list[str]
    rows: list[ProbeRow]
    warnings: list[Caution]
    error: Failure | None


class ReferencesDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``--reference`` can name: published measurements, each with where it is from."""

    document_version: Literal[1] = 1
    references: dict[str, str]


@dataclass(frozen=True)
class OutputFiles:
    """The requested output of a probe: files to write, and published rows to show beside the measured ones."""

    csv_file: Path | None = None
    plots: tuple[Path, ...] = ()
    references: tuple[ProbeRow, ...] = ()


def parse_output_options(csv_file: str | None, plots: Sequence[str], references: Sequence[str]) -> OutputFiles:
    """Return the output that ``--csv``, ``--plot`` and ``--reference`` request, after checking their values.

    Raises UsageError if a file cannot be written, cannot be drawn, or is named twice, or a published result is unknown.
    """
    table = Path(csv_file) if csv_file else None
    drawings = check_plot_files(plots, [("--csv", table)] if table is not None else [])
    try:
        rows = tuple(row for name in dict.fromkeys(references) for row in published.network_rows(name))
    except UsageError as error:
        raise UsageError(f"--reference: {error}") from None
    return OutputFiles(table, drawings, rows)


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


def write_output_files(output: OutputFiles, rows: Sequence[ProbeRow], campaigns: Sequence[Campaign]) -> list[str]:
    """Write the CSV file and the drawings of `rows` of `campaigns`, and return a message for each failure."""
    files: dict[Path, Callable[[Path], object]] = {}
    if output.csv_file is not None:
        files[output.csv_file] = partial(write_rows_csv, rows)
    files |= dict.fromkeys(output.plots, lambda file: draw_file(make_panels(rows), file, campaigns))
    return [f"{problem}; the records contain all measurements" for problem in write_each_file(files)]


def write_rows_csv(rows: Sequence[ProbeRow], path: Path) -> None:
    """Write `rows` into the file `path`; raises OSError if that fails, and what was there before stays."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([COLUMNS, *(tuple(_csv_cells(row)) for row in rows)])
    with replace_file(path) as stream:
        stream.write(text.getvalue().encode("utf-8", "surrogateescape"))


def _csv_cells(row: ProbeRow) -> Iterator[Any]:
    """Yield the CSV cells of a row in the order of `COLUMNS`; a list becomes words for a shell, None an empty cell."""
    for name in _FIELDS:
        value = getattr(row, name)
        if name.endswith(("_range", "_ranks")):
            yield from value or (None, None)
        elif isinstance(value, bool):
            yield str(value).lower()
        elif isinstance(value, dict):
            yield shlex.join(f"{key}={content}" for key, content in value.items())
        else:
            yield shlex.join(map(str, value)) if isinstance(value, tuple) else value

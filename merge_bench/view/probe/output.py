"""Output beside the tables: CSV, drawings and published rows. Options are checked before anything is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from merge_bench.analysis import published
from merge_bench.analysis.documents.probe import ReferencesDocument
from merge_bench.errors import UsageError
from merge_bench.records.campaign import Campaign
from merge_bench.records.probe_rows import Row
from merge_bench.view.document import print_document
from merge_bench.view.plot.draw import check_plots, draw, write_each
from merge_bench.view.plot.network import panels_of
from merge_bench.view.probe.table_csv import write_csv

LIST = "list"
"""The name that asks for the names of published results."""


@dataclass(frozen=True)
class Output:
    """Files to write, and published rows to show beside the measured ones."""

    csv_file: Path | None = None
    plots: tuple[Path, ...] = ()
    references: tuple[Row, ...] = ()


def asked_for(csv_file: str | None, plots: Sequence[str], references: Sequence[str]) -> Output:
    """The options ``--csv``, ``--plot`` and ``--reference``.

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
    """The published network measurements that `--reference` can name, each with where it is from."""
    datasets = sorted(published.datasets().items())
    known = {name: found.cite for name, found in datasets if found.kind == published.NETWORK}
    if as_json:
        print_document(ReferencesDocument(references=known))
        return
    width = max(map(len, known), default=0)
    for name, cite in known.items():
        print(f"{name:{width}}  {cite}")


def write_files(output: Output, rows: Sequence[Row], campaigns: Sequence[Campaign]) -> list[str]:
    """Write the CSV and the drawings of `rows`, which `campaigns` measured; gives what went wrong."""
    files: dict[Path, Callable[[Path], object]] = {}
    if output.csv_file is not None:
        files[output.csv_file] = partial(write_csv, rows)
    files |= dict.fromkeys(output.plots, lambda file: draw(panels_of(rows), file, campaigns))
    return [f"{problem}; the records contain all measurements" for problem in write_each(files)]

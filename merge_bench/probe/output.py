"""What is asked for beside the tables: CSV, drawings, published rows; seen to before anything is measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merge_bench.errors import UsageError
from merge_bench.outputs import check_writable, replacing
from merge_bench.probe.rows import Row

LIST = "list"
"""The name that asks for the names of published results."""


@dataclass(frozen=True)
class Output:
    """Files to write, and published rows to show beside the measured ones."""

    csv_file: Path | None
    plots: tuple[Path, ...]
    references: tuple[Row, ...]


def asked_for(values: Mapping[str, Any]) -> Output:
    """The options `csv_file`, `plots` and `references`.

    Raises
    ------
    UsageError
        If a file cannot be written, cannot be drawn, or is named twice, or a published result is not known.
    """
    from merge_bench.plot.draw import check_form

    csv_file = Path(values["csv_file"]) if values["csv_file"] else None
    plots = tuple(Path(name) for name in values["plots"])
    for plot in plots:
        check_form(plot)
    files = [("--csv", csv_file)] if csv_file is not None else []
    files += [("--plot", plot) for plot in plots]
    for option, file in files:
        check_writable(option, file)
    paths = [file.resolve() for _, file in files]
    twice = next((file for _, file in files if paths.count(file.resolve()) > 1), None)
    if twice is not None:
        raise UsageError(f"{twice} is to be written twice; name each file once")
    references = tuple(row for name in dict.fromkeys(values["references"]) for row in _published(name))
    return Output(csv_file, plots, references)


def print_references(*, as_json: bool) -> None:
    """The published network measurements that `--reference` can name, each with where it is from."""
    from merge_bench.published import NETWORK, datasets

    known = {name: found.cite for name, found in sorted(datasets().items()) if found.kind == NETWORK}
    if as_json:
        print(json.dumps({"references": known}))
        return
    width = max(map(len, known), default=0)
    for name, cite in known.items():
        print(f"{name:{width}}  {cite}")


def _published(name: str) -> list[Row]:
    from merge_bench.published import network_rows

    try:
        return network_rows(name)
    except UsageError as error:
        raise UsageError(f"--reference: {error}") from None


def write_files(output: Output, rows: Sequence[Row]) -> list[str]:
    """Write the CSV and the drawings of `rows`, telling each file on standard error; gives what went wrong."""
    from merge_bench.plot.draw import draw
    from merge_bench.plot.network import panels_of
    from merge_bench.probe.table_csv import write_csv

    def make_csv(file: Path) -> None:
        write_csv(rows, file)

    def make_plot(file: Path) -> None:
        panels = panels_of(rows)
        if not panels:
            raise ValueError("no row has a value to draw")
        with replacing(file) as draft:
            draw(panels, draft, file)

    problems = [_write(make_csv, output.csv_file)] if output.csv_file is not None else []
    problems += [_write(make_plot, plot) for plot in output.plots]
    return [problem for problem in problems if problem]


def _write(make: Callable[[Path], None], file: Path) -> str | None:
    """Whatever a drawing library raises must not hide what was measured."""
    try:
        make(file)
    except Exception as problem:
        why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        return f"{file} was not written: {why or type(problem).__name__}; the records hold all that was measured"
    print(f"merge_bench: wrote {file}", file=sys.stderr)
    return None

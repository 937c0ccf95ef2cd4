"""Draws charts into files; the end of a file's name chooses the format."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from merge_bench.config.files import check_output_file, replace_file
from merge_bench.errors import UsageError, print_message, require_library
from merge_bench.records.campaign import Campaign
from merge_bench.view.plot import Chart
from merge_bench.view.titles import add_result_source_lines

_LIBRARIES = {".png": "matplotlib", ".svg": "matplotlib", ".html": "bokeh"}


def can_draw_file_type(path: Path) -> bool:
    """Whether the library that draws a file of this name is installed."""
    return importlib.util.find_spec(_LIBRARIES[path.suffix.lower()]) is not None


def check_plot_files(file_names: Sequence[str], other_files: Sequence[tuple[str, Path]] = ()) -> tuple[Path, ...]:
    """Check that the files of ``--plot`` can be written; returns their paths.

    `other_files`: options and paths of other files to be written.

    Raises UsageError if a file cannot be written or drawn, or is named twice.
    """
    plots = tuple(map(Path, file_names))
    for plot in plots:
        library = _LIBRARIES.get(plot.suffix.lower())
        if library is None:
            raise UsageError(f"--plot {plot}: the file name must end in .png, .svg or .html")
        require_library(library, "dashboard", f"--plot {plot}")
    files = [*other_files, *(("--plot", plot) for plot in plots)]
    for option, file in files:
        check_output_file(option, file)
    paths = [file.resolve() for _, file in files]
    twice = next((file for _, file in files if paths.count(file.resolve()) > 1), None)
    if twice is not None:
        raise UsageError(f"two options write to {twice}; choose different files")
    return plots


def draw_charts_into_file(charts: Sequence[Chart], path: Path, campaigns: Sequence[Campaign] = ()) -> None:
    """Draw the charts of some campaigns into one file, which is replaced whole or not at all.

    Raises
    ------
    ValueError
        If there is no chart.
    """
    if not charts:
        raise ValueError("no row has a value to draw")
    if campaigns:
        charts = add_result_source_lines(charts, campaigns)
    extension = path.suffix.lower()
    with replace_file(path) as stream:
        if _LIBRARIES[extension] == "bokeh":
            from merge_bench.view.plot import interactive

            stream.write(interactive.render_html_page(charts).encode())
        else:
            from merge_bench.view.plot import static

            static.draw_charts_as_image(charts, stream, extension.removeprefix("."))


def write_files_and_list_failures(writers: Mapping[Path, Callable[[Path], object]]) -> list[str]:
    """Call each of `writers` with its file, and print which files were written; returns a sentence for each failure."""
    problems = []
    for file, write in writers.items():
        if problem := write_file_or_describe_failure(write, file):
            problems.append(problem)
        else:
            print_message(f"wrote {file}")
    return problems


def write_file_or_describe_failure(write: Callable[[Path], object], file: Path) -> str | None:
    """Call `write` with the path `file`; returns None, or after an error of any kind a sentence about it."""
    try:
        write(file)
    except Exception as problem:
        why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        return f"{file} was not written: {why or type(problem).__name__}"
    return None

"""How fast History and Results answer over very many results: the first time, and once they are in the index.

    python -m benchmarks.many_results [--results 100000] [--nights 333] [--repeat 5]

The results are made up: series of so many nights, each with a shift. The goal is an answer in a second from the index,
as one more result arrives. Prints a table in Markdown.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from benchmarks import command
from merge_bench.analysis.statistics import median
from merge_bench.dashboard.results_tab import ResultsView
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.records.writer import RECORDS
from merge_bench.regressions.document import load_history
from merge_bench.report.campaign_figures import CampaignCache
from tests.analysis.history.made_up import Nights, write


def make(folder: Path, results: int, nights: int) -> None:
    """`results` folders: series of `nights` each, that differ in the name of their config."""
    with tempfile.TemporaryDirectory() as scratch:
        patterns = [
            (path / RECORDS).read_text() for path in write(Path(scratch), Nights(count=nights, shift=nights // 2))
        ]
    for number in range(results):
        series, night = divmod(number, nights)
        add(folder, patterns[night], series, night)


def add(folder: Path, pattern: str, series: int, night: int) -> None:
    """One more result: `pattern` under the name of another config."""
    found = folder / f"{night:06d}-tcp{series}"
    found.mkdir(parents=True)
    (found / RECORDS).write_text(pattern.replace('"tcp"', f'"tcp{series}"'))


def seconds(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


@click.command(context_settings=command.CONTEXT)
@command.option("--results", click.IntRange(1), 100_000, "Results.")
@command.option("--nights", click.IntRange(30), 333, "Results of a series.")
@command.option("--repeat", click.IntRange(1), 5, "Repetitions; the table has medians.")
@command.option("--keep", click.Path(path_type=Path, file_okay=False), None, "Folder that keeps the results.")
def many_results(results: int, nights: int, repeat: int, keep: Path | None) -> None:
    """Print the times."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = str((keep or Path(scratch)) / "cache")
        folder = (keep or Path(scratch)) / "results"
        if not folder.exists():
            make(folder, results, nights)
        newest = max(path.name for path in folder.iterdir() if path.name.endswith("-tcp0"))
        pattern = (folder / newest / RECORDS).read_text().replace('"tcp0"', '"tcp"')
        listed = ResultsFolder(folder)

        def one() -> None:
            load_history([folder], config="tcp0")

        def listing() -> None:
            ResultsView(listed.entries, CampaignCache())

        first = [seconds(one), seconds(listing)]
        times: list[list[float]] = [[], []]
        for number in range(repeat):
            add(folder, pattern, 0, nights + number)
            for each, work in zip(times, (one, listing), strict=True):
                each.append(seconds(work))
            shutil.rmtree(folder / f"{nights + number:06d}-tcp0")
    click.echo(f"| of {results:,} results | first time (s) | after one more result (s) |\n| --- | --- | --- |")
    for name, begun, each in zip(("History of one series", "Results"), first, times, strict=True):
        click.echo(f"| {name} | {begun:.1f} | {median(each):.2f} |")


if __name__ == "__main__":
    command.run(many_results, "many_results")

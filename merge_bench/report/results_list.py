"""The campaigns of a results folder for a terminal: two lines each, the newest last."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TextIO

from merge_bench.errors import UsageError
from merge_bench.records.results_folder import Entry, ResultsFolder
from merge_bench.report.campaign_figures import CampaignCache, Figures, status_of
from merge_bench.view.numbers import number
from merge_bench.view.terminal import page_on
from merge_bench.view.text import visible
from merge_bench.view.titles import short_time, title_of_entry, unusual_engines

_NO_RESULTS = "No results yet. This command makes one: python -m merge_bench --chunk 1e6"


def print_results(folder: Path, file: TextIO | None = None) -> None:
    """Print when each campaign in `folder` began, whether it is verified, its best throughput, and what it measured.

    Raises
    ------
    UsageError
        If the folder cannot be read.
    """
    results, cache = ResultsFolder(folder), CampaignCache()
    entries = results.entries()[::-1]
    if results.problem:
        raise UsageError(results.problem)
    while cache.read_small(entries):
        pass
    with page_on(file) as page:
        for entry in entries:
            day, _, clock = short_time(entry.started)  # the folder's name has the year
            figures = cache.figures(entry) or Figures()
            rate = "" if figures.throughput is None else f"{number(figures.throughput)} GiB/s"
            began = f"{day} {clock}"
            page.unbroken(f"{began:12}  {status_of(entry, figures):11}  {rate:>12}  {visible(str(entry.folder))}")
            page.line(visible(_describe_entry(entry, figures)), "dim", indent=2)
        page.line("Times are in UTC; throughput is that of the fastest config." if entries else _NO_RESULTS)
        if entries:
            page.unbroken(f"The newest one: merge-bench show {shlex.quote(visible(str(entries[-1].folder)))}")


def _describe_entry(entry: Entry, figures: Figures) -> str:
    """What a campaign measured, its engines if one is unusual, and the outcome of a tuning."""
    what = ", ".join(filter(None, (title_of_entry(entry, figures.measured), unusual_engines(entry.plans))))
    return f"{what}. {figures.outcome}" if figures.outcome else what

"""The campaigns of a results folder for a terminal: two lines each, the newest last."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from merge_bench.errors import UsageError
from merge_bench.merge import engines
from merge_bench.records.recorded_plan import Plan
from merge_bench.view.dashboard.campaign_cache import CampaignCache, Figures, status_of
from merge_bench.view.dashboard.campaign_index import YOURS, Entry, Index
from merge_bench.view.numbers import number
from merge_bench.view.report.layout import page_on
from merge_bench.view.text import visible
from merge_bench.view.titles import listed, short_time

_EMPTY = "No results yet. This command makes one: python -m merge_bench --chunk 1e6"


def print_results(folder: Path, file: TextIO | None = None) -> None:
    """When each campaign began, whether it is verified, the throughput of its fastest config, and what it measured.

    Raises
    ------
    UsageError
        If the folder cannot be read.
    """
    index, cache = Index(folder), CampaignCache()
    entries = [entry for entry in reversed(index.scan()) if entry.origin == YOURS]
    if index.problem:
        raise UsageError(index.problem)
    while cache.read_small(entries):
        pass
    with page_on(file) as page:
        for entry in entries:
            day, _, clock = short_time(entry.started)  # the folder's name has the year
            known = cache.figures(entry) or Figures()
            rate = "" if known.throughput is None else f"{number(known.throughput)} GiB/s"
            began = f"{day} {clock}"
            page.unbroken(f"{began:12}  {status_of(entry, known):11}  {rate:>12}  {visible(str(entry.folder))}")
            page.line(visible(_what(entry, known)), "dim", indent=2)
        page.line("Times are in UTC; throughput is that of the fastest config." if entries else _EMPTY)


def _what(entry: Entry, known: Figures) -> str:
    """What it measured: by which engines, if one is not what ``auto`` means; of a tuning with its outcome."""
    plans = [plan for plan in entry.plans if plan.engine]
    unusual = any(plan.engine not in _usual_engines(plan) for plan in plans)
    used = dict.fromkeys(str(plan.engine) for plan in plans) if unusual else ()
    engine = f", engine{'s' * (len(used) > 1)} {listed(used)}" if used else ""
    outcome = f". {known.outcome}" if known.outcome else ""
    return f"{entry.title_with(known.measured)}{engine}{outcome}"


def _usual_engines(plan: Plan) -> list[str]:
    return [engines.first(device_memory=device, dask=plan.exchange == "dask").name for device in (False, True)]

"""A dashboard without a browser: tests call what a page would cause."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import panel as pn

from merge_bench.dashboard.app import Dashboard
from merge_bench.report.campaign_figures import CampaignCache

_CACHE = CampaignCache()
"""Shared, because every dashboard lists the published campaigns, too."""


def board(results: Path) -> Dashboard:
    """A dashboard of `results` as they are now."""
    return Dashboard(results, cache=_CACHE)


def update(tab: Any) -> None:
    """Read and show, as the event loop does repeatedly."""
    tab.show(tab.refresh())


def list_again(dashboard: Dashboard) -> None:
    """List the campaigns, as the event loop does every few seconds."""
    dashboard._set_campaigns(dashboard._index.entries())


def build(dashboard: Dashboard) -> None:
    """Report what a browser reports when it has built the table: how many rows fit on a page."""
    dashboard.results.table.page_size = 10


def texts(layout: Any) -> str:
    """Everything that HTML panes of a layout show."""
    return "\n".join(str(pane.value) for pane in layout.select(pn.widgets.StaticText))


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the records' lock, as their writer does."""
    with (folder / "records.jsonl").open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield

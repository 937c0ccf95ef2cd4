"""A dashboard without a browser: tests call what a page would cause."""

from __future__ import annotations

import contextlib
import fcntl
import re
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
    tab.show_update(tab.read_update())


def list_again(dashboard: Dashboard) -> None:
    """List the campaigns, as the event loop does every few seconds."""
    dashboard.set_listed_campaigns(dashboard.index.entries())


def build(dashboard: Dashboard) -> None:
    """Report what a browser reports when it has built the table: how many rows fit on a page."""
    dashboard.results.table.page_size = 10


def texts(layout: Any) -> str:
    """Everything that HTML panes of a layout show."""
    return "\n".join(str(pane.value) for pane in layout.select(pn.widgets.StaticText))


def visible_parts(layout: Any) -> Iterator[Any]:
    """Every part of a layout that is not hidden, nor in a hidden one."""
    if layout.visible:
        yield layout
        for part in getattr(layout, "objects", ()):
            yield from visible_parts(part)


def visible_cards(layout: Any) -> dict[str, Any]:
    """The cards that can be seen in a layout, by their titles."""
    cards = {}
    for part in visible_parts(layout):
        heading = str(getattr(next(iter(getattr(part, "objects", ())), None), "value", ""))
        if heading.startswith("<h2>"):
            cards[" ".join(re.sub(r" <small>.*|<.*?>", "", heading).split())] = part
    return cards


def drawn_in(card: Any) -> Any:
    """The figure of Bokeh in a card."""
    (pane,) = card.select(pn.pane.Bokeh)
    return pane.object


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the records' lock, as their writer does."""
    with (folder / "records.jsonl").open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield

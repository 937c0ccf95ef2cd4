"""The application: tabs over one results folder, the same in a browser and in a notebook."""

from __future__ import annotations

import os
from typing import Any

import panel as pn

from merge_bench.dashboard import look
from merge_bench.dashboard.index import Entry, Index
from merge_bench.dashboard.live_view import LiveView
from merge_bench.dashboard.parts import html, said
from merge_bench.dashboard.session import Session

SCAN_SECONDS = 2.0
READ_SECONDS = 0.5


class Dashboard(pn.viewable.Viewer):  # type: ignore[misc]  # Panel is not typed.
    """The view of `results`, a folder of campaigns; a notebook shows it where a cell ends with it."""

    def __init__(self, results: str | os.PathLike[str] = "results", *, index: Index | None = None) -> None:
        super().__init__()
        self._index = index or Index(results)
        self._session = Session()
        self.live = LiveView(self._session)
        self._problem = html(height=24, visible=False)
        self.tabs = pn.Tabs(
            ("Live", self.live.layout), dynamic=True, sizing_mode="stretch_width", stylesheets=[look.TABS]
        )
        self._layout = pn.Column(
            self._problem, self.tabs, sizing_mode="stretch_width", min_height=600, stylesheets=[look.ROOT], margin=0
        )
        self._session.every(SCAN_SECONDS, self._index.scan, self._listed)
        self._session.every(READ_SECONDS, self.live.refresh, self.live.show)

    def __panel__(self) -> Any:
        return self._layout

    def _listed(self, entries: tuple[Entry, ...]) -> None:
        problem = self._index.problem
        self._problem.param.update(
            object=f'<p class="bad">{said(problem)}</p>' if problem else "", visible=bool(problem)
        )
        self.live.offer(entries)

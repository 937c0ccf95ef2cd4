"""The application: tabs over one results folder, the same in a browser and in a notebook."""

from __future__ import annotations

import atexit
import os
from functools import cached_property, partial
from typing import Any, Protocol

import panel as pn

from merge_bench.view.dashboard import look
from merge_bench.view.dashboard.index import Entry, Index
from merge_bench.view.dashboard.library import Library
from merge_bench.view.dashboard.live_view import LiveView
from merge_bench.view.dashboard.network_view import NetworkView
from merge_bench.view.dashboard.parts import complaints, html
from merge_bench.view.dashboard.results_view import ResultsView
from merge_bench.view.dashboard.run_view import RunView
from merge_bench.view.dashboard.runner import Permission, Runner
from merge_bench.view.dashboard.session import Session
from merge_bench.view.dashboard.tuning_view import TuningView

SCAN_SECONDS = 2.0
READ_SECONDS = 0.25
LIVE_SECONDS = 0.05
"""Between two looks at the campaign that is watched, which cost little while nothing is new."""
HOLD_SECONDS = 1.0
"""For which several pages share a look at the folder."""


_TABS = ("Live", "Results", "Tuning", "Network", "Run")


class _Tab(Protocol):
    """What a tab is: something to show, something to do in a thread, and showing what came of it."""

    layout: Any

    def refresh(self) -> Any: ...

    def show(self, found: Any, /) -> object: ...


class _Page(pn.Column):  # type: ignore[misc]  # Panel is not typed.
    """All that is shown. In a notebook it is told of clicks by whichever thread the kernel chose for it."""

    def __init__(self, *parts: Any, session: Session, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._session = session

    def _on_msg(self, ref: str, manager: Any, msg: Any) -> None:
        self._session.hear(partial(super()._on_msg, ref, manager, msg))


class Dashboard(pn.viewable.Viewer):  # type: ignore[misc]  # Panel is not typed.
    """The view of `results`, a folder of campaigns; a notebook shows it where a cell ends with it.

    `index`, `library`, `runner` and `permission` are given where several pages share them. Without them the view has
    its own, and a run that is started from it ends with this process at the latest.
    """

    def __init__(
        self,
        results: str | os.PathLike[str] = "results",
        *,
        index: Index | None = None,
        library: Library | None = None,
        runner: Runner | None = None,
        permission: Permission | None = None,
    ) -> None:
        super().__init__()
        if runner is None:
            runner = Runner(results)
            atexit.register(runner.close)
        self._index = index or Index(results)
        self._session = Session()
        self._entries: tuple[Entry, ...] = ()
        self._shared = self._session, self._campaigns, library or Library()
        self._run = self._session, runner, permission or Permission()
        self._begun: set[str] = set()
        self._problem = html(height=24, visible=False)
        # Buttons, because Bokeh's tabs do not listen to the keyboard.
        self.tabs = pn.widgets.RadioButtonGroup(
            options=list(_TABS), value=_TABS[0], stylesheets=[look.TABS], margin=0, sizing_mode="stretch_width"
        )
        self._body = pn.Column(sizing_mode="stretch_width", min_height=600, margin=0)
        self.tabs.param.watch(lambda event: self._turn(event.new), "value")
        self._layout = _Page(
            self._problem, self.tabs, self._body, self._session.echo.pane,
            session=self._session, sizing_mode="stretch_width", stylesheets=[look.ROOT], margin=0,
        )  # fmt: skip
        self._turn(_TABS[0])
        self._session.every(SCAN_SECONDS, self._index.scan, self._listed)

    @cached_property
    def live(self) -> LiveView:
        """The tabs are made when they are first chosen."""
        return LiveView(self._session, self._campaigns)

    @cached_property
    def results(self) -> ResultsView:
        """Of all campaigns."""
        return ResultsView(*self._shared)

    @cached_property
    def tuning(self) -> TuningView:
        """Of campaigns of `tune`."""
        return TuningView(*self._shared)

    @cached_property
    def network(self) -> NetworkView:
        """Of campaigns of `probe`."""
        return NetworkView(*self._shared)

    @cached_property
    def run(self) -> RunView:
        """Of the run that this view started."""
        return RunView(*self._run)

    def _turn(self, name: str) -> None:
        if name not in _TABS:
            return
        view: _Tab = getattr(self, name.lower())
        if name == "Results":
            self.results.renew()
        self._body.objects = [view.layout]
        if name not in self._begun:
            self._begun.add(name)
            # What a hidden tab shows is not in the page, and is shown when the tab is chosen.
            seconds = LIVE_SECONDS if name == "Live" else READ_SECONDS
            self._session.every(seconds, view.refresh, view.show, partial(self._chosen, name))

    def __panel__(self) -> Any:
        return self._layout

    def _campaigns(self) -> tuple[Entry, ...]:
        """The campaigns as they were last listed; a view that comes first lists them itself, in its thread."""
        return self._entries or self._index.scan()

    def _chosen(self, name: str) -> bool:
        return bool(self.tabs.value == name)

    def _listed(self, entries: tuple[Entry, ...]) -> None:
        problem = self._index.problem
        self._problem.param.update(value=complaints([problem] if problem else []), visible=bool(problem))
        self._entries = entries

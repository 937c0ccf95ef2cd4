"""The application: tabs over one results folder, the same in a browser and in a notebook; and the pages of a server."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import panel as pn
from bokeh.server.tornado import BokehTornado
from bokeh.util.warnings import BokehUserWarning
from panel.io.application import build_applications
from tornado.websocket import WebSocketClosedError

from merge_bench.analysis.published import published_beside
from merge_bench.dashboard.background import PageSession
from merge_bench.dashboard.components import html_text, problems_html, style_sheet
from merge_bench.dashboard.history_tab import HistoryView
from merge_bench.dashboard.live_tab import LiveView
from merge_bench.dashboard.network_tab import NetworkView
from merge_bench.dashboard.results_tab import ResultsView
from merge_bench.dashboard.run_tab import JobQueue, RunView
from merge_bench.dashboard.tuning_tab import TuningView
from merge_bench.records.results_folder import ResultEntry, ResultsFolder
from merge_bench.report.campaign_figures import CampaignCache

SCAN_SECONDS = 2.0
READ_SECONDS, ASK_SECONDS = 0.25, 1.0
LIVE_SECONDS = 0.05
"""Between two reads of the watched campaign; a read costs little while nothing is new."""

_TABS = ("Live", "Results", "History", "Tuning", "Network", "Run")


class _DashboardPage(pn.Column):  # type: ignore[misc]  # Panel is not typed.
    """The layout of the whole dashboard. In a notebook, the kernel may report changes from any thread.

    A notebook's page collects changes and sends them together. Bokeh drops a whole message if one change in it belongs
    to a part of the page that was just removed, and a click could be lost with it. So each change is handled by itself.
    """

    def __init__(self, *parts: Any, session: PageSession, **options: Any) -> None:
        super().__init__(*parts, **options)
        self._session = session

    def _on_msg(self, ref: str, manager: Any, msg: Any) -> None:
        for change in msg["content"]["events"]:
            single = {**msg, "content": {**msg["content"], "events": [change]}}
            self._session.handle_on_loop(partial(super()._on_msg, ref, manager, single))


class Dashboard(pn.viewable.Viewer):  # type: ignore[misc]  # Panel is not typed.
    """The dashboard of `results`, a folder of campaigns; a notebook shows it as the value of a cell.

    Several pages can share `index`, which lists the campaigns, and `cache`. Runs are started through a `queue`; without
    one there is no tab for that. `pace`: gives the least seconds between two updates.
    """

    def __init__(
        self,
        results: str | os.PathLike[str] = "results",
        *,
        index: ResultsFolder | None = None,
        cache: CampaignCache | None = None,
        queue: JobQueue | None = None,
        pace: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__()
        self.index = index or ResultsFolder(results, other_folders=published_beside(Path(results)))
        self._session = PageSession(pace)
        self._entries: tuple[ResultEntry, ...] = ()
        self._cache = cache or CampaignCache()
        self._begun_tabs: set[str] = set()
        self._queue = queue
        self._tabs = [name for name in _TABS if name != "Run" or queue is not None]
        self._problem = html_text(height=24, visible=False)
        # Buttons, because Bokeh's tabs cannot be used with the keyboard.
        self.tabs = pn.widgets.RadioButtonGroup(
            options=self._tabs, value=_TABS[0], stylesheets=[style_sheet("tabs")], margin=0, sizing_mode="stretch_width"
        )
        self._body = pn.Column(sizing_mode="stretch_width", min_height=600, margin=0)
        self.tabs.param.watch(lambda event: self._open_tab(event.new), "value")
        sheets = (
            [style_sheet("root")] if self._session.is_served_page else [style_sheet("palette"), style_sheet("root")]
        )
        parts = (self._problem, self.tabs, self._body, self._session.page_ready.pane)
        self._layout = _DashboardPage(
            *parts, session=self._session, sizing_mode="stretch_width", stylesheets=sheets, margin=0
        )
        self._open_tab(_TABS[0])
        self._session.schedule_updates(SCAN_SECONDS, self.index.entries, self.show_campaigns)

    # Each tab is made when it is first chosen. It has a `layout`, a method `read_update`, called in a thread, and a
    # method `show_update` for what it returned, called under the document's lock.
    live = cached_property(lambda self: LiveView(self._session, self._listed_campaigns))
    results = cached_property(lambda self: ResultsView(self._listed_campaigns, self._cache))
    tuning = cached_property(lambda self: TuningView(self._listed_campaigns, self._cache))
    network = cached_property(lambda self: NetworkView(self._listed_campaigns, self._cache))
    history = cached_property(lambda self: HistoryView(self.index.path, self._listed_campaigns, self._show_in_results))
    run = cached_property(
        lambda self: RunView(
            self._session, self._queue, self._listed_campaigns, self._cache, self._show_in_results, self._show_live
        )
    )

    def _open_tab(self, name: str) -> None:
        if name not in self._tabs:
            return
        self._session.request_update()
        view: Any = getattr(self, name.lower())
        if name == "Results":
            self.results.replace_table()
        self._body.objects = [view.layout]
        if name not in self._begun_tabs:
            self._begun_tabs.add(name)
            # A hidden tab is not in the page; it is updated when it is chosen.
            seconds = {"Live": LIVE_SECONDS, "Run": ASK_SECONDS}.get(name, READ_SECONDS)
            self._session.schedule_updates(
                seconds, view.read_update, view.show_update, lambda: bool(self.tabs.value == name)
            )

    def __panel__(self) -> Any:
        return self._layout

    def _listed_campaigns(self) -> tuple[ResultEntry, ...]:
        """Return the campaigns as last listed; before the first listing, list them in this thread."""
        return self._entries or self.index.entries()

    def show_campaigns(self, entries: tuple[ResultEntry, ...]) -> None:
        """Have every tab use these campaigns, which `index` just listed, and show what the listing could not read."""
        problem = self.index.problem
        self._problem.param.update(value=problems_html([problem] if problem else []), visible=bool(problem))
        self._entries = entries

    def end_when(self, reason: Callable[[], str]) -> None:
        """Call `reason` regularly; once it returns a text, show only that text and end all updates."""

        def end_for(why: str) -> None:
            if why:
                self._layout.objects = [html_text(problems_html([why]))]
                self._session.end_tasks()

        self._session.schedule_updates(SCAN_SECONDS, reason, end_for)

    def _show_in_results(self, names: Sequence[str]) -> None:
        """Show the results in these folders in the Results tab."""
        self._entries = self.index.refresh_entries(names)  # they can be newer than the last listing
        self.results.choose_campaigns(names)
        self.tabs.value = "Results"

    def _show_live(self, name: str) -> None:
        """Show the campaign in this folder, which was started here and has its first record, while it runs."""
        self._entries = self.index.refresh_entries([name])
        self.live.choose_newest()
        self.tabs.value = "Live"


def make_pages(
    results: ResultsFolder, hosts: Sequence[str], queue: Callable[[str], JobQueue], pace: Callable[[], float]
) -> BokehTornado:
    """Make the web application that serves dashboard pages, on the event loop of this thread.

    `hosts`: whose pages may connect; `queue`: gives the queue of a session by its name; `pace`: the least seconds
    between two updates of a page.
    """
    pn.extension("tabulator")
    # Bokeh warns if a browser sends a part that the server already has, as it does when a tab is shown again.
    warnings.filterwarnings("ignore", message="reference already known", category=BokehUserWarning)
    asyncio.get_event_loop().set_exception_handler(log_exception)
    cache = CampaignCache()

    def make_page() -> Dashboard:
        context: Any = pn.state.curdoc.session_context
        own_queue = queue(context.request.session)
        pn.state.curdoc.template_variables.update(results=str(results.path), logged_in=own_queue.logged_in)
        view = Dashboard(results.path, index=results, cache=cache, queue=own_queue, pace=pace)
        view.end_when(lambda: own_queue.end_reason)
        return view

    # By default Bokeh puts headers and cookies into the page, where scripts can read them.
    pages = build_applications(make_page, title="merge_bench")
    return BokehTornado(pages, include_headers=[], include_cookies=[], extra_websocket_origins=hosts)


def log_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception of the event loop, unless its page was closed during an update."""
    if not isinstance(context.get("exception"), WebSocketClosedError):
        loop.default_exception_handler(context)

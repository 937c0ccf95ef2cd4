"""The pages of a server: each shows the dashboard in one browser."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import panel as pn
from bokeh.server.tornado import BokehTornado
from bokeh.util.warnings import BokehUserWarning
from panel.io.application import build_applications
from tornado.websocket import WebSocketClosedError

from merge_bench.dashboard.app import Dashboard
from merge_bench.dashboard.run_tab import Queue
from merge_bench.records.results_folder import ResultsFolder
from merge_bench.report.campaign_figures import CampaignCache


def make_pages(
    results: ResultsFolder, hosts: Sequence[str], queue: Callable[[str], Queue], pace: Callable[[], float]
) -> BokehTornado:
    """Make the application that answers the requests of pages, on the event loop of this thread.

    `hosts`: whose pages may connect; `queue`: gives the queue of a session by its name; `pace`: as of `Session`.
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
        view.end_when(lambda: own_queue.ended)
        return view

    # By default Bokeh puts headers and cookies into the page, where scripts can read them.
    return BokehTornado(
        build_applications(make_page, title="merge_bench"), include_headers=[], include_cookies=[],
        extra_websocket_origins=hosts,
    )  # fmt: skip


def log_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception of the event loop, unless its page was closed during an update."""
    if not isinstance(context.get("exception"), WebSocketClosedError):
        loop.default_exception_handler(context)

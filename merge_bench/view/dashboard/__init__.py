"""The dashboard view: one application for a browser and for Jupyter, which knows nothing but the results folder."""

from __future__ import annotations

import os
from typing import Any


def show(results: str | os.PathLike[str] = "results", *, queue: Any = None) -> Any:
    """The view of `results`, to end a notebook's cell with; it brings its scripts along and needs no network.

    It holds the newest result from the start, so that an executed notebook shows it without a kernel, too. `queue`: a
    `merge_bench.service.client.Client`, whose jobs a tab shows.
    """
    import panel

    panel.extension("tabulator", inline=True)

    from merge_bench.view.dashboard.app import Dashboard

    view = Dashboard(results, queue=queue)
    view.live.show(view.live.refresh())
    return view

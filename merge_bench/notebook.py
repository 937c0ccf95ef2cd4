"""The dashboard in a notebook: a cell shows it, and the kernel runs what is started from it."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any


def show(results: str | os.PathLike[str] = "results", *, queue: Any = None) -> Any:
    """Return the dashboard of `results`, for the last line of a notebook's cell; it needs no network.

    It shows the newest result from the start, so that an executed notebook shows it without a kernel, too. `queue`: a
    `merge_bench.service.client.Client` of the service that runs what is started; by default the kernel does.
    """
    import panel

    panel.extension("tabulator", inline=True)

    from merge_bench.dashboard.app import Dashboard

    view = Dashboard(results, queue=queue or _shared_job_queue(Path(results).resolve()))
    view.live.show_update(view.live.read_update())
    return view


@functools.cache
def _shared_job_queue(results: Path) -> Any:
    """The queue of jobs that all cells with a dashboard of these results share: one folder cannot have two queues."""
    from merge_bench.service.serve import open_local_job_queue

    return open_local_job_queue(results)

"""Functions that Dask's scheduler runs or unpickles, so that it imports this module: Python's own modules only."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import time
from typing import Any


def worker_names(dask_scheduler: Any) -> dict[str, tuple[str, str]]:
    """Host and name of each worker, by address."""
    return {address: (state.host, str(state.name)) for address, state in dask_scheduler.workers.items()}


def dashboard_port(dask_scheduler: Any) -> int | None:
    """The port of Dask's own dashboard, or None: its pages are the only application beside the scheduler's own."""
    served = dask_scheduler.services.get("dashboard")
    return served.port if served is not None and dask_scheduler.http_application.applications else None


def silences(dask_scheduler: Any) -> dict[str, float]:
    """Seconds since each worker's last heartbeat, on the scheduler's own clock."""
    now = time.time()
    return {address: now - state.last_seen for address, state in dask_scheduler.workers.items()}


async def load_dataframes() -> None:
    """Import what Dask's scheduler needs for a first merge, in a thread, so that it can answer meanwhile."""
    await asyncio.get_running_loop().run_in_executor(None, import_dataframes)


def import_dataframes() -> None:
    """Import what Dask's scheduler would import for the first merge, as far as it is installed."""
    with contextlib.suppress(ImportError):
        import dask.dataframe  # noqa: F401
    with contextlib.suppress(ImportError):
        import distributed.shuffle  # noqa: F401


def known(keys: list[Any], dask_scheduler: Any) -> int:
    """How many of these results the scheduler still holds."""
    return sum(key in dask_scheduler.tasks for key in keys)


def run_step(step: bytes) -> Any:
    """Run a step on a worker, from its pickled function, arguments and keyword arguments.

    The scheduler unpickles every task. Of this one it sees bytes, and imports nothing that only workers need.
    """
    function, arguments, named = pickle.loads(step)
    return function(*arguments, **named)

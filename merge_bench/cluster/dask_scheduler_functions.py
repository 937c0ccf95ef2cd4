"""Functions that Dask's scheduler runs or unpickles, so that it imports this module: Python's own modules only."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import time
from collections.abc import Callable
from typing import Any

_ENDED = frozenset({"memory", "erred", "released", "forgotten"})


def worker_hosts_and_names(dask_scheduler: Any) -> dict[str, tuple[str, str]]:
    """Return the host and the name of each worker of the scheduler, by the worker's address."""
    return {address: (state.host, str(state.name)) for address, state in dask_scheduler.workers.items()}


def dashboard_port(dask_scheduler: Any) -> int | None:
    """Return the port of the scheduler's Dask dashboard, or None if the scheduler serves none.

    The dashboard's pages are the only application beside the scheduler's own.
    """
    served = dask_scheduler.services.get("dashboard")
    return served.port if served is not None and dask_scheduler.http_application.applications else None


def worker_states(client_id: str, dask_scheduler: Any) -> dict[str, dict[str, Any]]:
    """Return the state of each worker as seen by a client, by the worker's address.

    `silence`: seconds since its last heartbeat, on the scheduler's own clock; `status`: of Dask, such as ``running`` or
    ``paused``; `memory`, `limit`: of its process, in bytes, 0 if unknown or unlimited; `others`: how many tasks of
    other clients it executes; `waiting`: None, or if it has tasks of the client and executes none: a number that stays
    the same as long as the tasks do.
    """
    now, ours = time.time(), _unfinished_tasks_of_client(dask_scheduler.clients.get(client_id))
    states = {}
    for address, state in dask_scheduler.workers.items():
        running = state.status.name == "running"
        tasks = {task.key for task in ours if _can_execute_task(task, state, worker_is_running=running)}
        idle = tasks and not any(task in ours for task in state.executing)
        states[address] = {
            "silence": now - state.last_seen,
            "status": state.status.name,
            "memory": int(state.metrics.get("memory", 0)),
            "limit": int(state.memory_limit or 0),
            "others": sum(task not in ours for task in state.executing),
            "waiting": hash(frozenset(tasks)) if idle else None,
        }
    return states


def _unfinished_tasks_of_client(client_state: Any) -> set[Any]:
    """Return the tasks of a client that have not ended, and the tasks that they wait for."""
    left = [task for task in client_state.wants_what if task.state not in _ENDED] if client_state else []
    unfinished = set(left)
    while left:
        more = set(left.pop().waiting_on or ()) - unfinished
        unfinished |= more
        left += more
    return unfinished


def _can_execute_task(task: Any, worker: Any, *, worker_is_running: bool) -> bool:
    """Return whether a worker could execute a task now: nothing that the task depends on is still missing there.

    `worker_is_running`: whether the worker's status is ``running``.
    """
    if task.processing_on is worker:
        # A running worker may be fetching what the task depends on; another one fetches nothing.
        return not worker_is_running or all(worker in (needed.who_has or ()) for needed in task.dependencies)
    restricted = task.worker_restrictions
    return task.state in ("no-worker", "queued") and (not restricted or worker.address in restricted)


def import_dask_dataframes() -> None:
    """Import Dask's modules for dataframes and their shuffle, which the first merge needs, if they are installed."""
    with contextlib.suppress(ImportError):
        import dask.dataframe  # noqa: F401
    with contextlib.suppress(ImportError):
        import distributed.shuffle  # noqa: F401


async def run_import_in_background(import_function: Callable[[], None] = import_dask_dataframes) -> None:
    """Run `import_function` in a thread of the scheduler, so that the scheduler answers while modules load."""
    await asyncio.get_running_loop().run_in_executor(None, import_function)


def count_results_on_scheduler(keys: list[Any], dask_scheduler: Any) -> int:
    """Return how many of the results with these keys the scheduler still holds."""
    return sum(key in dask_scheduler.tasks for key in keys)


def run_pickled_step(pickled_step: bytes) -> Any:
    """Call a pickled function with its pickled arguments on a worker, and return the result.

    The scheduler unpickles every task. Of this one it sees bytes, and imports nothing that only workers need.
    """
    function, arguments, kwargs = pickle.loads(pickled_step)
    return function(*arguments, **kwargs)

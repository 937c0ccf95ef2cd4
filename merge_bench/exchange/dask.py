"""The baseline that every user knows: `dask.dataframe` merges the same chunks on the same workers, disk off.

Dask tells neither phases nor transfers of one merge, so those are null in
the records; wall is the driver's own time from submitting the merge to the last finished partition.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import dask
from distributed import Future

from merge_bench import evidence, on_scheduler, steps
from merge_bench.errors import RunFailed
from merge_bench.exchange import dask_steps
from merge_bench.observe import memory_line
from merge_bench.record.schema import IterationLine

if TYPE_CHECKING:
    from merge_bench.driver import LaunchRun

SCHEDULER_LOADS = ("dask.dataframe", "distributed.shuffle")
"""What Dask's scheduler would import when it is given the first merge, and not answer meanwhile."""


def run_baseline(launch: LaunchRun, config: str, *, plan_index: int, block: int) -> None:
    """Everything after the workers are there, with Dask's merge in place of the data plane."""
    launch.prepare()
    launch.call(launch.client._run_on_scheduler(on_scheduler.load, SCHEDULER_LOADS))
    with launch.client.as_current(), dask.config.set(dask_steps.NO_DISK):
        parts = [_parts(launch, side) for side in ("left", "right")]
        launch.on_all(dask_steps.baseline_loaded)
        launch.record_launch(config, plan_index, block)
        evidence.compare_environment(launch)
        plan = launch.plan
        for index in range(plan.warmup):
            launch.progress.phase("warming up")
            _let_go(launch, _merge(launch, parts, index, warmup=True, last=index == plan.warmup - 1))
        launch.progress.phase("merging")
        for index in range(plan.iterations):
            _let_go(launch, _merge(launch, parts, index, warmup=False, last=index == plan.iterations - 1))
    launch.writer.write(memory_line(launch.launch, launch.on_all(steps.finish)))
    launch.on_all(steps.close)


def _parts(launch: LaunchRun, side: str) -> list[Future]:
    """One frame, with a partition on each worker, in its memory."""
    futures = launch.submit(dask_steps.baseline_frame, [(side,) for _ in launch.members])
    launch.wait_for(futures)
    return futures


def _merge(launch: LaunchRun, parts: list[list[Future]], index: int, *, warmup: bool, last: bool) -> list[Any]:
    """One merge, timed and recorded; gives the keys of its result, which nobody needs any more."""
    plan = launch.plan
    start = time.perf_counter()
    found = _start_there(launch, parts) if plan.engine == "cudf" else _start_here(launch, parts)
    launch.wait_for(found, members=())
    wall = time.perf_counter() - start
    line = IterationLine(launch=launch.launch, index=index, warmup=warmup, wall_seconds=wall)
    launch.collect_iteration(line)
    if plan.verify == "every" or (last and plan.verify != "off"):
        checks = [launch.client.submit(dask_steps.baseline_check, part, pure=False) for part in found]
        launch.record_verdict(None if warmup else index, launch.results(checks, members=()))
    return [part.key for part in found]


def _start_here(launch: LaunchRun, parts: list[list[Future]]) -> list[Future]:
    """Give Dask the merge; gives the partitions of its result."""
    empty = [dask_steps.empty_pandas(fields) for fields in launch.fields]
    result = launch.client.persist(dask_steps.merged(parts, empty, launch.plan.keys, launch.plan.shuffle))
    return dask_steps.futures_of(launch.client, result)


def _start_there(launch: LaunchRun, parts: list[list[Future]]) -> list[Future]:
    """Have the first worker do this for cuDF frames, which need a GPU.

    The measured time includes one round trip to that worker.
    """
    client, name = launch.client, f"{launch.topic}-result"
    try:
        launch.on_one(0, dask_steps.baseline_start, *([part.key for part in each] for each in parts), name)
        # Its name makes the scheduler tell this client of the result; a future made of a key alone stays pending.
        found: list[Future] = launch.call(client.get_dataset(name, asynchronous=True))
    finally:
        forget = client.unpublish_dataset(name, asynchronous=True)
        client.loop.add_callback(_quietly, forget)
    return found


async def _quietly(answer: Awaitable[object]) -> None:
    """Without waiting: after a failure the scheduler may be the one that is gone."""
    with contextlib.suppress(Exception):
        await answer


def _let_go(launch: LaunchRun, keys: list[Any]) -> None:
    """Wait until the scheduler has forgotten the last result: the same merge again would be given it unmerged."""
    deadline = time.monotonic() + launch.plan.timeout
    gc.collect()
    while launch.call(launch.client._run_on_scheduler(on_scheduler.known, keys)):
        if time.monotonic() > deadline:
            raise RunFailed(f"Dask did not let go of a result in {launch.plan.timeout:g} s")
        time.sleep(0.01)

"""The Dask baseline: `dask.dataframe` merges the same chunks on the same workers, without using the disk.

Dask reports neither phases nor transfers of one merge, so those are null in the records. The wall-clock time is the
driver's own, from submitting the merge to the last finished partition.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import dask
from distributed import Future

from merge_bench.campaign.cluster_session import Session
from merge_bench.campaign.recording import MergeRecord, Tables, compare_environment, make_tables
from merge_bench.cluster import dask_scheduler_functions
from merge_bench.errors import RunFailed
from merge_bench.merge import worker
from merge_bench.merge.exchange import dask as dask_steps
from merge_bench.merge.verification.verify import Check
from merge_bench.records.schema import IterationLine, MemoryLine


def measure_baseline(session: Session) -> None:
    """As `measure_launch.measure`, with Dask's merge in place of the data plane."""
    plan, client = session.plan, session.workers.client
    tables = make_tables(session)
    session.workers.call(client._run_on_scheduler(dask_scheduler_functions.load_dataframes))
    with client.as_current(), dask.config.set(dask_steps.NO_DISK):
        merge = _DaskMerge(session, tables)
        session.workers.on_all(dask_steps.baseline_loaded)
        session.record_launch(data_bytes=tables.data_bytes, rows=tables.rows)
        compare_environment(session)
        for index in range(plan.warmup):
            session.progress.phase("warming up")
            merge.once(index, warmup=True, last=index == plan.warmup - 1)
        session.progress.phase("merging")
        for index in range(plan.iterations):
            merge.once(index, warmup=False, last=index == plan.iterations - 1)
    session.writer.write(MemoryLine(launch=session.launch, workers=session.workers.on_all(worker.finish)))
    session.workers.on_all(worker.close)


class _DaskMerge:
    """Both frames, with a partition on each worker, in its memory."""

    def __init__(self, session: Session, tables: Tables) -> None:
        self._session, self._tables = session, tables
        self._record = MergeRecord(session, tables)
        # A running cluster may have more workers; where there are none, Dask places its tasks as it likes.
        self._addresses = None if session.launcher.owns_processes else [member.address for member in session.members]
        self._parts = [self._frames(dask_steps.baseline_frame, side) for side in ("left", "right")]
        kept = dask_steps.keeps_without_key(tables.fields, session.plan)
        self._without_key = self._frames(dask_steps.baseline_without_key) if kept else []

    def once(self, index: int, *, warmup: bool, last: bool) -> None:
        """Merge once, timed and recorded; returns when Dask has forgotten the result."""
        wait_until_forgotten(self._session, self._merge(index, warmup=warmup, last=last))

    def _merge(self, index: int, *, warmup: bool, last: bool) -> list[Any]:
        """Gives the keys of the result, whose futures end here."""
        session, plan = self._session, self._session.plan
        start = time.perf_counter()
        result = self._start_there() if plan.device_memory else self._start_here()
        session.workers.wait_for(result, members=())
        wall = time.perf_counter() - start
        self._record.iteration(IterationLine(launch=session.launch, index=index, warmup=warmup, wall_seconds=wall))
        if plan.verify == "every" or (last and plan.verify != "off"):
            self._record.verdict(None if warmup else index, self._of_parts(dask_steps.baseline_check, zip(result)))
        if plan.write_result is not None and last and not warmup:
            numbered = ((part, number) for number, part in enumerate(result))
            checks = self._of_parts(dask_steps.baseline_write, numbered)
            self._record.verdict(index, checks, plan.write_result)
        return [part.key for part in result]

    def _of_parts(self, step: Callable[..., Check], given: Iterable[tuple[Any, ...]]) -> list[Check]:
        """What a step gives for each partition of the result, which is the first of its arguments."""
        submit, fields = self._session.workers.client.submit, self._tables.fields
        checks = [submit(step, *each, fields, pure=False, workers=self._addresses) for each in given]
        return self._session.workers.results(checks, members=())

    def _frames(self, step: Callable[..., Any], *given: str) -> list[Future]:
        workers = self._session.workers
        futures = workers.submit(step, [given for _ in workers.members])
        workers.wait_for(futures)
        return futures

    def _start_here(self) -> list[Future]:
        """Give Dask the merge; gives the partitions of its result."""
        plan, client = self._session.plan, self._session.workers.client
        empty = dask_steps.empty_pandas_frames(self._tables.fields, plan)
        merge = dask_steps.dask_join(self._parts, empty, plan, self._without_key)
        result = client.persist(merge, workers=self._addresses)
        return dask_steps.futures_of(client, result)

    def _start_there(self) -> list[Future]:
        """Have the first worker do this for cuDF frames, which need a GPU.

        The measured time includes one round trip to that worker.
        """
        workers, name = self._session.workers, f"{self._session.topic}-result"
        try:
            parts = ([part.key for part in each] for each in self._parts)
            workers.on_one(0, dask_steps.baseline_start, *parts, self._addresses, name)
            # Its name makes the scheduler tell this client of the result; a future made of a key alone stays pending.
            result: list[Future] = workers.call(workers.client.get_dataset(name, asynchronous=True))
        finally:
            forget = workers.client.unpublish_dataset(name, asynchronous=True)
            workers.client.loop.add_callback(_quietly, forget)
        return result


async def _quietly(answer: Awaitable[object]) -> None:
    """Without waiting: after a failure the scheduler may be the one that is gone."""
    with contextlib.suppress(Exception):
        await answer


def wait_until_forgotten(session: Session, keys: Sequence[Any]) -> None:
    """Wait until the scheduler has forgotten a result: the same merge again would be given it unmerged.

    Raises
    ------
    RunFailed
        If it has not within the plan's timeout.
    """
    workers, timeout = session.workers, session.plan.timeout
    deadline = time.monotonic() + timeout
    gc.collect()
    while workers.call(workers.client._run_on_scheduler(dask_scheduler_functions.count_held, keys)):
        if time.monotonic() > deadline:
            raise RunFailed(f"Dask did not release the result of a merge within {timeout:g} s")
        time.sleep(0.01)

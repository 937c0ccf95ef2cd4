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
from merge_bench.campaign.recording import (
    InputTables,
    MergeRecorder,
    make_input_tables,
    record_power,
    record_setting_differences,
)
from merge_bench.cluster import dask_scheduler_functions
from merge_bench.errors import RunFailed
from merge_bench.merge import worker
from merge_bench.merge.exchange import dask as dask_steps
from merge_bench.merge.verification import ResultCheck
from merge_bench.records.schema import IterationLine, MemoryLine


def measure_dask_baseline(session: Session) -> None:
    """Merge with `dask.dataframe` as the session's plan says, and record times, verdicts and memory of the merges."""
    plan, client = session.plan, session.workers.client
    tables = make_input_tables(session)
    session.end_startup_part("tables")
    session.workers.wait_for_coroutine(client._run_on_scheduler(dask_scheduler_functions.run_import_in_background))
    # In a thread as well: else a worker loads them in its event loop, with its first tasks, and looks silent meanwhile.
    session.workers.run_on_all_workers(dask_scheduler_functions.import_dask_dataframes)
    with client.as_current(), dask.config.set(dask_steps.NO_DISK):
        merge = _DaskMerge(session, tables)
        session.workers.run_on_all_workers(dask_steps.free_original_chunks)
        session.end_startup_part("partitions")
        session.record_launch(data_bytes=tables.data_bytes, rows=tables.rows)
        record_setting_differences(session)
        for index in range(plan.warmup):
            session.progress.show_phase("warming up")
            merge.merge_once(index, is_last=index == plan.warmup - 1)
        session.progress.show_phase("merging")
        power = contextlib.ExitStack()  # closed before the last result is verified
        power.enter_context(record_power(session))
        for index in range(plan.iterations):
            merge.merge_once(index, power.close, is_last=index == plan.iterations - 1)
    session.writer.write(
        MemoryLine(launch=session.launch, workers=session.workers.run_on_all_workers(worker.report_memory))
    )
    session.workers.run_on_all_workers(worker.close_launch)


class _DaskMerge:
    """Merges both input frames with Dask; every worker holds one partition of each frame in its memory."""

    def __init__(self, session: Session, tables: InputTables) -> None:
        self._session, self._tables = session, tables
        self._record = MergeRecorder(session, tables)
        # A running cluster may have more workers; where there are none, Dask places its tasks as it likes.
        self._addresses = None if session.launcher.owns_processes else [member.address for member in session.members]
        self._parts = [self._make_partitions(dask_steps.make_chunk_dataframe, side) for side in ("left", "right")]
        kept = dask_steps.may_have_null_key_result(tables.fields, session.plan)
        self._without_key = self._make_partitions(dask_steps.make_null_key_dataframe) if kept else []

    def merge_once(self, index: int, after_last_merge: Callable[[], None] | None = None, *, is_last: bool) -> None:
        """Make one timed and recorded merge; returns when Dask has released the result.

        `after_last_merge`: called after the last timed merge, before its result is verified; None: this merge is a
        warm-up.
        """
        wait_until_result_released(self._session, self._merge_and_record(index, after_last_merge, is_last=is_last))

    def _merge_and_record(self, index: int, after_last_merge: Callable[[], None] | None, *, is_last: bool) -> list[Any]:
        """Merge, and record time and verdict; returns the Dask keys of the result, which nothing refers to any more."""
        session, plan, warmup = self._session, self._session.plan, after_last_merge is None
        start = time.perf_counter()
        result = self._submit_merge_on_worker() if plan.device_memory else self._submit_merge()
        session.workers.wait_for_futures(result, workers=())
        wall = time.perf_counter() - start
        line = IterationLine(launch=session.launch, index=index, warmup=warmup, wall_seconds=wall)
        self._record.write_iteration(line)
        if is_last and after_last_merge is not None:
            after_last_merge()
        if plan.verify == "every" or (is_last and plan.verify != "off"):
            checks = self._check_result_partitions(dask_steps.check_result_partition, zip(result))
            self._record.write_verdict(None if warmup else index, checks)
        if plan.write_result is not None and is_last and not warmup:
            numbered = ((part, number) for number, part in enumerate(result))
            checks = self._check_result_partitions(dask_steps.write_and_check_result_partition, numbered)
            self._record.write_verdict(index, checks, plan.write_result)
        return [part.key for part in result]

    def _check_result_partitions(
        self, check_function: Callable[..., ResultCheck], partition_arguments: Iterable[tuple[Any, ...]]
    ) -> list[ResultCheck]:
        """Call `check_function` on workers, once with each of `partition_arguments`; returns the checks."""
        submit, fields = self._session.workers.client.submit, self._tables.fields
        checks = [
            submit(check_function, *given, fields, pure=False, workers=self._addresses) for given in partition_arguments
        ]
        return self._session.workers.wait_for_results(checks, workers=())

    def _make_partitions(self, make_partition: Callable[..., Any], *arguments: str) -> list[Future]:
        workers = self._session.workers
        futures = workers.submit_to_all_workers(make_partition, [arguments for _ in workers.members])
        workers.wait_for_futures(futures)
        return futures

    def _submit_merge(self) -> list[Future]:
        plan, client = self._session.plan, self._session.workers.client
        empty = dask_steps.empty_pandas_frames(self._tables.fields, plan)
        merge = dask_steps.plan_dask_join(self._parts, empty, plan, self._without_key)
        result = client.persist(merge, workers=self._addresses)
        return dask_steps.partition_futures(client, result)

    def _submit_merge_on_worker(self) -> list[Future]:
        """Have the first worker submit the merge, because cuDF frames need a GPU; returns the result's partitions."""
        workers, name = self._session.workers, f"{self._session.topic}-result"
        try:
            parts = ([part.key for part in each] for each in self._parts)
            workers.run_on_rank(0, dask_steps.start_dask_merge, *parts, self._addresses, name)
            # Its name makes the scheduler tell this client of the result; a future made of a key alone stays pending.
            result: list[Future] = workers.wait_for_coroutine(workers.client.get_dataset(name, asynchronous=True))
        finally:
            forget = workers.client.unpublish_dataset(name, asynchronous=True)
            workers.client.loop.add_callback(_await_ignoring_errors, forget)
        return result


async def _await_ignoring_errors(awaitable: Awaitable[object]) -> None:
    """Await `awaitable` and ignore its errors: after a failure, the Dask scheduler itself may have ended."""
    with contextlib.suppress(Exception):
        await awaitable


def wait_until_result_released(session: Session, result_keys: Sequence[Any]) -> None:
    """Wait until Dask's scheduler has released a result, which it would otherwise return for the next, equal merge."""
    workers, timeout = session.workers, session.plan.timeout
    deadline = time.monotonic() + timeout
    gc.collect()
    while workers.wait_for_coroutine(
        workers.client._run_on_scheduler(dask_scheduler_functions.count_results_on_scheduler, result_keys)
    ):
        if time.monotonic() > deadline:
            raise RunFailed(f"Dask did not release the result of a merge within {timeout:g} s")
        time.sleep(0.01)

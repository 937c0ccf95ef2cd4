"""Peers that join in one process: the same rows, the same warm-up, the same verification for all of them."""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peer import tables
from benchmarks.peer.checks import judge
from benchmarks.peer.protocol import Job, Outcome, Tables
from merge_bench.host.machine import PeakMemoryMeter
from merge_bench.merge.engines.base import JoinKind
from merge_bench.merge.workload import ExpectedWorkerResult, synthetic


class Joiner:
    """One library's inner join of two tables that it holds in memory. `name`: of the library and its package."""

    name: str
    _result: Any = None

    def __init__(self, job: Job) -> None:
        self.job = job

    def load(self, left: pa.Table, right: pa.Table) -> None:
        """Take both tables over in the form that the library joins fastest."""
        raise NotImplementedError

    def merge(self) -> None:
        """Join them, and hold the whole result in memory. This is what is timed."""
        raise NotImplementedError

    def result(self) -> pa.Table:
        """The result, with the columns of the job."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop the result."""
        self._result = None


def timed(
    job: Job,
    *,
    ready: Callable[[], object],
    merge: Callable[[], object],
    check: Callable[[], int],
    meter: Callable[[str], object],
) -> tuple[list[float], int | None]:
    """Warm up, time every iteration, and check the result after the last warm-up and after the last iteration.

    `ready` drops the last result; `meter` gets ``restart`` and ``pause``, so that checks do not count as memory used.
    Gives the seconds of the timed iterations, and the rows of the result.
    """
    walls: list[float] = []
    rows, last = None, job.warmup + job.iterations - 1
    meter("restart")
    for index in range(last + 1):
        ready()
        start = time.perf_counter()
        merge()
        walls.append(time.perf_counter() - start)
        if index in job.checked_after:
            meter("pause")
            rows = check()
            if index < last:
                meter("restart")
    return walls[job.warmup :], rows


def measure(joiner: Joiner) -> Outcome:
    """The joiner's job in this process, without garbage collection while it merges."""
    job, meter = joiner.job, PeakMemoryMeter()
    check = _load(job, joiner)

    def ready() -> None:
        joiner.release()
        gc.collect()

    def merge() -> None:
        gc.disable()
        joiner.merge()
        gc.enable()

    def check_result() -> int:
        rows = check(joiner.result())
        gc.collect()
        return rows

    gc.collect()
    walls, rows = timed(job, ready=ready, merge=merge, check=check_result, meter=lambda step: getattr(meter, step)())
    return Outcome(
        joiner.name, importlib.metadata.version(joiner.name), walls, rows, rows is not None, meter.peak_bytes
    )


def _load(job: Job, joiner: Joiner) -> Callable[[pa.Table], int]:
    """Give the joiner its tables; gives a function that checks a result and counts its rows.

    Synthetic rows come as one chunk: they do not depend on how many workers share them.
    """
    if job.tables is not None and job.tables.columns:
        joiner.load(*(tables.chunk(job.tables, 0, 1, side) for side in tables.SIDES))
        return functools.partial(tables.verify, job.tables)
    if job.tables is not None:
        joiner.load(*(pq.read_table(path).combine_chunks() for path in (job.tables.left, job.tables.right)))
        return functools.partial(verify_tables, job.tables)
    how = JoinKind(job.how)
    left, right, expected = synthetic.generate_chunks(job.spec, 0, 1, how)
    joiner.load(left.to_arrow(), right.to_arrow())
    return lambda result: judge(expected, *synthetic.check_result_rows(job.spec, result.select(job.columns), how))


def verify_tables(tables: Tables, result: pa.Table) -> int:
    """Check the number of rows and their checksum; gives the number. Raises `WrongResult` like `judge`."""
    found = checksum(*(result[f"{side}_payload"].to_numpy() for side in ("left", "right")))
    return judge(ExpectedWorkerResult(tables.rows, tables.checksum), result.num_rows, found, 0)


def checksum(left: np.ndarray, right: np.ndarray) -> int:
    """The checksum of `Tables`, of a result's payloads."""
    return int((left.astype(np.uint64) * right.astype(np.uint64)).sum())

"""Peers that join in one process: the same rows, the same warm-up, the same verification for all of them."""

from __future__ import annotations

import gc
import time
from typing import Protocol

import pyarrow as pa

from benchmarks.peer.protocol import Job, Outcome
from merge_bench.errors import WrongResult
from merge_bench.host.memory import PeakMeter
from merge_bench.merge.workload import synthetic
from merge_bench.merge.workload.synthetic import KEY, Expectation, SyntheticSpec

COLUMNS = (KEY, "left_payload_0", "right_payload_0")


class Joiner(Protocol):
    """One library's inner join of two tables that it holds in memory."""

    name: str
    version: str

    def load(self, left: pa.Table, right: pa.Table) -> None:
        """Take both tables over in the form that the library joins fastest."""

    def merge(self) -> None:
        """Join them, and hold the whole result in memory. This is what is timed."""

    def result(self) -> pa.Table:
        """The result, with the columns `COLUMNS`."""

    def release(self) -> None:
        """Let go of the result."""


def measure(job: Job, joiner: Joiner) -> Outcome:
    """Warm up, time every iteration, and check the result after the last warm-up and after the last iteration."""
    meter = PeakMeter()
    expected = _load(job.spec, joiner)
    gc.collect()
    meter.restart()
    walls: list[float] = []
    rows = None
    for index in range(job.warmup + job.iterations):
        joiner.release()
        gc.collect()
        gc.disable()
        start = time.perf_counter()
        joiner.merge()
        wall = time.perf_counter() - start
        gc.enable()
        if index >= job.warmup:
            walls.append(wall)
        if index in job.checked_after:
            meter.pause()
            rows = verify(job.spec, expected, joiner.result())
            gc.collect()
            if index < job.warmup + job.iterations - 1:
                meter.restart()
    return Outcome(joiner.name, joiner.version, walls, rows, rows is not None, meter.peak)


def _load(spec: SyntheticSpec, joiner: Joiner) -> Expectation:
    """All rows as one chunk: the tables do not depend on how many workers share them."""
    left, right, expected = synthetic.generate(spec, 0, 1)
    joiner.load(left.to_arrow(), right.to_arrow())
    return expected


def verify(spec: SyntheticSpec, expected: Expectation, result: pa.Table) -> int:
    """Check every row, their number and their checksum; gives the number.

    Raises
    ------
    WrongResult
        Saying what differs.
    """
    rows, checksum, bad = synthetic.check(spec, result.select(list(COLUMNS)))
    judge(expected, rows, checksum, bad)
    return rows


def judge(expected: Expectation, rows: int, checksum: int, bad: int) -> None:
    """Raise `WrongResult` unless this is the right result."""
    if bad:
        raise WrongResult(f"the result is wrong: {bad} of its {rows} rows are no pair that matches")
    if rows != expected.rows:
        raise WrongResult(f"the result is wrong: it has {rows} rows, and {expected.rows} match")
    if checksum != expected.checksum:
        raise WrongResult("the result is wrong: its rows have another checksum than those that match")

"""The limits of this machine's memory with all cores of the workers at once: copies, and gathers at random."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from merge_bench.errors import UsageError
from merge_bench.host.machine import available_memory_bytes
from merge_bench.merge.engines import hash_join_loops
from merge_bench.units import format_bytes

LEAST_ARRAY = 256 << 20
CACHES = 8  # an array is that many times the last cache, or it would measure the cache
VALUE, INDEX = 8, 4
GATHERED = 1 << 24  # values of one round
BLOCK = 1 << 15  # values that are written to one place, in cache: a gather is to measure what it reads
ROUNDS = 5
COPIES = 8  # in a round, which then lasts long beside the time in which threads begin

Round = Callable[[], object]


@dataclass(frozen=True)
class Limit:
    """One measurement: what a round did, over all cores, and how long each round took.

    `amount` is bytes read and written, or values of a gather; `array_bytes`: of what one core reads.
    """

    name: str
    amount: int
    array_bytes: int
    seconds: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Amount per second of the fastest round, as STREAM counts (McCalpin 1995): what disturbs only ever slows."""
        return self.amount / min(self.seconds)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "rate": self.rate}


def array_bytes(cores: int, last_cache: int | None, available: int | None = None) -> int:
    """Bytes of one core's array: together far larger than the last cache, each a multiple of 8.

    `available`: bytes of memory; None: of this machine, now.

    Raises
    ------
    UsageError
        If all cores' arrays do not fit into memory.
    """
    size = max(LEAST_ARRAY, CACHES * (last_cache or 0) // cores // VALUE * VALUE)
    needed = cores * max(2 * size, size + GATHERED * INDEX)
    there = available_memory_bytes() if available is None else available
    if needed > there:
        raise UsageError(
            f"measuring the memory limits of {cores} cores needs {format_bytes(needed)}, but only "
            f"{format_bytes(there)} is free"
        )
    return size


def measure(cores: Sequence[int], size: int, gathered: int = GATHERED) -> list[Limit]:
    """Copy in three ways, read, and gather from arrays of `size` bytes; `gathered`: values of a round of gathers."""
    return [
        _limit("copy", COPIES * 2 * size, size, cores, _copy),
        _limit("loop", COPIES * 2 * size, size, cores, _loop),
        _limit("kernel copy", COPIES * 2 * size, size, cores, _kernel_copy),
        _limit("read", COPIES * size, size, cores, _read),
        _limit("gather", gathered, size, cores, partial(_gather, count=gathered)),
    ]


def measure_bucket(cores: Sequence[int], bucket_bytes: int, gathered: int = GATHERED) -> Limit:
    """Gather from arrays as large as what a join reaches at random in one bucket."""
    return _limit("gather in a bucket", gathered, bucket_bytes, cores, partial(_gather, count=gathered))


def together(before: Sequence[Limit], after: Sequence[Limit]) -> list[Limit]:
    """The rounds of two measurements: how fast memory is depends on the pages that a process was given."""
    return [replace(one, seconds=one.seconds + two.seconds) for one, two in zip(before, after, strict=True)]


def _copy(size: int) -> Round:
    source, target = np.ones(size // VALUE, np.int64), np.zeros(size // VALUE, np.int64)
    return lambda: [np.copyto(target, source) for _ in range(COPIES)]  # type: ignore[func-returns-value]


def _loop(size: int) -> Round:
    """A copy by ordinary stores, for which the processor has to fetch each line before it is written."""
    source, target = np.ones(size // VALUE, np.int64), np.zeros(size // VALUE, np.int64)
    return lambda: [np.add(source, 1, out=target) for _ in range(COPIES)]


def _read(size: int) -> Round:
    """Reads without writes: of these a core has fewer under way than it needs to be as fast as a copy."""
    source = np.ones(size // VALUE, np.int64)
    return lambda: [source.sum() for _ in range(COPIES)]


class _Part(ctypes.Structure):
    """`struct iovec`."""

    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _kernel_copy(size: int) -> Round:
    """A copy by `process_vm_readv`, as UCX's transport cma reads the memory of another process on the host."""
    arrays = np.ones(size // VALUE, np.int64), np.zeros(size // VALUE, np.int64)
    read = ctypes.CDLL(None, use_errno=True).process_vm_readv
    parts = ctypes.POINTER(_Part)
    read.argtypes = [ctypes.c_int, parts, ctypes.c_ulong, parts, ctypes.c_ulong, ctypes.c_ulong]
    read.restype = ctypes.c_ssize_t
    there, here = (_Part(each.ctypes.data, each.nbytes) for each in arrays)

    def copy() -> None:
        for _ in range(COPIES):
            if read(os.getpid(), here, 1, there, 1, 0) != arrays[0].nbytes:
                raise UsageError(f"the kernel copy failed: {os.strerror(ctypes.get_errno())}")

    return copy


def _gather(size: int, count: int) -> Round:
    """The loop with which the join takes payloads, over rows in random order."""
    values, out = np.ones(size // VALUE, np.int64), np.zeros(BLOCK, np.int64)
    rows = np.random.default_rng(0).integers(0, values.size, count, np.int32)
    blocks = [rows[start : start + BLOCK] for start in range(0, count, BLOCK)]

    return lambda: [hash_join_loops.gather_values(values, block, out) for block in blocks]


def _limit(name: str, amount: int, size: int, cores: Sequence[int], prepare: Callable[[int], Round]) -> Limit:
    """The same on every core at once: a round lasts from the first beginning to the last end."""
    meet = threading.Barrier(len(cores))

    def one(core: int) -> list[tuple[float, float]]:
        os.sched_setaffinity(0, {core})  # of this thread alone
        try:
            do = prepare(size)
            do()  # compiles, and touches what numpy has left to the first use
            spans = []
            for _ in range(ROUNDS):
                meet.wait()
                start = time.perf_counter()
                do()
                spans.append((start, time.perf_counter()))
        except BaseException:
            meet.abort()
            raise
        return spans

    with ThreadPoolExecutor(len(cores)) as pool:
        spans = list(pool.map(one, cores))
    rounds = zip(*spans, strict=True)
    seconds = tuple(max(end for _, end in each) - min(start for start, _ in each) for each in rounds)
    return Limit(name, amount * len(cores), size, seconds)

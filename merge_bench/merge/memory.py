"""The memory of a worker: buffers that are used again in every iteration, and how fast memory is copied.

Partition and join move rows, so they cannot be much faster than a copy. All workers copy at once, with as many threads
as they merge with, from their chunks into the buffers of their parcels: that is memory of the size that the merge uses,
and already touched.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from merge_bench.merge.frame import Bytes, Frame

ALIGN = 64  # bytes: a cache line, and what Arrow recommends
BLOCK_BYTES = 64 << 20  # above 32 MiB the C library always gives freed memory back to the system

ROUNDS = 3
LEAST_BYTES = 64 << 20
"""A round reads and writes at least as much, small chunks several times, so that it lasts for milliseconds."""
MOST_BYTES = 2 << 30
"""A round reads and writes no more than this of large chunks, so that it lasts for less than a second."""
TASK_BYTES = 256 << 10
"""What a thread copies at least: handing out less would take a good part of the time."""
CopyPair: TypeAlias = tuple[Bytes, Bytes]
"""A source and a target of the same length."""


class BufferPool:
    """A growing buffer that is reused in every iteration, because the first access to new memory is slow.

    `take_bytes(n)` gives n bytes that stay valid until the next `reset_pool`: from lent buffers, then from the own
    buffer, then from new blocks. When an iteration needed new blocks, the next `reset_pool` makes one larger buffer in
    their place and touches every page.
    """

    def __init__(self) -> None:
        self._buffer = np.zeros(0, np.uint8)
        self._used = 0
        self._wanted = 0
        self._block = np.zeros(0, np.uint8)
        self._lent: list[Bytes] = []

    @property
    def reusable_buffer(self) -> Bytes:
        """The buffer that is kept between iterations; writing to it overwrites what `take_bytes` gave."""
        return self._buffer

    def reserve_bytes(self, size: int) -> None:
        """Make the buffer at least `size` bytes long, and touch it.

        What `take_bytes` gave before is no longer valid.
        """
        if size > self._buffer.size:
            self._buffer = np.zeros(0, np.uint8)
            self._buffer = allocate_aligned_bytes(size)
            self._buffer[::4096] = 0
        self._used = 0

    def add_lent_buffers(self, buffers: Sequence[Bytes]) -> None:
        """Add buffers, aligned to 64 bytes, that are free until the next `reset_pool`; `take_bytes` uses them first."""
        self._lent += buffers

    def release_temporary_memory(self) -> None:
        """Drop lent buffers and new blocks; call this before `reset_pool` of this pool or of the one that lent them."""
        self._lent, self._block = [], np.zeros(0, np.uint8)
        if self._wanted > self._buffer.size:
            self._buffer = np.zeros(0, np.uint8)

    def reset_pool(self) -> None:
        """Make all bytes of the pool available again, and drop lent buffers."""
        self.release_temporary_memory()
        self.reserve_bytes(self._wanted)
        self._wanted = 0

    def take_bytes(self, size: int) -> Bytes:
        """Return `size` bytes, aligned to 64, that stay valid until `reset_pool`; contents undefined."""
        padded = aligned_size(size)
        for number, room in enumerate(self._lent):
            if padded <= room.size:
                self._lent[number] = room[padded:]
                return room[:size]
        self._wanted += padded
        if self._used + padded <= self._buffer.size:
            self._used += padded
            return self._buffer[self._used - padded :][:size]
        if padded > self._block.size:
            self._block = allocate_aligned_bytes(max(padded, BLOCK_BYTES))
        view, self._block = self._block[:size], self._block[padded:]
        return view


def aligned_size(size: int) -> int:
    """Return `size` rounded up to a multiple of `ALIGN` bytes."""
    return -(-size // ALIGN) * ALIGN


def allocate_aligned_bytes(size: int) -> Bytes:
    """Allocate `size` bytes, aligned to 64; contents undefined."""
    raw = np.empty(size + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + size]


@dataclass(frozen=True)
class CopyMeasurement:
    """The result of a measurement of memory copies: bytes read and written per round, and the seconds of each round."""

    bytes: int
    seconds: tuple[float, ...]


def measure_copy_speed(
    frames: Iterable[Frame], target: Bytes, pool: ThreadPoolExecutor | None, threads: int, barrier: Callable[[], object]
) -> CopyMeasurement | None:
    """Measure how fast the arrays of `frames` are copied into `target`, whose contents are lost.

    `pool`, `threads`: the threads that share the copy; without a pool the calling thread copies. `barrier`: waits for
    all other workers; called before each round, and as often where there is nothing to copy.

    Returns
    -------
    CopyMeasurement or None
        None if there is nothing to copy.
    """
    pairs = list(_pair_arrays_with_target(frames, target[: MOST_BYTES // 2]))
    size = sum(source.nbytes for source, _ in pairs)
    times = -(-LEAST_BYTES // (2 * size)) if size else 0
    shares = max(1, min(threads, size // TASK_BYTES))
    tasks = [
        [(_slice_for_thread(source, number, shares), _slice_for_thread(copy, number, shares)) for source, copy in pairs]
        for number in range(shares)
    ]
    run = map if pool is None else pool.map
    seconds = []
    for _ in range(1 + ROUNDS):  # the first one does not count: it finds the caches as the merge left them
        barrier()
        began = time.perf_counter()
        list(run(_copy_repeatedly, tasks, itertools.repeat(times)))
        seconds.append(time.perf_counter() - began)
    return CopyMeasurement(2 * size * times, tuple(seconds[1:])) if size else None


def _pair_arrays_with_target(frames: Iterable[Frame], target: Bytes) -> Iterator[CopyPair]:
    """Yield each array of the frames with its part of `target`, one after the other, until `target` is full."""
    start = 0
    for frame in frames:
        for column in frame.columns:
            for array in (column.values, column.offsets, column.valid):
                if array is not None:
                    source = np.ascontiguousarray(array).view(np.uint8).reshape(-1)[: target.size - start]
                    yield source, target[start : start + source.size]
                    start += source.size


def _slice_for_thread(array: Bytes, thread: int, threads: int) -> Bytes:
    """Return the part of an array that one of `threads` threads copies."""
    return array[array.size * thread // threads : array.size * (thread + 1) // threads]


def _copy_repeatedly(pairs: Sequence[CopyPair], repetitions: int) -> None:
    """Copy each source to its target, as many times as `repetitions` says."""
    for _ in range(repetitions):
        for source, target in pairs:
            np.copyto(target, source)

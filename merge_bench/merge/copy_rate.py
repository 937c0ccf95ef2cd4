"""How fast a worker's memory is copied: partition and join move rows, so they cannot be much faster than this.

All workers copy at once, with as many threads as they merge with, from their chunks into the buffers of their parcels:
that is memory of the size that the merge uses, and already touched.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from merge_bench.merge.frame import Array, Bytes, Frame

CopyPair: TypeAlias = tuple[Bytes, Bytes]
"""A source and a target of the same length."""

ROUNDS = 3
LEAST_BYTES = 64 << 20
"""A round reads and writes at least as much, small chunks several times, so that it lasts for milliseconds."""
MOST_BYTES = 2 << 30
"""A round reads and writes no more than this of large chunks, so that it lasts for less than a second."""
TASK_BYTES = 256 << 10
"""What a thread copies at least: handing out less would take a good part of the time."""


@dataclass(frozen=True)
class CopyRounds:
    """The bytes that each round of copies read and wrote, and the seconds of each round."""

    bytes: int
    seconds: tuple[float, ...]


def measure_copy(
    frames: Iterable[Frame], target: Bytes, pool: ThreadPoolExecutor | None, threads: int, barrier: Callable[[], object]
) -> CopyRounds | None:
    """Copy `frames` into `target`, as far as it and `MOST_BYTES` reach; its contents are lost.

    Parameters
    ----------
    pool, threads
        The threads that share the copy; without a pool the calling thread copies.
    barrier
        Waits for all other workers; called before each round, and as often where there is nothing to copy.

    Returns
    -------
    CopyRounds or None
        None if there is nothing to copy.
    """
    pairs = list(_sources_and_targets(frames, target[: MOST_BYTES // 2]))
    size = sum(source.nbytes for source, _ in pairs)
    times = -(-LEAST_BYTES // (2 * size)) if size else 0
    shares = max(1, min(threads, size // TASK_BYTES))
    tasks = [[_share_of_pair(pair, number, shares) for pair in pairs] for number in range(shares)]
    run = map if pool is None else pool.map
    seconds = []
    for _ in range(1 + ROUNDS):  # the first one does not count: it finds the caches as the merge left them
        barrier()
        began = time.perf_counter()
        list(run(_copy_pairs, tasks, itertools.repeat(times)))
        seconds.append(time.perf_counter() - began)
    return CopyRounds(2 * size * times, tuple(seconds[1:])) if size else None


def _sources_and_targets(frames: Iterable[Frame], target: Bytes) -> Iterator[CopyPair]:
    """Each array of the frames with its place in `target`, one after the other, as far as `target` reaches."""
    start = 0
    for frame in frames:
        for column in frame.columns:
            for array in (column.values, column.offsets, column.valid):
                if array is not None:
                    source = _as_bytes(array)[: target.size - start]
                    yield source, target[start : start + source.size]
                    start += source.size


def _share_of_pair(pair: CopyPair, number: int, shares: int) -> CopyPair:
    """The part of a source and its target that thread `number` of `shares` copies."""
    source, target = pair
    part = slice(source.size * number // shares, source.size * (number + 1) // shares)
    return source[part], target[part]


def _as_bytes(array: Array) -> Bytes:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)


def _copy_pairs(pairs: Sequence[CopyPair], times: int) -> None:
    for _ in range(times):
        for source, target in pairs:
            np.copyto(target, source)

"""How fast a worker's memory is copied: partition and join move rows, so they cannot be much faster than this.

All workers copy at once, with as many threads as they merge with, from their chunks into the buffers of their parcels:
that is memory of the size that the merge uses, and already touched.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from merge_bench.merge.frame import Array, Bytes, Frame

ROUNDS = 3
LEAST_BYTES = 64 << 20
"""A round copies smaller chunks several times, so that it lasts for milliseconds."""


@dataclass(frozen=True)
class CopyRounds:
    """What one round read and wrote in bytes, and the seconds of each round."""

    bytes: int
    seconds: tuple[float, ...]


def measure_copy(
    frames: Iterable[Frame], target: Bytes, pool: ThreadPoolExecutor | None, threads: int, meet: Callable[[], object]
) -> CopyRounds | None:
    """Copy `frames` into `target`, as far as it reaches; its contents are lost.

    Parameters
    ----------
    pool, threads
        The threads that share the copy; without a pool the calling thread copies.
    meet
        Waits for all other workers; called before each round, and as often where there is nothing to copy.

    Returns
    -------
    CopyRounds or None
        None if there is nothing to copy.
    """
    pairs = _pairs(frames, target, threads)
    size = sum(source.nbytes for source, _ in pairs)
    times = max(1, LEAST_BYTES // (2 * size)) if size else 0
    run = map if pool is None else pool.map
    seconds = []
    for _ in range(1 + ROUNDS):  # the first one does not count: it finds the caches as the merge left them
        meet()
        began = time.perf_counter()
        for _ in range(times):
            list(run(_copy, pairs))
        seconds.append(time.perf_counter() - began)
    return CopyRounds(2 * size * times, tuple(seconds[1:])) if size else None


def _pairs(frames: Iterable[Frame], target: Bytes, threads: int) -> list[tuple[Bytes, Bytes]]:
    """What is copied to where: of each array a slice for each thread."""
    pairs, start = [], 0
    for frame in frames:
        for column in frame.columns:
            for array in (column.values, column.offsets, column.valid):
                if array is None:
                    continue
                source = _bytes(array)[: target.size - start]
                edges = [source.size * thread // threads for thread in range(threads + 1)]
                pairs += [
                    (source[first:last], target[start + first : start + last])
                    for first, last in itertools.pairwise(edges)
                    if last > first
                ]
                start += source.size
    return pairs


def _bytes(array: Array) -> Bytes:
    return np.ascontiguousarray(array).view(np.uint8).reshape(-1)


def _copy(pair: tuple[Bytes, Bytes]) -> None:
    source, target = pair
    np.copyto(target, source)

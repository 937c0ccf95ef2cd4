"""libcudf's `hash_partition` alone: a table of two int64 columns into 2, 32 and 64 parts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from benchmarks.on_gpu.programs.libcudf_join import on_device
from benchmarks.on_gpu.programs.rows import Problem, report, run, timed
from merge_bench.errors import WrongResult
from merge_bench.merge.engines.cudf import PARTITION_SEED
from merge_bench.merge.engines.gpu_memory import (
    load_rapids,
    process_cuda_stream,
    set_up_memory_pool,
    synchronize_stream,
)

PARTS = (2, 32, 64)


def split(table: Any, parts: int) -> tuple[Any, list[int]]:
    """The rows in the order of their parts, and where each part begins."""
    plc, _ = load_rapids()
    found, offsets = plc.partitioning.hash_partition(
        table, [0], parts, seed=PARTITION_SEED, stream=process_cuda_stream()
    )
    return found, [int(offset) for offset in offsets]


def verify(problem: Problem, found: Any, offsets: list[int], parts: int) -> None:
    """Check that every row is there once, with its own key, and that the parts are of like sizes.

    Raises
    ------
    WrongResult
        If not.
    """
    host = found.to_arrow(["key", "payload"], stream=process_cuda_stream())
    numbers = host.column("payload").to_numpy()
    keys = problem.left.columns[0].values.view(np.int64)
    rows = problem.spec.rows
    if len(numbers) != rows or not np.array_equal(np.bincount(numbers, minlength=rows), np.ones(rows, np.int64)):
        raise WrongResult(f"hash_partition into {parts} parts lost or repeated rows")
    if not np.array_equal(host.column("key").to_numpy(), keys[numbers]):
        raise WrongResult(f"hash_partition into {parts} parts moved keys to other rows")
    ends = [*offsets[:parts], rows]
    most = max(end - start for start, end in itertools.pairwise(ends))
    if len(ends) != parts + 1 or most > 1.5 * rows / parts:
        raise WrongResult(f"hash_partition into {parts} parts gave one of {most:,} rows")


def measure(rows: int) -> None:
    """One size."""
    problem = Problem.of(rows)
    table = on_device(problem.left)
    for parts in PARTS:

        def partition(parts: int = parts) -> tuple[Any, list[int]]:
            return split(table, parts)

        walls = timed(partition, synchronize_stream)
        verify(problem, *partition(), parts)
        moved = 2 * rows * problem.spec.bytes_per_row
        report(f"hash_partition, {parts} parts", rows, walls, parts=parts, bytes_read_and_written=moved, verified=True)


if __name__ == "__main__":
    run(measure, set_up_memory_pool)

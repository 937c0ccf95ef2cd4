"""`cudf.DataFrame.merge` alone: both frames and the result in device memory, in the pool that merge_bench makes."""

from __future__ import annotations

from typing import Any

from benchmarks.on_gpu.programs.rows import Problem, report, run, timed
from merge_bench.errors import RunFailed
from merge_bench.merge.engines.gpu_memory import set_up_memory_pool
from merge_bench.merge.workload import KEY


def wait() -> None:
    """Until all work on the GPU is done."""
    from cuda.bindings import runtime

    (status,) = runtime.cudaDeviceSynchronize()
    if int(status):
        raise RunFailed(f"cudaDeviceSynchronize returned {status}")


def measure(rows: int) -> None:
    """One size."""
    import cudf

    problem = Problem.of(rows)
    left: Any = cudf.DataFrame.from_arrow(problem.left.to_arrow())
    right: Any = cudf.DataFrame.from_arrow(problem.right.to_arrow())

    def merge() -> Any:
        return left.merge(right, on=KEY, how="inner")

    walls = timed(merge, wait)
    problem.verify([merge().to_arrow(preserve_index=False)])
    report("cudf.DataFrame.merge", rows, walls, result_rows=problem.rows, verified=True)


if __name__ == "__main__":
    run(measure, set_up_memory_pool)

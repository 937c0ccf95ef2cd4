"""One iteration of a merge by one worker, between the calls that start and stop a profiler such as ncu.

ncu --profile-from-start off python -m benchmarks.on_gpu.programs.profiled_merge --rows 25000000
"""

from __future__ import annotations

import functools
import json
from typing import Any

from benchmarks.on_gpu.programs.rows import Problem, run
from merge_bench.errors import RunFailed
from merge_bench.merge.engines import import_engine_class
from merge_bench.merge.engines.base import JoinShape
from merge_bench.merge.engines.gpu_memory import set_up_memory_pool
from merge_bench.merge.workload import KEY

POOL_BYTES = 16 << 30  # not the whole GPU: the profiler keeps copies of what kernels overwrite


def measure(rows: int) -> None:
    """A warm-up and the profiled iteration, whose result is verified."""
    from cuda.bindings import runtime

    problem = Problem.of(rows)
    shape = JoinShape(problem.left.fields, problem.right.fields, (KEY,), 1, 0, 2 * rows)
    engine: Any = import_engine_class("cudf")(shape)
    engine.load_chunks(problem.left, problem.right)

    def iterate() -> int:
        engine.begin_iteration()
        engine.partition_chunks()
        return int(engine.join_received_rows())

    iterate()
    (status,) = runtime.cudaProfilerStart()
    if int(status):
        raise RunFailed(f"cudaProfilerStart returned {status}")
    joined = iterate()
    runtime.cudaProfilerStop()
    problem.verify(engine.result_tables())
    print(json.dumps({"name": "profiled merge", "rows": rows, "result_rows": joined}), flush=True)


if __name__ == "__main__":
    run(measure, functools.partial(set_up_memory_pool, POOL_BYTES))

"""cudf-polars: a join of rows that are resident on the GPU, with a resident result; and one of rows in host memory.

    python -m benchmarks.on_gpu.programs.polars_join --rows 25000000

It needs the packages cudf-polars and polars in versions that fit each other, which are others than merge_bench's. The
resident join is `SPMDEngine.execute` of one process; its time includes the translation of the query. The join of rows
in host memory is ``collect(engine="gpu")``; its time includes both copies to the GPU and that of the result back.
"""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.on_gpu.programs.cudf_merge import wait
from benchmarks.on_gpu.programs.rows import Problem, report, run, timed
from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.workload import KEY

ITERATIONS = 5


def resident(rows: int) -> None:
    """Both frames stay on the GPU, and so does the result."""
    polars: Any = importlib.import_module("polars")
    spmd: Any = importlib.import_module("cudf_polars.engine.spmd")
    problem = Problem.of(rows)
    left, right = (polars.from_arrow(frame.to_arrow()) for frame in (problem.left, problem.right))
    with spmd.SPMDEngine() as engine:

        def join_once() -> float:
            # A resident frame can be read once only, so each join gets frames of its own, made before the clock runs.
            with engine.execute(left.lazy()) as ours, engine.execute(right.lazy()) as theirs:
                query = ours.lazy().join(theirs.lazy(), on=KEY, how="inner")
                return timed(lambda: engine.execute(query), wait, 1, 0)[0]

        walls = [join_once() for _ in range(ITERATIONS + 1)][1:]
        with engine.execute(left.lazy()) as ours, engine.execute(right.lazy()) as theirs:
            query = ours.lazy().join(theirs.lazy(), on=KEY, how="inner")
            with engine.execute(query) as result:
                problem.verify([result.lazy().collect(engine=engine).to_arrow()])
    report("cudf-polars, rows and result on the GPU", rows, walls, version=version(), verified=True)


def from_host(rows: int) -> None:
    """Both frames and the result are in host memory."""
    polars: Any = importlib.import_module("polars")
    problem = Problem.of(rows)
    left, right = (polars.from_arrow(frame.to_arrow()) for frame in (problem.left, problem.right))
    query = left.lazy().join(right.lazy(), on=KEY, how="inner")

    def collect() -> Any:
        return query.collect(engine=polars.GPUEngine(raise_on_fail=True))

    walls = timed(collect, wait, ITERATIONS, 1)
    problem.verify([collect().to_arrow()])
    # Its engine stays, and while it does, no other can be made.
    importlib.import_module("cudf_polars.engine.default_singleton_engine").DefaultSingletonEngine.shutdown()
    report("cudf-polars, rows and result in host memory", rows, walls, version=version(), verified=True)


def version() -> str:
    """The version of cudf-polars."""
    return str(importlib.import_module("cudf_polars").__version__)


def measure(rows: int) -> None:
    """One size: resident first, since that is the comparison with merge_bench."""
    resident(rows)
    from_host(rows)


if __name__ == "__main__":
    run(measure, gpu_memory.bind_cuda_context)

"""Which steps there are on a machine with so many GPUs, the most valuable first."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from benchmarks.goal.targets import Target
from benchmarks.on_gpu import peer_variants, runs, versus
from benchmarks.on_gpu.figures import ANY_NEED, OWN_NEED, largest_chunk
from benchmarks.on_gpu.runs import Merge
from benchmarks.on_gpu.steps import Finding, Step
from benchmarks.on_gpu.testing import run_tests
from benchmarks.peer.protocol import Job, workers_per_gpu
from merge_bench.errors import RunFailed
from merge_bench.units import format_count

SMALL, LARGE = 1_000_000, 25_000_000
SHARING = (1, 2, 4)  # workers on one GPU
SHUFFLES = ("dask-p2p", "dask-tasks")
ON_HOST = {"host-ucx": ("ucx", "native"), "host-dask": ("dask-p2p", "pandas")}
FRACTION = 0.3
# Usual seconds: measured on an H200 with 16 cores, November 2026, times 1.5.
SECONDS = {
    "tests": 21.0, "ucx-shared-1": 13.0, "ucx-shared-2": 16.0, "ucx-shared-4": 20.0, "link-shared-2": 19.0,
    "link-check": 26.0, "host-ucx": 15.0, "host-dask": 26.0, "largest": 67.0,
    "peer-variants": 45.0, "dask-p2p-shared-2": 33.0, "dask-tasks-shared-2": 31.0,
}  # fmt: skip
OTHER_SECONDS = 45.0  # of a step that has not been measured
VERSUS_SECONDS = {versus.UCXX: 45.0, versus.DASK_CUDA: 108.0}  # of one block; that against UCXX has not been measured


@dataclass(frozen=True)
class Machine:
    """What the steps depend on. `free_bytes`: of the GPU that has the least; `bandwidth`: of one GPU's memory."""

    gpus: int
    free_bytes: int
    bandwidth: int | None
    host_bytes: int
    cores: int


@dataclass(frozen=True)
class Asked:
    """What is the same for all steps."""

    folder: Path
    blocks: int
    seed: int


def steps(machine: Machine, asked: Asked) -> list[Step]:
    """All steps. First what proves most: the tests, CUDA IPC, the link limit, the goal against UCXX's merge.

    Then what no other step shows: host engines, the largest chunk, Dask's shuffles, dask-cuda; last what varies these.
    """
    merge = functools.partial(_merge, machine, asked)
    compare = functools.partial(_compare, machine, asked)
    others = [sharers for sharers in SHARING if sharers != 2]
    on_all, dask_on_all = [], []
    if machine.gpus > 1:
        on_all = [merge("ucx-all-gpus", Merge(machine.gpus, 1, LARGE))]
        dask_on_all = [merge(f"{n}-all-gpus", Merge(machine.gpus, 1, SMALL, n)) for n in SHUFFLES]
    return [
        Step("tests", "pytest -m gpu", SECONDS["tests"], functools.partial(run_tests, asked.folder)),
        merge("ucx-shared-2", Merge(2, 2, SMALL)),
        *on_all,
        merge("link-shared-2", Merge(2, 2, LARGE)),
        Step(
            "peer-variants",
            f"ways to run {peer_variants.PROGRAM} until two work",
            SECONDS["peer-variants"],
            functools.partial(peer_variants.find, asked.folder),
        ),
        compare("ucxx-large", versus.UCXX, LARGE, versus.GOAL),
        compare("ucxx-small", versus.UCXX, SMALL, versus.GOAL),
        *(merge(name, _on_host(*how)) for name, how in ON_HOST.items()),
        _largest(machine, asked),
        *(merge(f"{name}-shared-2", Merge(2, 2, SMALL, name)) for name in SHUFFLES),
        compare("dask-cuda-large", versus.DASK_CUDA, LARGE),
        compare("ucxx-largest", versus.UCXX, None),
        compare("dask-cuda-largest", versus.DASK_CUDA, None),
        *(merge(f"ucx-shared-{n}", Merge(n, n, SMALL)) for n in others),
        merge("link-check", Merge(2, 2, LARGE, check_link=True)),
        compare("dask-cuda-small", versus.DASK_CUDA, SMALL),
        *dask_on_all,
        *(merge(f"{x}-shared-{n}", Merge(n, n, SMALL, x)) for n in others for x in SHUFFLES),
    ]


def paired(gpus: int) -> int:
    """Workers of a comparison: an even number, as the peer needs, one for each GPU where there are several."""
    return max(2, gpus // 2 * 2)


def _merge(machine: Machine, asked: Asked, name: str, merge: Merge) -> Step:
    def do(left: float) -> Finding:
        return runs.judge(merge, runs.run(merge, name, asked.folder, left), machine.bandwidth)

    chunk = f"{format_count(merge.rows)} rows per chunk"
    if merge.engine != runs.CUDF:
        what = f"{merge.exchange}, engine {merge.engine}, {chunk}, {merge.workers} workers"
    else:
        where = f"{merge.sharers} on each of {merge.gpus} GPUs" if merge.gpus > 1 else f"{merge.workers} on one GPU"
        what = f"{merge.exchange}, {chunk}, workers: {where}"
    return Step(name, what, SECONDS.get(name, OTHER_SECONDS), do)


def _on_host(exchange: str, engine: str) -> Merge:
    return Merge(2, 2, SMALL, exchange, iterations=3, link_rounds=0, engine=engine)


def _largest(machine: Machine, asked: Asked) -> Step:
    rows = largest_chunk(machine.free_bytes, 2, OWN_NEED, machine.host_bytes, 2, FRACTION)
    if rows < SMALL:
        return Step("largest", "the largest chunk that fits", 1.0, _no_room)
    return _merge(machine, asked, "largest", Merge(2, 2, rows, iterations=5))


def _no_room(left: float) -> Finding:
    raise RunFailed("one million rows per chunk do not fit into the free memory of the GPU or its host")


def _compare(
    machine: Machine, asked: Asked, name: str, names: tuple[str, ...], rows: int | None, goal: Target | None = None
) -> Step:
    workers = paired(machine.gpus)
    size = rows or largest_chunk(
        machine.free_bytes, workers_per_gpu(workers, machine.gpus), ANY_NEED, machine.host_bytes, workers, FRACTION
    )  # fmt: skip

    def do(left: float) -> Finding:
        lacking = versus.missing(names)
        if lacking:
            return Finding(f"not compared: the package {', '.join(lacking)} is not installed")
        if not size:
            return _no_room(left)
        job = Job(size, workers, machine.cores, iterations=5, warmup=2, fraction=FRACTION, seed=asked.seed)
        return versus.compare(names, job, asked.folder, asked.blocks, left, machine.gpus, goal)

    what = f"merge_bench and {', '.join(names)} in turn, {format_count(size)} rows per chunk, {workers} workers"
    return Step(name, what, asked.blocks * VERSUS_SECONDS[names], do)

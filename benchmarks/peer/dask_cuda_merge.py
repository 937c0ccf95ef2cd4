"""`dask_cuda.benchmarks.local_cudf_merge`, unmodified, on a cluster that is started as merge_bench starts its own.

With `type=cpu` it merges pandas frames. It makes its own rows: as many as ours, of the same types and with the same
fraction of matches, but it does not check its result, so there is nothing here that could be called verified.

Its throughput is data processed ÷ duration, data processed being rows × item sizes of both frames as in our definition;
its duration is the client's time from building the merge's graph to the last finished partition.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from distributed import Client

from benchmarks.peer import printed
from benchmarks.peer.protocol import Job, Outcome, PeerError, serve, workers_per_gpu
from merge_bench.campaign import run as runs
from merge_bench.cluster.choose import make_launcher
from merge_bench.host import cuda_context
from merge_bench.host.gpu import gpu_count
from merge_bench.merge.engines import gpu_memory

PROGRAM = "dask_cuda.benchmarks.local_cudf_merge"
HEADINGS = ("Wall clock", "Throughput")
CONFIG = "optimized.cfg"


def command(job: Job, scheduler_file: Path) -> list[str]:
    """What is run. Rows a chunk, one chunk of each frame a worker, its default shuffle."""
    return [
        sys.executable, "-m", PROGRAM, "--type", job.options["type"], "--protocol", job.options["protocol"],
        "--scheduler-file", str(scheduler_file), "--chunk-size", str(job.rows_per_chunk),
        "--base-chunks", str(job.workers), "--other-chunks", str(job.workers), "--frac-match", str(job.fraction),
        "--runs", str(job.iterations), "--warmup-runs", str(job.warmup), "--no-show-p2p-bandwidth",
    ]  # fmt: skip


def parse(text: str, job: Job) -> list[float]:
    """Seconds of every run in what it printed.

    Raises
    ------
    PeerError
        If the output is not whole, or is that of another problem than the job's.
    """
    walls = printed.walls(text, HEADINGS, job.iterations, PROGRAM)
    asked = {"Rows-per-chunk": str(job.rows_per_chunk), "Number of workers": str(job.workers)}
    for key, value in asked.items():
        found = printed.value_of(text, key)
        if found != value:
            raise PeerError(f"{PROGRAM} reports {key} {found} instead of {value}")
    return walls


@contextlib.contextmanager
def cluster(job: Job, folder: Path) -> Iterator[tuple[Path, list[int]]]:
    """Workers as for `--exchange dask`; gives the scheduler's file and the workers' process ids."""
    gpu = job.options["type"] == "gpu"
    shared = workers_per_gpu(job.workers, gpu_count())
    prepared, _ = runs.load(
        CONFIG,
        {
            "config": CONFIG, "chunk": job.rows_per_chunk, "workers": job.workers, "exchange": "dask",
            "engine": "cudf" if gpu else "pandas", "protocol": job.options["protocol"], "workers_per_gpu": shared,
        },
    )  # fmt: skip
    launcher = make_launcher(prepared.settings)
    try:
        access = launcher.start(prepared.plan, prepared.settings, folder, "cluster-")
        assert access.scheduler_file is not None
        with Client(scheduler_file=str(access.scheduler_file), timeout=60) as client:
            client.wait_for_workers(job.workers, timeout=60)
            pids = list(client.run(os.getpid).values())
            if gpu:  # its own options for pools do not apply to a running cluster
                set_up_pools(client, shared)
        yield access.scheduler_file, pids
    finally:
        launcher.stop()


def set_up_pools(client: Client, sharers: int) -> None:
    """Make every worker's pool in its task thread, where the benchmark works: that binds a CUDA context there.

    `Client.run` would do it in the thread of the worker's event loop, which has a context from dask-cuda.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]

    def on_all(step: Callable[..., Any], *arguments: object) -> list[Any]:
        found = [client.submit(step, *arguments, workers=[each], pure=False) for each in workers]
        return client.gather(found)  # type: ignore[no-any-return]

    on_all(cuda_context.bind)
    found = [memory for memory in on_all(gpu_memory.inspect) if memory is not None]
    size = min(gpu_memory.pool_size(None, [memory] * sharers) for memory in found) if found else None
    on_all(gpu_memory.set_up_pool, size)


def run(job: Job) -> Outcome:
    """The job."""
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch, cluster(job, Path(scratch)) as (file, pids):
        walls = parse(printed.printed_by(PROGRAM, command(job, file)), job)
        peak = sum(_high_water(pid) for pid in pids)
    return Outcome("dask-cuda", importlib.metadata.version("dask-cuda"), walls, None, None, peak or None)


def _high_water(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    serve(run)

"""`dask_cuda.benchmarks.local_cudf_merge`, unmodified, on a cluster that is started as merge_bench starts its own.

With `type=cpu` it merges pandas frames. It makes its own rows: as many as ours, of the same types and with the same
fraction of matches. It does not check its result, so its result counts as not checkable.

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

import msgspec
from distributed import Client

from benchmarks.peer.protocol import Job, Outcome, PeerError, Seconds, printed_by, serve, workers_per_gpu
from merge_bench.campaign.planned_launches import plan_runs
from merge_bench.cluster.launchers import make_launcher
from merge_bench.config.options import RunOptions
from merge_bench.host import kernel_files
from merge_bench.host.gpu import count_visible_gpus
from merge_bench.merge.engines import gpu_memory

PROGRAM = "dask_cuda.benchmarks.local_cudf_merge"
CONFIG = "optimized.cfg"


class Results(msgspec.Struct):
    """What it writes, as far as it is needed: figures by the number of the run."""

    wallclock: dict[str, Seconds]
    rows_per_chunk: dict[str, int]
    base_chunks: dict[str, int]
    other_chunks: dict[str, int]


def command(job: Job, scheduler_file: Path, results: Path) -> list[str]:
    """What is run: one chunk of each frame a worker, its default shuffle; its figures go to ``<results>.json``."""
    return [
        sys.executable,
        "-m",
        PROGRAM,
        "--type",
        job.options["type"],
        "--protocol",
        job.options["protocol"],
        "--scheduler-file",
        str(scheduler_file),
        "--chunk-size",
        str(job.rows_per_chunk),
        "--base-chunks",
        str(job.workers),
        "--other-chunks",
        str(job.workers),
        "--frac-match",
        str(job.fraction),
        "--runs",
        str(job.iterations),
        "--warmup-runs",
        str(job.warmup),
        "--no-show-p2p-bandwidth",
        "--output-basename",
        str(results),
    ]


def parse(results: Path, job: Job) -> list[float]:
    """Seconds of every run in the file that it wrote: a column for each figure, a row for each run.

    Raises
    ------
    PeerError
        If the file is damaged or incomplete, or is about another problem than the job's.
    """
    try:
        found = msgspec.json.decode(results.read_bytes(), type=Results)
    except (OSError, msgspec.DecodeError) as error:
        raise PeerError(f"cannot read the results of {PROGRAM}: {error}") from None
    if len(found.wallclock) != job.iterations:
        raise PeerError(f"{PROGRAM} reports {len(found.wallclock)} of {job.iterations} iterations")
    rows, chunks = {*found.rows_per_chunk.values()}, {*found.base_chunks.values(), *found.other_chunks.values()}
    if (rows, chunks) != ({job.rows_per_chunk}, {job.workers}):
        raise PeerError(
            f"{PROGRAM} reports {rows} rows per chunk and {chunks} chunks, which differ from the requested ones"
        )
    return list(found.wallclock.values())


@contextlib.contextmanager
def cluster(job: Job, folder: Path) -> Iterator[tuple[Path, list[int]]]:
    """Workers as for `--exchange dask`; gives the scheduler's file and the workers' process ids."""
    gpu = job.options["type"] == "gpu"
    shared = workers_per_gpu(job.workers, count_visible_gpus())
    (prepared,) = plan_runs(
        CONFIG,
        RunOptions().with_command_line_values(
            chunk=job.rows_per_chunk,
            workers=job.workers,
            exchange="dask",
            engine="cudf" if gpu else "pandas",
            protocol=job.options["protocol"],
            workers_per_gpu=shared,
        ),
    )
    launcher = make_launcher(prepared.settings)
    try:
        access = launcher.start_processes(prepared.plan, prepared.settings, folder, "cluster-")
        assert access.scheduler_file is not None
        with Client(scheduler_file=str(access.scheduler_file), timeout=60) as client:
            client.wait_for_workers(job.workers, timeout=60)
            pids = list(client.run(os.getpid).values())
            if gpu:  # its own options for pools do not apply to a running cluster
                set_up_pools(client, shared)
        yield access.scheduler_file, pids
    finally:
        launcher.stop_processes()


def set_up_pools(client: Client, sharers: int) -> None:
    """Make every worker's pool in its task thread, where the benchmark works: that binds a CUDA context there.

    `Client.run` would do it in the thread of the worker's event loop, which has a context from dask-cuda.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]

    def on_all(step: Callable[..., Any], *arguments: object) -> list[Any]:
        found = [client.submit(step, *arguments, workers=[each], pure=False) for each in workers]
        return client.gather(found)  # type: ignore[no-any-return]

    on_all(gpu_memory.bind_cuda_context)
    found = [memory for memory in on_all(gpu_memory.inspect_gpu_memory) if memory is not None]
    size = min(gpu_memory.pool_bytes_per_worker(None, [memory] * sharers) for memory in found) if found else None
    on_all(gpu_memory.set_up_memory_pool, size)


def run(job: Job) -> Outcome:
    """The job."""
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch, cluster(job, Path(scratch)) as (file, pids):
        results = Path(scratch) / "results"
        printed_by(PROGRAM, command(job, file, results))
        walls = parse(results.with_suffix(".json"), job)
        peak = sum(kernel_files.read_named_byte_counts(Path(f"/proc/{pid}/status")).get("VmHWM", 0) for pid in pids)
    return Outcome("dask-cuda", importlib.metadata.version("dask-cuda"), walls, None, None, peak or None)


if __name__ == "__main__":
    serve(run)

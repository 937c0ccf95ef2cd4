"""`ucxx.benchmarks.cudf_merge` on the GPUs of this machine, through `ucxx_program`, which mends three things in it.

It makes its own rows, as many as ours, and checks their number to 2 % itself. Its throughput is chunks × data of a
chunk ÷ wall, its wall is that of rank 0 up to a barrier after the join: both have the same definition as ours.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peer.protocol import Job, Outcome, PeerError, printed_by, serve
from merge_bench.campaign.importers.cudf_merge import read_report
from merge_bench.errors import UsageError
from merge_bench.host.gpu import IN_ORDER, describe_gpus, gpu_index, visible_gpu_names

PROGRAM = "ucxx.benchmarks.cudf_merge"
MODULE = "benchmarks.peer.ucxx_program"
# A worker that crashes prints its C stack (UCX) and then its Python stack.
ENVIRONMENT = {**IN_ORDER, "PYTHONFAULTHANDLER": "1", "UCX_HANDLE_ERRORS": "bt"}
POOL_FRACTION = 0.8  # of a GPU's memory, for the pools of all workers on it; its own default is half for each worker


def chosen_gpus() -> list[int]:
    """The numbers of the GPUs that this process may use, for `--devs`: the program sets `CUDA_VISIBLE_DEVICES` anew.

    Raises
    ------
    PeerError
        If one of them has no number.
    """
    numbers = []
    for name in visible_gpu_names():
        if (number := gpu_index(name)) is None:
            raise PeerError(f"{PROGRAM} needs GPU numbers, but {name} in CUDA_VISIBLE_DEVICES has no number")
        numbers.append(number)
    return numbers


def command(job: Job, gpus: Sequence[int], memory_bytes: int) -> list[str]:
    """What is run: the workers spread evenly over the GPUs, given by their numbers, a memory pool for each.

    Raises
    ------
    PeerError
        If the workers cannot be spread so.
    """
    devices = gpus[: job.workers]
    if not devices or job.workers % len(devices) or job.workers % 2:
        raise PeerError(f"{PROGRAM} needs an even number of workers, spread evenly over the {len(gpus)} GPUs")
    each = job.workers // len(devices)
    pool = int(POOL_FRACTION * memory_bytes / each) // 256 * 256
    return [
        sys.executable,
        "-m",
        MODULE,
        "--devs",
        ",".join(map(str, devices)),
        "--chunks-per-dev",
        str(each),
        "--chunk-size",
        str(job.rows_per_chunk),
        "--frac-match",
        str(job.fraction),
        "--iter",
        str(job.iterations),
        "--warmup-iter",
        str(job.warmup),
        "--rmm-init-pool-size",
        str(pool),
    ]


def parse(text: str, job: Job) -> list[float]:
    """Seconds of every iteration in what it printed.

    Raises
    ------
    PeerError
        If the output is not whole, contradicts itself, or is that of another problem than the job's.
    """
    try:
        report = read_report(Path(PROGRAM), text.encode())
    except UsageError as error:
        raise PeerError(str(error)) from None
    if len(report.iterations) != job.iterations:
        raise PeerError(f"{PROGRAM} printed {len(report.iterations)} of {job.iterations} iterations")
    if report.rows_per_chunk != job.rows_per_chunk:
        raise PeerError(f"{PROGRAM} reports Rows per chunk {report.rows_per_chunk} instead of {job.rows_per_chunk}")
    return [iteration.wall.value for iteration in report.iterations]


def run(job: Job) -> Outcome:
    """The job."""
    gpus, known = chosen_gpus(), describe_gpus()
    memory = min((int(known[number].memory_bytes or 0) for number in gpus[: job.workers]), default=0)
    text = printed_by(PROGRAM, command(job, gpus, memory), **ENVIRONMENT)
    return Outcome("ucxx", _version(), parse(text, job), None, None, None)


def _version() -> str:
    for name in ("ucxx-cu13", "ucxx-cu12"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    raise PeerError("the package ucxx is not installed")


if __name__ == "__main__":
    serve(run)

"""Dask's own merge, written as in its documentation: a `LocalCluster`, persisted frames, `merge`, `persist`.

Everything that `--exchange dask` sets differently is at Dask's default here: nannies, memory limits and spilling, work
stealing, P2P through files, no choice about broadcasting. The rows, and their places before the merge, are the same.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import dask.dataframe as dd
import distributed
import pyarrow as pa
from distributed import Client, Future, LocalCluster

from benchmarks.peer import tables
from benchmarks.peer.checks import judge
from benchmarks.peer.inprocess import timed
from benchmarks.peer.protocol import Job, Outcome, PeerError, serve
from merge_bench.host.machine import PeakMemoryMeter
from merge_bench.merge.engines.pandas import to_pandas
from merge_bench.merge.workload import ExpectedWorkerResult, synthetic

SETTLE_SECONDS = 60.0
_meter: PeakMemoryMeter | None = None  # of a worker's process


def make_chunk(job: Job, rank: int, side: str) -> Any:
    """One partition of one frame. Runs on a worker."""
    if job.tables is not None:
        return to_pandas(tables.chunk(job.tables, rank, job.workers, side))
    left, right, _ = synthetic.generate_chunks(job.spec, rank, job.workers)
    return to_pandas((left if side == "left" else right).to_arrow())


def expect(job: Job, rank: int) -> ExpectedWorkerResult:
    """One chunk's part of what the result must be. Runs on a worker."""
    if job.tables is not None:
        return ExpectedWorkerResult(job.tables.rows, job.tables.checksum) if rank == 0 else ExpectedWorkerResult(0, 0)
    return synthetic.generate_chunks(job.spec, rank, job.workers)[2]


def check_part(job: Job, part: Any) -> tuple[int, int, int]:
    """One partition of the result. Runs on a worker."""
    table = pa.Table.from_pandas(part, preserve_index=False)
    return synthetic.check_result_rows(job.spec, table) if job.tables is None else (*tables.check(job.tables, table), 0)


def meter(step: str) -> int:
    """Start or pause this worker's memory meter, and read it. Runs on a worker."""
    global _meter
    gc.collect()
    if _meter is None:
        _meter = PeakMemoryMeter()
    if step == "restart":
        _meter.restart()
    elif step == "pause":
        _meter.pause()
    return _meter.peak_bytes


def run(job: Job) -> Outcome:
    """The job, with the shuffle in `options`."""
    with (
        LocalCluster(
            n_workers=job.workers, threads_per_worker=max(1, job.threads // job.workers), dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(job.workers, timeout=60)
        return _measure(job, client)


def _measure(job: Job, client: Client) -> Outcome:
    addresses = list(client.scheduler_info(n_workers=-1)["workers"])[: job.workers]

    def on_all(step: Callable[..., Any], *arguments: object) -> list[Future]:
        return [
            client.submit(step, job, rank, *arguments, workers=[address], pure=False)
            for rank, address in enumerate(addresses)
        ]

    expected = client.gather(on_all(expect))
    left, right = (dd.from_delayed(on_all(make_chunk, side), verify_meta=False) for side in ("left", "right"))
    results: list[Any] = []

    def ready() -> None:
        results.clear()
        gc.collect()
        wait_until_held(client, 2 * job.workers)

    def merge() -> None:
        results.append(left.merge(right, on=list(job.on), how=job.how, shuffle_method=job.options["shuffle"]).persist())
        distributed.wait(results[0])

    walls, rows = timed(
        job,
        ready=ready,
        merge=merge,
        check=lambda: _verify(job, client, results[0], expected),
        meter=lambda step: client.run(meter, step),
    )
    peak = sum(client.run(meter, "read").values())
    return Outcome("dask", str(distributed.__version__), walls, rows, rows is not None, peak)


def _verify(job: Job, client: Client, result: Any, expected: list[ExpectedWorkerResult]) -> int:
    parts = [future for future in client.futures_of(result) if isinstance(future, Future)]
    found = client.gather([client.submit(check_part, job, part, pure=False) for part in parts])
    rows, checksum, bad = (int(sum(each)) for each in zip(*found, strict=True))
    whole = ExpectedWorkerResult(sum(part.rows for part in expected), sum(part.checksum for part in expected) % 2**64)
    return judge(whole, rows, checksum % 2**64, bad)


def wait_until_held(client: Client, pieces: int) -> None:
    """Wait until the workers hold both frames and no result: Dask releases data with a delay."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while sum(client.run(_pieces).values()) != pieces:
        if time.monotonic() > deadline:
            raise PeerError(f"the workers had not freed the last result after {SETTLE_SECONDS:g} s")
        time.sleep(0.05)


def _pieces(dask_worker: Any) -> int:
    return len(dask_worker.data)


if __name__ == "__main__":
    serve(run)

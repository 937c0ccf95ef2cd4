"""This project's own command, `python -m merge_bench`, with the options in the job, and its records read back."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import merge_bench
from benchmarks.peer.protocol import Job, Outcome, serve, workers_per_gpu
from benchmarks.processes import Document, options, run_merge_bench, surroundings
from merge_bench.host.gpu import count_visible_gpus
from merge_bench.records.reader import read_campaign

CONFIG = "optimized.cfg"


def command(job: Job, results: Path) -> list[str]:
    """The options of `run`: the shipped config, and no link measurement, since no other contender makes one."""
    problem: dict[str, object] = {
        "chunk": job.rows_per_chunk,
        "frac_match": job.fraction,
        "payload_columns": job.payload_columns,
        "skew": f"zipf:{job.zipf:g}" if job.zipf else "none",
    }
    if job.tables is not None:
        problem = {"left": job.tables.left, "right": job.tables.right, "on": ",".join(job.on)}
    problem |= {"how": job.how} if job.how != "inner" else {}
    return options(
        config=CONFIG,
        workers=job.workers,
        iterations=job.iterations,
        warmup=job.warmup,
        seed=job.seed,
        link_rounds=0,
        results=results,
        workers_per_gpu=workers_per_gpu(job.workers, count_visible_gpus()),
        **problem,
        **job.options,
    )


def run(job: Job) -> Outcome:
    """The job, as a user starts it."""
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch:
        folder = Path(scratch)
        return outcome(run_merge_bench(command(job, folder / "results"), surroundings(), folder / "run", math.inf)[0])


def outcome(document: Document) -> Outcome:
    """The answer in a run's document and records: all timed iterations of its one launch."""
    launches = read_campaign(document["records"]).launches
    walls = [iteration.wall_seconds for launch in launches for iteration in launch.timed_iterations]
    peaks = [worker["peak"] for worker in document["peak_memory_bytes"]["per_worker"]]
    peak = sum(peaks) if peaks and None not in peaks else None
    return Outcome("merge_bench", merge_bench.__version__, walls, document["result_rows"], document["verified"], peak)


if __name__ == "__main__":
    serve(run)

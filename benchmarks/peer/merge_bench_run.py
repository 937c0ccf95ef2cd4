"""This project's own command, `python -m merge_bench`, with the options in the job, and its records read back."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import merge_bench
from benchmarks.peer.protocol import Job, Outcome, PeerError, serve, workers_per_gpu
from benchmarks.processes import options
from merge_bench.analysis.documents.run import RunDocument
from merge_bench.analysis.summary import summarize_run
from merge_bench.errors import WrongResult
from merge_bench.host.gpu import gpu_count
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign

CONFIG = "optimized.cfg"


def command(job: Job, results: str) -> list[str]:
    """What is run: the shipped config, and no link measurement, since no other contender makes one."""
    problem: dict[str, object] = {"chunk": job.rows_per_chunk, "frac_match": job.fraction}
    if job.tables is not None:
        problem = {"left": job.tables.left, "right": job.tables.right, "on": ",".join(job.on)}
    shared = workers_per_gpu(job.workers, gpu_count())
    return [
        sys.executable, "-m", "merge_bench", "run", *options(
            config=CONFIG, workers=job.workers, iterations=job.iterations, warmup=job.warmup, seed=job.seed,
            link_rounds=0, results=results, workers_per_gpu=shared, **problem, **job.options,
        ),
    ]  # fmt: skip


def run(job: Job) -> Outcome:
    """The job, as a user starts it."""
    with tempfile.TemporaryDirectory(prefix="peers-") as results:
        with subprocess.Popen(command(job, results), stdout=sys.stderr) as process:
            try:
                status = process.wait()
            finally:
                process.terminate()
        folders = list(Path(results).iterdir())
        if not folders:
            raise PeerError(f"merge_bench ended with status {status} before it began")
        campaign = read_campaign(folders[0])
        if status:
            error = summary(campaign).error
            message = error.message if error else f"it ended with status {status}"
            raise (WrongResult if status == WrongResult.exit_status else PeerError)(f"merge_bench: {message}")
        return outcome(campaign)


def outcome(campaign: Campaign) -> Outcome:
    """The answer in a campaign's records: all timed iterations of its one launch."""
    document = summary(campaign)
    peaks = [worker.peak for worker in document.peak_memory_bytes.per_worker]
    walls = [iteration.wall_seconds for launch in campaign.launches for iteration in launch.timed]
    known = [peak for peak in peaks if peak is not None]
    peak = sum(known) if peaks and len(known) == len(peaks) else None
    return Outcome("merge_bench", merge_bench.__version__, walls, document.result_rows, document.verified, peak)


def summary(campaign: Campaign) -> RunDocument:
    """The document of a campaign's one run."""
    return summarize_run(campaign, campaign.runs[0], campaign.head.campaign_id)


if __name__ == "__main__":
    serve(run)

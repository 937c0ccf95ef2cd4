"""This project's own command, `python -m merge_bench`, with the options in the job, and its records read back."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import merge_bench
from benchmarks.peer.protocol import Job, Outcome, PeerError, serve, workers_per_gpu
from merge_bench.analysis.summary import summarize
from merge_bench.errors import WrongResult
from merge_bench.host.gpu import gpu_count
from merge_bench.records.campaign import Campaign
from merge_bench.records.reader import read_campaign

CONFIG = "optimized.cfg"


def command(job: Job, results: str) -> list[str]:
    """What is run: the shipped config for everybody, no link measurement, since nobody else makes one."""
    shared = workers_per_gpu(job.workers, gpu_count())
    chosen = [f"--{name}={value}" for name, value in job.options.items()]
    return [
        sys.executable, "-m", "merge_bench", "run", "--config", CONFIG, "--chunk", str(job.rows_per_chunk),
        "--workers", str(job.workers), "--iterations", str(job.iterations), "--warmup", str(job.warmup),
        "--frac-match", str(job.fraction), "--seed", str(job.seed), "--link-rounds", "0", "--results", results,
        "--workers-per-gpu", str(shared), *chosen,
    ]  # fmt: skip


def run(job: Job) -> Outcome:
    """The job, as a user starts it."""
    with tempfile.TemporaryDirectory(prefix="peers-") as results:
        process = subprocess.Popen(command(job, results), stdout=sys.stderr)
        try:
            status = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        folders = list(Path(results).iterdir())
        if not folders:
            raise PeerError(f"merge_bench ended with status {status} before it began")
        campaign = read_campaign(folders[0])
        if status:
            said = (summarize(campaign)["error"] or {}).get("message", f"it ended with status {status}")
            raise (WrongResult if status == WrongResult.exit_status else PeerError)(f"merge_bench: {said}")
        return outcome(campaign)


def outcome(campaign: Campaign) -> Outcome:
    """The answer in a campaign's records: all timed iterations of its one launch."""
    document = summarize(campaign)
    peaks = [worker["peak"] for worker in document["peak_memory_bytes"]["per_worker"]]
    walls = [iteration.wall_seconds for launch in campaign.launches for iteration in launch.timed]
    peak = sum(peaks) if peaks and None not in peaks else None
    return Outcome("merge_bench", merge_bench.__version__, walls, document["result_rows"], document["verified"], peak)


if __name__ == "__main__":
    serve(run)

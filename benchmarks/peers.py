"""Compares merge_bench with the programs people use today: same rows, same cores, interleaved, a table of ratios.

    python -m benchmarks.peers --chunk 25e6 --workers 2 --blocks 6 --iterations 5

`docs/peers.md` says what is compared and how. Exit status: 0 done; 2 wrong usage; 3 a launch failed, or it was
interrupted; 4 a result was wrong.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import click

from benchmarks import command
from benchmarks.peer.comparison import Comparison
from benchmarks.peer.contenders import choose, refuse_unfit
from benchmarks.peer.protocol import Job
from benchmarks.peer.store import SCHEMA, Store
from benchmarks.processes import adopt_orphans
from merge_bench.errors import UsageError
from merge_bench.host import machine
from merge_bench.host.gpu import gpu_count, gpu_facts
from merge_bench.host.memory import available_bytes, usable_cores


@click.command(context_settings=command.CONTEXT)
@click.option("--chunk", type=command.ROWS, default="25e6", help="Rows of one frame that start on one worker. [25e6]")
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True, help="Chunks of each frame.")
@click.option("--blocks", type=click.IntRange(1), default=6, show_default=True, help="Launches of each contender.")
@click.option("--iterations", type=click.IntRange(1), default=5, show_default=True, help="Timed merges in a launch.")
@click.option("--warmup", type=click.IntRange(0), default=1, show_default=True, help="Merges before the timed ones.")
@click.option(
    "--frac-match", type=click.FloatRange(0, 1), default=0.3, show_default=True, help="Right keys that match."
)
@click.option(
    "--cores", type=click.IntRange(1), default=None, help="Number of cores that every contender may use. [all]"
)
@click.option("--only", type=command.NAMES, default="", help="Only these contenders; patterns as polars*. [all]")
@click.option("--time-limit", type=click.FloatRange(1), default=1800, show_default=True, help="Seconds for a launch.")
@click.option("--settle", type=click.FloatRange(0), default=2, show_default=True, help="Seconds between launches.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the tables and the order.")
@click.option(
    "--results", type=click.Path(path_type=Path), default=command.ROOT / "results", help="Folder for the results."
)
def peers(
    chunk: int, workers: int, blocks: int, iterations: int, warmup: int, frac_match: float, cores: int | None,
    only: list[str], time_limit: float, settle: float, seed: int, results: Path,
) -> None:  # fmt: skip
    """Compare merge_bench with the programs people use today, in randomised blocks."""
    _keep_to(cores)
    if usable_cores() < workers:
        raise UsageError(f"--workers {workers} needs {workers} cores, but only {usable_cores()} may be used here")
    threads = usable_cores() // workers * workers
    job = Job(chunk, workers, threads, iterations, warmup, frac_match, seed)
    contenders = choose(only, gpus=gpu_count())
    refuse_unfit(contenders, job, available_bytes())
    adopt_orphans()
    store = Store(results)
    head = command.head(
        SCHEMA, job=dataclasses.asdict(job), data_bytes=job.data_bytes, blocks=blocks, seed=seed, gpus=gpu_facts(),
        contenders=[contender.name for contender in contenders], environment=machine.environment(),
    )  # fmt: skip
    store.write("comparison", head)
    comparison = Comparison(job, contenders, store, time_limit, settle, command.say)
    try:
        comparison.run(blocks, seed)
    except KeyboardInterrupt:
        command.say(command.PARTIAL)
        comparison.status = max(comparison.status, command.INTERRUPTED)
    click.echo(comparison.finish())
    click.echo(f"\n{store.folder}")
    sys.exit(comparison.status)


def _keep_to(cores: int | None) -> None:
    """Restrict this process, and with it everything it starts, to the first `cores` of the cores it may use."""
    if cores is None:
        return
    allowed = sorted(os.sched_getaffinity(0))
    if cores > len(allowed):
        raise UsageError(f"--cores {cores}: only {len(allowed)} may be used here")
    os.sched_setaffinity(0, allowed[:cores])


if __name__ == "__main__":
    command.run(peers, "peers")

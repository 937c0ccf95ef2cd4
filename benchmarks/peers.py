"""Compares merge_bench with the programs people use today: same rows, same cores, interleaved, a table of ratios.

    python -m benchmarks.peers --chunk 25e6 --workers 2 --blocks 6 --iterations 5

`docs/performance.md` says what is compared and how. Exit status: 0 done; 2 wrong usage; 3 a launch failed, or it was
interrupted; 4 a result was wrong.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import get_args

import click

from benchmarks import command
from benchmarks.peer.comparison import SCHEMA, Comparison, Store
from benchmarks.peer.contenders import REFERENCE, choose, refuse_unfit
from benchmarks.peer.protocol import Job, Kind
from merge_bench.errors import UsageError
from merge_bench.host import machine
from merge_bench.host.gpu import count_visible_gpus, describe_gpus
from merge_bench.host.machine import available_memory_bytes, usable_core_count

_KINDS = ("duckdb", "polars")
"""Programs that have every kind of join."""


@click.command(context_settings=command.CONTEXT)
@command.option("--chunk", command.ROWS, "25e6", "Rows of each frame on each worker before the merge.")
@command.option("--workers", click.IntRange(1), 2, "Number of workers, and of chunks of each frame.")
@command.option("--blocks", click.IntRange(1), 6, "Number of launches of each program.")
@command.option("--iterations", click.IntRange(1), 5, "Number of timed merges per launch.")
@command.option("--warmup", click.IntRange(0), 1, "Number of untimed merges before the timed merges.")
@command.option("--frac-match", click.FloatRange(0, 1), 0.3, "Share of the right keys that match.")
@command.option(
    "--how",
    click.Choice(get_args(Kind)),
    "inner",
    "Kind of join; others than inner are measured for DuckDB and Polars.",
)
@command.option("--cores", click.IntRange(1), None, "Number of cores that each program may use. [all]")
@command.option(
    "--only", command.NAMES, None, "Measure only these programs; patterns such as polars* are accepted. [all]"
)
@command.time_limit(1800)
@command.option("--settle", click.FloatRange(0), 2, "Pause between launches in seconds.")
@command.SEED
@command.option("--results", command.FOLDER, command.ROOT / "results", "Folder for the results.")
def peers(
    chunk: int,
    workers: int,
    blocks: int,
    iterations: int,
    warmup: int,
    frac_match: float,
    how: Kind,
    cores: int | None,
    only: list[str] | None,
    time_limit: float,
    settle: float,
    seed: int,
    results: Path,
) -> None:
    """Compare merge_bench with other merge programs, in randomised blocks."""
    _keep_to(cores)
    if usable_core_count() < workers:
        raise UsageError(
            f"--workers {workers} needs {workers} cores, but this process may use only {usable_core_count()}"
        )
    threads = usable_core_count() // workers * workers
    job = Job(chunk, workers, threads, iterations, warmup, frac_match, seed, join=how)
    contenders = choose(only or (), gpus=count_visible_gpus())
    if how != "inner":
        contenders = tuple(each for each in contenders if each.name == REFERENCE or each.name.startswith(_KINDS))
    refuse_unfit(contenders, job, available_memory_bytes())
    store = Store(results)
    head = command.head(
        SCHEMA,
        job=job,
        data_bytes=job.data_bytes,
        blocks=blocks,
        seed=seed,
        gpus=describe_gpus(),
        contenders=[contender.name for contender in contenders],
        environment=machine.recorded_environment_variables(),
    )
    store.write("comparison", **head)
    comparison = Comparison(job, contenders, store, time_limit, settle, indent="")
    interrupted = command.until_interrupted(lambda: comparison.run(blocks, seed))
    comparison.status = max(comparison.status, interrupted)
    click.echo(comparison.finish())
    click.echo(f"\n{store.folder}")
    sys.exit(comparison.status)


def _keep_to(cores: int | None) -> None:
    """Restrict this process, and with it everything it starts, to the first `cores` of the cores it may use."""
    if cores is None:
        return
    allowed = sorted(os.sched_getaffinity(0))
    if cores > len(allowed):
        raise UsageError(f"--cores {cores}: this process may use only {len(allowed)} cores")
    os.sched_setaffinity(0, allowed[:cores])


if __name__ == "__main__":
    command.run(peers, "peers")

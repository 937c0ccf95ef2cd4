"""The limits of this machine's memory, and how close each phase of a merge comes to them: a roofline of the CPU path.

    python -m benchmarks.roofline --output FILE.json

Measured are the memory limits with all cores of the workers at once, before and after one run of engine `native` with
its phases apart; `benchmarks/roof/moved.py` has the bytes that a phase has to move. `docs/roofline.md` says what
follows. Run it alone on the machine: about a minute on two cores. Exit status: 0 measured; 2 wrong usage; 3 the run
failed, or it was interrupted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.goal.bench import Bench, Ran, scratch
from benchmarks.processes import adopt_orphans
from benchmarks.roof import limits
from benchmarks.roof.moved import Shape, join_accesses
from benchmarks.roof.phases import PHASES, join_least, judge, limits_table, table
from merge_bench.errors import UsageError

SCHEMA = 1
ENGINE = "native"


@click.command(context_settings=command.CONTEXT)
@click.option("--chunk", type=command.ROWS, default="25e6", help="Rows of one frame that start on one worker. [25e6]")
@click.option("--workers", type=click.IntRange(2), default=2, show_default=True, help="Workers on this machine.")
@click.option("--iterations", type=click.IntRange(1), default=5, show_default=True, help="Timed merges.")
@click.option("--payload-columns", type=click.IntRange(0), default=1, show_default=True, help="Beside the key.")
@command.OUTPUT
@click.option("--time-limit", type=click.FloatRange(1), default=120, show_default=True, help="Seconds for the run.")
def roofline(
    chunk: int, workers: int, iterations: int, payload_columns: int, output: Path | None, time_limit: float
) -> None:
    """Measure memory limits and a run, and say what share of the limit each phase reaches."""
    shape = Shape(chunk, workers, payload_columns)
    cores = cores_of(workers)
    adopt_orphans()
    head = command.head(SCHEMA)
    head["last_cache_bytes"] = cache = head["hardware"]["cache_bytes"]
    try:
        measured = limits.measure(cores, shape.bucket_bytes, cache)
        with scratch() as folder:
            ran = merge(Bench(folder, time_limit), shape, iterations)
            measured = limits.together(measured, limits.measure(cores, shape.bucket_bytes, cache))
            document = judged(ran, shape, measured)  # reads the records
    except KeyboardInterrupt:
        command.say("interrupted: nothing was written")
        sys.exit(command.INTERRUPTED)
    command.write(output, {**head, **document})


def cores_of(workers: int) -> list[int]:
    """The cores that so many workers compute on: as many each, of those that this process may use.

    Raises
    ------
    UsageError
        If there are fewer cores than workers: then the phases of workers would wait for each other.
    """
    cores = sorted(os.sched_getaffinity(0))
    if workers > len(cores):
        raise UsageError(f"{workers} workers need a core each, but this process may use only {len(cores)}")
    return cores[: len(cores) // workers * workers]


def merge(bench: Bench, shape: Shape, iterations: int) -> Ran:
    """The run whose phases are judged."""
    return bench.merge(
        chunk=shape.chunk, workers=shape.workers, payload_columns=shape.payloads, engine=ENGINE, iterations=iterations,
        config="optimized.cfg", pipeline="off",
    )  # fmt: skip


def judged(ran: Ran, shape: Shape, measured: list[limits.Limit]) -> dict[str, Any]:
    """Print how close each phase comes to the limits; gives all figures as plain data."""
    copy, _, far, bucket = measured
    launch = ran.campaign.launches[0]
    phases, dealt = judge(launch, shape, copy.rate)
    *_, join, whole = phases
    least = join_least(shape, dealt, join.least, bucket.rate)
    accesses = join_accesses(shape, dealt)
    lanes = sorted({transport for pair in ran.document["lanes"] for transport in pair["transports"]})
    click.echo(limits_table([each.to_json() for each in measured]) + "\n")
    click.echo(table(phases))
    click.echo(
        f"\n{shape.rows:,} rows of {shape.row_bytes} B over {shape.workers} workers, {len(launch.timed)} merges."
    )
    click.echo(
        f"Join: {accesses / 1e6:.0f} million accesses in buckets of {shape.bucket_bytes / 2**20:.1f} MiB; with them it "
        f"needs {least * 1e3:.0f} ms at both limits, {least / join.seconds:.0%} of what it took. Without buckets the "
        f"accesses alone would take {accesses / far.rate * 1e3:.0f} ms."
    )
    copies = (
        "one copy"
        if any(lane.startswith("cma/") for lane in lanes)
        else "which is NOT used here: more is moved than counted"
    )
    click.echo(f"Endpoints: {', '.join(lanes)}; the bytes of the exchange are those of cma, {copies}.")
    return {
        "limits": [each.to_json() for each in measured],
        "shape": {
            "chunk": shape.chunk, "workers": shape.workers, "payload_columns": shape.payloads,
            "buckets": shape.buckets, "bucket_bytes": shape.bucket_bytes,
        },
        "phases": [phase.to_json() for phase in phases],
        "join": {"accesses": accesses, "least_seconds": least, "without_buckets_seconds": accesses / far.rate},
        "least_seconds": whole.least - join.least + least,
        "iterations": [
            [
                {"rank": w.rank, "seconds": w.seconds, **{name: getattr(w.phases_seconds, name) for name in PHASES}}
                for w in iteration.workers
            ]
            for iteration in launch.timed
        ],
        "transports": lanes,
    }  # fmt: skip


if __name__ == "__main__":
    command.run(roofline, "roofline")

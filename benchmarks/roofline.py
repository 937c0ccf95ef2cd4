"""What this machine's memory allows a merge, and how near each phase comes to it: a roofline of the CPU path.

    python -m benchmarks.roofline --output FILE.json

Measured are the memory limits with all cores of the workers at once, before and after one run of engine `native` with
its phases apart; `benchmarks/roof/moved.py` has the bytes that a phase has to move. `docs/roofline.md` says what
follows. Run it alone on the machine: about a minute on two cores. Exit status: 0 measured; 2 wrong usage; 3 the run
failed, or it was interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.goal.bench import Bench, Ran, pipeline, scratch
from benchmarks.peer.children import adopt_orphans
from benchmarks.roof import limits
from benchmarks.roof.moved import Shape, join_accesses
from benchmarks.roof.phases import WHOLE, Phase, join_least, judge, limits_table, table
from merge_bench.campaign.campaign import git_state
from merge_bench.errors import UsageError
from merge_bench.host import machine

SCHEMA = 1
ENGINE = "native"


@click.command(context_settings=command.CONTEXT)
@click.option("--chunk", type=command.Rows(), default="25e6", help="Rows of one frame that start on one worker. [25e6]")
@click.option("--workers", type=click.IntRange(2), default=2, show_default=True, help="Workers on this machine.")
@click.option("--iterations", type=click.IntRange(1), default=5, show_default=True, help="Timed merges.")
@click.option("--payload-columns", type=click.IntRange(0), default=1, show_default=True, help="Beside the key.")
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.json", help="Write it here.")
@click.option("--time-limit", type=click.FloatRange(1), default=120, show_default=True, help="Seconds for the run.")
def roofline(
    chunk: int, workers: int, iterations: int, payload_columns: int, output: Path | None, time_limit: float
) -> None:
    """Measure memory limits and a run, and say what share of the limit each phase reaches."""
    if output is not None and not output.resolve().parent.is_dir():
        raise UsageError(f"there is no folder {output.resolve().parent}")
    shape = Shape(chunk, workers, payload_columns)
    cores = cores_of(workers)
    adopt_orphans()
    head = {
        "schema": SCHEMA, "argv": sys.argv[1:], "time": time.time(), "git": git_state(), "versions": machine.versions(),
        "hardware": machine.hardware(), "last_cache_bytes": limits.last_cache_bytes(), "load_average": os.getloadavg(),
    }  # fmt: skip
    try:
        measured = limits.measure(cores, shape.bucket_bytes)
        with scratch() as folder:
            ran = merge(Bench(folder, time_limit), shape, iterations)
            measured = limits.together(measured, limits.measure(cores, shape.bucket_bytes))
            document = judged(ran, shape, measured)  # reads the records
    except KeyboardInterrupt:
        click.echo("interrupted: nothing was written", err=True)
        sys.exit(command.INTERRUPTED)
    if output is not None:
        draft = output.with_name(f"{output.name}.part")
        draft.write_text(json.dumps({**head, **document}, indent=1) + "\n")
        draft.replace(output)


def cores_of(workers: int) -> list[int]:
    """The cores that so many workers compute on: as many each, of those that this process may use.

    Raises
    ------
    UsageError
        If there are fewer cores than workers: then the phases of workers would wait for each other.
    """
    cores = sorted(os.sched_getaffinity(0))
    if workers > len(cores):
        raise UsageError(f"{workers} workers need a core each, and this process may use {len(cores)}")
    return cores[: len(cores) // workers * workers]


def merge(bench: Bench, shape: Shape, iterations: int) -> Ran:
    """The run whose phases are judged."""
    return bench.merge(
        "--chunk", str(shape.chunk), "--workers", str(shape.workers), "--payload-columns", str(shape.payloads),
        "--engine", ENGINE, "--iterations", str(iterations), "--config", "optimized.cfg", *pipeline("off"),
    )  # fmt: skip


def judged(ran: Ran, shape: Shape, measured: list[limits.Limit]) -> dict[str, Any]:
    """Print how near each phase comes to the limits; gives all figures as plain data."""
    copy, _, far, bucket = measured
    launch = ran.campaign.launches[0]
    phases, dealt = judge(launch, shape, copy.rate)
    by_name: dict[str, Phase] = {phase.name: phase for phase in phases}
    join, whole = by_name["join"], by_name[WHOLE]
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
        "one copy" if any(lane.startswith("cma/") for lane in lanes) else "NOT used here: more is moved than counted"
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
            [{"rank": each.rank, "seconds": each.seconds, **_phases(each)} for each in iteration.workers]
            for iteration in launch.timed
        ],
        "transports": lanes,
    }  # fmt: skip


def _phases(worker: Any) -> dict[str, float]:
    times = worker.phases_seconds
    return {"partition": times.partition, "exchange": times.exchange, "join": times.join}


if __name__ == "__main__":
    command.run(roofline, "roofline")

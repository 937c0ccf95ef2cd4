"""The limits of this machine's memory, and how close each phase of a merge comes to them: a roofline of the CPU path.

    python -m benchmarks.roofline --output FILE.json

Measured are the memory limits with all cores of the workers at once, before and after one run of engine `native` with
its phases apart; `benchmarks/roof/moved.py` has the bytes that a phase has to move. `docs/performance.md` says what
follows. Run it alone on the machine: about a minute on two cores. Exit status: 0 measured; 2 wrong usage; 3 the run
failed, or it was interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from benchmarks import command
from benchmarks.goal.bench import Ran, scratch
from benchmarks.roof import limits
from benchmarks.roof.moved import Counts, Shape, join_accesses, phase_bytes, read_bytes
from merge_bench.analysis.statistics import median
from merge_bench.errors import RunFailed, UsageError
from merge_bench.records.campaign import Launch
from merge_bench.records.schema import IterationLine, WorkerIteration

SCHEMA = 1
PHASES = ("partition", "exchange", "join")
WHOLE = "whole"
HEADINGS = (
    "phase",
    "bytes per row",
    "moved (GB)",
    "each worker (ms)",
    "slowest (ms)",
    "at the copy limit (ms)",
    "GB/s",
    "of the copy limit",
)


@dataclass(frozen=True)
class Phase:
    """One phase, or the whole.

    `moved`: bytes of all workers; `rows`: of both frames; `workers`: median over iterations of each worker's seconds;
    `seconds`: median over iterations of the slowest worker's; `least`: seconds that the bytes need at the copy limit.
    """

    name: str
    rows: int
    moved: int
    workers: tuple[float, ...]
    seconds: float
    least: float

    @property
    def rate(self) -> float:
        """Bytes per second of all workers together."""
        return self.moved / self.seconds

    @property
    def fraction(self) -> float:
        """Of the copy limit."""
        return self.least / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "bytes_per_row": self.moved / self.rows, "rate": self.rate, "fraction": self.fraction}


def counts(iteration: IterationLine) -> Counts:
    """What an iteration's workers sent, held and made.

    Raises
    ------
    RunFailed
        If a worker did not report that.
    """
    sent = left = right = result = 0
    for worker in iteration.workers:
        if worker.sent_bytes is None or worker.received_rows is None or worker.result_rows is None:
            raise RunFailed(f"rank {worker.rank} did not report its sent, received and result rows")
        sent += worker.sent_bytes.left + worker.sent_bytes.right
        left += worker.received_rows.left
        right += worker.received_rows.right
        result += worker.result_rows
    return Counts(sent, left, right, result)


def judge(launch: Launch, shape: Shape, copy_rate: float) -> tuple[list[Phase], Counts]:
    """Every phase and the whole of a launch against the copy limit in bytes per second; and what was dealt with.

    Raises
    ------
    RunFailed
        If the records do not have it, or phases overlapped.
    """
    if not launch.timed_iterations:
        raise RunFailed("no iteration was timed")
    for worker in (worker for iteration in launch.timed_iterations for worker in iteration.workers):
        if worker.phases_seconds is None or worker.overlap_seconds or worker.join_overlap_seconds:
            raise RunFailed(f"rank {worker.rank} has no separate phases")
    dealt = counts(launch.timed_iterations[0])
    moved = phase_bytes(shape, dealt)
    moved[WHOLE] = sum(moved.values())
    found = []
    for name, size in moved.items():
        times = [[_seconds(worker, name) for worker in iteration.workers] for iteration in launch.timed_iterations]
        workers = tuple(median(each) for each in zip(*times, strict=True))
        found.append(Phase(name, shape.rows, size, workers, median([*map(max, times)]), size / copy_rate))
    return found, dealt


def _seconds(worker: WorkerIteration, name: str) -> float:
    return worker.seconds if name == WHOLE else float(getattr(worker.phases_seconds, name))


def join_least(shape: Shape, dealt: Counts, least: float, bucket_rate: float) -> float:
    """Seconds that a join needs at both limits: its bytes at the copy limit (`least`), then its accesses in cache."""
    return least + join_accesses(shape, dealt) / bucket_rate


def own_limits(
    shape: Shape, dealt: Counts, phases: Sequence[Phase], *, copy_rate: float, read_rate: float
) -> dict[str, float]:
    """Seconds that each phase's bytes need if reading loops reach the read limit, all others the copy limit."""
    read = read_bytes(shape, dealt)
    return {
        phase.name: (phase.moved - read.get(phase.name, 0)) / copy_rate + read.get(phase.name, 0) / read_rate
        for phase in phases
        if phase.name != WHOLE
    }


def table(phases: Sequence[Phase]) -> str:
    """The phases in Markdown."""
    rows = [
        (
            each.name,
            f"{each.moved / each.rows:.1f}",
            f"{each.moved / 1e9:.2f}",
            ", ".join(f"{seconds * 1e3:.0f}" for seconds in each.workers),
            f"{each.seconds * 1e3:.0f}",
            f"{each.least * 1e3:.0f}",
            f"{each.rate / 1e9:.1f}",
            f"{each.fraction:.0%}",
        )
        for each in phases
    ]
    return command.table(HEADINGS, rows)


def limits_table(limits: Sequence[Mapping[str, Any]]) -> str:
    """The memory limits in Markdown."""
    rows = []
    for each in limits:
        gathers = each["name"].startswith("gather")
        unit, scale = ("{:.0f} million values/s", 1e6) if gathers else ("{:.1f} GB/s", 1e9)
        rates = (each["rate"], each["amount"] / median(each["seconds"]))
        shown = (unit.format(rate / scale) for rate in rates)
        rows.append((each["name"], f"{each['array_bytes'] / 2**20:.1f}", *shown))
    return command.table(("limit", "array of a core (MiB)", "fastest round", "median round"), rows)


@click.command(context_settings=command.CONTEXT)
@command.option("--chunk", command.ROWS, "25e6", "Rows of each frame on each worker before the merge.")
@command.option("--workers", click.IntRange(2), 2, "Number of workers on this machine.")
@command.option("--iterations", click.IntRange(1), 5, "Number of timed merges.")
@command.option(
    "--payload-columns", click.IntRange(0), 1, "Number of payload columns of each frame, in addition to the key."
)
@command.OUTPUT
@command.time_limit(120)
def roofline(
    chunk: int, workers: int, iterations: int, payload_columns: int, output: Path | None, time_limit: float
) -> None:
    """Measure the memory limits and a run, and report which share of the limit each phase reaches."""
    shape = Shape(chunk, workers, payload_columns)
    cores = cores_of(workers, os.sched_getaffinity(0))
    head = command.head(SCHEMA)
    head["last_cache_bytes"] = cache = head["hardware"]["cache_bytes"]

    def measure_limits() -> list[limits.Limit]:
        return limits.measure(cores, limits.array_bytes(len(cores), cache))

    def measure_and_judge() -> None:
        before = measure_limits()
        with scratch(time_limit) as bench:
            ran = bench.merge(
                chunk=chunk,
                workers=workers,
                payload_columns=payload_columns,
                engine="native",
                iterations=iterations,
                config="optimized.cfg",
                pipeline="off",
            )
            memory = limits.together(before, measure_limits())
            used = as_run(shape, ran)
            document = judged(ran, used, [*memory, limits.measure_bucket(cores, used.bucket_bytes)])
        command.write(output, {**head, **document})

    sys.exit(command.until_interrupted(measure_and_judge, "no results were written"))


def cores_of(workers: int, allowed: Collection[int]) -> list[int]:
    """The cores that so many workers compute on: as many each, of those `allowed` to this process.

    Raises
    ------
    UsageError
        If there are fewer cores than workers: then the phases of workers would wait for each other.
    """
    cores = sorted(allowed)
    if workers > len(cores):
        raise UsageError(f"--workers {workers} needs {workers} cores, but this process may use only {len(cores)}")
    return cores[: len(cores) // workers * workers]


def as_run(shape: Shape, ran: Ran) -> Shape:
    """The shape with the way of writing parcels that the workers chose, which decides the number of buckets."""
    line = ran.campaign.launches[0].line
    stores = line.workers[0].stores if line else None
    return replace(shape, stores=stores.way, l2_bytes=line.workers[0].hardware.l2_bytes) if line and stores else shape


def judged(ran: Ran, shape: Shape, measured: list[limits.Limit]) -> dict[str, Any]:
    """Print how close each phase comes to the limits; gives all figures as plain data."""
    copy, _, kernel, read, far, bucket = measured
    launch = ran.campaign.launches[0]
    phases, dealt = judge(launch, shape, copy.rate)
    _, exchange, join, whole = phases
    least = join_least(shape, dealt, join.least, bucket.rate)
    accesses = join_accesses(shape, dealt)
    lanes = sorted({transport for pair in ran.document["lanes"] for transport in pair["transports"]})
    click.echo(limits_table([each.to_json() for each in measured]) + "\n")
    click.echo(table(phases))
    click.echo(
        f"\n{shape.rows:,} rows of {shape.row_bytes} B over {shape.workers} workers,"
        f" {len(launch.timed_iterations)} merges."
    )
    click.echo(
        f"Join: {accesses / 1e6:.0f} million accesses in buckets of {shape.bucket_bytes / 2**20:.1f} MiB. At both "
        f"limits, the join takes {least * 1e3:.0f} ms, {least / join.seconds:.0%} of its measured time. "
        f"Without buckets, the accesses alone would take {accesses / far.rate * 1e3:.0f} ms."
    )
    through_kernel = exchange.moved / kernel.rate
    own = own_limits(shape, dealt, phases, copy_rate=copy.rate, read_rate=read.rate)
    own |= {"exchange": through_kernel, "join": own["join"] + accesses / bucket.rate}
    own[WHOLE] = sum(own.values())
    click.echo(
        f"Exchange: through the kernel its bytes need {through_kernel * 1e3:.0f} ms,"
        f" {through_kernel / exchange.seconds:.0%} of what it took."
    )
    named = ", ".join(f"{phase.name} {own[phase.name] * 1e3:.0f} ms" for phase in phases)
    click.echo(
        "Each phase at the limits of what it does (reading loops at the read limit, the exchange through the kernel,"
        f" the join's accesses in buckets): {named}, {own[WHOLE] / whole.seconds:.0%} of what it took."
    )
    cma = any(lane.startswith("cma/") for lane in lanes)
    copies = "with one copy" if cma else "but this run does NOT use cma, so it moves more bytes than counted"
    click.echo(f"Endpoints: {', '.join(lanes)}; the bytes of the exchange are counted as for cma, {copies}.")
    return {
        "limits": [each.to_json() for each in measured],
        "shape": {
            "chunk": shape.chunk,
            "workers": shape.workers,
            "payload_columns": shape.payloads,
            "buckets": shape.buckets,
            "bucket_bytes": shape.bucket_bytes,
            "stores": shape.stores,
        },
        "phases": [phase.to_json() for phase in phases],
        "exchange": {"least_seconds_through_kernel": through_kernel},
        "join": {"accesses": accesses, "least_seconds": least, "without_buckets_seconds": accesses / far.rate},
        "least_seconds": whole.least - join.least + least,
        "own_least_seconds": own,
        "iterations": [
            [
                {"rank": w.rank, "seconds": w.seconds, **{name: getattr(w.phases_seconds, name) for name in PHASES}}
                for w in iteration.workers
            ]
            for iteration in launch.timed_iterations
        ],
        "transports": lanes,
    }


if __name__ == "__main__":
    command.run(roofline, "roofline")

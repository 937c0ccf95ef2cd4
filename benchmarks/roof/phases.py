"""A run's phases against the memory limits: each worker's seconds, and the share of the limit that a phase reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import command
from benchmarks.roof.moved import Counts, Shape, join_accesses, phase_bytes
from merge_bench.analysis.statistics import median
from merge_bench.errors import RunFailed
from merge_bench.records.campaign import Launch
from merge_bench.records.schema import IterationLine

PHASES = ("partition", "exchange", "join")
WHOLE = "whole"
HEADINGS = (
    "phase", "bytes a row", "moved (GB)", "each worker (ms)", "slowest (ms)", "at the copy limit (ms)", "GB/s",
    "of the copy limit",
)  # fmt: skip


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
            raise RunFailed(f"rank {worker.rank} did not report what it sent, received and made")
        sent += worker.sent_bytes.left + worker.sent_bytes.right
        left += worker.received_rows.left
        right += worker.received_rows.right
        result += worker.result_rows
    return Counts(sent, left, right, result)


def phase_seconds(iteration: IterationLine) -> dict[str, list[float]]:
    """Seconds of every worker in every phase, and of the whole; phases must not have overlapped.

    Raises
    ------
    RunFailed
        If a worker has no phases, or they overlapped.
    """
    found: dict[str, list[float]] = {name: [] for name in (*PHASES, WHOLE)}
    for worker in iteration.workers:
        if worker.phases_seconds is None or worker.overlap_seconds or worker.join_overlap_seconds:
            raise RunFailed(f"rank {worker.rank} has no separate phases")
        for name in PHASES:
            found[name].append(float(getattr(worker.phases_seconds, name)))
        found[WHOLE].append(worker.seconds)
    return found


def judge(launch: Launch, shape: Shape, copy_rate: float) -> tuple[list[Phase], Counts]:
    """Every phase and the whole of a launch against the copy limit in bytes per second; and what was dealt with.

    Raises
    ------
    RunFailed
        If the records do not have it.
    """
    if not launch.timed:
        raise RunFailed("no iteration was timed")
    dealt = counts(launch.timed[0])
    moved = phase_bytes(shape, dealt)
    moved[WHOLE] = sum(moved.values())
    times = [phase_seconds(iteration) for iteration in launch.timed]
    found = []
    for name in (*PHASES, WHOLE):
        workers = tuple(median(each) for each in zip(*(time[name] for time in times), strict=True))
        slowest = median([max(time[name]) for time in times])
        found.append(Phase(name, shape.rows, moved[name], workers, slowest, moved[name] / copy_rate))
    return found, dealt


def join_least(shape: Shape, dealt: Counts, least: float, bucket_rate: float) -> float:
    """Seconds that a join needs at both limits: its bytes at the copy limit (`least`), then its accesses in cache."""
    return least + join_accesses(shape, dealt) / bucket_rate


def table(phases: Sequence[Phase]) -> str:
    """The phases in Markdown."""
    rows = [
        (
            each.name, f"{each.moved / each.rows:.1f}", f"{each.moved / 1e9:.2f}",
            ", ".join(f"{seconds * 1e3:.0f}" for seconds in each.workers), f"{each.seconds * 1e3:.0f}",
            f"{each.least * 1e3:.0f}", f"{each.rate / 1e9:.1f}", f"{each.fraction:.0%}",
        )
        for each in phases
    ]  # fmt: skip
    return command.table(HEADINGS, rows)


def limits_table(limits: Sequence[Mapping[str, Any]]) -> str:
    """The memory limits in Markdown."""
    rows = []
    for each in limits:
        unit = "{:.1f} GB/s" if each["name"] in ("copy", "loop") else "{:.0f} million values/s"
        scaled = [
            rate / (1e9 if "GB" in unit else 1e6) for rate in (each["rate"], each["amount"] / median(each["seconds"]))
        ]
        rows.append((each["name"], f"{each['array_bytes'] / 2**20:.1f}", *map(unit.format, scaled)))
    return command.table(("limit", "array of a core (MiB)", "fastest round", "median round"), rows)

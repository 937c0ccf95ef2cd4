"""What the Live tab shows, as plain data: what iterations gave, what workers do now, and what went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from merge_bench import aggregate, metrics
from merge_bench.dashboard.progress import Progress, progress_of
from merge_bench.record import schema as s
from merge_bench.record.campaign import Campaign, Launch
from merge_bench.units import GIB

RECENT = 10
"""Timed iterations of the launch that workers' figures are medians over: what they do now, at a bounded cost."""

MOST_NOTES = 50
FAILED, WARNING = "failed", "warning"


@dataclass(frozen=True)
class Point:
    """A timed iteration. Rates in GiB/s, None where not measured; `number` counts over the whole campaign, from 1."""

    number: int
    launch: int
    index: int
    config: str
    look: int
    wall_seconds: float
    throughput: float | None
    bandwidth: float | None


@dataclass(frozen=True)
class WorkerNow:
    """A worker over the last iterations of the launch.

    `bandwidth` in GiB/s; `parts` in ms: partition alone, partition and exchange at once, exchange alone, join, rest.
    """

    rank: int
    host: str
    bandwidth: float | None
    parts: tuple[float, ...] | None


@dataclass(frozen=True)
class PairNow:
    """Traffic from one rank to another in the last iteration: GiB/s (None: not known), MiB, and the lanes selected."""

    sender: int
    receiver: int
    rate: float | None
    sent: float
    lanes: str


@dataclass(frozen=True)
class MemoryOf:
    """High-water marks of a worker in GiB: of the host's memory, above imports, of the GPU; and its input."""

    rank: int
    peak: float | None
    above: float | None
    device: float | None
    input: float | None


@dataclass(frozen=True)
class Note:
    """A warning or failure: ``failed`` or ``warning``, what it is, and what helps."""

    kind: str
    message: str
    remedy: str | None


@dataclass(frozen=True)
class Now:
    """Everything but the points, of the launch that is the newest with workers."""

    progress: Progress
    launch: int | None = None
    config: str = ""
    workers: tuple[WorkerNow, ...] = ()
    pairs: tuple[PairNow, ...] = ()
    memory: tuple[MemoryOf, ...] = ()
    memory_launch: int | None = None
    notes: tuple[Note, ...] = ()
    checks: str = ""
    limit: float | None = None
    dask: str | None = None
    """The address of Dask's own dashboard, while it is there."""


@dataclass
class Points:
    """The timed iterations of a campaign as they come in; only what is new is looked at."""

    found: list[Point] = field(default_factory=list)
    _rates: dict[int, dict[int, list[metrics.Bandwidth]]] = field(default_factory=dict)
    _launches: dict[int, s.LaunchLine] = field(default_factory=dict)
    _looks: dict[str, int] = field(default_factory=dict)

    def add(self, records: Sequence[s.Record]) -> list[Point]:
        """The points of `records`, which are new."""
        before = len(self.found)
        for record in records:
            if isinstance(record, s.LaunchLine):
                self._launches[record.launch] = record
                self._looks.setdefault(record.config, len(self._looks))
            elif isinstance(record, s.IterationLine) and not record.warmup and record.launch in self._launches:
                self.found.append(self._point(self._launches[record.launch], record))
                rates = self._rates.setdefault(record.launch, {})
                for worker in record.workers:
                    rates.setdefault(worker.rank, []).append(metrics.worker_bandwidth(worker))
        return self.found[before:]

    def bandwidth(self, launch: int) -> float | None:
        """That of a launch so far, in GiB/s, as reports have it: each worker's medians, and over workers harmonic."""
        medians = [
            metrics.mean_bandwidth(aggregate.middle(r.left for r in rates), aggregate.middle(r.right for r in rates))
            for rates in self._rates.get(launch, {}).values()
        ]
        imported = [point.bandwidth for point in self.found if point.launch == launch] if not medians else []
        return _gib(metrics.over_workers(medians)) if medians else aggregate.middle(imported)

    def _point(self, launch: s.LaunchLine, line: s.IterationLine) -> Point:
        imported = line.imported.throughput_bytes_per_second if line.imported else None
        through = imported or metrics.throughput(launch.data_bytes, line.wall_seconds)
        return Point(
            number=len(self.found) + 1,
            launch=line.launch,
            index=line.index,
            config=launch.config,
            look=self._looks[launch.config],
            wall_seconds=line.wall_seconds,
            throughput=_gib(through),
            bandwidth=_gib(metrics.iteration_bandwidth(line)),
        )


def now(campaign: Campaign, *, running: bool = True) -> Now:
    """What `campaign` does now; `running` False: nobody writes it any more, as far as this machine can tell."""
    launch = next((each for each in reversed(campaign.launches) if each.line is not None), None)
    progress = progress_of(campaign, running=running)
    notes = _notes(campaign)
    if launch is None or launch.line is None:
        return Now(progress, notes=notes)
    recent = replace(launch, iterations=launch.timed[-RECENT:])
    remembered = next((each for each in reversed(campaign.launches) if each.memory is not None), None)
    return Now(
        progress=progress,
        launch=launch.index,
        config=launch.line.config,
        workers=_workers(recent),
        pairs=_pairs(launch),
        memory=_memory(remembered.memory) if remembered and remembered.memory else (),
        memory_launch=remembered.index if remembered else None,
        notes=notes,
        checks=_checks(campaign),
        limit=_gib(aggregate.link_limit([launch])),
        dask=launch.line.cluster.dashboard if running and launch is campaign.launches[-1] else None,
    )


def _gib(value: float | None) -> float | None:
    return None if value is None else value / GIB


def _workers(launch: Launch) -> tuple[WorkerNow, ...]:
    found = []
    for worker in aggregate.worker_figures([launch]):
        parts = None
        if worker.partition is not None and worker.exchange is not None and worker.join is not None:
            both = worker.overlap or 0.0
            alone = worker.exchange - both - (worker.join_overlap or 0.0)
            known = (max(worker.partition - both, 0.0), both, max(alone, 0.0), worker.join)
            parts = tuple(1e3 * seconds for seconds in (*known, max((worker.seconds or 0.0) - sum(known), 0.0)))
        found.append(WorkerNow(worker.rank, worker.host, _gib(worker.bandwidth.mean), parts))
    return tuple(found)


def _pairs(launch: Launch) -> tuple[PairNow, ...]:
    last = next((each for each in reversed(launch.iterations) if each.pairs), None)
    if last is None:
        return ()
    lanes = (
        {(each.from_rank, each.to_rank): ", ".join(each.transports) for each in launch.lanes.pairs}
        if launch.lanes
        else {}
    )
    return tuple(
        PairNow(
            pair.from_rank,
            pair.to_rank,
            pair.bytes / pair.seconds / GIB if pair.seconds else None,
            pair.bytes / 2**20,
            lanes.get((pair.from_rank, pair.to_rank)) or "not known",
        )
        for pair in last.pairs
    )


def _memory(line: s.MemoryLine) -> tuple[MemoryOf, ...]:
    return tuple(
        MemoryOf(
            worker.rank,
            _gib(worker.peak_bytes),
            _gib(worker.peak_above_imports_bytes),
            _gib(worker.device_peak_bytes),
            _gib(worker.input_bytes),
        )
        for worker in line.workers
    )


def _notes(campaign: Campaign) -> tuple[Note, ...]:
    failures = [*campaign.failures, *(each for launch in campaign.launches for each in launch.failures)]
    warnings = [*campaign.warnings, *(each for launch in campaign.launches for each in launch.warnings)]
    found = [Note(FAILED, each.message, _where(each)) for each in failures]
    found += [Note(WARNING, each.message, each.remedy) for each in warnings]
    unique = list(dict.fromkeys(found))
    more = len(unique) - MOST_NOTES
    return tuple(unique[:MOST_NOTES]) + ((Note(WARNING, f"and {more} more", None),) if more > 0 else ())


def _where(failure: s.FailureLine) -> str | None:
    parts = [f"launch {failure.launch}" if failure.launch is not None else "", failure.host or ""]
    return ", ".join(part for part in parts if part) or None


def _checks(campaign: Campaign) -> str:
    checks = [check for launch in campaign.launches for check in launch.verifications]
    wrong = sum(not check.ok for check in checks)
    if wrong:
        return f"{wrong} of {len(checks)} checks found the result wrong"
    return f"{len(checks)} check{'s' * (len(checks) > 1)}, all right" if checks else "not checked yet"

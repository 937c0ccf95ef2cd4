"""Whether workers had their cores while they computed, by their processor time, and what it cost if not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.analysis import aggregate
from merge_bench.analysis.diagnostics import GAIN
from merge_bench.merge.engines import engine_descriptions
from merge_bench.records.campaign import Launch
from merge_bench.records.recorded_plan import RecordedPlan
from merge_bench.records.schema import IterationLine, WorkerIteration

LEAST_CORE_SHARE = 0.8
"""A worker that computes for a second has its core if it uses at least so many seconds of it (measured: 0.86 to 1)."""


@dataclass(frozen=True)
class CoreLoss:
    """How much of their cores the workers had in the timed iterations, where one of them had too little.

    `shares`: of each rank, its processor seconds ÷ seconds of partition and join, over all iterations. `least`: the
    share of the rank with least in an iteration, `cost`: the share of the wall-clock time that this cost at least; both
    are medians.
    """

    shares: Mapping[int, float]
    least: float
    cost: float

    @property
    def ranks(self) -> list[int]:
        """The ranks that had too little of their cores over all iterations, the one with least first."""
        few = [rank for rank, share in self.shares.items() if share < LEAST_CORE_SHARE]
        return sorted(few, key=lambda rank: (self.shares[rank], rank))


def find_core_loss(plan: RecordedPlan, launches: Sequence[Launch]) -> CoreLoss | None:
    """How much of their cores the workers had; None if each had `LEAST_CORE_SHARE` in most iterations.

    Only if that costs at least `GAIN` of the wall-clock time. Not of engines on GPUs, whose workers wait for these, and
    not with a runtime filter, with which workers wait for each other as they partition.
    """
    if plan.runtime_filter or any(each.device_memory for each in engine_descriptions() if each.name == plan.engine):
        return None
    least = aggregate.run_median(launches, least_core_share)
    cost = aggregate.run_median(launches, off_core_cost)
    if least is None or cost is None or least >= LEAST_CORE_SHARE or cost < GAIN:
        return None
    return CoreLoss(core_shares(launches), least, cost)


def core_share(worker: WorkerIteration) -> float | None:
    """The share of one core that a worker had while it computed: processor seconds ÷ seconds of partition and join.

    These phases only compute, so a worker that has its core uses about a second of it in each second. The exchange is
    left out, because a worker that waits long for others sleeps between its polls. At most 1: what several threads use
    does not show whether each had a core. Without ``phases_cpu_seconds`` (phases overlap, or older records) all
    processor seconds of the iteration count, so that the share is an upper bound. ``None``: not measured.
    """
    parts = _computing_seconds(worker)
    seconds = sum(wall for wall, _ in parts)
    return min(1.0, sum(cpu for _, cpu in parts) / seconds) if seconds > 0 else None


def _computing_seconds(worker: WorkerIteration) -> list[tuple[float, float]]:
    """The seconds and processor seconds of partition and of join, or of both together; [] if not measured."""
    wall, cpu = worker.phases_seconds, worker.phases_cpu_seconds
    if wall is None or wall.partition is None or wall.join is None:
        return []
    if cpu is not None and cpu.partition is not None and cpu.join is not None:
        return [(wall.partition, cpu.partition), (wall.join, cpu.join)]
    return [] if worker.cpu_seconds is None else [(wall.partition + wall.join, worker.cpu_seconds)]


def core_shares(launches: Sequence[Launch]) -> dict[int, float]:
    """The share of its core that each rank had over all timed iterations, as `core_share` of their sums, by rank."""
    seconds: dict[int, list[tuple[float, float]]] = {}
    for launch in launches:
        for iteration in launch.timed_iterations:
            for worker in iteration.workers:
                seconds.setdefault(worker.rank, []).extend(_computing_seconds(worker))
    sums = {rank: (sum(wall for wall, _ in parts), sum(cpu for _, cpu in parts)) for rank, parts in seconds.items()}
    return {rank: min(1.0, cpu / wall) for rank, (wall, cpu) in sorted(sums.items()) if wall > 0}


def least_core_share(launch: Launch, iteration: IterationLine) -> float | None:
    """The `core_share` of the worker that had least of its core in an iteration."""
    return min((share for worker in iteration.workers if (share := core_share(worker)) is not None), default=None)


def off_core_cost(launch: Launch, iteration: IterationLine) -> float | None:
    """The least share of the wall-clock time of an iteration that workers lost because they did not run on their cores.

    All workers wait for the slowest one in partition (no exchange ends before) and in join, so an iteration takes at
    least P + J, the greatest seconds of each over the workers. With its core all the time, each worker w would need its
    processor seconds p_w and j_w alone, and the phases max p_w and max j_w. So P + J − max p_w − max j_w is lost. Only
    workers below `LEAST_CORE_SHARE` count as off their cores; of others p_w and j_w are all their seconds. What the
    exchange lost is not known, so this is a lower bound. ``None``: not measured.
    """
    by_worker = [
        parts if (core_share(worker) or 0.0) < LEAST_CORE_SHARE else [(wall, wall) for wall, _ in parts]
        for worker in iteration.workers
        if (parts := _computing_seconds(worker))
    ]
    if not by_worker or iteration.wall_seconds <= 0 or len({len(parts) for parts in by_worker}) > 1:
        return None
    lost = 0.0
    for phase in zip(*by_worker, strict=True):
        lost += max(wall for wall, _ in phase) - max(min(wall, cpu) for wall, cpu in phase)
    return lost / iteration.wall_seconds

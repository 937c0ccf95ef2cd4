"""Collects what every worker sends of an iteration, and makes the line of the records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from merge_bench.merge.merger import Measured
from merge_bench.records.schema import IterationLine


class IterationEvent(msgspec.Struct, frozen=True):
    """What a worker sends as soon as an iteration is done."""

    rank: int
    index: int
    warmup: bool
    measured: Measured


class IterationAssembler:
    """Collects the workers' events of each iteration; the last one to arrive completes its line.

    `skew`: the bound on the barrier's skew, seconds. `complete`: iterations whose line was given out.
    """

    def __init__(self, launch: int, workers: int) -> None:
        self._launch, self._workers = launch, workers
        self._open: dict[tuple[bool, int], dict[int, Measured]] = {}
        self.skew: float | None = None
        self.complete = 0

    def add(self, event: Mapping[str, Any]) -> IterationLine | None:
        """Take one worker's event; the iteration's line if it was the last."""
        found = msgspec.convert(event, IterationEvent)
        key = found.warmup, found.index
        parts = self._open.setdefault(key, {})
        parts[found.rank] = found.measured
        if len(parts) < self._workers:
            return None
        del self._open[key]
        self.complete += 1
        by_rank = [part for _, part in sorted(parts.items())]
        return IterationLine(
            launch=self._launch,
            index=found.index,
            warmup=found.warmup,
            wall_seconds=max(part.worker.seconds for part in by_rank),  # the slowest worker's own time
            barrier_skew_seconds=self.skew,
            workers=[part.worker for part in by_rank],
            pairs=[pair for part in by_rank for pair in part.pairs],
        )

"""What `probe all-to-all` exchanges, and how the results of a launch become rows, with any backend.

The command line imports this module, so it loads nothing slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from merge_bench.errors import UsageError, WrongResult
from merge_bench.units import format_bytes, format_count

if TYPE_CHECKING:
    from merge_bench.campaign.cluster_session import Session
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.merge.workload.synthetic import SyntheticSpec
    from merge_bench.probe.ranks.launch import RankSession
    from merge_bench.probe.shared.exchange_matrix import Matrix
    from merge_bench.records.schema import ProbeLine

NAME = "all-to-all"
GIVEN, RING = "given", "ring"
EQUAL, UNEVEN = "alltoall", "alltoallv"
FRACTION, PAYLOAD_COLUMNS = 0.3, 1
"""Of the synthetic tables that `run` merges by default."""


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """What to exchange: messages of `sizes` bytes, and the parcels of merges of so many rows a chunk.

    `iterations`: timed rounds, None for as many as take half a second. `limit`: bytes per second that a rank can send;
    None: measured, if there are more than two ranks.
    """

    sizes: tuple[int, ...]
    chunks: tuple[int, ...]
    iterations: int | None
    limit: float | None

    def describe(self, backend: str) -> dict[str, Any]:
        """The plan in the records."""
        return {
            "backend": backend, "sizes": list(self.sizes), "chunks": list(self.chunks), "iterations": self.iterations,
            "limit": self.limit,
        }  # fmt: skip

    def ring(self, ranks: int) -> int | None:
        """Size of the messages of the measured limit; None: it is not measured."""
        largest = max((*self.sizes, *(16 * chunk // ranks for chunk in self.chunks)))
        return largest if self.limit is None and ranks > 2 else None

    def rounds(self, seconds: float) -> int:
        """Timed rounds of an operation whose fastest round in the warm-up took so long."""
        from merge_bench.probe.shared.exchange_matrix import rounds_of

        return self.iterations or rounds_of(seconds)

    def tables(self, prepared: PlannedRun) -> list[SyntheticSpec]:
        """The synthetic tables whose parcels are sent."""
        from merge_bench.merge.workload.synthetic import SyntheticSpec

        plan = prepared.plan
        return [SyntheticSpec(chunk * plan.workers, FRACTION, plan.seed, PAYLOAD_COLUMNS) for chunk in self.chunks]

    def usual_seconds(self, prepared: PlannedRun, start: float) -> float | None:
        """Measured: half a second of rounds and a tenth around them, 0.5 µs for each row of a chunk and rank."""
        rows = len(self.sizes) + len(self.chunks) + (self.ring(prepared.plan.workers) is not None)
        made = 0.5e-6 * sum(self.chunks) * prepared.plan.workers
        return None if self.iterations else start + 0.6 * rows + made


def at_least_two(prepared: PlannedRun) -> PlannedRun:
    """The same; raises `UsageError` if there is one worker only."""
    if prepared.plan.workers < 2:
        raise UsageError("all-to-all needs at least two ranks; use --workers 2 or more")
    return prepared


def matrices(session: Session, pattern: Pattern) -> Iterator[list[Matrix]]:
    """The matrices of each operation between the workers of a cluster, in the order of `Recorder`."""
    from merge_bench.probe.shared.exchange_matrix import equal, ring
    from merge_bench.probe.workers import exchanging

    ranks = session.plan.workers
    if size := pattern.ring(ranks):
        yield [ring(size, ranks)]
    for size in pattern.sizes:
        yield [equal(size, ranks)]
    for spec in pattern.tables(session.job.prepared):
        session.progress.phase(f"sizes of the parcels of {format_count(spec.rows)} rows")
        left, right = zip(*session.workers.on_all(exchanging.parcels, spec, ranks, ranked=True), strict=True)
        yield [left, right]


class Lines(Protocol):
    """Makes a line of the records from the figures that are the same for every backend."""

    def __call__(self, **figures: Any) -> ProbeLine: ...


class Recorder:
    """Records the rows of one launch; the ring, which comes first, is the limit of the others."""

    def __init__(self, session: Session | RankSession, pattern: Pattern, backend: str) -> None:
        self._session, self._backend = session, backend
        self._limit, self._from = pattern.limit, GIVEN if pattern.limit else None
        self._rows = [*pattern.sizes, *pattern.chunks]
        self._ring = pattern.ring(session.plan.workers) is not None
        self._at = 0
        self._sizes = len(pattern.sizes)

    def take(self, frames: Sequence[Matrix], rounds: Sequence[Sequence[float]], wrong: int, line: Lines) -> None:
        """Record one result; the ring only becomes the limit. Raises `WrongResult` if a byte is wrong."""
        from merge_bench.probe.shared.exchange_matrix import Traffic, figures, mean_message

        found = figures(Traffic.of(frames), rounds, self._limit)
        size, ring = mean_message(frames), self._ring
        if ring:
            self._limit, self._from, self._ring = found["bandwidth_bytes_per_second"], RING, False
        else:
            uneven, self._at = self._at >= self._sizes, self._at + 1
            chunk = self._rows[self._at - 1] if uneven else None
            test = f"{self._backend}_{UNEVEN if uneven else EQUAL}"
            self._session.writer.write(
                line(
                    probe=NAME, test=test, size=size, count=chunk, iterations=len(rounds[0]), wrong=wrong,
                    limit_from=self._from, **found,
                )
            )  # fmt: skip
            self._session.progress.phase(f"{self._backend}: {format_bytes(size)} to each rank")
        if wrong:
            where = "the ring" if ring else f"messages of {format_bytes(size)}"
            raise WrongResult(f"all-to-all over {self._backend}: {wrong:,} bytes that arrived are wrong, with {where}")

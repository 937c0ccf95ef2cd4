"""What the ranks of `probe all-to-all` run: MPI_Alltoall, MPI_Alltoallv, and a check of every byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from merge_bench.errors import RunFailed
from merge_bench.merge.workload.synthetic import SyntheticSpec, parcel_bytes
from merge_bench.probe.ranks import timed_loops
from merge_bench.probe.ranks.messages import ExchangeRow, send
from merge_bench.probe.ranks.osu_rules import LARGEST_MESSAGE
from merge_bench.probe.ranks.rank import Rank
from merge_bench.probe.shared.exchange_matrix import BLANK, Matrix, count_wrong, equal, fill, ring, rounds_of
from merge_bench.units import format_bytes

WARM_UPS = 3
UNIT = 8
"""Bytes of the elements of MPI_Alltoallv: MPI counts them with an int, and parcels are whole multiples."""


def run(rank: Rank) -> None:
    """Measure what the driver asked for, and report each row."""
    spec, ranks = rank.spec, rank.size
    rank.watch.reports = rank.rank == 0
    rank.warn_of_crowd()
    uniform, uneven = timed_loops.all_to_all(), timed_loops.all_to_all_v()
    if spec["ring"] and ranks > 2:
        _measure(rank, uneven, [ring(_whole(spec["ring"]), ranks)], whole=False)
    for size in spec["sizes"]:
        _measure(rank, uniform, [equal(size, ranks)], whole=True)
    for table in spec["tables"]:
        mine = parcel_bytes(SyntheticSpec(**table), rank.rank, ranks)
        rank.watch.touch()
        left, right = zip(*rank.comm.allgather(mine), strict=True)
        _measure(rank, uneven, [left, right], whole=False)


def _whole(size: int) -> int:
    return -(-size // UNIT) * UNIT


def _measure(rank: Rank, loop: Any, frames: Sequence[Matrix], *, whole: bool) -> None:
    """Exchange and check; rank 0 reports. `whole`: a rank sends to itself, too, as MPI_Alltoall does."""
    held = [_Frame(frame, rank.rank, number, whole=whole) for number, frame in enumerate(frames)]

    def seconds(rounds: int) -> np.ndarray[Any, Any]:
        """Of this rank in each round, all frames together."""
        times_by_frame = np.zeros((len(held), rounds))
        for times, frame in zip(times_by_frame, held, strict=True):
            rank.watch.touch()
            rank.comm.Barrier()
            timed_loops.check(loop(*frame.arguments, *frame.handles(rank), times, rank.done), f"{frame.largest} bytes")
        total: np.ndarray[Any, Any] = times_by_frame.sum(axis=0)
        return total

    quickest = rank.comm.allreduce(float(seconds(WARM_UPS).min()), op=MPI.MAX)
    rounds = rank.spec["iterations"] or rounds_of(quickest)
    before = seconds(rounds - 1) if rounds > 1 else np.zeros(0)
    for frame in held:  # so that bytes of an earlier round cannot pass the check
        frame.target[:] = BLANK
    seconds_by_round = np.concatenate([before, seconds(1)])
    wrong = rank.comm.allreduce(sum(frame.count_wrong() for frame in held))
    every = rank.comm.gather((seconds_by_round.tolist(), rank.lanes()))
    if every is not None:
        lanes = tuple(dict.fromkeys(lane for _, each in every for lane in each))
        matrices = [[list(row) for row in frame] for frame in frames]
        send(ExchangeRow(matrices, [each for each, _ in every], lanes, wrong))


@dataclass
class _Frame:
    """Buffers of one frame on one rank, in which messages lie one after the other, by rank."""

    matrix: Matrix
    rank: int
    number: int
    whole: bool

    def __post_init__(self) -> None:
        self.sends = self._others(self.matrix[self.rank])
        self.receives = self._others([row[self.rank] for row in self.matrix])
        self.largest = max(*self.sends, *self.receives)
        for sizes in (self.sends, self.receives):
            if not self.whole and sum(sizes) // UNIT > LARGEST_MESSAGE:
                raise RunFailed(f"MPI_Alltoallv cannot address {format_bytes(sum(sizes))}; use a smaller --chunk")
        self.source, self.target = (
            timed_loops.page_aligned_buffer(sum(self.sends)),
            timed_loops.page_aligned_buffer(sum(self.receives)),
        )
        for peer, message in self._messages(self.source, self.sends):
            fill(message, self.rank, peer, self.number)
        counts = [np.array(sizes, np.int64) // UNIT for sizes in (self.sends, self.receives)]
        self._counts = [each.astype(np.int32) for each in counts]
        self._places = [(each.cumsum() - each).astype(np.int32) for each in counts]

    def _others(self, sizes: Sequence[int]) -> list[int]:
        return [size if self.whole or peer != self.rank else 0 for peer, size in enumerate(sizes)]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What a timed loop takes: both buffers with their counts, for MPI_Alltoallv also displacements."""
        if self.whole:
            return self.source, self.target, self.largest
        (sent, received), (sent_at, received_at) = self._counts, self._places
        return self.source, sent, sent_at, self.target, received, received_at

    def handles(self, rank: Rank) -> Sequence[Any]:
        """MPI's handles of the element type and the communicator."""
        return timed_loops.handles(MPI.BYTE if self.whole else MPI.INT64_T, rank.comm)

    def _messages(self, buffer: Any, sizes: Sequence[int]) -> list[tuple[int, Any]]:
        ends = np.cumsum(sizes)
        return [(peer, buffer[end - size : end]) for peer, (size, end) in enumerate(zip(sizes, ends, strict=True))]

    def count_wrong(self) -> int:
        arrived = self._messages(self.target, self.receives)
        return sum(count_wrong(message, peer, self.rank, self.number) for peer, message in arrived)

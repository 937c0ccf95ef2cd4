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
from merge_bench.probe.ranks.messages import ExchangeRow, send_to_driver
from merge_bench.probe.ranks.osu_rules import LARGEST_MESSAGE
from merge_bench.probe.ranks.rank import Rank
from merge_bench.probe.shared.exchange_matrix import (
    BLANK,
    Matrix,
    count_wrong_bytes,
    equal_matrix,
    fill_message,
    ring_matrix,
    rounds_in_half_a_second,
)
from merge_bench.units import format_bytes

WARM_UPS = 3
UNIT = 8
"""Bytes of the elements of MPI_Alltoallv: MPI counts them with an int, and parcels are whole multiples."""


def measure_all_to_all(rank: Rank) -> None:
    """Make every exchange of the spec, the ring first, and report each row."""
    spec, ranks = rank.spec, rank.size
    rank.watch.reports = rank.rank == 0
    rank.warn_of_few_cores()
    uniform, uneven = timed_loops.all_to_all_loop(), timed_loops.all_to_all_v_loop()
    if spec["ring"] and ranks > 2:
        _measure_frames(rank, uneven, [ring_matrix(_whole_units(spec["ring"]), ranks)], whole=False)
    for size in spec["sizes"]:
        _measure_frames(rank, uniform, [equal_matrix(size, ranks)], whole=True)
    for table in spec["tables"]:
        mine = parcel_bytes(SyntheticSpec(**table), rank.rank, ranks)
        rank.watch.touch()
        left, right = zip(*rank.comm.allgather(mine), strict=True)
        _measure_frames(rank, uneven, [left, right], whole=False)


def _whole_units(size: int) -> int:
    """`size` bytes rounded up to whole elements of MPI_Alltoallv."""
    return -(-size // UNIT) * UNIT


def _measure_frames(rank: Rank, loop: Any, frames: Sequence[Matrix], *, whole: bool) -> None:
    """Time an exchange of these frames and check what arrived; rank 0 reports the row.

    `whole`: a rank also sends to itself, as with MPI_Alltoall.
    """
    buffers_by_frame = [_FrameBuffers(frame, rank.rank, number, whole=whole) for number, frame in enumerate(frames)]

    def rank_seconds(rounds: int) -> np.ndarray[Any, Any]:
        """Seconds of this rank in each round, all frames together."""
        times_by_frame = np.zeros((len(buffers_by_frame), rounds))
        for times, frame in zip(times_by_frame, buffers_by_frame, strict=True):
            rank.watch.touch()
            rank.comm.Barrier()
            timed_loops.check_status(
                loop(*frame.arguments, *frame.handles(rank), times, rank.done), f"{frame.largest} bytes"
            )
        total: np.ndarray[Any, Any] = times_by_frame.sum(axis=0)
        return total

    slowest_rank_seconds = rank.comm.allreduce(float(rank_seconds(WARM_UPS).min()), op=MPI.MAX)
    rounds = rank.spec["iterations"] or rounds_in_half_a_second(slowest_rank_seconds)
    before = rank_seconds(rounds - 1) if rounds > 1 else np.zeros(0)
    for frame in buffers_by_frame:  # so that bytes of an earlier round cannot pass the check
        frame.target[:] = BLANK
    seconds_by_round = np.concatenate([before, rank_seconds(1)])
    wrong = rank.comm.allreduce(sum(frame.count_wrong_bytes() for frame in buffers_by_frame))
    reports = rank.comm.gather((seconds_by_round.tolist(), rank.lanes()))
    if reports is not None:
        lanes = tuple(dict.fromkeys(lane for _, each in reports for lane in each))
        matrices = [[list(row) for row in frame] for frame in frames]
        send_to_driver(ExchangeRow(matrices, [each for each, _ in reports], lanes, wrong))


@dataclass
class _FrameBuffers:
    """The send and receive buffers of one frame on one rank; messages lie in them one after the other, by rank."""

    matrix: Matrix
    rank: int
    number: int
    whole: bool

    def __post_init__(self) -> None:
        self.sends = self._exchanged_sizes(self.matrix[self.rank])
        self.receives = self._exchanged_sizes([row[self.rank] for row in self.matrix])
        self.largest = max(*self.sends, *self.receives)
        for sizes in (self.sends, self.receives):
            if not self.whole and sum(sizes) // UNIT > LARGEST_MESSAGE:
                raise RunFailed(f"MPI_Alltoallv cannot address {format_bytes(sum(sizes))}; use a smaller --chunk")
        self.source, self.target = (
            timed_loops.page_aligned_buffer(sum(self.sends)),
            timed_loops.page_aligned_buffer(sum(self.receives)),
        )
        for peer, message in self._message_views(self.source, self.sends):
            fill_message(message, self.rank, peer, self.number)
        counts = [np.array(sizes, np.int64) // UNIT for sizes in (self.sends, self.receives)]
        self._counts = [each.astype(np.int32) for each in counts]
        self._places = [(each.cumsum() - each).astype(np.int32) for each in counts]

    def _exchanged_sizes(self, sizes: Sequence[int]) -> list[int]:
        """`sizes` by rank, with 0 for this rank itself unless it sends to itself."""
        return [size if self.whole or peer != self.rank else 0 for peer, size in enumerate(sizes)]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of a timed loop: both buffers with their counts, for MPI_Alltoallv also displacements."""
        if self.whole:
            return self.source, self.target, self.largest
        (sent, received), (sent_at, received_at) = self._counts, self._places
        return self.source, sent, sent_at, self.target, received, received_at

    def handles(self, rank: Rank) -> Sequence[Any]:
        """MPI's handles of the element type and the communicator."""
        return timed_loops.mpi_handles(MPI.BYTE if self.whole else MPI.INT64_T, rank.comm)

    def _message_views(self, buffer: Any, sizes: Sequence[int]) -> list[tuple[int, Any]]:
        """Each rank with its message in the buffer."""
        ends = np.cumsum(sizes)
        return [(peer, buffer[end - size : end]) for peer, (size, end) in enumerate(zip(sizes, ends, strict=True))]

    def count_wrong_bytes(self) -> int:
        """How many bytes that arrived are wrong."""
        arrived = self._message_views(self.target, self.receives)
        return sum(count_wrong_bytes(message, peer, self.rank, self.number) for peer, message in arrived)

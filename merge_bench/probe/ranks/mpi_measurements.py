"""What the ranks of `probe mpi`, `probe all-to-all` and `probe reduce-scatter` run: timed loops, and checks of results.

A ping-pong, or the latency and bandwidth tests of OSU; MPI_Alltoall and MPI_Alltoallv, whose every byte is checked; and
reduce-scatter: every rank contributes a whole vector of float32, and the result on rank r is block r of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from merge_bench.errors import RunFailed, WarningMessage
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.synthetic import synthetic_parcel_bytes
from merge_bench.probe.ranks import mpi_loops, osu_rules
from merge_bench.probe.ranks.messages import ExchangeRow, MeasuredRow, RankWarning, send_to_driver
from merge_bench.probe.ranks.rank import Rank
from merge_bench.probe.shared import exchange_matrix
from merge_bench.probe.shared.exchange_matrix import MOST_RANKS, MessageMatrix
from merge_bench.probe.shared.options import parse_message_sizes
from merge_bench.units import format_bytes, format_count

Loop = Callable[..., Any]
Result = tuple[str, osu_rules.LoopTiming, int, bool]
"""A test's name, its timed loop, messages of an iteration, and whether it has a rate."""
EXCHANGE_WARM_UPS = 3
UNIT = 8
"""Bytes of the elements of MPI_Alltoallv: MPI counts them with an int, and parcels are whole multiples."""


def _gather_seconds_and_lanes(rank: Rank, seconds: Any) -> tuple[list[Any], tuple[str, ...]] | None:
    """Collect on rank 0 the `seconds` of every rank, and the UCX lanes of all ranks; None on other ranks.

    All ranks call this function.
    """
    reports = rank.comm.gather((seconds, rank.ucx_lanes()))
    if reports is None:
        return None
    return [each for each, _ in reports], tuple(dict.fromkeys(lane for _, lanes in reports for lane in lanes))


class MeasuredPairRank:
    """One of two measured ranks: its message buffer, and the buffer `ack` for the answer to a window of messages."""

    def __init__(self, rank: Rank, largest: int) -> None:
        self.rank = rank
        self.buffer, self.ack = mpi_loops.make_page_aligned_buffer(largest), np.zeros(64, np.uint8)
        self.handles = mpi_loops.c_mpi_handles(MPI.BYTE, rank.comm)
        self.requests = mpi_loops.make_request_buffers(osu_rules.WINDOW)

    def measure_loop_time(
        self, loop: Loop, size: int, iterations: int, receive_buffer: Any = None
    ) -> osu_rules.LoopTiming:
        """Run a compiled MPI loop on both ranks, and return its time on the first rank.

        `receive_buffer`: the buffer for received messages, by default the buffer of sent ones.
        """
        rank, arrivals = self.rank, self.buffer if receive_buffer is None else receive_buffer
        ends = rank.rank == 0, 1 - rank.rank
        arguments = (self.buffer, arrivals, size, iterations, *ends, *self.handles, *self.requests, rank.done)
        rank.watch.record_progress()
        rank.comm.Barrier()
        began = MPI.Wtime()
        failed = loop(*arguments)
        elapsed = MPI.Wtime() - began
        mpi_loops.check_loop_status(failed, f"{size} bytes")
        return osu_rules.LoopTiming(size, iterations, elapsed)


def measure_rank_pair(rank: Rank) -> None:
    """Measure messages between two MPI ranks with the spec's pattern and sizes; the first rank reports each row."""
    spec = rank.spec
    if rank.size != 2:
        raise RunFailed(f"the ping-pong needs exactly 2 ranks, but mpirun started {rank.size}")
    rank.watch.reports = rank.rank == 0
    sizes = parse_message_sizes(spec["sizes"])
    pattern = _measure_ping_pong if spec["pattern"] == osu_rules.PING_PONG else _measure_osu_tests
    for test, timed, messages, has_rate in pattern(MeasuredPairRank(rank, sizes[-1]), sizes):
        if rank.rank == 0:
            seconds, rate = timed.seconds_per_message(messages), timed.bytes_per_second(messages) if has_rate else None
            send_to_driver(MeasuredRow(test, timed.size, timed.iterations, [seconds], rank.ucx_lanes(), rate=rate))


def _measure_ping_pong(pair: MeasuredPairRank, sizes: tuple[int, ...]) -> Iterable[Result]:
    """Yield the results of a ping-pong with standard, then with buffered sends: each size, then the delay of 1 byte."""
    fixed_count = pair.rank.spec["iterations"]
    room = bytearray(osu_rules.BUFFERED_MESSAGES * (sizes[-1] + MPI.BSEND_OVERHEAD))
    for name, function in (("std", "MPI_Send"), ("buff", "MPI_Bsend")):
        loop = mpi_loops.ping_pong_loop(function)
        if name == "buff":
            MPI.Attach_buffer(room)
        pair.measure_loop_time(loop, 1, 1)  # compiles it
        for size in sizes:
            warm = [pair.measure_loop_time(loop, size, osu_rules.WARM_UP) for _ in range(osu_rules.WARM_UPS)]
            quickest = min(timed.elapsed for timed in warm) / osu_rules.WARM_UP
            iterations = fixed_count or pair.rank.comm.bcast(osu_rules.ping_pong_iterations(quickest))
            timed = pair.measure_loop_time(loop, size, iterations)
            yield name, timed, osu_rules.THERE_AND_BACK, True
        timed = pair.measure_loop_time(loop, 1, fixed_count or osu_rules.DELAYS)
        yield f"{name}-delay", timed, osu_rules.THERE_AND_BACK, False
        if name == "buff":
            MPI.Detach_buffer()


def _measure_osu_tests(pair: MeasuredPairRank, sizes: tuple[int, ...]) -> Iterable[Result]:
    """Yield the results of latency and bandwidth tests as the OSU micro-benchmarks define them."""
    fixed_count, incoming = pair.rank.spec["iterations"], mpi_loops.make_page_aligned_buffer(sizes[-1])
    ping_pong, stream = mpi_loops.ping_pong_loop("MPI_Send"), mpi_loops.bandwidth_loop()
    for size in sizes:
        pair.measure_loop_time(
            ping_pong, size, osu_rules.osu_iterations_for_size(size, osu_rules.LATENCY_SKIPPED), incoming
        )
        count = fixed_count or osu_rules.osu_iterations_for_size(size, osu_rules.LATENCY)
        timed = pair.measure_loop_time(ping_pong, size, count, incoming)
        yield "osu_latency", timed, osu_rules.THERE_AND_BACK, False
    for size in sizes:
        pair.measure_loop_time(
            stream, size, osu_rules.osu_iterations_for_size(size, osu_rules.WINDOWS_SKIPPED), pair.ack
        )
        count = fixed_count or osu_rules.osu_iterations_for_size(size, osu_rules.WINDOWS)
        timed = pair.measure_loop_time(stream, size, count, pair.ack)
        yield "osu_bw", timed, osu_rules.WINDOW, True


def measure_all_to_all_exchanges(rank: Rank) -> None:
    """Make every all-to-all exchange that the rank's spec asks for, the ring first; report each row to the driver."""
    spec, ranks = rank.spec, rank.size
    rank.watch.reports = rank.rank == 0
    rank.warn_of_few_cores()
    uniform, uneven = mpi_loops.all_to_all_loop(), mpi_loops.all_to_all_v_loop()
    if spec["ring"] and ranks > 2:
        whole_units = -(-spec["ring"] // UNIT) * UNIT
        _measure_exchange(
            rank, uneven, [exchange_matrix.ring_message_matrix(whole_units, ranks)], sends_to_itself=False
        )
    for size in spec["sizes"]:
        _measure_exchange(rank, uniform, [exchange_matrix.equal_message_matrix(size, ranks)], sends_to_itself=True)
    for table in spec["tables"]:
        mine = synthetic_parcel_bytes(SyntheticSpec(**table), rank.rank, ranks)
        rank.watch.record_progress()
        left, right = zip(*rank.comm.allgather(mine), strict=True)
        _measure_exchange(rank, uneven, [left, right], sends_to_itself=False)


def _measure_exchange(rank: Rank, timed_loop: Loop, frames: Sequence[MessageMatrix], *, sends_to_itself: bool) -> None:
    """Time one all-to-all exchange, and check the received messages; rank 0 reports the row to the driver.

    `frames`: bytes from each rank to each, a matrix per frame. `sends_to_itself`: whether a rank also sends to itself,
    as with MPI_Alltoall.
    """
    buffers_by_frame = [
        _FrameBuffers(frame, rank, number, sends_to_itself=sends_to_itself) for number, frame in enumerate(frames)
    ]

    def own_seconds_by_round(rounds: int) -> Any:
        """Return the seconds of this rank in each of `rounds` rounds, the frames of a round added up."""
        times_by_frame = np.zeros((len(buffers_by_frame), rounds))
        for times, frame in zip(times_by_frame, buffers_by_frame, strict=True):
            rank.watch.record_progress()
            rank.comm.Barrier()
            mpi_loops.check_loop_status(timed_loop(*frame.arguments, times, rank.done), f"{frame.largest} bytes")
        return times_by_frame.sum(axis=0)

    slowest_rank_seconds = rank.comm.allreduce(float(own_seconds_by_round(EXCHANGE_WARM_UPS).min()), op=MPI.MAX)
    rounds = rank.spec["iterations"] or exchange_matrix.rounds_in_half_a_second(slowest_rank_seconds)
    before = own_seconds_by_round(rounds - 1) if rounds > 1 else np.zeros(0)
    for frame in buffers_by_frame:  # so that bytes of an earlier round cannot pass the check
        frame.target[:] = exchange_matrix.BLANK
    seconds_by_round = np.concatenate([before, own_seconds_by_round(1)])
    wrong = rank.comm.allreduce(sum(frame.count_wrong_bytes() for frame in buffers_by_frame))
    if reports := _gather_seconds_and_lanes(rank, seconds_by_round.tolist()):
        send_to_driver(ExchangeRow([[list(row) for row in frame] for frame in frames], *reports, wrong))


class _FrameBuffers:
    """The send and receive buffers of one frame on one rank; the messages lie one after the other, by rank.

    `arguments`: both buffers as arguments of a timed loop, with their counts and MPI's handles; for MPI_Alltoallv also
    with displacements. `largest`: bytes of the largest message.
    """

    def __init__(self, matrix: MessageMatrix, rank: Rank, number: int, *, sends_to_itself: bool) -> None:
        self._rank, self._number = rank.rank, number
        sends, self._receives = (
            [size if sends_to_itself or peer != self._rank else 0 for peer, size in enumerate(sizes)]
            for sizes in (matrix[self._rank], [row[self._rank] for row in matrix])
        )
        self.largest = max(*sends, *self._receives)
        for sizes in (sends, self._receives):
            if not sends_to_itself and sum(sizes) // UNIT > osu_rules.LARGEST_MESSAGE:
                raise RunFailed(f"MPI_Alltoallv cannot address {format_bytes(sum(sizes))}; use a smaller --chunk")
        source, self.target = (mpi_loops.make_page_aligned_buffer(sum(sizes)) for sizes in (sends, self._receives))
        for peer, message in _message_views_by_rank(source, sends):
            exchange_matrix.fill_message(message, self._rank, peer, number)
        counts = [np.array(sizes, np.int64) // UNIT for sizes in (sends, self._receives)]
        sent, received = ((each.astype(np.int32), (each.cumsum() - each).astype(np.int32)) for each in counts)
        buffers = (source, self.target, self.largest) if sends_to_itself else (source, *sent, self.target, *received)
        handles = mpi_loops.c_mpi_handles(MPI.BYTE if sends_to_itself else MPI.INT64_T, rank.comm)
        self.arguments: tuple[Any, ...] = (*buffers, *handles)

    def count_wrong_bytes(self) -> int:
        """Return the number of wrong bytes in the received messages."""
        return sum(
            exchange_matrix.count_wrong_bytes(message, peer, self._rank, self._number)
            for peer, message in _message_views_by_rank(self.target, self._receives)
        )


def _message_views_by_rank(buffer: Any, sizes: Sequence[int]) -> list[tuple[int, Any]]:
    """Return each rank with a view of its message in the buffer, in which messages lie one after the other by rank."""
    ends = np.cumsum(sizes)
    return [(peer, buffer[end - size : end]) for peer, (size, end) in enumerate(zip(sizes, ends, strict=True))]


def measure_reduce_scatter_algorithms(rank: Rank) -> None:
    """Measure every reduce-scatter algorithm with each vector length that fits into memory, and report each row."""
    spec, ranks = rank.spec, rank.size
    if ranks > MOST_RANKS:
        raise RunFailed(
            f"reduce-scatter cannot be checked with {ranks} ranks: float32 sums are exact only up to {MOST_RANKS}"
            " ranks; use fewer ranks"
        )
    counts = _vector_lengths_fitting_memory(rank, [int(count) for count in spec["counts"]])
    if not counts or not spec["algorithms"]:  # those of ucc_perftest are not measured here
        return
    loops = {"mpi": mpi_loops.reduce_scatter_loop, "reduces": mpi_loops.reduce_to_each_rank_loop}
    longest = osu_rules.reduced_block_elements(counts[-1], ranks)
    source, target = np.empty(longest * ranks, np.float32), np.empty(longest, np.float32)
    exchange_matrix.fill_contributed_vector(source, rank.rank)
    rank.watch.reports = rank.rank == 0
    for name in spec["algorithms"]:
        loop = loops[name]()
        for count in counts:
            block = osu_rules.reduced_block_elements(count, ranks)
            _measure_reduce_scatter(rank, name, loop, source, target[:block])


def _measure_reduce_scatter(rank: Rank, algorithm: str, timed_loop: Loop, source: Any, own_block: Any) -> None:
    """Time and check one reduce-scatter algorithm at one vector length; rank 0 reports the row to the driver.

    `source`: this rank's whole vector. `own_block`: the memory for this rank's block of the sum.
    """
    ranks, block, count = rank.size, own_block.size, own_block.size * rank.size
    real, add, comm = mpi_loops.c_mpi_handles(MPI.FLOAT, MPI.SUM, rank.comm)
    requests = mpi_loops.make_request_buffers(ranks)

    def mean_operation_seconds(iterations: int) -> float:
        """Return the mean seconds of one reduce-scatter on this rank, over `iterations` of them."""
        rank.watch.record_progress()
        rank.comm.Barrier()
        inside = timed_loop(source, own_block, block, iterations, real, add, comm, ranks, *requests, rank.done)
        mpi_loops.check_loop_status(int(-min(inside, 0)), f"{format_count(count)} elements")
        return float(inside) / iterations

    mean_operation_seconds(osu_rules.collective_iterations_for_count(count, osu_rules.OPERATIONS_SKIPPED))
    own_block[:] = -1  # so that results of the warm-up cannot pass the check
    iterations = rank.spec["iterations"] or osu_rules.collective_iterations_for_count(count, osu_rules.OPERATIONS)
    seconds = mean_operation_seconds(iterations)
    wrong = rank.comm.allreduce(exchange_matrix.count_wrong_sums(own_block, block * rank.rank, ranks))
    if reports := _gather_seconds_and_lanes(rank, seconds):
        send_to_driver(MeasuredRow(algorithm, count * osu_rules.ELEMENT, iterations, *reports, wrong=wrong))


def _vector_lengths_fitting_memory(rank: Rank, element_counts: list[int]) -> list[int]:
    """Return the vector lengths that fit into every rank's memory; rank 0 reports a warning about the others."""
    from merge_bench.host.machine import available_memory_bytes

    available = int(available_memory_bytes())
    room = rank.comm.allreduce(available // rank.local_ranks, op=MPI.MIN)
    kept, left_out = osu_rules.split_counts_by_memory(element_counts, rank.size, room)
    if rank.rank == 0 and left_out:
        listed = ", ".join(format_count(count) for count in left_out)
        message = (
            f"vectors of {listed} elements are not measured, because each rank has only {format_bytes(room)} of memory"
        )
        send_to_driver(
            RankWarning(WarningMessage("counts-left-out", message, "use fewer ranks per host, or smaller --counts"))
        )
    rank.warn_of_few_cores()
    return kept

"""What the two ranks of `probe mpi` run: a ping-pong, or the latency and bandwidth tests of OSU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mpi4py import MPI

from merge_bench.errors import RunFailed
from merge_bench.probe.ranks import osu_rules, timed_loops
from merge_bench.probe.ranks.messages import Row, send_to_driver
from merge_bench.probe.ranks.osu_rules import TimedLoop
from merge_bench.probe.ranks.rank import Rank
from merge_bench.probe.shared.sizes import parse_sizes


class RankOfPair:
    """This one of the two ranks, with its buffers: `buffer` for messages, `ack` for the answer to a window of them."""

    def __init__(self, rank: Rank, largest: int) -> None:
        self.rank = rank
        self.first = rank.rank == 0
        self.buffer, self.ack = timed_loops.page_aligned_buffer(largest), np.zeros(64, np.uint8)
        self.handles = timed_loops.mpi_handles(MPI.BYTE, rank.comm)
        self.room = timed_loops.request_buffers(osu_rules.WINDOW)

    def time_loop(
        self, loop: Callable[..., int], size: int, iterations: int, incoming: np.ndarray[Any, Any] | None = None
    ) -> TimedLoop:
        """Time a loop on both ranks; `incoming`: the buffer of what is received, by default the one that is sent."""
        arrivals = self.buffer if incoming is None else incoming
        self.rank.watch.touch()
        self.rank.comm.Barrier()
        began = MPI.Wtime()
        failed = loop(
            self.buffer,
            arrivals,
            size,
            iterations,
            self.first,
            1 - self.rank.rank,
            *self.handles,
            *self.room,
            self.rank.done,
        )
        elapsed = MPI.Wtime() - began
        timed_loops.check_status(failed, f"{size} bytes")
        return TimedLoop(size, iterations, elapsed)


Result = tuple[str, TimedLoop, float, float | None]
"""A test's name, its timed loop, seconds of a message, and bytes per second."""


def measure_pair(rank: Rank) -> None:
    """Measure the pattern of the spec at its sizes; the first rank reports each row."""
    spec = rank.spec
    if rank.size != 2:
        raise RunFailed(f"the ping-pong needs exactly 2 ranks, but mpirun started {rank.size}")
    rank.watch.reports = rank.rank == 0
    pattern = _measure_ping_pong if spec["pattern"] == osu_rules.PING_PONG else _measure_osu
    for test, timed, seconds, rate in pattern(rank, parse_sizes(spec["sizes"])):
        if rank.rank == 0:
            send_to_driver(Row(test, timed.size, timed.iterations, [seconds], rank.lanes(), rate=rate))


def _measure_ping_pong(rank: Rank, sizes: tuple[int, ...]) -> Iterable[Result]:
    """A ping-pong with standard, then with buffered sends: messages of all sizes, then the delay of one byte."""
    pair = RankOfPair(rank, sizes[-1])
    fixed_count = rank.spec["iterations"]
    room = bytearray(osu_rules.BUFFERED_MESSAGES * (sizes[-1] + MPI.BSEND_OVERHEAD))
    for name, function in (("std", "MPI_Send"), ("buff", "MPI_Bsend")):
        loop = timed_loops.ping_pong_loop(function)
        if name == "buff":
            MPI.Attach_buffer(room)
        pair.time_loop(loop, 1, 1)  # compiles it
        for size in sizes:
            warm = [pair.time_loop(loop, size, osu_rules.WARM_UP) for _ in range(osu_rules.WARM_UPS)]
            quickest = min(timed.elapsed for timed in warm) / osu_rules.WARM_UP
            iterations = fixed_count or rank.comm.bcast(osu_rules.ping_pong_iterations(quickest))
            timed = pair.time_loop(loop, size, iterations)
            yield name, timed, timed.one_way_seconds, timed.both_ways_rate
        timed = pair.time_loop(loop, 1, fixed_count or osu_rules.DELAYS)
        yield f"{name}-delay", timed, timed.one_way_seconds, None
        if name == "buff":
            MPI.Detach_buffer()


def _measure_osu(rank: Rank, sizes: tuple[int, ...]) -> Iterable[Result]:
    """Latency and bandwidth as the OSU micro-benchmarks define them."""
    pair = RankOfPair(rank, sizes[-1])
    fixed_count, incoming = rank.spec["iterations"], timed_loops.page_aligned_buffer(sizes[-1])
    loop = timed_loops.ping_pong_loop("MPI_Send")
    for size in sizes:
        pair.time_loop(loop, size, osu_rules.iterations_by_size(size, osu_rules.LATENCY_SKIPPED), incoming)
        timed = pair.time_loop(
            loop, size, fixed_count or osu_rules.iterations_by_size(size, osu_rules.LATENCY), incoming
        )
        yield "osu_latency", timed, timed.one_way_seconds, None
    stream = timed_loops.bandwidth_loop()
    for size in sizes:
        pair.time_loop(stream, size, osu_rules.iterations_by_size(size, osu_rules.WINDOWS_SKIPPED), pair.ack)
        timed = pair.time_loop(
            stream, size, fixed_count or osu_rules.iterations_by_size(size, osu_rules.WINDOWS), pair.ack
        )
        yield "osu_bw", timed, timed.window_message_seconds, timed.window_rate

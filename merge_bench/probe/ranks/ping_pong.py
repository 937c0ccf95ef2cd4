"""What the two ranks of `probe mpi` run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mpi4py import MPI

from merge_bench.errors import RunFailed
from merge_bench.probe.ranks import osu_rules, timed_loops
from merge_bench.probe.ranks.messages import Row, send
from merge_bench.probe.ranks.osu_rules import Timed
from merge_bench.probe.ranks.rank import Rank
from merge_bench.probe.shared.sizes import parse_sizes


class Pair:
    """This rank of the two, with its buffers: `buffer` for messages, and `ack` for the answer to a window."""

    def __init__(self, rank: Rank, largest: int) -> None:
        self.rank = rank
        self.first = rank.rank == 0
        self.buffer, self.ack = timed_loops.page_aligned_buffer(largest), np.zeros(64, np.uint8)
        self.handles = timed_loops.handles(MPI.BYTE, rank.comm)
        self.room = timed_loops.request_buffers(osu_rules.WINDOW)

    def time(
        self, loop: Callable[..., int], size: int, iterations: int, incoming: np.ndarray[Any, Any] | None = None
    ) -> Timed:
        """Time a loop; `incoming`: the buffer of what is received, if not the one of messages."""
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
        timed_loops.check(failed, f"{size} bytes")
        return Timed(size, iterations, elapsed)


Result = tuple[str, Timed, float, float | None]
"""Test, timed loop, seconds and bytes per second."""


def run(rank: Rank) -> None:
    """Measure the spec's pattern and sizes, and report each row."""
    spec = rank.spec
    if rank.size != 2:
        raise RunFailed(f"the ping-pong needs exactly 2 ranks, but mpirun started {rank.size}")
    rank.watch.reports = rank.rank == 0
    pattern = _ping_pong if spec["pattern"] == osu_rules.PING_PONG else _osu
    for test, timed, seconds, rate in pattern(rank, parse_sizes(spec["sizes"])):
        if rank.rank == 0:
            send(Row(test, timed.size, timed.iterations, [seconds], rank.lanes(), rate=rate))


def _ping_pong(rank: Rank, sizes: tuple[int, ...]) -> Iterable[Result]:
    """Standard, then buffered sends: all sizes, then the delay of one byte."""
    pair = Pair(rank, sizes[-1])
    fixed_count = rank.spec["iterations"]
    room = bytearray(osu_rules.BUFFERED_MESSAGES * (sizes[-1] + MPI.BSEND_OVERHEAD))
    for name, function in (("std", "MPI_Send"), ("buff", "MPI_Bsend")):
        loop = timed_loops.ping_pong(function)
        if name == "buff":
            MPI.Attach_buffer(room)
        pair.time(loop, 1, 1)  # compiles it
        for size in sizes:
            warm = [pair.time(loop, size, osu_rules.WARM_UP) for _ in range(osu_rules.WARM_UPS)]
            quickest = min(timed.elapsed for timed in warm) / osu_rules.WARM_UP
            iterations = fixed_count or rank.comm.bcast(osu_rules.bounded_iterations(quickest))
            timed = pair.time(loop, size, iterations)
            yield name, timed, timed.one_way, timed.both_ways_rate
        timed = pair.time(loop, 1, fixed_count or osu_rules.DELAYS)
        yield f"{name}-delay", timed, timed.one_way, None
        if name == "buff":
            MPI.Detach_buffer()


def _osu(rank: Rank, sizes: tuple[int, ...]) -> Iterable[Result]:
    """Latency and bandwidth as the OSU micro-benchmarks define them."""
    pair = Pair(rank, sizes[-1])
    fixed_count, incoming = rank.spec["iterations"], timed_loops.page_aligned_buffer(sizes[-1])
    loop = timed_loops.ping_pong("MPI_Send")
    for size in sizes:
        pair.time(loop, size, osu_rules.loops_of_size(size, osu_rules.LATENCY_SKIPPED), incoming)
        timed = pair.time(loop, size, fixed_count or osu_rules.loops_of_size(size, osu_rules.LATENCY), incoming)
        yield "osu_latency", timed, timed.one_way, None
    stream = timed_loops.bandwidth_loop()
    for size in sizes:
        pair.time(stream, size, osu_rules.loops_of_size(size, osu_rules.WINDOWS_SKIPPED), pair.ack)
        timed = pair.time(stream, size, fixed_count or osu_rules.loops_of_size(size, osu_rules.WINDOWS), pair.ack)
        yield "osu_bw", timed, timed.of_window, timed.window_rate

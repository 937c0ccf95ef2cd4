"""Point-to-point between two ranks: what the ranks of `probe mpi` do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mpi4py import MPI

from merge_bench.errors import RunFailed
from merge_bench.probe.ranks import loops, rules
from merge_bench.probe.ranks.rank import Rank, say
from merge_bench.probe.ranks.rules import Timed
from merge_bench.probe.shared.sizes import parse_sizes


class Pair:
    """One of the two ranks, with its buffers."""

    def __init__(self, rank: Rank, link: loops.Link, largest: int) -> None:
        self.rank, self.comm = rank, rank.comm
        self.first = rank.rank == 0
        self.outgoing, self.incoming = _pages(largest), _pages(largest)
        self.ack = np.zeros(64, np.uint8)
        self.byte, self.handle = loops.handles(link, MPI.BYTE, rank.comm)
        self.requests = loops.requests(rules.WINDOW)
        self.statuses = loops.statuses(rules.WINDOW)

    def ping_pong(self, loop: Callable[..., int], size: int, iterations: int, *, one_buffer: bool) -> Timed:
        """Time `iterations` pings and pongs."""
        incoming = self.outgoing if one_buffer else self.incoming
        return self._time(
            loop, size, iterations, self.outgoing, incoming, size, iterations, self.first, 1 - self.comm.rank,
            self.byte, self.handle, self.statuses, self.rank.done,
        )  # fmt: skip

    def windows(self, loop: Callable[..., int], size: int, iterations: int) -> Timed:
        """Time `iterations` windows of 64 messages and one answer."""
        buffer = self.outgoing if self.first else self.incoming
        return self._time(
            loop, size, iterations, buffer, self.ack, size, iterations, self.first, 1 - self.comm.rank, self.byte,
            self.handle, self.requests, self.statuses, self.rank.done,
        )  # fmt: skip

    def _time(self, loop: Callable[..., int], size: int, iterations: int, *arguments: Any) -> Timed:
        self.rank.watch.touch()
        self.comm.Barrier()
        began = MPI.Wtime()
        failed = loop(*arguments)
        elapsed = MPI.Wtime() - began
        if failed:
            raise RunFailed(f"MPI failed with {MPI.Get_error_string(failed)} at {size} bytes")
        return Timed(size, iterations, elapsed)


Result = tuple[str, Timed, float, float | None]
"""Test, loop, seconds and bytes per second of a row."""


def run(rank: Rank) -> None:
    """Measure what the spec asks for between the only two ranks."""
    spec = rank.spec
    if rank.size != 2:
        raise RunFailed(f"two ranks were to be started, and there are {rank.size}")
    rank.watch.speaks = rank.rank == 0
    pattern = _ping_pong if spec["pattern"] == rules.PING_PONG else _osu
    for test, timed, seconds, rate in pattern(rank, parse_sizes(spec["sizes"])):
        if rank.rank == 0:
            say(
                "row", test=test, size=timed.size, iterations=timed.iterations, elapsed=timed.elapsed,
                seconds=seconds, rate=rate, selected=rank.lanes(),
            )  # fmt: skip


def _ping_pong(rank: Rank, sizes: tuple[int, ...]) -> Iterable[Result]:
    """Standard and buffered sends: every size, then the delay of one byte."""
    link = loops.open_link()
    pair = Pair(rank, link, sizes[-1])
    asked = rank.spec["iterations"]
    room = bytearray(rules.BUFFERED_MESSAGES * (sizes[-1] + MPI.BSEND_OVERHEAD))
    for name, function in (("std", "MPI_Send"), ("buff", "MPI_Bsend")):
        loop = loops.ping_pong(link, function)
        if name == "buff":
            MPI.Attach_buffer(room)
        pair.ping_pong(loop, 1, 1, one_buffer=True)  # compiles it
        for size in sizes:
            warm = [pair.ping_pong(loop, size, rules.WARM_UP, one_buffer=True) for _ in range(rules.WARM_UPS)]
            quickest = min(timed.elapsed for timed in warm) / rules.WARM_UP
            iterations = asked or rank.comm.bcast(rules.bounded_iterations(quickest))
            timed = pair.ping_pong(loop, size, iterations, one_buffer=True)
            yield name, timed, timed.one_way, timed.both_ways_rate
        timed = pair.ping_pong(loop, 1, asked or rules.DELAYS, one_buffer=True)
        yield f"{name}-delay", timed, timed.one_way, None
        if name == "buff":
            MPI.Detach_buffer()


def _osu(rank: Rank, sizes: tuple[int, ...]) -> Iterable[Result]:
    """Latency and bandwidth as the OSU micro-benchmarks define them."""
    link = loops.open_link()
    pair = Pair(rank, link, sizes[-1])
    asked = rank.spec["iterations"]
    loop = loops.ping_pong(link, "MPI_Send")
    for size in sizes:
        pair.ping_pong(loop, size, rules.loops_of_size(size, rules.LATENCY_SKIPPED), one_buffer=False)
        timed = pair.ping_pong(loop, size, asked or rules.loops_of_size(size, rules.LATENCY), one_buffer=False)
        yield "osu_latency", timed, timed.one_way, None
    stream = loops.windows(link)
    for size in sizes:
        pair.windows(stream, size, rules.loops_of_size(size, rules.WINDOWS_SKIPPED))
        timed = pair.windows(stream, size, asked or rules.loops_of_size(size, rules.WINDOWS))
        yield "osu_bw", timed, timed.of_window, timed.window_rate


def _pages(size: int) -> np.ndarray[Any, Any]:
    """A buffer that begins at a page, as OSU's do, with every page touched."""
    raw = np.zeros(size + loops.PAGE, np.uint8)
    start = -raw.ctypes.data % loops.PAGE
    buffer = raw[start : start + size]
    buffer[:] = 1
    return buffer

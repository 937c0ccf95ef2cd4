"""Iterations, sizes and formulas of the measurements over MPI. Pure functions.

The OSU numbers are those of the OSU micro-benchmarks (osu_util.h, osu_latency.c, osu_bw.c); those of reduce-scatter
follow ucc_perftest (UCC, tools/perf).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PING_PONG, OSU, REDUCE_SCATTER = "ping-pong", "osu", "reduce-scatter"
LARGEST_MESSAGE = (1 << 31) - 1
"""MPI counts bytes and elements of a message with an int."""

# The ping-pong of standard and buffered sends.
PING_PONGS, DELAYS = 3000, 10_000
ROW_SECONDS, FEWEST = 0.1, 20
WARM_UPS, WARM_UP = 3, 10
"""Untimed rounds before each row, and their iterations. The fastest round gives how many fit into ROW_SECONDS."""
THERE_AND_BACK = 2
"""Messages of an iteration of a ping-pong."""
BUFFERED_MESSAGES = 4
"""Room of the attached buffer, in messages. A ping-pong has one message in flight, and the one before it may not be
freed yet. The room is twice that, because the free part of a ring buffer may be split."""

# OSU's latency and bandwidth, for messages up to LARGE bytes and for longer ones.
LARGE = 8192
WINDOW = 64
"""Messages in flight in the bandwidth test."""
LATENCY, LATENCY_SKIPPED = (10_000, 1000), (100, 10)
WINDOWS, WINDOWS_SKIPPED = (100, 20), (10, 2)

# Reduce-scatter, for vectors up to SMALL elements, up to MIDDLE ones, and longer.
SMALL, MIDDLE = 64 << 10, 4 << 20
OPERATIONS, OPERATIONS_SKIPPED = (1000, 200, 20), (100, 20, 2)
ELEMENT = 4
"""Bytes of a float32."""
COPIES = 4
"""Memory of a rank, in vectors: its own, its block, and what MPI may need for the sum."""


@dataclass(frozen=True)
class TimedLoop:
    """How long a loop took on the first rank: `iterations` with messages of `size` bytes, `elapsed` seconds."""

    size: int
    iterations: int
    elapsed: float

    def message_seconds(self, messages: int) -> float:
        """Seconds of each of the `messages` of an iteration: `THERE_AND_BACK`, or those of a `WINDOW`."""
        return self.elapsed / (messages * self.iterations)

    def rate(self, messages: int) -> float:
        """Bytes per second: size × messages × iterations ÷ time."""
        return self.size * messages * self.iterations / self.elapsed


def iterations_by_size(size: int, small_and_large: tuple[int, int]) -> int:
    """OSU's number of iterations for messages of `size` bytes: up to 8192 bytes the first, else the second."""
    return small_and_large[size > LARGE]


def ping_pong_iterations(seconds_each: float) -> int:
    """Iterations of a ping-pong: 3000, or as many of `seconds_each` as take a tenth of a second, but at least 20."""
    return int(min(PING_PONGS, max(FEWEST, ROW_SECONDS / max(seconds_each, 1e-9))))


def iterations_by_count(count: int, small_middle_large: tuple[int, int, int]) -> int:
    """The number of iterations for a vector of `count` elements: up to 64Ki, up to 4Mi, or more."""
    return small_middle_large[(count > SMALL) + (count > MIDDLE)]


def block_elements(count: int, ranks: int) -> int:
    """Elements of the block that a rank keeps: `count` ÷ `ranks`, rounded up."""
    return -(-count // ranks)


def split_by_memory(counts: Sequence[int], ranks: int, room: int) -> tuple[list[int], list[int]]:
    """The counts whose vectors fit in `room` bytes of each rank, and those that do not."""
    needed = {count: COPIES * ELEMENT * block_elements(count, ranks) * ranks for count in counts}
    return [n for n in counts if needed[n] <= room], [n for n in counts if needed[n] > room]


def bus_bandwidth(size: int, seconds: float, ranks: int) -> float | None:
    """Bus bandwidth in bytes per second: size of the whole vector ÷ time × (N − 1) ÷ N.

    So nccl-tests and ucc_perftest define it. Each rank must send and receive at least that, with any algorithm. None
    for one rank, which sends nothing.
    """
    return size / seconds * (ranks - 1) / ranks if ranks > 1 and seconds > 0 else None


def collective_figures(count: int, average: float, least: float, most: float, *, ranks: int) -> dict[str, Any]:
    """The fields of a row of reduce-scatter, from the elements of the vector and the ranks' seconds of an operation."""
    size = count * ELEMENT
    return {
        "size": size,
        "count": count,
        "seconds": average,
        "seconds_min": least,
        "seconds_max": most,
        "bandwidth_bytes_per_second": bus_bandwidth(size, average, ranks),
        "bandwidth_min": bus_bandwidth(size, most, ranks),
        "bandwidth_max": bus_bandwidth(size, least, ranks),
    }

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
class LoopTiming:
    """The time of a compiled loop on the first rank: `iterations` with messages of `size` bytes, `elapsed` seconds."""

    size: int
    iterations: int
    elapsed: float

    def seconds_per_message(self, messages_per_iteration: int) -> float:
        """Return the mean seconds of a message, where an iteration has `messages_per_iteration` messages."""
        return self.elapsed / (messages_per_iteration * self.iterations)

    def bytes_per_second(self, messages_per_iteration: int) -> float:
        """Return the bandwidth of the loop, where an iteration has `messages_per_iteration` messages."""
        return self.size * messages_per_iteration * self.iterations / self.elapsed


def osu_iterations_for_size(size: int, small_and_large_iterations: tuple[int, int]) -> int:
    """Return one of OSU's two numbers of iterations: for messages up to 8192 bytes the first, else the second."""
    return small_and_large_iterations[size > LARGE]


def ping_pong_iterations(iteration_seconds: float) -> int:
    """Return the number of ping-pong iterations: 3000, or fewer if they take over a tenth of a second, at least 20."""
    return int(min(PING_PONGS, max(FEWEST, ROW_SECONDS / max(iteration_seconds, 1e-9))))


def collective_iterations_for_count(element_count: int, iterations_by_length: tuple[int, int, int]) -> int:
    """Return one of three numbers of iterations: for vectors up to 64Ki elements, up to 4Mi, or longer."""
    return iterations_by_length[(element_count > SMALL) + (element_count > MIDDLE)]


def reduced_block_elements(element_count: int, ranks: int) -> int:
    """Return the number of elements of a reduced vector that one rank keeps: `element_count` ÷ `ranks`, rounded up."""
    return -(-element_count // ranks)


def split_counts_by_memory(element_counts: Sequence[int], ranks: int, memory_bytes: int) -> tuple[list[int], list[int]]:
    """Split vector lengths into those whose vectors fit into `memory_bytes` of each rank, and those that do not."""
    needed = {count: COPIES * ELEMENT * reduced_block_elements(count, ranks) * ranks for count in element_counts}
    return [n for n in element_counts if needed[n] <= memory_bytes], [
        n for n in element_counts if needed[n] > memory_bytes
    ]


def reduce_scatter_bus_bandwidth(vector_bytes: int, seconds: float, ranks: int) -> float | None:
    """Return the bus bandwidth of a reduce-scatter in bytes per second: size of the vector ÷ time × (N − 1) ÷ N.

    This is the definition of nccl-tests and ucc_perftest. Each of N ranks must send and receive at least that, with any
    algorithm. None for one rank, which sends nothing.
    """
    return vector_bytes / seconds * (ranks - 1) / ranks if ranks > 1 and seconds > 0 else None


def reduce_scatter_row_fields(
    element_count: int, mean_seconds: float, min_seconds: float, max_seconds: float, *, ranks: int
) -> dict[str, Any]:
    """Return the fields of a reduce-scatter row: size, times and bus bandwidths.

    `mean_seconds`, `min_seconds`, `max_seconds`: mean, least and greatest over ranks of the seconds per operation.
    """
    size = element_count * ELEMENT
    return {
        "size": size,
        "count": element_count,
        "seconds": mean_seconds,
        "seconds_min": min_seconds,
        "seconds_max": max_seconds,
        "bandwidth_bytes_per_second": reduce_scatter_bus_bandwidth(size, mean_seconds, ranks),
        "bandwidth_min": reduce_scatter_bus_bandwidth(size, max_seconds, ranks),
        "bandwidth_max": reduce_scatter_bus_bandwidth(size, min_seconds, ranks),
    }

"""What the ranks of `probe reduce-scatter` run: timed operations, and a check of every result.

Every rank contributes a whole vector of float32; the result on rank r is block r of the vectors' sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from merge_bench.errors import Caution, RunFailed
from merge_bench.probe.ranks.messages import Row, Warn, send_to_driver
from merge_bench.probe.ranks.osu_rules import (
    ELEMENT,
    OPERATIONS,
    OPERATIONS_SKIPPED,
    block_elements,
    iterations_by_count,
    split_by_memory,
)
from merge_bench.probe.ranks.rank import Rank
from merge_bench.probe.shared.exchange_matrix import MOST_RANKS, count_wrong_sums, fill_contribution
from merge_bench.units import format_bytes, format_count


def measure_reduce_scatter(rank: Rank) -> None:
    """Measure every algorithm with vectors of every count that fits into memory, and report each row."""
    spec, ranks = rank.spec, rank.size
    if ranks > MOST_RANKS:
        raise RunFailed(
            f"reduce-scatter cannot be checked with {ranks} ranks: float32 sums are exact only up to {MOST_RANKS}"
            " ranks; use fewer ranks"
        )
    counts = _counts_that_fit(rank, [int(count) for count in spec["counts"]])
    if not counts or not spec["algorithms"]:  # those of ucc_perftest are not measured here
        return
    from merge_bench.probe.ranks import timed_loops  # it loads numba

    loops = {"mpi": timed_loops.reduce_scatter_loop, "reduces": timed_loops.rooted_reduces_loop}
    longest = block_elements(counts[-1], ranks)
    source, target = np.empty(longest * ranks, np.float32), np.empty(longest, np.float32)
    fill_contribution(source, rank.rank)
    rank.watch.reports = rank.rank == 0
    for name in spec["algorithms"]:
        loop = loops[name]()
        for count in counts:
            _measure_count(rank, name, loop, block_elements(count, ranks), source, target)


def _measure_count(rank: Rank, name: str, loop: Any, block: int, source: Any, target: Any) -> None:
    from merge_bench.probe.ranks import timed_loops

    ranks, count = rank.size, block * rank.size
    real, add, comm = timed_loops.mpi_handles(MPI.FLOAT, MPI.SUM, rank.comm)
    room = timed_loops.request_buffers(ranks)

    def mean_seconds(iterations: int) -> float:
        """Mean seconds of an operation on this rank, over so many iterations."""
        rank.watch.touch()
        rank.comm.Barrier()
        inside = loop(source, target, block, iterations, real, add, comm, ranks, *room, rank.done)
        timed_loops.check_status(int(-min(inside, 0)), f"{format_count(count)} elements")
        return float(inside) / iterations

    own_block = target[:block]
    mean_seconds(iterations_by_count(count, OPERATIONS_SKIPPED))
    own_block[:] = -1  # so that results of the warm-up cannot pass the check
    iterations = rank.spec["iterations"] or iterations_by_count(count, OPERATIONS)
    seconds = mean_seconds(iterations)
    wrong = rank.comm.allreduce(count_wrong_sums(own_block, block * rank.rank, ranks))
    reports = rank.comm.allgather((seconds, rank.lanes()))
    if rank.rank == 0:
        lanes = tuple(dict.fromkeys(lane for _, each in reports for lane in each))
        send_to_driver(Row(name, count * ELEMENT, iterations, [each for each, _ in reports], lanes, wrong=wrong))


def _counts_that_fit(rank: Rank, counts: list[int]) -> list[int]:
    """The counts whose vectors fit into the memory of every rank; rank 0 reports a warning about others."""
    from merge_bench.host.memory import available_bytes

    available = int(available_bytes())
    room = rank.comm.allreduce(available // rank.local_ranks, op=MPI.MIN)
    kept, left_out = split_by_memory(counts, rank.size, room)
    if rank.rank == 0 and left_out:
        listed = ", ".join(format_count(count) for count in left_out)
        message = (
            f"vectors of {listed} elements are not measured, because each rank has only {format_bytes(room)} of memory"
        )
        send_to_driver(Warn(Caution("counts-left-out", message, "use fewer ranks per host, or smaller --counts")))
    rank.warn_of_few_cores()
    return kept

"""What the ranks of `probe reduce-scatter` run: timed operations, and a check of every result.

Every rank contributes a whole vector of float32; the result on rank r is block r of the vectors' sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from merge_bench.errors import Caution, RunFailed
from merge_bench.probe.ranks.messages import Row, Warn, send
from merge_bench.probe.ranks.osu_rules import ELEMENT, OPERATIONS, OPERATIONS_SKIPPED, block_of, fitting, loops_of_count
from merge_bench.probe.ranks.rank import Rank
from merge_bench.probe.shared.exchange_matrix import MOST_RANKS, contribute, count_wrong_sums
from merge_bench.units import format_bytes, format_count


def run(rank: Rank) -> None:
    """Measure every algorithm at every count that fits."""
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

    loops = {"mpi": timed_loops.reduce_scatter, "reduces": timed_loops.rooted_reduces}
    longest = block_of(counts[-1], ranks)
    source, target = np.empty(longest * ranks, np.float32), np.empty(longest, np.float32)
    contribute(source, rank.rank)
    rank.watch.reports = rank.rank == 0
    for name in spec["algorithms"]:
        loop = loops[name]()
        for count in counts:
            _measure(rank, name, loop, block_of(count, ranks), source, target)


def _measure(rank: Rank, name: str, loop: Any, block: int, source: Any, target: Any) -> None:
    from merge_bench.probe.ranks import timed_loops

    ranks, count = rank.size, block * rank.size
    real, add, comm = timed_loops.handles(MPI.FLOAT, MPI.SUM, rank.comm)
    room = timed_loops.request_buffers(ranks)

    def times(iterations: int) -> float:
        """Mean seconds of an operation on this rank."""
        rank.watch.touch()
        rank.comm.Barrier()
        inside = loop(source, target, block, iterations, real, add, comm, ranks, *room, rank.done)
        timed_loops.check(int(-min(inside, 0)), f"{format_count(count)} elements")
        return float(inside) / iterations

    mine = target[:block]
    times(loops_of_count(count, OPERATIONS_SKIPPED))
    mine[:] = -1  # so that results of the warm-up cannot pass the check
    iterations = rank.spec["iterations"] or loops_of_count(count, OPERATIONS)
    seconds = times(iterations)
    wrong = rank.comm.allreduce(count_wrong_sums(mine, block * rank.rank, ranks))
    every = rank.comm.allgather((seconds, rank.lanes()))
    if rank.rank == 0:
        lanes = tuple(dict.fromkeys(lane for _, each in every for lane in each))
        send(Row(name, count * ELEMENT, iterations, [each for each, _ in every], lanes, wrong=wrong))


def _counts_that_fit(rank: Rank, counts: list[int]) -> list[int]:
    from merge_bench.host.memory import available_bytes

    available = int(available_bytes())
    room = rank.comm.allreduce(available // rank.local_ranks, op=MPI.MIN)
    kept, left_out = fitting(counts, rank.size, room)
    if rank.rank == 0 and left_out:
        listed = ", ".join(format_count(count) for count in left_out)
        message = (
            f"vectors of {listed} elements are not measured, because each rank has only {format_bytes(room)} of memory"
        )
        send(Warn(Caution("counts-left-out", message, "use fewer ranks per host, or smaller --counts")))
    rank.warn_of_crowd()
    return kept

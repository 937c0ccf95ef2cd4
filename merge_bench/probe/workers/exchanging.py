"""What the workers of `probe all-to-all` run: messages for each pair, exchanged in rounds and checked afterwards.

Buffers, barriers and `transfer` are those of a merge.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from merge_bench.merge.buffer_pool import BufferPool, align
from merge_bench.merge.frame import Bytes
from merge_bench.merge.parcel_sizes import parcel_bytes
from merge_bench.merge.worker import current_plugin
from merge_bench.merge.workload.synthetic import SyntheticSpec
from merge_bench.probe.shared.exchange_matrix import BLANK, Matrix, count_wrong, fill

if TYPE_CHECKING:  # the driver imports this module; UCXX would set variables there, which ranks of MPI inherit
    from merge_bench.merge.exchange.ucx import UcxExchange

HELD = "all-to-all"
WARM_UPS = 3


@dataclass(frozen=True)
class Measured:
    """Seconds of this rank in each round, and how many bytes that arrived in the last one are wrong."""

    seconds: list[float]
    wrong: int


def parcels(spec: SyntheticSpec, workers: int, rank: int) -> tuple[list[int], list[int]]:
    """Bytes of this worker's parcels of both frames (`parcel_bytes`)."""
    return parcel_bytes(spec, rank, workers)


def prepare(frames: Sequence[Matrix]) -> float:
    """Allocate and fill messages for these frames, and warm up; gives the seconds of the fastest round."""
    plugin = current_plugin()
    release()
    plugin.children[HELD] = held = _Held(frames, plugin.exchange.rank)
    return min(held.exchange(plugin.exchange) for _ in range(WARM_UPS))


def measure(rounds: int) -> Measured:
    """Exchange the prepared messages so many times, then check and free them."""
    plugin = current_plugin()
    held = plugin.children[HELD]
    assert isinstance(held, _Held)
    gc.collect()
    gc.disable()
    try:
        seconds = [held.exchange(plugin.exchange) for _ in range(rounds - 1)]
        held.blank()
        seconds.append(held.exchange(plugin.exchange))
    finally:
        gc.enable()
    wrong = held.count_wrong()
    release()
    return Measured(seconds, wrong)


def release() -> None:
    """Free the messages; none may be in flight."""
    current_plugin().children.pop(HELD, None)


class _Held:
    """The messages of one worker in memory that is touched: for each frame one to and one from each peer."""

    def __init__(self, frames: Sequence[Matrix], rank: int) -> None:
        self._rank, self._pool = rank, BufferPool()
        sizes = [(frame[rank], [row[rank] for row in frame]) for frame in frames]
        self._pool.reserve(sum(align(size) for pair in sizes for each in pair for size in each))
        self._frames = [(self._rooms(sends), self._rooms(receives)) for sends, receives in sizes]
        for number, (sends, _) in enumerate(self._frames):
            for peer, message in sends.items():
                fill(message, rank, peer, number)

    def _rooms(self, sizes: Sequence[int]) -> dict[int, Bytes]:
        peers = (peer for peer, size in enumerate(sizes) if size and peer != self._rank)
        return {peer: self._pool.take(sizes[peer]) for peer in peers}

    def exchange(self, exchange: UcxExchange) -> float:
        """Exchange all frames as a merge does, each after a barrier; gives the seconds without the barriers."""
        seconds = 0.0
        for sends, receives in self._frames:
            exchange.barrier()
            seconds += exchange.transfer(sends, receives).seconds
        return seconds

    def blank(self) -> None:
        """Overwrite what arrived, so that bytes of an earlier round cannot pass the check."""
        for _, receives in self._frames:
            for message in receives.values():
                message[:] = BLANK

    def count_wrong(self) -> int:
        """Number of wrong bytes in what arrived."""
        return sum(
            count_wrong(message, peer, self._rank, number)
            for number, (_, receives) in enumerate(self._frames)
            for peer, message in receives.items()
        )

    def end(self) -> None:
        """The memory goes with this object."""

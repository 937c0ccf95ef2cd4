"""What the workers of `probe all-to-all` run: messages for each pair, exchanged in rounds and checked afterwards.

Buffers, barriers and `transfer` are those of a merge.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.merge.exchange.base import Exchange
from merge_bench.merge.frame import Bytes
from merge_bench.merge.memory import BufferPool, aligned_size
from merge_bench.merge.worker import current_plugin
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.synthetic import parcel_bytes
from merge_bench.probe.shared.exchange_matrix import BLANK, Matrix, count_wrong_bytes, fill_message

HELD = "all-to-all"
WARM_UPS = 3


@dataclass(frozen=True)
class Measured:
    """Seconds of this rank in each round, and how many bytes that arrived in the last one are wrong."""

    seconds: list[float]
    wrong: int


def parcel_sizes(spec: SyntheticSpec, workers: int, rank: int) -> tuple[list[int], list[int]]:
    return parcel_bytes(spec, rank, workers)


def prepare_messages(frames: Sequence[Matrix]) -> float:
    """Make the messages of these frames for the data plane, and exchange them untimed.

    Returns the seconds of the fastest round.
    """
    free_messages()
    plugin = current_plugin()
    plugin.children[HELD] = held = HeldMessages(frames, plugin.exchange)
    return min(held.exchange_seconds() for _ in range(WARM_UPS))


def measure_rounds(rounds: int) -> Measured:
    """Exchange the messages that were prepared so many times, then check and free them."""
    plugin = current_plugin()
    held = plugin.children[HELD]
    assert isinstance(held, HeldMessages)
    gc.collect()
    gc.disable()
    try:
        seconds = [held.exchange_seconds() for _ in range(rounds - 1)]
        held.overwrite_received()
        seconds.append(held.exchange_seconds())
    finally:
        gc.enable()
    wrong = held.count_wrong_bytes()
    free_messages()
    return Measured(seconds, wrong)


def free_messages() -> None:
    """Free the messages; none may be in flight."""
    current_plugin().children.pop(HELD, None)


class HeldMessages:
    """The messages of one worker in host memory: for each frame one to and one from each peer.

    The memory has been written to, and is freed with this object.
    """

    def __init__(self, frames: Sequence[Matrix], exchange: Exchange) -> None:
        self._exchange, rank = exchange, exchange.rank
        self._frames = [
            (self._allocate_by_peer(frame[rank]), self._allocate_by_peer([row[rank] for row in frame]))
            for frame in frames
        ]
        for number, (sends, _) in enumerate(self._frames):
            for peer, message in sends.items():
                fill_message(message, sender=rank, receiver=peer, frame=number)

    def _allocate_by_peer(self, sizes: Sequence[int]) -> dict[int, Bytes]:
        """A buffer for each peer that has a message, by its rank."""
        chosen = {peer: size for peer, size in enumerate(sizes) if size and peer != self._exchange.rank}
        pool = BufferPool()
        pool.reserve(sum(map(aligned_size, chosen.values())))
        return {peer: pool.take(size) for peer, size in chosen.items()}

    def exchange_seconds(self) -> float:
        """Exchange all frames as a merge does, each after a barrier; returns the seconds without the barriers."""
        seconds = 0.0
        for sends, receives in self._frames:
            self._exchange.barrier()
            seconds += self._exchange.transfer(sends, receives).seconds
        return seconds

    def overwrite_received(self) -> None:
        """Overwrite what arrived, so that bytes of an earlier round cannot pass the check."""
        for _, receives in self._frames:
            for message in receives.values():
                message.fill(BLANK)

    def count_wrong_bytes(self) -> int:
        return sum(
            count_wrong_bytes(message, peer, self._exchange.rank, number)
            for number, (_, receives) in enumerate(self._frames)
            for peer, message in receives.items()
        )

    def end(self) -> None:
        """The memory is freed with this object."""

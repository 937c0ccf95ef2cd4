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
from merge_bench.merge.workload.synthetic import synthetic_parcel_bytes
from merge_bench.probe.shared.exchange_matrix import BLANK, MessageMatrix, count_wrong_bytes, fill_message

HELD = "all-to-all"
WARM_UPS = 3


@dataclass(frozen=True)
class MeasuredExchangeRounds:
    """The seconds of each round of an exchange on one rank, and its number of wrong bytes after the last round."""

    seconds: list[float]
    wrong: int


def merge_bytes_by_receiver(spec: SyntheticSpec, workers: int, rank: int) -> tuple[list[int], list[int]]:
    """Return the bytes that this rank sends to each rank in a merge: a list for the left frame, one for the right.

    `spec`: the synthetic tables that are merged.
    """
    return synthetic_parcel_bytes(spec, rank, workers)


def prepare_and_time_exchange(frames: Sequence[MessageMatrix]) -> float:
    """Allocate messages with the sizes in `frames`, exchange them 3 times, and return the fastest round's seconds.

    `frames`: bytes from each rank to each, a matrix per frame.
    """
    free_exchange_buffers()
    plugin = current_plugin()
    plugin.children[HELD] = held = ExchangeBuffers(frames, plugin.exchange)
    return min(held.time_one_exchange() for _ in range(WARM_UPS))


def measure_exchange_rounds(rounds: int) -> MeasuredExchangeRounds:
    """Time `rounds` exchanges of the prepared messages, check what the last one received, and free all messages."""
    plugin = current_plugin()
    held = plugin.children[HELD]
    assert isinstance(held, ExchangeBuffers)
    gc.collect()
    gc.disable()
    try:
        seconds = [held.time_one_exchange() for _ in range(rounds - 1)]
        held.overwrite_received_messages()
        seconds.append(held.time_one_exchange())
    finally:
        gc.enable()
    wrong = held.count_wrong_bytes()
    free_exchange_buffers()
    return MeasuredExchangeRounds(seconds, wrong)


def free_exchange_buffers() -> None:
    """Free the messages of this worker; none of them may be in flight."""
    current_plugin().children.pop(HELD, None)


class ExchangeBuffers:
    """The message buffers of one worker in host memory: in each frame one to and one from each peer.

    Every page of the memory has been written to; the memory is freed with this object.
    """

    def __init__(self, frames: Sequence[MessageMatrix], exchange: Exchange) -> None:
        self._exchange, rank = exchange, exchange.rank
        self._frames = [
            (self._allocate_buffers_by_peer(frame[rank]), self._allocate_buffers_by_peer([row[rank] for row in frame]))
            for frame in frames
        ]
        for number, (sends, _) in enumerate(self._frames):
            for peer, message in sends.items():
                fill_message(message, sender=rank, receiver=peer, frame=number)

    def _allocate_buffers_by_peer(self, sizes: Sequence[int]) -> dict[int, Bytes]:
        """Allocate a buffer for each peer that gets or sends a message, and return the buffers by the peer's rank."""
        chosen = {peer: size for peer, size in enumerate(sizes) if size and peer != self._exchange.rank}
        pool = BufferPool()
        pool.reserve_bytes(sum(map(aligned_size, chosen.values())))
        return {peer: pool.take_bytes(size) for peer, size in chosen.items()}

    def time_one_exchange(self) -> float:
        """Exchange the messages of all frames as a merge does, and return the seconds without those of the barriers."""
        seconds = 0.0
        for sends, receives in self._frames:
            self._exchange.barrier()
            seconds += self._exchange.transfer(sends, receives).seconds
        return seconds

    def overwrite_received_messages(self) -> None:
        """Overwrite the received messages, so that bytes of an earlier round cannot pass the check."""
        for _, receives in self._frames:
            for message in receives.values():
                message.fill(BLANK)

    def count_wrong_bytes(self) -> int:
        """Return the number of wrong bytes in the received messages."""
        return sum(
            count_wrong_bytes(message, peer, self._exchange.rank, number)
            for number, (_, receives) in enumerate(self._frames)
            for peer, message in receives.items()
        )

    def end(self) -> None:
        """Free nothing when the launch ends: the buffers' memory is freed with this object."""

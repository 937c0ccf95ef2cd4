"""What the workers of `probe all-to-all` run: messages for each pair, exchanged in rounds and checked afterwards.

Buffers, barriers and `transfer` are those of a merge.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.frame import Bytes
from merge_bench.merge.memory import BufferPool, aligned_size
from merge_bench.merge.worker import current_plugin
from merge_bench.merge.workload.synthetic import SyntheticSpec, parcel_bytes
from merge_bench.probe.shared.exchange_matrix import BLANK, Matrix, count_wrong_bytes, fill_message

HELD = "all-to-all"
WARM_UPS = 3


@dataclass(frozen=True)
class Measured:
    """Seconds of this rank in each round, and how many bytes that arrived in the last one are wrong."""

    seconds: list[float]
    wrong: int


def parcel_sizes(spec: SyntheticSpec, workers: int, rank: int) -> tuple[list[int], list[int]]:
    """Bytes that this rank sends to each rank in a merge, of the left and of the right frame."""
    return parcel_bytes(spec, rank, workers)


def prepare_messages(frames: Sequence[Matrix], *, device: bool = False) -> float:
    """Make the messages of these frames for the data plane, and exchange them untimed; `device`: in GPU memory.

    Returns the seconds of the fastest round.
    """
    free_messages()
    exchange = current_plugin().exchange
    return keep_and_warm_up(HeldMessages(frames, exchange.rank, exchange, DeviceMemory() if device else HostMemory()))


def keep_and_warm_up(held: HeldMessages) -> float:
    """Keep messages for `measure_rounds`, and exchange them three times; returns the seconds of the fastest round."""
    current_plugin().children[HELD] = held
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


class MessageExchange(Protocol):
    """What carries messages: the data plane of a merge, or NCCL."""

    def barrier(self) -> object:
        """Return when all ranks are here."""

    def transfer(self, sends: Any, receives: Any) -> Any:
        """Exchange messages by peer; the result has the ``seconds`` until all are there."""


class HostMemory:
    """Memory for messages: host memory, which has been written to."""

    def allocate_messages(self, sizes: Sequence[int]) -> list[Any]:
        """A buffer of each size; those of one call follow each other in memory."""
        pool = BufferPool()
        pool.reserve(sum(aligned_size(size) for size in sizes))
        return [pool.take(size) for size in sizes]

    def write(self, message: Any, fill_in: Callable[[Bytes], None]) -> None:
        """Have `fill_in` write the contents of a message."""
        fill_in(message)

    def read(self, message: Any) -> Bytes:
        contents: Bytes = message
        return contents


class DeviceMemory(HostMemory):
    """Memory for messages: GPU memory from the pool of a merge. A CUDA context is bound in this thread."""

    def allocate_messages(self, sizes: Sequence[int]) -> list[Any]:
        (whole,) = gpu_memory.allocate([sum(sizes)])
        ends = np.cumsum(sizes, dtype=np.int64).tolist()
        return [whole[end - size : end] for end, size in zip(ends, sizes, strict=True)]

    def write(self, message: Any, fill_in: Callable[[Bytes], None]) -> None:
        content = np.empty(message.size, np.uint8)
        fill_in(content)
        gpu_memory.upload(content, message)

    def read(self, message: Any) -> Bytes:
        content = np.empty(message.size, np.uint8)
        gpu_memory.download(message, content)
        return content


class HeldMessages:
    """The messages of one worker: for each frame one to and one from each peer.

    `own`: also one to the worker itself, where the frame has one.
    """

    def __init__(
        self, frames: Sequence[Matrix], rank: int, exchange: MessageExchange, store: HostMemory, *, own: bool = False
    ) -> None:
        self._rank, self._exchange, self._store, self._own = rank, exchange, store, own
        self._frames = [
            (self._allocate_by_peer(frame[rank]), self._allocate_by_peer([row[rank] for row in frame]))
            for frame in frames
        ]
        for number, (sends, _) in enumerate(self._frames):
            for peer, message in sends.items():
                store.write(message, functools.partial(fill_message, sender=rank, receiver=peer, frame=number))

    def _allocate_by_peer(self, sizes: Sequence[int]) -> dict[int, Any]:
        """A buffer for each peer that has a message, by its rank."""
        chosen = {peer: size for peer, size in enumerate(sizes) if size and (self._own or peer != self._rank)}
        return dict(zip(chosen, self._store.allocate_messages(list(chosen.values())), strict=True))

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
                self._store.write(message, lambda room: room.fill(BLANK))

    def count_wrong_bytes(self) -> int:
        """How many bytes that arrived are wrong."""
        return sum(
            count_wrong_bytes(self._store.read(message), peer, self._rank, number)
            for number, (_, receives) in enumerate(self._frames)
            for peer, message in receives.items()
        )

    def end(self) -> None:
        """Nothing: the memory is freed with this object."""

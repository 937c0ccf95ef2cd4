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

from merge_bench.merge.buffer_pool import BufferPool, aligned_size
from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.frame import Bytes
from merge_bench.merge.worker import current_plugin
from merge_bench.merge.workload.synthetic import SyntheticSpec, parcel_bytes
from merge_bench.probe.shared.exchange_matrix import BLANK, Matrix, count_wrong, fill

HELD = "all-to-all"
WARM_UPS = 3


@dataclass(frozen=True)
class Measured:
    """Seconds of this rank in each round, and how many bytes that arrived in the last one are wrong."""

    seconds: list[float]
    wrong: int


def parcels(spec: SyntheticSpec, workers: int, rank: int) -> tuple[list[int], list[int]]:
    return parcel_bytes(spec, rank, workers)


def prepare(frames: Sequence[Matrix], *, device: bool = False) -> float:
    """Make messages for these frames of the data plane, and `warm_up`. `device`: in GPU memory."""
    release()
    exchange = current_plugin().exchange
    return warm_up(Held(frames, exchange.rank, exchange, OnDevice() if device else OnHost()))


def warm_up(held: Held) -> float:
    """Keep these messages for `measure`, and exchange them some times; gives the seconds of the fastest round."""
    current_plugin().children[HELD] = held
    return min(held.exchange() for _ in range(WARM_UPS))


def measure(rounds: int) -> Measured:
    """Exchange the prepared messages so many times, then check and free them."""
    plugin = current_plugin()
    held = plugin.children[HELD]
    assert isinstance(held, Held)
    gc.collect()
    gc.disable()
    try:
        seconds = [held.exchange() for _ in range(rounds - 1)]
        held.blank()
        seconds.append(held.exchange())
    finally:
        gc.enable()
    wrong = held.count_wrong()
    release()
    return Measured(seconds, wrong)


def release() -> None:
    """Free the messages; none may be in flight."""
    current_plugin().children.pop(HELD, None)


class Exchange(Protocol):
    """What carries messages: the data plane of a merge, or NCCL."""

    def barrier(self) -> object:
        """Return when all ranks are here."""

    def transfer(self, sends: Any, receives: Any) -> Any:
        """Exchange messages by peer; the result has the ``seconds`` until all are there."""


class OnHost:
    """Memory for messages: host memory that is touched."""

    def rooms(self, sizes: Sequence[int]) -> list[Any]:
        """A message of each size; all of one call follow each other."""
        pool = BufferPool()
        pool.reserve(sum(aligned_size(size) for size in sizes))
        return [pool.take(size) for size in sizes]

    def write(self, message: Any, fill_in: Callable[[Bytes], None]) -> None:
        """Have `fill_in` write the contents."""
        fill_in(message)

    def read(self, message: Any) -> Bytes:
        contents: Bytes = message
        return contents


class OnDevice(OnHost):
    """GPU memory, from the pool of a merge. A context is bound in this thread."""

    def rooms(self, sizes: Sequence[int]) -> list[Any]:
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


class Held:
    """The messages of one worker: for each frame one to and one from each peer.

    `own`: also one to the worker itself, where the frame has one.
    """

    def __init__(
        self, frames: Sequence[Matrix], rank: int, exchange: Exchange, store: OnHost, *, own: bool = False
    ) -> None:
        self._rank, self._exchange, self._store, self._own = rank, exchange, store, own
        self._frames = [(self._rooms(frame[rank]), self._rooms([row[rank] for row in frame])) for frame in frames]
        for number, (sends, _) in enumerate(self._frames):
            for peer, message in sends.items():
                store.write(message, functools.partial(fill, sender=rank, receiver=peer, frame=number))

    def _rooms(self, sizes: Sequence[int]) -> dict[int, Any]:
        chosen = {peer: size for peer, size in enumerate(sizes) if size and (self._own or peer != self._rank)}
        return dict(zip(chosen, self._store.rooms(list(chosen.values())), strict=True))

    def exchange(self) -> float:
        """Exchange all frames as a merge does, each after a barrier; gives the seconds without the barriers."""
        seconds = 0.0
        for sends, receives in self._frames:
            self._exchange.barrier()
            seconds += self._exchange.transfer(sends, receives).seconds
        return seconds

    def blank(self) -> None:
        """Overwrite what arrived, so that bytes of an earlier round cannot pass the check."""
        for _, receives in self._frames:
            for message in receives.values():
                self._store.write(message, lambda room: room.fill(BLANK))

    def count_wrong(self) -> int:
        return sum(
            count_wrong(self._store.read(message), peer, self._rank, number)
            for number, (_, receives) in enumerate(self._frames)
            for peer, message in receives.items()
        )

    def end(self) -> None:
        """The memory goes with this object."""

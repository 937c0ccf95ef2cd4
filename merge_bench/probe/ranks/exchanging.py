"""What the workers of `probe all-to-all` run: messages for each pair, exchanged in rounds and checked afterwards.

Buffers, barriers and `transfer` are those of a merge, or with ``--backend nccl`` those of NCCL through nccl4py, which
only this module uses: each worker is then a rank with a GPU of its own.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from merge_bench.errors import MergeBenchError, RunFailed, UsageError, first_line
from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.engines.gpu_memory import DeviceBytes
from merge_bench.merge.exchange.base import ORPHANED_SECONDS, Abort, Flight
from merge_bench.merge.frame import Bytes
from merge_bench.merge.memory import BufferPool, aligned_size
from merge_bench.merge.worker import current_plugin
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.merge.workload.synthetic import parcel_bytes
from merge_bench.probe.shared.exchange_matrix import BLANK, Matrix, count_wrong_bytes, fill_message

HELD, NCCL_RANK = "all-to-all", "nccl"
WARM_UPS = 3
WATCH_SECONDS = 0.1
_GOOD_STATUSES = (0, 7)  # ncclSuccess, ncclInProgress


@dataclass(frozen=True)
class Measured:
    """Seconds of this rank in each round, and how many bytes that arrived in the last one are wrong."""

    seconds: list[float]
    wrong: int


def parcel_sizes(spec: SyntheticSpec, workers: int, rank: int) -> tuple[list[int], list[int]]:
    return parcel_bytes(spec, rank, workers)


def prepare_messages(frames: Sequence[Matrix], *, device: bool = False) -> float:
    """Make the messages of these frames for the data plane, and exchange them untimed; `device`: in GPU memory.

    Returns the seconds of the fastest round.
    """
    free_messages()
    exchange = current_plugin().exchange
    return keep_and_warm_up(HeldMessages(frames, exchange.rank, exchange, DeviceMemory() if device else HostMemory()))


def keep_and_warm_up(held: HeldMessages) -> float:
    """Keep messages for `measure_rounds`, and warm up; returns the seconds of the fastest round."""
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
    """Memory for messages: host memory, which has been written to. Messages of one call follow each other."""

    def allocate_messages(self, sizes: Sequence[int]) -> list[Any]:
        pool = BufferPool()
        pool.reserve(sum(aligned_size(size) for size in sizes))
        return [pool.take(size) for size in sizes]

    def write(self, message: Any, fill_in: Callable[[Bytes], None]) -> None:
        fill_in(message)

    def read(self, message: Any) -> Any:
        return message


class DeviceMemory(HostMemory):
    """Memory for messages: GPU memory from the pool of a merge. A CUDA context is bound in this thread."""

    def allocate_messages(self, sizes: Sequence[int]) -> list[Any]:
        (whole,) = gpu_memory.allocate([sum(sizes)])
        ends = np.cumsum(sizes, dtype=np.int64).tolist()
        return [whole[end - size : end] for end, size in zip(ends, sizes, strict=True)]

    def write(self, message: DeviceBytes, fill_in: Callable[[Bytes], None]) -> None:
        content = np.empty(message.size, np.uint8)
        fill_in(content)
        gpu_memory.upload(content, message)

    def read(self, message: DeviceBytes) -> Any:
        content = np.empty(message.size, np.uint8)
        gpu_memory.download(message, content)
        return content


class HeldMessages:
    """The messages of one worker: for each frame one to and one from each peer, with `own` also to itself."""

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
        return sum(
            count_wrong_bytes(self._store.read(message), peer, self._rank, number)
            for number, (_, receives) in enumerate(self._frames)
            for peer, message in receives.items()
        )

    def end(self) -> None:
        """The memory is freed with this object."""


def nccl_version() -> str:
    """Versions of NCCL and nccl4py; raises UsageError if one of them is missing here."""
    versions = _load_nccl().get_version()
    if versions.libnccl is None:
        raise UsageError(
            "--backend nccl needs NCCL's library libnccl.so.2, which cannot be loaded; run: pip install"
            " nvidia-nccl-cu13, or with a CUDA 12 driver: pip install nvidia-nccl-cu12"
        )
    library = str(versions.libnccl).partition(" @ ")[0]  # without its path
    return f"NCCL {library} through nccl4py {versions.nccl4py}"


def new_communicator_id() -> bytes:
    """The id of a new communicator, which one rank makes and all ranks need to `connect`."""
    nccl_version()
    with _raising_run_failed("make an id for its ranks"):
        return bytes(_load_nccl().get_unique_id())


def connect_nccl(ranks: int, identifier: bytes, rank: int) -> str:
    """Make this worker one of the `ranks` of a communicator; all call it at once. Returns `nccl_version`."""
    nccl = nccl_version()
    plugin = current_plugin()
    plugin.children[NCCL_RANK] = NcclRank(ranks, identifier, rank, plugin.abort)
    return nccl


def prepare_nccl_messages(frames: Sequence[Matrix], rank: int) -> float:
    """Make the messages of these frames in GPU memory and warm up; returns the seconds of the fastest round."""
    free_messages()
    held = current_plugin().children[NCCL_RANK]
    assert isinstance(held, NcclRank)
    own = len({size for frame in frames for row in frame for size in row}) == 1
    return keep_and_warm_up(HeldMessages(frames, rank, held, DeviceMemory(), own=own))


def close_nccl() -> None:
    """Free the messages and leave the communicator; all ranks call it at once."""
    free_messages()
    held = current_plugin().children.pop(NCCL_RANK)
    assert isinstance(held, NcclRank)
    held.close()


class NcclRank:
    """A rank of a communicator: a `MessageExchange` whose messages are `DeviceBytes`.

    Calls enqueue work on a CUDA stream, and are timed until it is done.
    """

    def __init__(self, ranks: int, identifier: bytes, rank: int, abort: Abort) -> None:
        self._nccl, self._ranks, self._rank, self._abort = _load_nccl(), ranks, rank, abort
        self._over = threading.Event()
        gpu_memory.load_rapids()
        self._stream = gpu_memory.own_stream()
        (self._token,) = gpu_memory.allocate([1])
        with _raising_run_failed("connect its ranks", abort):
            self._communicator = self._nccl.Communicator.init(ranks, rank, self._nccl.UniqueId.from_bytes(identifier))
        threading.Thread(target=self._abort_if_left_alone, name="nccl-watch", daemon=True).start()

    def barrier(self) -> None:
        """Return when all ranks are here: a sum over one byte of each."""
        with _raising_run_failed("wait for all ranks", self._abort):
            self._communicator.allreduce(self._token, self._token, self._nccl.SUM, stream=self._stream)
            self._wait_for_stream()

    def transfer(self, sends: Mapping[int, DeviceBytes], receives: Mapping[int, DeviceBytes]) -> Flight:
        """Exchange messages by peer: with ncclAlltoAll if a rank sends to itself, too, else with single sends.

        Those of ncclAlltoAll have one size and follow each other in memory.
        """
        began = time.perf_counter()
        with _raising_run_failed("exchange messages", self._abort):
            if self._rank in sends:
                self._communicator.alltoall(_as_one_message(sends), _as_one_message(receives), stream=self._stream)
            else:
                self._nccl.group_start()
                try:
                    for peer, message in sends.items():
                        self._communicator.send(message, peer, stream=self._stream)
                    for peer, message in receives.items():
                        self._communicator.recv(message, peer, stream=self._stream)
                finally:
                    self._nccl.group_end()
            self._wait_for_stream()
        return Flight(seconds=time.perf_counter() - began)

    def _wait_for_stream(self) -> None:
        gpu_memory.synchronize()
        status = int(self._communicator.get_async_error())
        if status not in _GOOD_STATUSES:
            raise RunFailed(f"NCCL failed with status {status}: {self._communicator.get_last_error()}")

    def _abort_if_left_alone(self) -> None:
        """Abort NCCL's calls if a peer failed, the run was aborted, or its driver does not answer: a thread."""
        gpu_memory.bind_context()
        while not self._over.wait(WATCH_SECONDS):
            with contextlib.suppress(Exception):  # the communicator may be ending
                failed = self._abort.is_abandoned(ORPHANED_SECONDS)
                if failed or int(self._communicator.get_async_error()) not in _GOOD_STATUSES:
                    self.end()

    def close(self) -> None:
        """Leave the communicator, together with all ranks."""
        if not self._over.is_set():
            self._over.set()
            with _raising_run_failed("end", self._abort):
                self._communicator.destroy()

    def end(self) -> None:
        if not self._over.is_set():
            self._over.set()
            with contextlib.suppress(Exception):
                self._communicator.abort()


def _as_one_message(messages: Mapping[int, DeviceBytes]) -> DeviceBytes:
    """The messages, which follow each other in memory."""
    return DeviceBytes(messages[0].ptr, sum(each.size for each in messages.values()), messages[0].owner)


def _load_nccl() -> Any:
    try:
        import nccl.core
    except ImportError as error:
        from merge_bench.config.installation import how_to_set_up

        raise UsageError(
            f"--backend nccl needs the package nccl4py, which cannot be loaded: {first_line(error)}; run:"
            f" {how_to_set_up('cu13')}, or with a CUDA 12 driver: {how_to_set_up('cu12')}"
        ) from error
    return nccl.core


@contextlib.contextmanager
def _raising_run_failed(doing: str, abort: Abort | None = None) -> Iterator[None]:
    """Raise `RunFailed` for every error of NCCL; if the run was aborted, raise the reason of that instead."""
    try:
        yield
    except MergeBenchError:
        raise
    except Exception as error:  # NCCLError, NcclInvalid, and what cuda-core and RMM raise
        if abort is not None:
            abort.check()
        raise RunFailed(f"NCCL could not {doing}: {first_line(error)}") from error

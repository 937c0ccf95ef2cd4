"""What the workers of `probe all-to-all --backend nccl` run. Only this module uses NCCL, through nccl4py.

Each worker is a rank with a GPU of its own. Calls enqueue work on a CUDA stream, and are timed until it is done.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merge_bench.errors import MergeBenchError, RunFailed, UsageError, first_line
from merge_bench.host import cuda_context
from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.engines.gpu_memory import DeviceBytes
from merge_bench.merge.exchange.base import ORPHANED_SECONDS, Abort
from merge_bench.merge.worker import current_plugin
from merge_bench.probe.shared.exchange_matrix import Matrix
from merge_bench.probe.workers import exchanging

RANK = "nccl"
WATCH_SECONDS = 0.1
_GOOD_STATUSES = (0, 7)  # ncclSuccess, ncclInProgress


@dataclass(frozen=True)
class Flight:
    """How long an exchange took."""

    seconds: float


def nccl_version() -> str:
    """Versions of NCCL and nccl4py.

    Raises UsageError if one of them is missing here.
    """
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


def connect(ranks: int, identifier: bytes, rank: int) -> str:
    """Make this worker one of the `ranks` of a communicator; all call it at once. Returns `nccl_version`."""
    nccl = nccl_version()
    plugin = current_plugin()
    plugin.children[RANK] = NcclRank(ranks, identifier, rank, plugin.abort)
    return nccl


def prepare_messages(frames: Sequence[Matrix], rank: int) -> float:
    """Make the messages of these frames in GPU memory and warm up; returns the seconds of the fastest round."""
    exchanging.free_messages()
    held = current_plugin().children[RANK]
    assert isinstance(held, NcclRank)
    own = len({size for frame in frames for row in frame for size in row}) == 1
    return exchanging.keep_and_warm_up(exchanging.HeldMessages(frames, rank, held, exchanging.DeviceMemory(), own=own))


def close() -> None:
    """Free the messages and leave the communicator; all ranks call it at once."""
    exchanging.free_messages()
    held = current_plugin().children.pop(RANK)
    assert isinstance(held, NcclRank)
    held.close()


class NcclRank:
    """A rank of a communicator: an `exchanging.MessageExchange` whose messages are `DeviceBytes`."""

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
        return Flight(time.perf_counter() - began)

    def _wait_for_stream(self) -> None:
        gpu_memory.synchronize()
        status = self._status()
        if status not in _GOOD_STATUSES:
            raise RunFailed(f"NCCL failed with status {status}: {self._communicator.get_last_error()}")

    def _status(self) -> int:
        return int(self._communicator.get_async_error())

    def _abort_if_left_alone(self) -> None:
        """Abort NCCL's calls if a peer failed, the run was aborted, or its driver does not answer: a thread."""
        cuda_context.bind()
        while not self._over.wait(WATCH_SECONDS):
            with contextlib.suppress(Exception):  # the communicator may be ending
                if self._abort.is_abandoned(ORPHANED_SECONDS) or self._status() not in _GOOD_STATUSES:
                    self._over.set()
                    self._communicator.abort()

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
    """The messages, which follow each other in memory, as one message."""
    first = messages[0]
    return DeviceBytes(first.ptr, sum(each.size for each in messages.values()), first.owner)


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

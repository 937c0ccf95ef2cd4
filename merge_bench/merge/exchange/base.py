"""What every data plane offers a worker that exchanges rows by itself."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from merge_bench.errors import RunFailed
from merge_bench.merge.plan import Plan
from merge_bench.records.schema import UcxProtocolRange

ORPHANED_SECONDS = 60.0
"""Seconds without a heartbeat of the driver, after which work on a cluster that keeps running ends by itself."""
STALL_FACTOR = 4  # × timeout without one byte ends a run even while heartbeats arrive


class AbortFlag:
    """A flag that makes every wait of a worker end, with the time of the driver's last heartbeat.

    The driver's calls reach the worker on Dask's event loop while the exchanging thread waits; both sides are
    thread-safe.
    """

    def __init__(self) -> None:
        self._reason: str | None = None
        self.last_heartbeat = time.monotonic()

    def abort_run(self, reason: str) -> None:
        """Set the flag, so that every wait of this worker ends with `RunFailed(reason)`."""
        if self._reason is None:
            self._reason = reason

    def clear_abort(self) -> None:
        """Clear the flag, and note a heartbeat."""
        self._reason = None
        self.note_heartbeat()

    def note_heartbeat(self) -> None:
        """Note the present time as that of the driver's last heartbeat."""
        self.last_heartbeat = time.monotonic()

    @property
    def is_aborted(self) -> bool:
        """Whether the flag is set: the run was aborted."""
        return self._reason is not None

    def is_aborted_or_orphaned(self, heartbeat_limit: float) -> bool:
        """Whether the run was aborted, or its driver has sent no heartbeat for more than `heartbeat_limit` seconds."""
        return self._reason is not None or time.monotonic() - self.last_heartbeat > heartbeat_limit

    def is_stalled(self, silent_seconds: float, timeout: float) -> bool:
        """Whether a wait has to end after `silent_seconds` without progress.

        After `timeout` seconds it ends if there was no heartbeat either, otherwise after `STALL_FACTOR` times as many.
        """
        if silent_seconds < timeout:
            return False
        return silent_seconds >= STALL_FACTOR * timeout or time.monotonic() - self.last_heartbeat >= timeout

    def raise_if_aborted(self) -> None:
        """Raise `RunFailed` with the reason if the run was aborted."""
        reason = self._reason
        if reason is not None:
            raise RunFailed(reason)


WINDOW_BYTES = 16 << 20  # sends of a worker in flight at once: later pieces must not delay earlier ones
LEAST_SHARE = 64 << 10  # for each peer, however many there are: shorter messages cost more than they save
PAGE = 4096  # longer messages end at multiples of it


def in_flight_bytes_per_peer(workers: int) -> int:
    """Return how many bytes a worker may have in flight to one peer, at most; the same on all workers.

    A peer that receives nothing blocks only its own share of the window, so it does not delay other peers.
    """
    return max(LEAST_SHARE, WINDOW_BYTES // max(1, workers - 1))


def longest_message_bytes(workers: int, message_bytes: int) -> int:
    """Return the length of the messages, in bytes, into which sender and receiver cut a parcel.

    It is half of `in_flight_bytes_per_peer`, so that one message is posted while another is in flight, and at most
    `message_bytes` (0: no limit).
    """
    half = in_flight_bytes_per_peer(workers) // 2 // PAGE * PAGE
    return min(message_bytes or half, half)


@dataclass
class FrameTransfer:
    """The bytes that one worker sent and received of one frame, and the seconds that took."""

    sent_bytes: int = 0
    seconds: float = 0.0  # of the interval in which transfers were in flight
    arrived: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Per source rank, bytes and seconds from the first receive posted to the last one completed."""
    batches: dict[tuple[int, bool], tuple[float, float, int]] = field(default_factory=dict)
    """If they were noted: by peer and whether they were received, when the messages were posted, when the last one was
    complete, and their bytes."""


@dataclass
class PendingMessage:
    """A message that was posted and may not be complete: UCXX's request, the peer's rank, and the buffer.

    `piece`: in a pipelined exchange, the number of the piece to which the message belongs.
    """

    request: Any
    peer: int
    receive: bool
    buffer: Any
    piece: int | None = None


class TransferTimer:
    """Measures the seconds in which at least one transfer was in flight.

    `first` and `last`: when the first transfer began and the last one ended; None before.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.first: float | None = None
        self.last: float | None = None
        self._count, self._since = 0, 0.0

    def begin_transfer(self, now: float) -> None:
        """Count a transfer as in flight from `now` on (seconds of a clock)."""
        if self.first is None:
            self.first = now
        if self._count == 0:
            self._since = now
        self._count += 1

    def end_transfer(self, now: float) -> None:
        """Count a transfer as ended at `now` (seconds of a clock)."""
        self._count -= 1
        self.last = now
        if self._count == 0:
            self.seconds += now - self._since


class Exchange(ABC):
    """One worker's end of a data plane: it sends rows to all other workers, and receives theirs.

    All workers call the same collective operations in the same order. Every wait ends with `RunFailed` if the run is
    aborted, or nothing arrives for too long.
    """

    title: ClassVar[str]
    """The name of the data plane in errors, as in ``opening UCX``."""
    kept_bytes: int = 0
    """Bytes of this worker's memory that peers may still use after `close`; they are never freed."""

    def __init__(self, rank: int, workers: int, *, abort: AbortFlag) -> None:
        self.rank, self.workers, self.abort = rank, workers, abort

    @classmethod
    @abstractmethod
    def from_plan(cls, plan: Plan, rank: int, abort: AbortFlag) -> Exchange:
        """Make this worker's end of the data plane that the plan names."""

    @property
    @abstractmethod
    def address(self) -> bytes:
        """The address of this worker, with which its peers connect to it."""

    @abstractmethod
    def connect(self, addresses: Sequence[bytes]) -> None:
        """Connect to every other worker and exchange a first message with each.

        `addresses`: of all workers, by rank.
        """

    @abstractmethod
    def transfer(
        self, sends: Mapping[int, Any], receives: Mapping[int, Any], *, note_batches: bool = False
    ) -> FrameTransfer:
        """Send the buffers of `sends` to their peers while receiving into those of `receives`; waits until all is done.

        Both map peers' ranks to buffers: contiguous ones or `ByteRuns`, in host or device memory. Both sides must agree
        on their sizes; empty ones are skipped. `note_batches`: also fill in `FrameTransfer.batches`.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connections; after that, peers no longer use this worker's memory, except for `kept_bytes`.

        This waits at most a second for the peers, and after an aborted run some seconds more.
        """

    @property
    def peers(self) -> list[int]:
        """The ranks of all other workers, in the order in which this one sends to them."""
        return [(self.rank + step) % self.workers for step in range(1, self.workers)]

    @property
    def effective_config(self) -> dict[str, str]:
        """The effective UCX settings under their full names; empty without UCX."""
        return {}

    def describe_endpoints(self) -> dict[int, tuple[list[str], list[UcxProtocolRange]]]:
        """Return the lanes that UCX selected for each peer, and the protocols by message size; {} without UCX."""
        return {}

    def statistics(self) -> dict[str, float]:
        """Return the counters of the data plane's library since it was opened; {} if it has none."""
        return {}

    def barrier(self) -> float:
        """Wait until every worker has entered the barrier; returns the seconds waited.

        A dissemination barrier (Hensgen, Finkel and Manber 1988): ceil(log2 W) rounds, and no rank leaves before all
        have come.
        """
        import numpy as np

        start = time.perf_counter()
        distance, token = 1, np.zeros(1, np.uint8)
        while distance < self.workers:
            to, source = (self.rank + distance) % self.workers, (self.rank - distance) % self.workers
            self.transfer({to: token}, {source: np.empty(1, np.uint8)})
            distance *= 2
        return time.perf_counter() - start

    def measure_barrier_seconds(self) -> float:
        """Return the shortest of a few barriers in seconds: a bound on how far apart workers leave a barrier."""
        return min(self.barrier() for _ in range(5)) if self.peers else 0.0


@runtime_checkable
class MessageExchange(Protocol):
    """A data plane that sends and receives single messages, as a `PipelinedExchange` requires."""

    workers: int
    message_bytes: int
    abort: AbortFlag

    @property
    def peers(self) -> list[int]:
        """The ranks of all other workers, in the order in which this one sends to them."""

    def reserve_operations(self, count: int) -> int:
        """Reserve `count` operation numbers for `post_message`, the same on all workers; returns the first."""

    def post_message(
        self, buffer: Any, peer: int, operation: int, sequence_number: int, *, receive: bool
    ) -> PendingMessage:
        """Start to send or receive one message.

        Messages of one operation and sequence number between two ranks keep order.
        """

    def progress(self) -> bool:
        """Make UCX progress its transfers once, without the interpreter's lock.

        Returns whether there was anything to do.
        """

    def raise_if_failed(self, message: PendingMessage) -> None:
        """Raise `RunFailed` if a completed message ended with an error."""

    def raise_if_stalled(self, pending: list[PendingMessage], last_byte_time: float) -> None:
        """Raise `RunFailed` if no byte has arrived for too long since `last_byte_time` (`time.monotonic`)."""

    def abandon_messages(self, pending: Iterable[PendingMessage]) -> None:
        """Stop waiting for messages that may still be in flight; `close` does not free their memory."""


@dataclass(frozen=True)
class PackedTable:
    """A table partitioned for all workers: packed `chunks` by rank, and their `sizes` in bytes by rank."""

    chunks: Mapping[int, Any]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class ShuffledTable:
    """The packed chunks of one table that a worker received, its own included, and the seconds that took."""

    chunks: Sequence[Any]
    seconds: float


@runtime_checkable
class TableExchange(Protocol):
    """A data plane that partitions, sends and concatenates whole tables."""

    def partition_and_pack_table(self, table: Any, keys: Sequence[int]) -> PackedTable:
        """Partition a table by the hash of its key columns (`keys`: their positions), and pack the rows for each rank.

        This may return before the device has finished. Rows with equal keys go to the same rank from all workers.
        """

    def shuffle(self, tables: Sequence[PackedTable]) -> list[ShuffledTable]:
        """Exchange packed tables with all workers at once; waits until this worker has received all of its chunks."""

    def concatenate_chunks(self, shuffled: ShuffledTable) -> Any:
        """Concatenate the received chunks to one table, and free their memory; None if there is no chunk."""

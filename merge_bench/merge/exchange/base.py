"""What every data plane offers a worker that exchanges rows by itself."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from merge_bench.merge.exchange.abort import Abort
from merge_bench.merge.exchange.in_flight import Flight, Pending
from merge_bench.merge.plan import Plan
from merge_bench.records.schema import SizeRange

STALL_FACTOR = 4  # × timeout without one byte ends a run even while heartbeats arrive


class Exchange(ABC):
    """One worker's end of the data plane.

    All workers call the same collective operations in the same order. Every wait ends with `RunFailed` if `abort` is
    set, or nothing arrives for too long.
    """

    title: ClassVar[str]
    """What is being opened, in errors."""

    def __init__(self, rank: int, workers: int, *, abort: Abort) -> None:
        self.rank, self.workers, self.abort = rank, workers, abort

    @classmethod
    @abstractmethod
    def of_plan(cls, plan: Plan, rank: int, abort: Abort) -> Exchange:
        """This worker's end of the data plane that `plan` describes."""

    @property
    @abstractmethod
    def address(self) -> bytes:
        """What peers need to reach this worker."""

    @abstractmethod
    def connect(self, addresses: Sequence[bytes]) -> None:
        """Connect to every other worker, whose address is at its rank, and exchange a first message with each."""

    @abstractmethod
    def transfer(self, sends: Mapping[int, Any], receives: Mapping[int, Any], *, noted: bool = False) -> Flight:
        """Send the buffers of `sends` to their peers while receiving into those of `receives`; waits until all is done.

        Buffers are contiguous or `Runs`, in host or device memory. Both sides must agree on the sizes of buffers and
        runs; empty ones are skipped. `noted`: fill `Flight.batches` as well.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connections; waits at most a second for the peers."""

    @property
    def peers(self) -> list[int]:
        """All other workers, in the order in which this one sends to them."""
        return [(self.rank + step) % self.workers for step in range(1, self.workers)]

    @property
    def effective_config(self) -> dict[str, str]:
        """The settings of UCX, under their full names; empty without UCX."""
        return {}

    def endpoints(self) -> dict[int, tuple[list[str], list[SizeRange]]]:
        """For each peer the lanes that UCX selected, and the protocols of messages by size; empty without UCX."""
        return {}

    def barrier(self) -> float:
        """Wait until every worker has entered; returns the seconds waited.

        A dissemination barrier (Hensgen, Finkel and Manber 1988): ceil(log2 W) rounds, and no rank leaves before all
        have come.
        """
        start = time.perf_counter()
        distance, token = 1, np.zeros(1, np.uint8)
        while distance < self.workers:
            to, source = (self.rank + distance) % self.workers, (self.rank - distance) % self.workers
            self.transfer({to: token}, {source: np.empty(1, np.uint8)})
            distance *= 2
        return time.perf_counter() - start

    def round_trip(self) -> float:
        """Seconds of the slowest first message to and from a neighbour: a bound on the barrier's skew."""
        return min(self.barrier() for _ in range(5)) if self.peers else 0.0


@runtime_checkable
class MessageExchange(Protocol):
    """A data plane that a `PipelinedExchange` can drive message by message."""

    workers: int
    message_bytes: int
    abort: Abort

    @property
    def peers(self) -> list[int]:
        """As `Exchange.peers`."""

    def reserve(self, stages: int) -> int:
        """Reserve numbers of operations for use with `post` and `progress`; returns the first."""

    def post(self, buffer: Any, peer: int, stage: int, number: int, *, receive: bool) -> Pending:
        """Begin one message of operation `stage`. Messages of the same number between two ranks arrive in order."""

    def progress(self) -> bool:
        """Progress without the interpreter's lock; returns whether there was anything to do."""

    def check(self, item: Pending) -> None:
        """Raise `RunFailed` if a completed message failed."""

    def check_limit(self, pending: list[Pending], last_byte: float) -> None:
        """Raise `RunFailed` if no byte arrived for too long; `last_byte`: when the last one did (`time.monotonic`)."""

"""One merge on one worker: partition, exchange, join, between barriers, with everything timed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from merge_bench.merge.engines.base import Engine, Outgoing, Side
from merge_bench.merge.exchange.abort import Abort
from merge_bench.merge.exchange.flight import Flight
from merge_bench.merge.frame import Bytes
from merge_bench.merge.plan import Plan


@dataclass(frozen=True)
class Measured:
    """One worker's times of one iteration, seconds on its own monotonic clock, and its bytes.

    `seconds`: own exit from the opening barrier to own finish. `flights`: of the left and the right frame.
    `union_seconds`: when either was in flight. `arrived`: per source, bytes of both frames and seconds from the first
    receive posted to the last one completed, summed over the frames. `overlap`: when partition, `join_overlap`: when
    join ran beside the exchange; both are counted in both phases. `cpu`: seconds of cores, user and
    system, of all threads of the process.
    """

    seconds: float
    partition: float
    exchange: float
    join: float
    flights: dict[str, tuple[int, float]]
    union_seconds: float
    arrived: dict[int, tuple[int, float]]
    received_rows: dict[str, int]
    result_rows: int
    overlap: float = 0.0
    join_overlap: float = 0.0
    cpu: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data for an event."""
        return {
            "seconds": self.seconds,
            "phases": {"partition": self.partition, "exchange": self.exchange, "join": self.join},
            "flights": {side: list(flight) for side, flight in self.flights.items()},
            "union_seconds": self.union_seconds,
            "arrived": [[source, size, seconds] for source, (size, seconds) in self.arrived.items()],
            "received_rows": self.received_rows,
            "result_rows": self.result_rows,
            "overlap": self.overlap,
            "join_overlap": self.join_overlap,
            "cpu": self.cpu,
        }


class Merger:
    """An engine and the data plane, driven through whole merges."""

    def __init__(self, engine: Engine, rank: int, plan: Plan, abort: Abort) -> None:
        self.engine = engine
        self.rank = rank
        self.workers = plan.workers
        from merge_bench.merge.exchange.ucx import UcxExchange  # the driver reads `Measured`, and needs no UCX

        self.exchange = UcxExchange.of_plan(plan, rank, abort)
        self._peers = [peer for peer in range(plan.workers) if peer != rank]
        self._last: dict[Side, tuple[dict[int, Any], dict[int, Any]]] = {}

    def merge(self) -> Measured:
        """One iteration. The last result is let go before the opening barrier, the new one stays in memory."""
        self._last = {}
        self.engine.begin()
        self.exchange.barrier()
        cpu, start = time.process_time(), time.perf_counter()
        outgoing = {side: self.engine.partition(side) for side in Side}
        partitioned = time.perf_counter()
        headers = self._meet(outgoing)
        flights = {side: self._exchange(side, outgoing[side], headers[side]) for side in Side}
        exchanged = time.perf_counter()
        rows = self.engine.join()
        joined, cpu = time.perf_counter(), time.process_time() - cpu
        measured = _measured(flights, rows, self.engine.received_rows())
        self.exchange.barrier()
        return Measured(
            seconds=joined - start,
            partition=partitioned - start,
            exchange=exchanged - partitioned,
            join=joined - exchanged,
            cpu=cpu,
            **measured,
        )

    def exchange_only(self) -> Measured:
        """The last merge's messages again, between the same warmed buffers, with no partition and no join."""
        self.exchange.barrier()
        start = time.perf_counter()
        flights = {side: self.exchange.transfer(*self._last[side]) for side in Side}
        seconds = time.perf_counter() - start
        self.exchange.barrier()
        measured = _measured(flights, 0, {"left": 0, "right": 0})
        return Measured(seconds=seconds, partition=0.0, exchange=seconds, join=0.0, **measured)

    def _exchange(self, side: Side, outgoing: list[Outgoing], headers: dict[int, Bytes]) -> Flight:
        """Make room for what is announced of one side, and exchange it."""
        receives = {peer: self.engine.inbox(side, peer, headers[peer]) for peer in self._peers}
        self._last[side] = ({peer: outgoing[peer].data for peer in self._peers}, receives)
        flight = self.exchange.transfer(*self._last[side])
        self.engine.sent(side)
        return flight

    def _meet(self, outgoing: dict[Side, list[Outgoing]]) -> dict[Side, dict[int, Bytes]]:
        """Exchange the headers of both sides in one small message per peer."""
        sizes = [self.engine.header_bytes(side) for side in Side]
        sends = {peer: np.concatenate([outgoing[side][peer].header for side in Side]) for peer in self._peers}
        headers: dict[int, Bytes] = {peer: np.empty(sum(sizes), np.uint8) for peer in self._peers}
        self.exchange.transfer(sends, headers)
        left = sizes[0]
        return {
            Side.LEFT: {peer: header[:left] for peer, header in headers.items()},
            Side.RIGHT: {peer: header[left:] for peer, header in headers.items()},
        }


def _measured(flights: dict[Side, Flight], rows: int, received: dict[str, int]) -> dict[str, Any]:
    left, right = flights[Side.LEFT], flights[Side.RIGHT]
    overlap = max(0.0, min(left.last_completion, right.last_completion) - max(left.first_post, right.first_post))
    arrived: dict[int, tuple[int, float]] = {}
    for flight in (left, right):
        for source, (size, seconds) in flight.arrived.items():
            before = arrived.get(source, (0, 0.0))
            arrived[source] = (before[0] + size, before[1] + seconds)
    return {
        "flights": {side.value: (flight.sent_bytes, flight.seconds) for side, flight in flights.items()},
        "union_seconds": left.seconds + right.seconds - overlap,
        "arrived": arrived,
        "received_rows": received,
        "result_rows": rows,
    }

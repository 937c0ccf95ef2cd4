"""The pipelined merge: pieces of both frames travel while other pieces are partitioned and joined."""

from __future__ import annotations

import time
from typing import Any

from merge_bench.errors import UsageError
from merge_bench.merge.engines.base import Engine, Outgoing, PipelinedEngine, Side
from merge_bench.merge.exchange.abort import Abort
from merge_bench.merge.exchange.stream import Stream
from merge_bench.merge.frame import Bytes
from merge_bench.merge.merger import Measured, Merger, Transfers
from merge_bench.merge.plan import Plan
from merge_bench.records.schema import Flight as FlightSeconds
from merge_bench.records.schema import FrameCounts, Phases


class PipelinedMerger(Merger):
    """Partitions and joins in the calling thread, while the thread of a `Stream` exchanges."""

    engine: PipelinedEngine

    def __init__(self, engine: PipelinedEngine, rank: int, plan: Plan, abort: Abort) -> None:
        super().__init__(engine, rank, plan, abort)
        self._header_bytes = max(engine.header_bytes(side) for side in Side)
        self._split: list[list[Outgoing]] = []
        self._rooms: dict[tuple[int, int], Any] = {}
        self._stream: Stream | None = None  # its messages may be under way for as long as endpoints are open

    def merge(self) -> Measured:
        """Merge once. The last result is freed before the opening barrier, the new one stays in memory."""
        self._split, self._rooms, self._stream = [], {}, None
        self.engine.begin()
        self.exchange.barrier()
        cpu, start = time.process_time(), time.perf_counter()
        joins = []
        with self._open(self._make_room) as stream:
            for number, outgoing in enumerate(self.engine.split()):
                self._split.append(outgoing)
                stream.send(number, outgoing)
            partitioned = time.perf_counter()
            for part in range(self.engine.parts):
                stream.wait(part)
                began = time.perf_counter()
                self.engine.join_part(part)
                joins.append((began, time.perf_counter()))
            stream.finish()
        end, cpu = time.perf_counter(), time.process_time() - cpu
        first, last = stream.both.first or end, stream.both.last or end
        self.exchange.barrier()
        return self._measured(
            end - start,
            Phases(
                partition=partitioned - start, exchange=last - first, join=sum(ended - began for began, ended in joins)
            ),
            _transfers(stream),
            self.engine.result_rows(),
            cpu,
            overlap=max(0.0, min(partitioned, last) - first),
            join_overlap=sum(max(0.0, min(ended, last) - max(began, first)) for began, ended in joins),
        )

    def exchange_only(self) -> Transfers:
        """Send the last merge's messages again, between the same warmed buffers, without partition and join."""
        self.exchange.barrier()
        with self._open(lambda number, source, _: self._rooms[number, source]) as stream:
            for number, outgoing in enumerate(self._split):
                stream.send(number, outgoing)
            stream.finish()
        self.exchange.barrier()
        return _transfers(stream)

    def _open(self, room: Any) -> Stream:
        self._stream = Stream(self.exchange, self.engine.pieces, self._header_bytes, room)
        return self._stream

    def _make_room(self, number: int, source: int, header: Bytes) -> Any:
        piece = self.engine.pieces[number]
        room = self.engine.inbox_of(piece, source, header[: self.engine.header_bytes(piece.side)])
        self._rooms[number, source] = room
        return room


def make_merger(engine: Engine, rank: int, plan: Plan, abort: Abort) -> Merger:
    """The merger for a plan: with overlapping phases or without.

    Raises
    ------
    UsageError
        If the phases are to overlap and the engine cannot join a part of its rows.
    """
    if not plan.pipeline:
        return Merger(engine, rank, plan, abort)
    if not isinstance(engine, PipelinedEngine):
        raise UsageError(f"--pipeline on needs an engine that joins in parts, and {engine.name} joins all rows at once")
    return PipelinedMerger(engine, rank, plan, abort)


def _transfers(stream: Stream) -> Transfers:
    left, right = (stream.flights[side].seconds for side in Side)
    return Transfers(
        FrameCounts(**{side.value: size for side, size in stream.sent_bytes.items()}),
        FlightSeconds(left=left, right=right, union=stream.both.seconds),
        {peer: (stream.arrived_bytes[peer], meter.seconds) for peer, meter in stream.arrivals.items()},
    )

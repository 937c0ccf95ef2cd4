"""The pipelined merge: pieces of both frames travel while other pieces are partitioned and joined."""

from __future__ import annotations

import time
from typing import Any

from merge_bench.errors import UsageError
from merge_bench.merge.engines.base import Engine, FilteringEngine, Outgoing, PipelinedEngine, Side
from merge_bench.merge.exchange.abort import Abort
from merge_bench.merge.exchange.base import MessageExchange
from merge_bench.merge.exchange.pipelined_exchange import PipelinedExchange
from merge_bench.merge.frame import Bytes
from merge_bench.merge.merger import Measured, Merger, Transfers
from merge_bench.merge.plan import Plan
from merge_bench.merge.time_notes import TimeNotes
from merge_bench.records.schema import Flight as FlightSeconds
from merge_bench.records.schema import FrameCounts, Phases


class PipelinedMerger(Merger):
    """Partitions and joins in the calling thread, while the thread of a `PipelinedExchange` exchanges."""

    engine: PipelinedEngine

    def __init__(self, engine: PipelinedEngine, rank: int, plan: Plan, abort: Abort) -> None:
        super().__init__(engine, rank, plan, abort)
        self._split: list[list[Outgoing]] = []
        self._rooms: dict[tuple[int, int], Any] = {}
        # Kept, because its messages may be under way for as long as endpoints are open.
        self._pipeline: PipelinedExchange | None = None

    def merge(self) -> Measured:
        """Merge once. The last result is freed before the opening barrier, the new one stays in memory."""
        self._split, self._rooms, self._pipeline = [], {}, None
        self.engine.begin()
        entered = time.perf_counter()
        self.exchange.barrier()
        cpu, start = time.process_time(), time.perf_counter()
        joins = []
        self._filter_rows()
        with self._open(self._make_room, self.notes) as pipeline:
            with self._range("partition"):
                for number, outgoing in enumerate(self.engine.split()):
                    self._split.append(outgoing)
                    pipeline.send(number, outgoing)
            partitioned = time.perf_counter()
            for part in range(self.engine.parts):
                pipeline.wait(part)
                began = time.perf_counter()
                with self._range("join"):
                    self.engine.join_part(part)
                joins.append((began, time.perf_counter()))
            pipeline.finish()
        end, cpu = time.perf_counter(), time.process_time() - cpu
        first, last = pipeline.both.first or end, pipeline.both.last or end
        self.exchange.barrier()
        self._note(
            ("barrier", entered, start), ("partition", start, partitioned), ("exchange", first, last),
            *(("join", began, ended) for began, ended in joins), ("barrier", end, time.perf_counter()),
        )  # fmt: skip
        return self._measured(
            end - start,
            Phases(
                partition=partitioned - start, exchange=last - first, join=sum(ended - began for began, ended in joins)
            ),
            _transfers(pipeline),
            self.engine.result_rows(),
            cpu,
            overlap=max(0.0, min(partitioned, last) - first),
            join_overlap=sum(max(0.0, min(ended, last) - max(began, first)) for began, ended in joins),
        )

    def exchange_only(self) -> Transfers:
        """Send the last merge's messages again, between the same warmed buffers, without partition and join."""
        self.exchange.barrier()
        start = time.perf_counter()
        with self._open(lambda number, source, _: self._rooms[number, source]) as pipeline:
            for number, outgoing in enumerate(self._split):
                pipeline.send(number, outgoing)
            pipeline.finish()
        self._note(("link", start, time.perf_counter()))
        self.exchange.barrier()
        return _transfers(pipeline)

    @property
    def sides(self) -> list[str]:
        """The side of each piece that is sent, by its number."""
        return [piece.side.value for piece in self.engine.pieces]

    def _open(self, room: Any, notes: TimeNotes | None = None) -> PipelinedExchange:
        header_bytes = max(self.engine.header_bytes(side) for side in Side)
        assert isinstance(self.exchange, MessageExchange)  # as its description says
        self._pipeline = PipelinedExchange(self.exchange, self.engine.pieces, header_bytes, room, notes)
        return self._pipeline

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
        If the phases are to overlap and the engine cannot join a part of its rows, or if it has no runtime filter and
        is to use one.
    """
    if plan.runtime_filter and not isinstance(engine, FilteringEngine):
        raise UsageError(f"--engine {engine.name} has no runtime filter; use --runtime-filter off")
    if not plan.pipeline:
        return Merger(engine, rank, plan, abort)
    if not isinstance(engine, PipelinedEngine):
        raise UsageError(f"--engine {engine.name} cannot overlap phases; use --pipeline off")
    return PipelinedMerger(engine, rank, plan, abort)


def _transfers(pipeline: PipelinedExchange) -> Transfers:
    left, right = (pipeline.flights[side].seconds for side in Side)
    return Transfers(
        FrameCounts(**{side.value: size for side, size in pipeline.sent_bytes.items()}),
        FlightSeconds(left=left, right=right, union=pipeline.both.seconds),
        {peer: (pipeline.arrived_bytes[peer], meter.seconds) for peer, meter in pipeline.arrivals.items()},
    )

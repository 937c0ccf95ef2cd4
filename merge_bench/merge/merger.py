"""One merge on one worker: partition, exchange, join, between barriers, with everything timed.

In the pipelined merge pieces of both frames travel while other pieces are partitioned and joined.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import msgspec
import numpy as np

from merge_bench.errors import UsageError
from merge_bench.merge.engines import describe
from merge_bench.merge.engines.base import Engine, FilteringEngine, Outgoing, PipelinedEngine, Side, TableEngine
from merge_bench.merge.exchange import exchange_class
from merge_bench.merge.exchange.base import (
    Abort,
    Exchange,
    Flight,
    MessageExchange,
    PackedTable,
    ShuffledTable,
    TableExchange,
)
from merge_bench.merge.exchange.pipelined_exchange import PipelinedExchange
from merge_bench.merge.frame import Bytes
from merge_bench.merge.plan import Plan
from merge_bench.merge.time_notes import TimeNotes
from merge_bench.records.schema import Flight as FlightSeconds
from merge_bench.records.schema import FrameCounts, PairTraffic, Phases, WorkerIteration

Ranges: TypeAlias = Callable[[str], AbstractContextManager[Any]]


def phase_ranges(engine: str) -> Ranges:
    """A function that marks a phase for GPU profilers; it does nothing without a GPU or cuDF's package nvtx."""
    if not describe(engine).device_memory or importlib.util.find_spec("nvtx") is None:
        return lambda phase: nullcontext()
    import nvtx

    return lambda phase: nvtx.annotate(phase, domain="merge_bench")


class Measured(msgspec.Struct, frozen=True):
    """One worker's part of one iteration. `pairs`: what arrived from each other worker, by rank."""

    worker: WorkerIteration
    pairs: list[PairTraffic]


class Transfers(msgspec.Struct, frozen=True):
    """What one worker exchanged in one iteration.

    `sent_bytes`, `seconds`: of both frames. `arrived`: for each source, bytes of both frames and seconds from the first
    receive posted to the last one completed, added up over the frames.
    """

    sent_bytes: FrameCounts
    seconds: FlightSeconds
    arrived: dict[int, tuple[int, float]]


class Merger:
    """Merges on one worker, whose rows the engine has; `exchange`: its end of the data plane.

    `notes`: where to note when phases and messages begin and end; None: nowhere.
    """

    def __init__(self, engine: Engine, exchange: Exchange, plan: Plan) -> None:
        self.engine, self.exchange, self.rank = engine, exchange, exchange.rank
        self._last_messages: dict[Side, tuple[dict[int, Any], dict[int, Any]]] = {}
        self._filters = plan.runtime_filter
        self.notes: TimeNotes | None = None
        self._range: Ranges = phase_ranges(engine.name)

    def merge(self) -> Measured:
        """Merge once. The last result is freed before the opening barrier, the new one stays in memory."""
        self._last_messages = {}
        self.engine.begin()
        entered = time.perf_counter()
        self.exchange.barrier()
        cpu, start = time.process_time(), time.perf_counter()
        with self._range("partition"):
            outgoing = self._partition()
        partitioned = time.perf_counter()
        with self._range("exchange"):
            flights = self._exchange(outgoing)
        exchanged = time.perf_counter()
        with self._range("join"):
            rows = self.engine.join()
        joined, cpu = time.perf_counter(), time.process_time() - cpu
        transfers = self._transfers(outgoing, flights)
        self.exchange.barrier()
        self._note_spans(
            ("barrier", entered, start),
            ("partition", start, partitioned),
            ("exchange", partitioned, exchanged),
            ("join", exchanged, joined),
            ("barrier", joined, time.perf_counter()),
        )
        phases = Phases(partition=partitioned - start, exchange=exchanged - partitioned, join=joined - exchanged)
        return self._make_measurement(joined - start, phases, transfers, rows, cpu)

    def exchange_only(self) -> Transfers:
        """Send the last merge's messages again, between the same warmed buffers, without partition and join."""
        self.exchange.barrier()
        start = time.perf_counter()
        flights = {side: self.exchange.transfer(*self._last_messages[side]) for side in self._sides_in_turn()}
        self._note_spans(("link", start, time.perf_counter()))
        self.exchange.barrier()
        return self._transfers(None, flights)

    @property
    def sides(self) -> list[str]:
        """The names of the sides to which the pieces that are sent belong, by the number of the piece."""
        return [side.value for side in Side]

    def _partition(self) -> Any:
        """Filter and partition both chunks; returns what is to be sent, for `_exchange`."""
        self._filter_rows()
        return self.engine.partition()

    def _exchange(self, outgoing: Any) -> Any:
        """Exchange both sides, the headers first in one small message per peer; returns the flight of each side."""
        parcels: dict[Side, list[Outgoing]] = outgoing
        sizes = [self.engine.header_bytes(side) for side in Side]
        sends = {peer: np.concatenate([parcels[side][peer].header for side in Side]) for peer in self.exchange.peers}
        headers: dict[int, Bytes] = {peer: np.empty(sum(sizes), np.uint8) for peer in self.exchange.peers}
        self.exchange.transfer(sends, headers)
        parts = dict(zip(Side, (slice(sizes[0]), slice(sizes[0], None)), strict=True))
        flights = {}
        for side in self._sides_in_turn():
            of_side = {peer: header[parts[side]] for peer, header in headers.items()}
            flights[side] = self._exchange_side(side, parcels[side], of_side)
        return flights

    def _transfers(self, outgoing: Any, flights: Any) -> Transfers:
        """What was exchanged of both sides, of which one begins when the other has ended."""
        left, right = flights[Side.LEFT], flights[Side.RIGHT]
        arrived: dict[int, tuple[int, float]] = {}
        for flight in (left, right):
            for source, (size, seconds) in flight.arrived.items():
                before = arrived.get(source, (0, 0.0))
                arrived[source] = (before[0] + size, before[1] + seconds)
        return Transfers(
            FrameCounts(left=left.sent_bytes, right=right.sent_bytes),
            FlightSeconds(left=left.seconds, right=right.seconds, union=left.seconds + right.seconds),
            arrived,
        )

    def _note_spans(self, *spans: tuple[str, float, float]) -> None:
        if self.notes is not None:
            for name, begin, end in spans:
                self.notes.add_span(name, begin, end)

    def _filter_rows(self) -> None:
        """Apply the runtime filter, if the plan has one. Its time counts as partition, and its messages not as sent."""
        if self._filters:
            assert isinstance(self.engine, FilteringEngine)  # as `make_merger` has found
            start = time.perf_counter()
            self.engine.filter_rows(self._share_with_all)
            self._note_spans(("filter", start, time.perf_counter()))

    def _share_with_all(self, own: Bytes) -> list[Bytes]:
        received = {peer: np.empty_like(own) for peer in self.exchange.peers}
        self.exchange.transfer(dict.fromkeys(self.exchange.peers, own), received)
        return [received.get(rank, own) for rank in range(self.exchange.workers)]

    def _sides_in_turn(self) -> Iterator[Side]:
        """Both sides, to be exchanged one after the other, the second once all workers have exchanged the first.

        Workers that go on earlier would fill the links of those that still wait for rows of the first side.
        """
        yield Side.LEFT
        if self.exchange.workers > 2:
            start = time.perf_counter()
            self.exchange.barrier()
            self._note_spans(("barrier", start, time.perf_counter()))
        yield Side.RIGHT

    def _make_measurement(
        self, seconds: float, phases: Phases, transfers: Transfers, rows: int, cpu: float, *overlaps: float
    ) -> Measured:
        """What the records hold of this worker's part of an iteration.

        `overlaps`: seconds in which partition and join ran beside the exchange; they count in both phases.
        """
        overlap, join_overlap = overlaps or (0.0, 0.0)
        worker = WorkerIteration(
            rank=self.rank,
            seconds=seconds,
            phases_seconds=phases,
            overlap_seconds=overlap,
            join_overlap_seconds=join_overlap,
            sent_bytes=transfers.sent_bytes,
            flight_seconds=transfers.seconds,
            received_rows=FrameCounts(**self.engine.received_rows()),
            result_rows=rows,
            cpu_seconds=cpu,
        )
        pairs = [
            PairTraffic(from_rank=source, to_rank=self.rank, bytes=size, seconds=took)
            for source, (size, took) in sorted(transfers.arrived.items())
        ]
        return Measured(worker, pairs)

    def _exchange_side(self, side: Side, outgoing: list[Outgoing], headers: dict[int, Bytes]) -> Flight:
        """Make the buffers that the headers of one side announce, and exchange the rows of that side."""
        receives = self.engine.make_inboxes(side, headers)
        self._last_messages[side] = ({peer: outgoing[peer].data for peer in self.exchange.peers}, receives)
        flight = self.exchange.transfer(*self._last_messages[side], noted=self.notes is not None)
        if self.notes is not None:
            piece = self.sides.index(side.value)  # here a frame travels whole
            for (peer, received), batch in flight.batches.items():
                self.notes.add_batch((piece, peer, received), *batch)
        self.engine.release_sent(side)
        return flight


class PipelinedMerger(Merger):
    """Partitions and joins in the calling thread, while the thread of a `PipelinedExchange` exchanges."""

    engine: PipelinedEngine

    def __init__(self, engine: PipelinedEngine, exchange: Exchange, plan: Plan) -> None:
        super().__init__(engine, exchange, plan)
        self._pieces_sent: list[list[Outgoing]] = []
        self._rooms: dict[tuple[int, int], Any] = {}
        # Kept, because its messages may be under way for as long as endpoints are open.
        self._pipeline: PipelinedExchange | None = None

    def merge(self) -> Measured:
        self._pieces_sent, self._rooms, self._pipeline = [], {}, None
        self.engine.begin()
        entered = time.perf_counter()
        self.exchange.barrier()
        cpu, start = time.process_time(), time.perf_counter()
        joins = []
        self._filter_rows()
        with self._open_pipeline(self._make_room, self.notes) as pipeline:
            with self._range("partition"):
                for number, outgoing in enumerate(self.engine.split()):
                    self._pieces_sent.append(outgoing)
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
        self._note_spans(
            ("barrier", entered, start),
            ("partition", start, partitioned),
            ("exchange", first, last),
            *(("join", began, ended) for began, ended in joins),
            ("barrier", end, time.perf_counter()),
        )
        join = sum(ended - began for began, ended in joins)
        return self._make_measurement(
            end - start,
            Phases(partition=partitioned - start, exchange=last - first, join=join),
            _pipelined_transfers(pipeline),
            self.engine.result_rows(),
            cpu,
            max(0.0, min(partitioned, last) - first),
            sum(max(0.0, min(ended, last) - max(began, first)) for began, ended in joins),
        )

    def exchange_only(self) -> Transfers:
        self.exchange.barrier()
        start = time.perf_counter()
        with self._open_pipeline(lambda number, source, _: self._rooms[number, source]) as pipeline:
            for number, outgoing in enumerate(self._pieces_sent):
                pipeline.send(number, outgoing)
            pipeline.finish()
        self._note_spans(("link", start, time.perf_counter()))
        self.exchange.barrier()
        return _pipelined_transfers(pipeline)

    @property
    def sides(self) -> list[str]:
        return [piece.side.value for piece in self.engine.pieces]

    def _open_pipeline(self, room: Any, notes: TimeNotes | None = None) -> PipelinedExchange:
        header_bytes = max(self.engine.header_bytes(side) for side in Side)
        assert isinstance(self.exchange, MessageExchange)  # as its description says
        self._pipeline = PipelinedExchange(self.exchange, self.engine.pieces, header_bytes, room, notes)
        return self._pipeline

    def _make_room(self, number: int, source: int, header: Bytes) -> Any:
        piece = self.engine.pieces[number]
        room = self.engine.make_inbox(piece, source, header[: self.engine.header_bytes(piece.side)])
        self._rooms[number, source] = room
        return room


def _pipelined_transfers(pipeline: PipelinedExchange) -> Transfers:
    left, right = (pipeline.flights[side].seconds for side in Side)
    return Transfers(
        FrameCounts(**{side.value: size for side, size in pipeline.sent_bytes.items()}),
        FlightSeconds(left=left, right=right, union=pipeline.both.seconds),
        {peer: (pipeline.arrived_bytes[peer], meter.seconds) for peer, meter in pipeline.arrivals.items()},
    )


class TableMerger(Merger):
    """Over a data plane that takes whole tables: it partitions, moves and puts together the rows by itself.

    Both tables are moved at once. The phase ``exchange`` ends when the received rows of each are one table.
    """

    engine: TableEngine

    def __init__(self, engine: TableEngine, exchange: Exchange, plan: Plan) -> None:
        super().__init__(engine, exchange, plan)
        assert isinstance(exchange, TableExchange)  # as its description says
        self._plane = exchange
        self._tables: dict[Side, Any] = {}  # that are not sent, while one worker merges alone

    def _partition(self) -> dict[Side, PackedTable]:
        self._tables, packed = self.engine.tables(), {}
        if self.exchange.workers > 1:
            keys = self.engine.shape.key_positions
            packed = {side: self._plane.pack(self._tables.pop(side), keys(side)) for side in Side}
        self.engine.synchronize()
        return packed

    def _exchange(self, packed: dict[Side, PackedTable]) -> dict[Side, ShuffledTable]:
        shuffled = dict[Side, ShuffledTable]()
        if packed:
            shuffled = dict(zip(Side, self._plane.shuffle([packed[side] for side in Side]), strict=True))
            self._tables = {side: self._plane.unpack(shuffled[side]) for side in Side}
        for side in Side:
            self.engine.take_table(side, self._tables.pop(side))
        self.engine.synchronize()
        return shuffled

    def _transfers(self, packed: dict[Side, PackedTable], shuffled: dict[Side, ShuffledTable]) -> Transfers:
        """What was exchanged. Peers say how much they sent to this worker, since the data plane does not.

        That comes after the timed interval. The seconds of a source are those in which anything was under way.
        """
        if not packed:
            return Transfers(FrameCounts(left=0, right=0), FlightSeconds(left=0.0, right=0.0, union=0.0), {})
        peers = self.exchange.peers
        sent = {peer: np.array([packed[side].sizes[peer] for side in Side], np.int64) for peer in peers}
        arrived = {peer: np.empty(len(Side), np.int64) for peer in peers}
        self.exchange.transfer(
            {peer: sizes.view(np.uint8) for peer, sizes in sent.items()},
            {peer: sizes.view(np.uint8) for peer, sizes in arrived.items()},
        )
        left, right = (int(sum(sent[peer][at] for peer in peers)) for at in range(len(Side)))
        seconds = [shuffled[side].seconds for side in Side]
        return Transfers(
            FrameCounts(left=left, right=right),
            FlightSeconds(left=seconds[0], right=seconds[1], union=max(seconds)),
            {peer: (int(sizes.sum()), max(seconds)) for peer, sizes in arrived.items()},
        )


def make_merger(engine: Engine, rank: int, plan: Plan, abort: Abort) -> Merger:
    """The merger for a plan, with overlapping phases or without, and this worker's end of the plan's data plane.

    Raises `UsageError` if the phases are to overlap and the engine cannot join a part of its rows, or if it has no
    runtime filter and is to use one.
    """
    kind = _merger_class(engine, plan)
    exchange: Exchange = exchange_class(plan.exchange).of_plan(plan, rank, abort)
    return kind(engine, exchange, plan)


def _merger_class(engine: Engine, plan: Plan) -> type[Merger]:
    if plan.runtime_filter and not isinstance(engine, FilteringEngine):
        raise UsageError(f"--engine {engine.name} has no runtime filter; use --runtime-filter off")
    if plan.data_plane.tables:
        if not isinstance(engine, TableEngine):
            raise UsageError(f"--exchange {plan.exchange} cannot be used with --engine {engine.name}")
        return TableMerger
    if not plan.pipeline:
        return Merger
    if not isinstance(engine, PipelinedEngine):
        raise UsageError(f"--engine {engine.name} cannot overlap phases; use --pipeline off")
    return PipelinedMerger

"""One merge on one worker: partition, exchange, join, between barriers, with everything timed.

In the pipelined merge pieces of both frames travel while other pieces are partitioned and joined.
"""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import msgspec
import numpy as np

from merge_bench.errors import UsageError
from merge_bench.merge.engines import describe_engine
from merge_bench.merge.engines.base import (
    Engine,
    FilteringEngine,
    OutgoingParcel,
    PipelinedEngine,
    Side,
    TableExchangingEngine,
)
from merge_bench.merge.exchange import import_exchange_class
from merge_bench.merge.exchange.base import (
    AbortFlag,
    Exchange,
    FrameTransfer,
    MessageExchange,
    PackedTable,
    ShuffledTable,
    TableExchange,
)
from merge_bench.merge.exchange.pipelined_exchange import PipelinedExchange
from merge_bench.merge.frame import Bytes
from merge_bench.merge.plan import Plan
from merge_bench.merge.timeline_recording import TimelineNotes
from merge_bench.records.schema import FrameCounts, PairTraffic, PhaseSeconds, WorkerIteration
from merge_bench.records.schema import TransferSeconds as FlightSeconds

PhaseMarker: TypeAlias = Callable[[str], AbstractContextManager[Any]]


def make_phase_marker(engine: str) -> PhaseMarker:
    """Make a function that marks a phase for GPU profilers.

    Without a GPU or the package nvtx the function does nothing.
    """
    if not describe_engine(engine).device_memory or importlib.util.find_spec("nvtx") is None:
        return lambda phase: nullcontext()
    import nvtx

    return lambda phase: nvtx.annotate(phase, domain="merge_bench")


class WorkerMeasurement(msgspec.Struct, frozen=True):
    """The measurement of one iteration on one worker; `pairs`: the bytes that arrived from each other worker."""

    worker: WorkerIteration
    pairs: list[PairTraffic]


class TransferTotals(msgspec.Struct, frozen=True):
    """The bytes and seconds that one worker's exchange of both frames took in one iteration.

    `sent_bytes`, `seconds`: by frame. `arrived`: for each source rank, bytes of both frames and seconds from the first
    receive posted to the last one completed, added up over the frames.
    """

    sent_bytes: FrameCounts
    seconds: FlightSeconds
    arrived: dict[int, tuple[int, float]]


class Merger:
    """Merges the engine's rows on one worker, phase by phase: partition, exchange, join.

    `exchange`: this worker's end of the data plane. `notes`: where to note when phases and messages begin and end;
    None: nowhere.
    """

    def __init__(self, engine: Engine, exchange: Exchange, plan: Plan) -> None:
        self.engine, self.exchange, self.rank = engine, exchange, exchange.rank
        self._last_messages: dict[Side, tuple[dict[int, Any], dict[int, Any]]] = {}
        self._filters = plan.runtime_filter
        self.notes: TimelineNotes | None = None
        self._mark_phase: PhaseMarker = make_phase_marker(engine.name)

    def merge(self) -> WorkerMeasurement:
        """Merge once and measure it. The last result is freed before the opening barrier; the new one is kept."""
        self._last_messages = {}
        self.engine.begin_iteration()
        entered = time.perf_counter()
        self.exchange.barrier()
        cpu_times = [time.process_time()]
        start = time.perf_counter()
        with self._mark_phase("partition"):
            outgoing = self._partition_chunks()
        partitioned = time.perf_counter()
        cpu_times.append(time.process_time())
        with self._mark_phase("exchange"):
            flights = self._exchange_sides(outgoing)
        exchanged = time.perf_counter()
        cpu_times.append(time.process_time())
        with self._mark_phase("join"):
            rows = self.engine.join_received_rows()
        joined = time.perf_counter()
        cpu_times.append(time.process_time())
        transfers = self._sum_transfers(outgoing, flights)
        self.exchange.barrier()
        self._record_spans(
            ("barrier", entered, start),
            ("partition", start, partitioned),
            ("exchange", partitioned, exchanged),
            ("join", exchanged, joined),
            ("barrier", joined, time.perf_counter()),
        )
        phases = PhaseSeconds(partition=partitioned - start, exchange=exchanged - partitioned, join=joined - exchanged)
        measured = self._make_measurement(joined - start, phases, transfers, rows, cpu_times[-1] - cpu_times[0])
        partition, exchange, join = (after - before for before, after in itertools.pairwise(cpu_times))
        cpu_seconds = PhaseSeconds(partition=partition, exchange=exchange, join=join)
        worker = msgspec.structs.replace(measured.worker, phases_cpu_seconds=cpu_seconds)
        return WorkerMeasurement(worker, measured.pairs)

    def repeat_exchange(self) -> TransferTotals:
        """Send the last merge's messages again, without partition and join; returns their bytes and seconds."""
        self.exchange.barrier()
        start = time.perf_counter()
        flights = {side: self.exchange.transfer(*self._last_messages[side]) for side in self._sides_with_barrier()}
        self._record_spans(("link", start, time.perf_counter()))
        self.exchange.barrier()
        return self._sum_transfers(None, flights)

    @property
    def piece_sides(self) -> list[str]:
        """The side (``left`` or ``right``) of each piece that is sent, by its number.

        Here both frames are sent whole.
        """
        return [side.value for side in Side]

    def _partition_chunks(self) -> Any:
        """Filter and partition both chunks; returns the parcels (or packed tables) to send, by side."""
        self._filter_rows()
        return self.engine.partition_chunks()

    def _exchange_sides(self, outgoing: Any) -> Any:
        """Exchange both sides, all headers first in one small message per peer; returns the transfer of each side."""
        parcels: dict[Side, list[OutgoingParcel]] = outgoing
        sizes = [self.engine.parcel_header_bytes(side) for side in Side]
        sends = {peer: np.concatenate([parcels[side][peer].header for side in Side]) for peer in self.exchange.peers}
        headers: dict[int, Bytes] = {peer: np.empty(sum(sizes), np.uint8) for peer in self.exchange.peers}
        self.exchange.transfer(sends, headers)
        parts = dict(zip(Side, (slice(sizes[0]), slice(sizes[0], None)), strict=True))
        flights = {}
        for side in self._sides_with_barrier():
            of_side = {peer: header[parts[side]] for peer, header in headers.items()}
            flights[side] = self._exchange_side(side, parcels[side], of_side)
        return flights

    def _sum_transfers(self, outgoing: Any, flights: Any) -> TransferTotals:
        """Add up the bytes and seconds of both sides, which are exchanged one after the other."""
        left, right = flights[Side.LEFT], flights[Side.RIGHT]
        arrived: dict[int, tuple[int, float]] = {}
        for flight in (left, right):
            for source, (size, seconds) in flight.arrived.items():
                before = arrived.get(source, (0, 0.0))
                arrived[source] = (before[0] + size, before[1] + seconds)
        return TransferTotals(
            FrameCounts(left=left.sent_bytes, right=right.sent_bytes),
            FlightSeconds(left=left.seconds, right=right.seconds, union=left.seconds + right.seconds),
            arrived,
        )

    def _record_spans(self, *spans: tuple[str, float, float]) -> None:
        """Add spans (name, begin, end) to the timeline notes, if notes are kept."""
        if self.notes is not None:
            for name, begin, end in spans:
                self.notes.add_span(name, begin, end)

    def _filter_rows(self) -> None:
        """Apply the runtime filter, if the plan has one.

        Its time counts as partition; its messages do not count as sent bytes.
        """
        if self._filters:
            assert isinstance(self.engine, FilteringEngine)  # as `make_merger` has found
            start = time.perf_counter()
            self.engine.filter_rows(self._all_gather)
            self._record_spans(("filter", start, time.perf_counter()))

    def _all_gather(self, own_bytes: Bytes) -> list[Bytes]:
        """Send the same bytes to all other workers; returns those of every worker, in rank order."""
        received = {peer: np.empty_like(own_bytes) for peer in self.exchange.peers}
        self.exchange.transfer(dict.fromkeys(self.exchange.peers, own_bytes), received)
        return [received.get(rank, own_bytes) for rank in range(self.exchange.workers)]

    def _sides_with_barrier(self) -> Iterator[Side]:
        """Yield both sides, the second one only when all workers have exchanged the first.

        Otherwise workers that go on earlier would fill the links of those that still wait for rows of the first side.
        """
        yield Side.LEFT
        if self.exchange.workers > 2:
            start = time.perf_counter()
            self.exchange.barrier()
            self._record_spans(("barrier", start, time.perf_counter()))
        yield Side.RIGHT

    def _make_measurement(
        self, seconds: float, phases: PhaseSeconds, transfers: TransferTotals, rows: int, cpu: float, *overlaps: float
    ) -> WorkerMeasurement:
        """Make the record of this worker's part of an iteration.

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
            received_rows=FrameCounts(**self.engine.received_row_counts()),
            result_rows=rows,
            cpu_seconds=cpu,
        )
        pairs = [
            PairTraffic(from_rank=source, to_rank=self.rank, bytes=size, seconds=took)
            for source, (size, took) in sorted(transfers.arrived.items())
        ]
        return WorkerMeasurement(worker, pairs)

    def _exchange_side(self, side: Side, outgoing: list[OutgoingParcel], headers: dict[int, Bytes]) -> FrameTransfer:
        """Make the receive buffers that the headers of one side announce, and exchange the rows of that side."""
        receives = self.engine.make_receive_buffers(side, headers)
        self._last_messages[side] = ({peer: outgoing[peer].data for peer in self.exchange.peers}, receives)
        flight = self.exchange.transfer(*self._last_messages[side], note_batches=self.notes is not None)
        if self.notes is not None:
            piece = self.piece_sides.index(side.value)  # here a frame travels whole
            for (peer, received), batch in flight.batches.items():
                self.notes.add_batch((piece, peer, received), *batch)
        self.engine.reuse_sent_parcel_memory(side)
        return flight


class PipelinedMerger(Merger):
    """Partitions and joins in the calling thread, while a `PipelinedExchange` exchanges in its own thread."""

    engine: PipelinedEngine

    def __init__(self, engine: PipelinedEngine, exchange: Exchange, plan: Plan) -> None:
        super().__init__(engine, exchange, plan)
        self._pieces_sent: list[list[OutgoingParcel]] = []
        self._rooms: dict[tuple[int, int], Any] = {}
        # Kept, because its messages may be under way for as long as endpoints are open.
        self._pipeline: PipelinedExchange | None = None

    def merge(self) -> WorkerMeasurement:
        self._pieces_sent, self._rooms, self._pipeline = [], {}, None
        self.engine.begin_iteration()
        entered = time.perf_counter()
        self.exchange.barrier()
        cpu, start = time.process_time(), time.perf_counter()
        joins = []
        self._filter_rows()
        with self._open_pipeline(self._make_receive_buffer, self.notes) as pipeline:
            with self._mark_phase("partition"):
                for number, outgoing in enumerate(self.engine.partition_pieces()):
                    self._pieces_sent.append(outgoing)
                    pipeline.queue_piece(number, outgoing)
            partitioned = time.perf_counter()
            for part in range(self.engine.join_part_count):
                pipeline.wait_for_part(part)
                began = time.perf_counter()
                with self._mark_phase("join"):
                    self.engine.join_part(part)
                joins.append((began, time.perf_counter()))
            pipeline.wait_for_all_messages()
        end, cpu = time.perf_counter(), time.process_time() - cpu
        first, last = pipeline.both.first or end, pipeline.both.last or end
        self.exchange.barrier()
        self._record_spans(
            ("barrier", entered, start),
            ("partition", start, partitioned),
            ("exchange", first, last),
            *(("join", began, ended) for began, ended in joins),
            ("barrier", end, time.perf_counter()),
        )
        join = sum(ended - began for began, ended in joins)
        return self._make_measurement(
            end - start,
            PhaseSeconds(partition=partitioned - start, exchange=last - first, join=join),
            _sum_pipelined_transfers(pipeline),
            self.engine.result_row_count(),
            cpu,
            max(0.0, min(partitioned, last) - first),
            sum(max(0.0, min(ended, last) - max(began, first)) for began, ended in joins),
        )

    def repeat_exchange(self) -> TransferTotals:
        self.exchange.barrier()
        start = time.perf_counter()
        with self._open_pipeline(lambda number, source, _: self._rooms[number, source]) as pipeline:
            for number, outgoing in enumerate(self._pieces_sent):
                pipeline.queue_piece(number, outgoing)
            pipeline.wait_for_all_messages()
        self._record_spans(("link", start, time.perf_counter()))
        self.exchange.barrier()
        return _sum_pipelined_transfers(pipeline)

    @property
    def piece_sides(self) -> list[str]:
        return [piece.side.value for piece in self.engine.pieces]

    def _open_pipeline(self, make_buffer: Any, notes: TimelineNotes | None = None) -> PipelinedExchange:
        header_bytes = max(self.engine.parcel_header_bytes(side) for side in Side)
        assert isinstance(self.exchange, MessageExchange)  # as its description says
        self._pipeline = PipelinedExchange(self.exchange, self.engine.pieces, header_bytes, make_buffer, notes)
        return self._pipeline

    def _make_receive_buffer(self, piece_number: int, source_rank: int, header: Bytes) -> Any:
        piece = self.engine.pieces[piece_number]
        room = self.engine.make_receive_buffer(
            piece, source_rank, header[: self.engine.parcel_header_bytes(piece.side)]
        )
        self._rooms[piece_number, source_rank] = room
        return room


def _sum_pipelined_transfers(pipeline: PipelinedExchange) -> TransferTotals:
    left, right = (pipeline.flights[side].seconds for side in Side)
    return TransferTotals(
        FrameCounts(**{side.value: size for side, size in pipeline.sent_bytes.items()}),
        FlightSeconds(left=left, right=right, union=pipeline.both.seconds),
        {peer: (pipeline.arrived_bytes[peer], meter.seconds) for peer, meter in pipeline.arrivals.items()},
    )


class TableMerger(Merger):
    """Merges over a data plane that partitions, moves and concatenates whole tables.

    Both tables are moved at once. The phase ``exchange`` ends when the received rows of each side are one table.
    """

    engine: TableExchangingEngine

    def __init__(self, engine: TableExchangingEngine, exchange: Exchange, plan: Plan) -> None:
        super().__init__(engine, exchange, plan)
        assert isinstance(exchange, TableExchange)  # as its description says
        self._plane = exchange
        self._tables: dict[Side, Any] = {}  # that are not sent, while one worker merges alone

    def _partition_chunks(self) -> dict[Side, PackedTable]:
        self._tables, packed = self.engine.chunk_tables(), {}
        if self.exchange.workers > 1:
            keys = self.engine.shape.key_positions
            packed = {side: self._plane.partition_and_pack_table(self._tables.pop(side), keys(side)) for side in Side}
        self.engine.wait_for_device()
        return packed

    def _exchange_sides(self, packed: dict[Side, PackedTable]) -> dict[Side, ShuffledTable]:
        shuffled = dict[Side, ShuffledTable]()
        if packed:
            shuffled = dict(zip(Side, self._plane.shuffle([packed[side] for side in Side]), strict=True))
            self._tables = {side: self._plane.concatenate_chunks(shuffled[side]) for side in Side}
        for side in Side:
            self.engine.set_received_table(side, self._tables.pop(side))
        self.engine.wait_for_device()
        return shuffled

    def _sum_transfers(self, packed: dict[Side, PackedTable], shuffled: dict[Side, ShuffledTable]) -> TransferTotals:
        """Add up the bytes that each peer sent to this worker; the peers report them, since the data plane does not.

        This comes after the timed interval. The seconds of a source are those in which anything was under way.
        """
        if not packed:
            return TransferTotals(FrameCounts(left=0, right=0), FlightSeconds(left=0.0, right=0.0, union=0.0), {})
        peers = self.exchange.peers
        sent = {peer: np.array([packed[side].sizes[peer] for side in Side], np.int64) for peer in peers}
        arrived = {peer: np.empty(len(Side), np.int64) for peer in peers}
        self.exchange.transfer(
            {peer: sizes.view(np.uint8) for peer, sizes in sent.items()},
            {peer: sizes.view(np.uint8) for peer, sizes in arrived.items()},
        )
        left, right = (int(sum(sent[peer][at] for peer in peers)) for at in range(len(Side)))
        seconds = [shuffled[side].seconds for side in Side]
        return TransferTotals(
            FrameCounts(left=left, right=right),
            FlightSeconds(left=seconds[0], right=seconds[1], union=max(seconds)),
            {peer: (int(sizes.sum()), max(seconds)) for peer, sizes in arrived.items()},
        )


def make_merger(engine: Engine, rank: int, plan: Plan, abort: AbortFlag) -> Merger:
    """Make the merger that a plan asks for (pipelined or phase by phase) and this worker's end of its data plane.

    Raises `UsageError` if the plan has a pipeline and the engine cannot join part of its rows, or if the plan has a
    runtime filter and the engine has none.
    """
    kind = _choose_merger_class(engine, plan)
    exchange: Exchange = import_exchange_class(plan.exchange).from_plan(plan, rank, abort)
    return kind(engine, exchange, plan)


def _choose_merger_class(engine: Engine, plan: Plan) -> type[Merger]:
    """Return the class of merger for an engine and a plan; raises `UsageError` if they cannot be combined."""
    if plan.runtime_filter and not isinstance(engine, FilteringEngine):
        raise UsageError(f"--engine {engine.name} has no runtime filter; use --runtime-filter off")
    if plan.data_plane.tables:
        if not isinstance(engine, TableExchangingEngine):
            raise UsageError(f"--exchange {plan.exchange} cannot be used with --engine {engine.name}")
        return TableMerger
    if not plan.pipeline:
        return Merger
    if not isinstance(engine, PipelinedEngine):
        raise UsageError(f"--engine {engine.name} cannot overlap phases; use --pipeline off")
    return PipelinedMerger

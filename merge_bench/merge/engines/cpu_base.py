"""The base of engines on CPUs: partitioning, parcels, and the join bucket by bucket.

A pipelined exchange sends a frame in pieces. The first rows of the left chunk go first, with all buckets, so that the
link is busy as early as possible. Both frames follow by ranges of buckets, so that the first range can be joined while
the others are in flight.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from merge_bench.merge.engines.base import (
    WHOLE,
    AllGather,
    FramePiece,
    JoinShape,
    OutgoingParcel,
    PipelinedEngine,
    Side,
)
from merge_bench.merge.engines.join_columns import LibraryColumnMapping, make_unmatched_result, null_key_row_numbers
from merge_bench.merge.frame import Bytes, Frame, as_integer_type
from merge_bench.merge.memory import BufferPool, CopyMeasurement, measure_copy_speed
from merge_bench.merge.partition import (
    PLAIN,
    WRITERS,
    BucketReader,
    ChunkBlockReader,
    Parcel,
    ParcelLayout,
    Partitioner,
    RowReader,
    WholeTableReader,
    group_buckets,
    most_total_buckets,
    parcel_header_shape,
)

if TYPE_CHECKING:
    from merge_bench.merge.runtime_filter import RuntimeFilter

FEWEST_STREAMS = 256  # with fewer, successive rows often go to one stream and wait for its position
ALIASING = 1 / 128  # least relative distance between streams' spacing and a power of two, or 1.5 times one
WIDE_L2 = 2 << 20
FEWEST_ROWS = 1 << 10  # of a bucket, if there would be fewer streams
BLOCK_TIMES = 16  # rows of a block that stayed, for each row that was sent: its table is made for every block
MOST_PARTS = 32  # one part is left to join when the last byte has arrived
HEADS = (0.0, 1 / 16, 1 / 4)  # of the left rows: on a slow link, sending each takes longer than partitioning the next
MEASURED_BYTES = 32 << 20  # of rows: with what is written of them they do not fit a cache that a few cores share
MEASURED_ROUNDS = 3


def choose_bucket_rows(best_join_rows: int, l2_bytes: int | None) -> int:
    """Return how many rows a bucket should have.

    `best_join_rows`: the number of rows with which the library joins fastest. `l2_bytes`: size of the L2 cache. With a
    small L2 cache buckets are twice as large, because more buckets would slow the partition more than they speed up the
    joins. `l2_bytes` None: unknown.
    """
    return best_join_rows if l2_bytes is None or l2_bytes >= WIDE_L2 else 2 * best_join_rows


def buckets_per_worker(rows: int, workers: int, bucket_rows: int, most_total_buckets: int) -> int:
    """Return the number of buckets of each worker, so that each bucket has about `bucket_rows` of both frames' `rows`.

    All workers together have at most `most_total_buckets` buckets, or one each. The number is slightly smaller where
    buckets would be so evenly spaced in memory that writing them competes for the same cache sets.
    """
    per_worker = -(-rows // workers)
    wanted = max(-(-per_worker // bucket_rows), min(FEWEST_STREAMS // workers, per_worker // FEWEST_ROWS))
    count = max(1, min(wanted, most_total_buckets // workers))
    fewer = range(count, count * 7 // 8, -1)
    return next((buckets for buckets in fewer if not _buckets_share_cache_sets(per_worker, buckets * workers)), count)


def _buckets_share_cache_sets(rows: int, buckets: int) -> bool:
    """Whether so many buckets of so many rows in all would be written to places that share a few cache sets."""
    halves = 4 * math.frexp(rows / buckets)[0]  # 2 to 4: of the power of two below
    return abs(halves - round(halves)) < 2 * ALIASING


def can_join_unpartitioned(shape: JoinShape, bucket_rows: int) -> bool:
    """Whether a broadcast can join the side that is not sent as it is in memory, without partitioning it into buckets.

    That is faster if all rows that are sent are no more than fit a bucket. Keys that can be null or NaN exclude it,
    because such rows would have to be left out first.
    """
    if shape.stationary_side is None or 2 * shape.sent_rows > bucket_rows:
        return False
    fields = shape.fields(shape.stationary_side)
    return not any(fields[at].nullable or fields[at].is_floating for at in shape.key_positions(shape.stationary_side))


class HostEngine:
    """The base class of engines in host memory; a subclass joins two Arrow tables.

    `join_rows`: the number of left and right rows together with which its library is fastest. `piece_bytes`: the
    smallest size of a parcel of one part, because shorter messages do not reach the link's bandwidth.
    """

    name: ClassVar[str]
    join_rows: ClassVar[int] = 1 << 17
    piece_bytes: ClassVar[int] = 1 << 20

    @staticmethod
    def storage_type(arrow_type: pa.DataType) -> pa.DataType:
        """Return the Arrow type as which values of `arrow_type` are passed to the library."""
        return as_integer_type(arrow_type)

    def __init__(self, shape: JoinShape) -> None:
        self.shape = shape
        self.columns = LibraryColumnMapping.for_join(shape.left, shape.right, shape.keys, shape.how, self.storage_type)
        self._in_place = can_join_unpartitioned(shape, self.join_rows)
        self._scratch = BufferPool()
        self.use_parcel_writer(PLAIN, most_total_buckets([PLAIN]))
        self._pool = ThreadPoolExecutor(shape.threads) if shape.threads > 1 else None
        self._loaded: dict[Side, Frame] = {}
        self._chunks: dict[Side, Frame] = {}  # what of them an iteration merges
        self._filter: RuntimeFilter | None = None
        self._out, self._in = BufferPool(), BufferPool()
        self._alone = BufferPool()
        self._buffer_pools = [self._out, self._in, self._alone]
        self._parcels_away: dict[Side, list[Parcel]] = {}
        self._results: list[Any] = []
        self._without_key: list[Frame] = []  # result rows of this worker's own rows with a null or NaN key

    def load_chunks(self, left: Frame, right: Frame) -> None:
        self._chunks = self._loaded = {Side.LEFT: left, Side.RIGHT: right}

    def measure_partition_ns_per_row(self) -> dict[str, float]:
        """Measure the nanoseconds per row of partitioning the left chunk, for each method of writing parcels."""
        if self._in_place:
            return {}
        chunk, partitioner = self._chunks[Side.LEFT], self._partitioners[Side.LEFT]
        rows = min(chunk.rows, max(1, MEASURED_BYTES * chunk.rows // max(1, chunk.nbytes)))
        if not rows:
            return {}
        buffers, seconds = BufferPool(), dict.fromkeys(WRITERS, math.inf)
        for _ in range(1 + MEASURED_ROUNDS):  # the first one touches memory
            for way in WRITERS:
                buffers.reset_pool()
                began = time.perf_counter()
                replace(partitioner, stores=way).split_into_parcels(chunk, buffers, self._pool, row_range=(0, rows))
                seconds[way] = min(seconds[way], time.perf_counter() - began)
        return {way: 1e9 * each / rows for way, each in seconds.items()}

    def measure_copy_speed(self, barrier: Callable[[], object]) -> CopyMeasurement | None:
        target = (
            self._out.reusable_buffer[:0] if self._in_place else self._out.reusable_buffer
        )  # the few rows sent fit into the cache
        return measure_copy_speed(self._loaded.values(), target, self._pool, self.shape.threads, barrier)

    def use_parcel_writer(self, writer_name: str, most_total_buckets: int, l2_bytes: int | None = None) -> None:
        """Set the method of writing parcels, and choose the number of buckets for this L2 cache."""
        shape = self.shape
        rows, wanted = (
            shape.joined_rows_per_worker * shape.destination_count,
            choose_bucket_rows(self.join_rows, l2_bytes),
        )
        self.buckets = (
            1 if self._in_place else buckets_per_worker(rows, shape.destination_count, wanted, most_total_buckets)
        )
        self._cuts = _part_bucket_edges(shape, self.buckets, self.piece_bytes)
        self._partitioners = {
            side: Partitioner(
                shape.fields(side),
                shape.keys,
                shape.destination_count,
                self.buckets,
                shape.threads,
                self._scratch,
                writer_name,
            )
            for side in Side
        }
        self._parcels = self._empty_parcel_lists()

    def parcel_header_bytes(self, side: Side) -> int:
        return int(np.prod(parcel_header_shape(self.shape.fields(side), self.buckets))) * 8

    def begin_iteration(self) -> None:
        self._results, self._without_key, self._chunks = [], [], self._loaded
        self._parcels, self._parcels_away = self._empty_parcel_lists(), {}
        for buffers in self._buffer_pools:  # all before the first reset, which allocates in their place
            buffers.release_temporary_memory()
        for buffers in self._buffer_pools:
            buffers.reset_pool()

    def filter_rows(self, all_gather: AllGather) -> None:
        from merge_bench.merge.runtime_filter import RuntimeFilter

        if self._filter is None:
            self._filter = RuntimeFilter(self.shape, self._scratch)
            self._buffer_pools += self._filter.column_pools
        self._chunks = self._filter.filter_chunks(self._loaded, all_gather, self._pool)

    def partition_chunks(self) -> dict[Side, list[OutgoingParcel]]:
        """Split both chunks into one parcel per worker, or into buckets only if one side is sent whole."""
        self._add_null_key_result_rows()
        if self.shape.sent is not None:
            return self._broadcast_chunk(self.shape.sent)
        split = {side: self._split_chunk_into_parcels(side, [WHOLE])[0] for side in Side}
        for side, parcels in split.items():
            self._parcels_away[side] = [parcel for rank, parcel in enumerate(parcels) if rank != self.shape.rank]
        return {side: [_outgoing_parcel(parcel) for parcel in parcels] for side, parcels in split.items()}

    def _broadcast_chunk(self, sent_side: Side) -> dict[Side, list[OutgoingParcel]]:
        """Make parcels for a broadcast: one side's whole chunk for every worker, and empty ones of the other side."""
        (whole,), _ = (
            self._split_chunk_into_parcels(sent_side, [WHOLE])[0],
            self._in_place or self._split_chunk_into_parcels(sent_side.opposite, [WHOLE]),
        )
        self._parcels_away = {side: [] for side in Side}  # what is sent is joined here, too
        nothing = OutgoingParcel(
            np.zeros(self.parcel_header_bytes(sent_side.opposite), np.uint8), np.zeros(0, np.uint8)
        )
        return {
            sent_side: [_outgoing_parcel(whole)] * self.shape.workers,
            sent_side.opposite: [nothing] * self.shape.workers,
        }

    def make_receive_buffers(self, side: Side, headers: Mapping[int, Bytes]) -> dict[int, Bytes]:
        return {
            source: self.make_receive_buffer(FramePiece(side, WHOLE), source, header)
            for source, header in headers.items()
        }

    def reuse_sent_parcel_memory(self, side: Side) -> None:
        """Reuse the memory of sent parcels: left ones to receive right rows, right ones for the result."""
        rooms = [parcel.room for parcel in self._parcels_away.pop(side) if parcel.room is not None]
        if side is Side.LEFT:
            self._in.add_lent_buffers(rooms)
        else:
            self.add_result_memory(rooms)

    def add_result_memory(self, buffers: Sequence[Bytes]) -> None:
        """Offer the engine memory that is free until the next iteration, for its result; only some engines use it."""

    def join_received_rows(self) -> int:
        """Join all received rows bucket by bucket, or block by block in a broadcast.

        Returns the number of result rows.
        """
        if self._in_place:
            self._join_unpartitioned_chunk()
        else:
            self.join_buckets(0, self.buckets, *(self._parcels[side][WHOLE] for side in Side))
        return self.result_row_count()

    @property
    def join_part_count(self) -> int:
        return len(self._cuts) - 1

    @property
    def pieces(self) -> tuple[FramePiece, ...]:
        """The pieces of frames to send, in this order: leading rows of the left frame; the rest of it; the right frame.

        The rest and the right frame are cut by ranges of buckets.
        """
        heads = [FramePiece(Side.LEFT, WHOLE)] * (len(HEADS) - 1)
        return (*heads, *(FramePiece(side, part) for side in Side for part in range(self.join_part_count)))

    def partition_pieces(self) -> Iterator[list[OutgoingParcel]]:
        self._add_null_key_result_rows()
        rows = self._chunks[Side.LEFT].rows
        edges, parts = [int(rows * share) for share in HEADS], list(range(self.join_part_count))
        heads = [(Side.LEFT, [WHOLE], head) for head in itertools.pairwise(edges)]
        for side, cut, span in (*heads, (Side.LEFT, parts, (edges[-1], rows)), (Side.RIGHT, parts, None)):
            for parcels in self._split_chunk_into_parcels(side, cut, span):
                yield [_outgoing_parcel(parcel) for parcel in parcels]

    def make_receive_buffer(self, piece: FramePiece, source_rank: int, header: Bytes) -> Bytes:
        fields = self.shape.fields(piece.side)
        counts = header.view(np.int64).reshape(parcel_header_shape(fields, self.buckets))
        layout = ParcelLayout.from_header(fields, counts)
        parcel = Parcel(layout, self._in.take_bytes(layout.size))
        self._parcels[piece.side][piece.part].append(parcel)
        return parcel.data

    def join_part(self, part_number: int) -> None:
        parcels = ([*self._parcels[side][WHOLE], *self._parcels[side][part_number]] for side in Side)
        self.join_buckets(self._cuts[part_number], self._cuts[part_number + 1], *parcels)

    def join_buckets(self, first: int, last: int, left: Sequence[Parcel], right: Sequence[Parcel]) -> None:
        """Join buckets first…last-1 of the left and right parcels, and add the rows to the result."""
        readers = BucketReader(self.shape.left, left), BucketReader(self.shape.right, right)
        self._results += self.join_bucket_ranges(
            group_buckets(*readers, last, self.join_rows, first_bucket=first), *readers
        )

    def _join_unpartitioned_chunk(self) -> None:
        """Join the chunk of the side that was not sent, block by block, with all rows of the side that was sent."""
        sent = self.shape.sent
        assert sent is not None
        whole = WholeTableReader(self.shape.fields(sent), self._parcels[sent][WHOLE])
        rows = max(self.join_rows, BLOCK_TIMES * whole.rows)
        blocks = ChunkBlockReader(self._chunks[sent.opposite], rows, self.shape.threads)
        groups = [(block, block + 1) for block in range(blocks.count)]
        readers = (whole, blocks) if sent is Side.LEFT else (blocks, whole)
        self._results += self.join_bucket_ranges(groups, *readers)

    def join_bucket_ranges(self, ranges: Iterable[tuple[int, int]], left: RowReader, right: RowReader) -> Iterable[Any]:
        """Join the left and right rows of each range of buckets or blocks; yields the pieces of the result."""
        for first, last in ranges:
            yield self.join_with_library(
                left.read_buckets_as_table(first, last), right.read_buckets_as_table(first, last)
            )

    def join_with_library(self, left: pa.Table, right: pa.Table) -> Any:
        """Join two Arrow tables with the engine's library; returns the library's own table."""
        return self.join_tables(
            self.columns.table_to_library(Side.LEFT, left), self.columns.table_to_library(Side.RIGHT, right)
        )

    def result_row_count(self) -> int:
        return sum(len(piece) for piece in (*self._results, *self._without_key))

    def _add_null_key_result_rows(self) -> None:
        """Add this worker's rows with null or NaN keys to the result, for each side whose unmatched rows are kept.

        They match nothing, so they are not sent, and the partition leaves them out.
        """
        for side in Side:
            if self.shape.how.keeps_unmatched(side):
                chunk = self._chunks[side]
                rows = null_key_row_numbers(chunk, self.shape.keys)
                if rows.size:
                    self._without_key.append(make_unmatched_result(self.shape, side, [(chunk, rows)], self._alone))

    def _empty_parcel_lists(self) -> dict[Side, dict[int, list[Parcel]]]:
        """Return an empty list of parcels for each side and each part."""
        return {side: {part: [] for part in range(WHOLE, self.join_part_count)} for side in Side}

    def _split_chunk_into_parcels(
        self, side: Side, parts: Sequence[int], row_range: tuple[int, int] | None = None
    ) -> list[list[Parcel]]:
        """Split the rows of a side's chunk (or those of `row_range`) into parcels.

        Returns a list for each of the `parts` of the exchange, with a parcel for each worker.
        """
        cuts = () if parts == [WHOLE] else self._cuts
        runs = self._partitioners[side].split_into_parcels(
            self._chunks[side], self._out, self._pool, row_range=row_range, bucket_edges=cuts
        )
        for part, parcels in zip(parts, runs, strict=True):
            self._parcels[side][part].append(parcels[self.shape.rank if self.shape.sent is None else 0])
        return runs

    def received_row_counts(self) -> dict[str, int]:
        parcels = {side: itertools.chain.from_iterable(self._parcels[side].values()) for side in Side}
        rows = {side.value: sum(parcel.rows for parcel in parcels[side]) for side in Side}
        if self._in_place and self.shape.stationary_side is not None:
            rows[self.shape.stationary_side.value] = self._chunks[self.shape.stationary_side].rows
        return rows

    def result_tables(self) -> Iterator[pa.Table]:
        for piece in (*self._results, *self._without_key):
            yield (
                piece.to_arrow()
                if isinstance(piece, Frame)
                else self.columns.result_from_library(self.result_to_arrow(piece))
            )

    def peak_device_bytes(self) -> int | None:
        return None

    def join_tables(self, left: pa.Table, right: pa.Table) -> Any:
        """Join two Arrow tables without null or NaN keys in memory, by the join kind of `shape`.

        Returns the library's own table. Names and types of their columns, and of the result's, are those of `columns`.
        """
        raise NotImplementedError

    def result_to_arrow(self, result_piece: Any) -> pa.Table:
        """Convert a result of `join_tables` to an Arrow table; its columns may be in any order."""
        return result_piece


_COMPLETE: type[PipelinedEngine] = HostEngine  # for the type checker: it has every method


def _outgoing_parcel(parcel: Parcel) -> OutgoingParcel:
    """Return the parcel in the form in which it is sent: the bytes of its header, and its data."""
    return OutgoingParcel(np.ascontiguousarray(parcel.layout.header).view(np.uint8).reshape(-1), parcel.data)


def _part_bucket_edges(shape: JoinShape, buckets: int, piece_bytes: int) -> tuple[int, ...]:
    """Return the first bucket of each part, and the end of the last one.

    Each part's parcel has at least `piece_bytes` bytes.
    """
    widths = [sum(field.assumed_width + field.nullable for field in shape.fields(side)) for side in Side]
    share = shape.rows / 2 / shape.workers**2 * sum(widths) / 2
    parts = max(1, min(MOST_PARTS, buckets, int(share / piece_bytes)))
    return tuple(buckets * part // parts for part in range(parts + 1))

"""Hash-partitioning of a chunk into parcels, one per destination, and reading parcels back as Arrow.

Rows are split twice at once: over the workers, and within a worker's share into buckets small enough that joining one
stays in the L2 cache. A destination's buckets may be dealt out to several parcels, so that the first can be joined
while the others are on their way.

A parcel is one contiguous run of bytes that goes from one worker to another: for every column its values in bucket
order, then its validity (a byte per row) if the column can be null; for variable width the lengths (int32) and then all
bytes. The header says how many rows (and variable bytes) each bucket has, by which a receiver finds everything.

There are two ways of writing rows into parcels. The parcels are the same; the processor decides which way is faster.
``plain`` writes each value to its place at once. The processor first fetches the cache line of that place from memory,
and has to keep one line for each bucket and column in its cache. ``lines`` collects rows for each bucket until they
fill two cache lines of each column, and writes full lines past the caches (`partition_loops.scatter_cache_lines`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from merge_bench.merge.frame import BLOCK, SLACK, Array, Bytes, Column, Field, Frame, empty_table, storage_dtype
from merge_bench.merge.memory import BufferPool, aligned_size, allocate_aligned_bytes

_Item = TypeVar("_Item")
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ParcelLayout:
    """The layout of a parcel: the byte offsets of its columns, computed from its header.

    `header`: shape (1 + variable columns, buckets), int64: rows of each bucket, then bytes of each variable column.
    """

    header: Counts
    starts: tuple[tuple[int, int, int], ...]  # per field: byte offset of values (or lengths), of bytes, of validity
    size: int

    @staticmethod
    def from_header(fields: tuple[Field, ...], header: Counts) -> ParcelLayout:
        """Compute the layout of a parcel with these fields and this header."""
        rows, at, variable = int(header[0].sum()), 0, 0
        starts = []
        for field in fields:
            values, at = at, aligned_size(at + rows * (field.width or 4))
            data = at
            if field.has_variable_width:
                variable += 1
                at = aligned_size(at + int(header[variable].sum()))
            valid = at
            if field.nullable:
                at = aligned_size(at + rows)
            starts.append((values, data, valid))
        return ParcelLayout(header, tuple(starts), at)


def parcel_header_shape(fields: Sequence[Field], buckets: int) -> tuple[int, int]:
    """Return the shape of the header of a parcel with these fields and `buckets` buckets: see `ParcelLayout`."""
    return 1 + sum(field.has_variable_width for field in fields), buckets


@dataclass(frozen=True)
class ByteRuns:
    """A parcel that consists of several buffers, which are sent separately.

    Sender and receiver agree on their lengths.
    """

    runs: tuple[Any, ...]

    @property
    def nbytes(self) -> int:
        return sum(run.nbytes for run in self.runs)


def contiguous_buffers(data: Any) -> tuple[Any, ...]:
    """Return the contiguous buffers of a parcel's data, in the order in which they are sent."""
    return data.runs if isinstance(data, ByteRuns) else (data,)


@dataclass(frozen=True)
class Parcel:
    """The layout and the bytes of a parcel (rows that one worker sends to another), at the sender or at the receiver.

    `room`: the memory that is free once the parcel was sent: `data` and a little more.
    """

    layout: ParcelLayout
    data: Bytes
    room: Bytes | None = None

    @property
    def rows(self) -> int:
        return int(self.layout.header[0].sum())


PLAIN, LINES = "plain", "lines"
PAIRED_STREAMS = 512
"""Most buckets to which plain stores write two columns at once: with more, two lines for each do not fit the cache."""
MOST_COLUMNS = 5
"""Columns that whole lines are written of at once: more gain little, and with eight a value takes longer."""
COLLECTED_BYTES = 768 << 10
"""Most memory of collected rows, which have to stay in the L2 cache; two columns of 2048 buckets need 512 KiB."""

ValueBlocks: TypeAlias = Iterable[tuple[tuple[Array, ...], Array]]
"""Values of successive rows, an array per column, all of one type, and each row's bucket, or none to leave it out."""


class PlainParcelWriter:
    """Writes each value directly to its place in the parcel: the method ``plain``.

    `most_columns`: how many columns to write at once. `most_total_buckets`: with more buckets, the partition loses more
    time than the join of smaller buckets gains.
    """

    most_total_buckets: ClassVar[int] = 512

    def __init__(self, buckets: int) -> None:
        self.most_columns = 2 if buckets <= PAIRED_STREAMS else 1

    def write_columns(self, blocks: ValueBlocks, positions: Counts, out: Array) -> None:
        """Write columns of one type to `out`.

        `positions`: shape (columns, buckets), where each bucket's first value goes.
        """
        from merge_bench.merge import partition_loops

        at, gaps = _first_positions_and_gaps(positions)
        for values, ids in blocks:
            partition_loops.scatter_rows(values, ids, at, out, gaps)


class CacheLineParcelWriter:
    """Collects full cache lines for each bucket and column, and writes them past the caches: the method ``lines``."""

    most_total_buckets: ClassVar[int] = 2048

    def __init__(self, buckets: int) -> None:
        from merge_bench.merge.partition_loops import COLLECTED

        self.most_columns = max(1, min(MOST_COLUMNS, COLLECTED_BYTES // (buckets * COLLECTED)))
        self._rows = allocate_aligned_bytes(self.most_columns * buckets * COLLECTED)

    def write_columns(self, blocks: ValueBlocks, positions: Counts, out: Array) -> None:
        """Write columns of one type to `out`, as `PlainParcelWriter.write_columns` does."""
        from merge_bench.merge import partition_loops

        at, gaps = _first_positions_and_gaps(positions)
        starts, rows = at.copy(), self._rows.view(out.dtype)
        for values, ids in blocks:
            partition_loops.scatter_cache_lines(values, ids, at, starts, rows, out, gaps)
        partition_loops.write_partial_lines(len(positions), at, starts, rows, out, gaps)


def _first_positions_and_gaps(positions: Counts) -> tuple[Array, Array]:
    """Return each bucket's position in the first column, and its distance to the bucket's position in each column."""
    return positions[0].astype(np.uint64), (positions - positions[0]).T.astype(np.uint64).ravel()


Writer: TypeAlias = PlainParcelWriter | CacheLineParcelWriter
"""Writes columns of one type into parcels."""
WRITERS: dict[str, type[Writer]] = {PLAIN: PlainParcelWriter, LINES: CacheLineParcelWriter}


def most_total_buckets(writer_names: Iterable[str]) -> int:
    """Return the largest number of buckets of all workers together that suits all of these parcel writers."""
    return min(WRITERS[way].most_total_buckets for way in writer_names)


def make_parcel_writer(writer_name: str, buckets: int) -> Writer:
    """Make a writer of rows into `buckets` buckets (`writer_name`: ``plain`` or ``lines``); for use by one thread."""
    return WRITERS[writer_name](buckets)


@dataclass
class Partitioner:
    """Splits one side's chunk into a parcel for each worker.

    `fields`: the chunk's fields, the same on every worker. `keys`: names of the key columns. Rows with a null or NaN
    among them match nothing and are left out. `workers`, `buckets`: destinations, and buckets of each destination.
    `threads`: threads of this worker. Rows are divided evenly among them. `scratch`: memory that maps rows to buckets.
    It is used during a split only, so partitioners may share it. `stores`: how rows are written into parcels: ``plain``
    or ``lines``; the parcels are the same.
    """

    fields: tuple[Field, ...]
    keys: Sequence[str]
    workers: int
    buckets: int
    threads: int = 1
    scratch: BufferPool = dataclasses.field(default_factory=BufferPool)
    stores: str = PLAIN

    def __post_init__(self) -> None:
        self._ids = np.empty(0, np.uint16 if self.workers * self.buckets < 2**16 else np.uint32)

    def split_into_parcels(
        self,
        frame: Frame,
        buffers: BufferPool,
        pool: ThreadPoolExecutor | None = None,
        *,
        row_range: tuple[int, int] | None = None,
        bucket_edges: Sequence[int] = (),
    ) -> list[list[Parcel]]:
        """Split a frame into parcels: one per worker for each range of buckets between two of `bucket_edges`.

        `row_range`: only these rows (first…last-1). In each parcel the buckets outside its range are empty.
        """
        self.scratch.reserve_bytes(frame.rows * self._ids.itemsize)
        self._ids = self.scratch.take_bytes(frame.rows * self._ids.itemsize).view(self._ids.dtype)
        spans = divide_rows(*(row_range or (0, frame.rows)), self.threads)
        total = self.workers * self.buckets
        runs = list(itertools.pairwise(bucket_edges or (0, self.buckets)))
        run = map if pool is None else pool.map
        # Of every span of rows the counts of each bucket: rows, then bytes of each column of variable width.
        counts = [np.stack(list(run(partial(self._assign_buckets_to_rows, frame), spans)))[:, :total]]
        for field, column in zip(frame.fields, frame.columns, strict=True):
            if field.has_variable_width:
                counts.append(np.stack(list(run(partial(self._count_value_bytes, column, total), spans))))
        headers = np.stack([each.sum(axis=0).reshape(self.workers, self.buckets) for each in counts], axis=1)
        layouts = [
            ParcelLayout.from_header(self.fields, _header_of_part(header, part)) for header in headers for part in runs
        ]
        rooms = [aligned_size(layout.size + layout.size // SLACK) for layout in layouts]
        whole = buffers.take_bytes(sum(rooms))
        bases = [0, *itertools.accumulate(rooms)]
        widths = np.tile([last - first for first, last in runs], self.workers)
        places = np.array([layout.starts for layout in layouts]) + np.array(bases[:-1])[:, None, None]
        fill = partial(self._fill_parcels, frame, whole, np.repeat(places, widths, axis=0).transpose(1, 2, 0))
        list(run(fill, spans, zip(*(_row_range_starts(each, widths) for each in counts), strict=True)))
        parcels = [
            Parcel(layout, whole[at : at + layout.size], whole[at:end])
            for layout, (at, end) in zip(layouts, itertools.pairwise(bases), strict=True)
        ]
        return [parcels[number :: len(runs)] for number in range(len(runs))]

    def _assign_buckets_to_rows(self, frame: Frame, row_range: tuple[int, int]) -> Counts:
        """Write the bucket number of each row of a range, and return how many rows each bucket has."""
        from merge_bench.merge import partition_loops

        keys = [frame.column(name) for name in self.keys]
        total = self.workers * self.buckets
        counts = np.zeros((partition_loops.HISTOGRAMS, total + 1), np.int64)
        if all(partition_loops.can_hash_key_directly(*key) for key in keys):
            _assign_plain_key_buckets(
                [column.values[slice(*row_range)] for _, column in keys], total, self._ids[slice(*row_range)], counts
            )
        else:
            hasher = partition_loops.RowHasher()
            for start in range(row_range[0], row_range[1], BLOCK):
                hashes, missing = hasher.hash_rows(keys, start, min(BLOCK, row_range[1] - start))
                ids = self._ids[start : start + hashes.size]
                partition_loops.assign_buckets(hashes, missing, total, ids, counts)
        totals: Counts = counts.sum(axis=0)
        return totals

    def _count_value_bytes(self, column: Column, total_buckets: int, row_range: tuple[int, int]) -> Counts:
        """Return how many bytes the values of a variable-width column have in each bucket, over a range of rows."""
        from merge_bench.merge import partition_loops

        assert column.offsets is not None
        sums = np.zeros(total_buckets, np.int64)
        partition_loops.count_bytes_per_bucket(
            column.offsets[row_range[0] : row_range[1] + 1], self._ids[slice(*row_range)], sums
        )
        return sums

    def _fill_parcels(
        self,
        frame: Frame,
        parcel_memory: Bytes,
        column_starts: Counts,
        row_range: tuple[int, int],
        range_starts: tuple[Counts, ...],
    ) -> None:
        """Write a range of rows (first…last-1) of a frame into the parcels, which are in `parcel_memory`.

        `column_starts`: for each column, the bytes of `parcel_memory` at which its values (or lengths), its bytes and
        its validity begin, for each bucket. `range_starts`: the first row of these in the parcel of each bucket, then
        their first byte of each variable column.
        """
        from merge_bench.merge import partition_loops

        span_rows, (rows, *sizes) = slice(*row_range), range_starts
        ids = self._ids[span_rows]
        write = make_parcel_writer(self.stores, self.workers * self.buckets)
        fixed: dict[Any, list[tuple[Array, Counts]]] = defaultdict(list)
        for field, column, (values_at, bytes_at, valid_at) in zip(
            frame.fields, frame.columns, column_starts, strict=True
        ):
            if column.offsets is None:
                fixed[column.values.dtype].append((column.values[span_rows], values_at))
            else:
                offsets = column.offsets[row_range[0] : row_range[1] + 1]
                write.write_columns(
                    _value_length_blocks(offsets, ids), (values_at // 4 + rows)[None], parcel_memory.view(np.int32)
                )
                data = (bytes_at + sizes.pop(0)).astype(np.uint64)
                partition_loops.scatter_byte_strings(column.values, offsets, ids, data, parcel_memory)
            if field.nullable and column.valid is not None:
                fixed[column.valid.dtype].append((column.valid[span_rows], valid_at))
        for dtype, columns in fixed.items():
            for part in _split_evenly(columns, write.most_columns):
                values = tuple(column for column, _ in part)
                positions = np.stack([at for _, at in part]) // dtype.itemsize + rows
                write.write_columns([(values, ids)], positions, parcel_memory.view(dtype))


def _assign_plain_key_buckets(keys: Sequence[Array], total_buckets: int, bucket_ids: Array, counts: Counts) -> None:
    """Write each row's bucket to `bucket_ids`, in fewer passes than `RowHasher` and `assign_buckets` need.

    The keys have fixed widths of up to 8 bytes, and no nulls (`can_hash_key_directly`).
    """
    from merge_bench.merge import partition_loops as loops

    if len(keys) == 1:
        loops.assign_buckets_one_key(keys[0], total_buckets, bucket_ids, counts)
        return
    hashes = np.empty(min(bucket_ids.size, loops.ASSIGNED), np.uint64)
    for start in range(0, bucket_ids.size, loops.ASSIGNED):
        block = slice(start, start + loops.ASSIGNED)
        first, *between, last = (key[block] for key in keys)
        for key in (first, *between, last):
            loops.load_cache_lines(key)
        block_hashes = hashes[: first.size]
        loops.hash_first_key(first, block_hashes)
        for key in between:
            loops.hash_fixed_width(key, block_hashes)
        loops.assign_buckets_last_key(block_hashes, last, total_buckets, bucket_ids[block], counts)


def _split_evenly(columns: Sequence[_Item], most_per_part: int) -> Iterator[Sequence[_Item]]:
    """Split columns into as few groups as possible of at most `most_per_part` columns, as even as possible."""
    parts = -(-len(columns) // most_per_part)
    for part in range(parts):
        yield columns[len(columns) * part // parts : len(columns) * (part + 1) // parts]


def _value_length_blocks(offsets: npt.NDArray[np.int64], bucket_ids: Array) -> ValueBlocks:
    """Yield the lengths in bytes of variable-width values, with their rows' buckets, block by block."""
    for start in range(0, bucket_ids.size, BLOCK):
        ends = offsets[start : start + BLOCK + 1]
        yield (np.subtract(ends[1:], ends[:-1], dtype=np.int32, casting="unsafe"),), bucket_ids[start : start + BLOCK]


def _row_range_starts(counts: Counts, part_widths: Counts) -> Counts:
    """Return where in its parcel each row range's part of each bucket begins: shape (row ranges, buckets)."""
    totals = counts.sum(axis=0)
    before = np.cumsum(totals) - totals
    before -= np.repeat(before[np.cumsum(part_widths) - part_widths], part_widths)
    starts: Counts = before + np.cumsum(counts, axis=0) - counts
    return starts


def _header_of_part(header: Counts, bucket_range: tuple[int, int]) -> Counts:
    """Return the header of a parcel that has only buckets first…last-1: a copy in which the counts of others are 0."""
    kept = np.zeros_like(header)
    kept[:, slice(*bucket_range)] = header[:, slice(*bucket_range)]
    return kept


def divide_rows(first_row: int, stop_row: int, threads: int) -> list[tuple[int, int]]:
    """Divide rows evenly among threads: ranges of first and stop row, each of a block of rows or more."""
    threads = max(1, min(threads, (stop_row - first_row) // BLOCK))
    edges = [first_row + (stop_row - first_row) * k // threads for k in range(threads + 1)]
    return list(itertools.pairwise(edges))


class BucketReader:
    """Reads the buckets of one side from the parcels that a worker received, as tables or frames without copies."""

    def __init__(self, fields: tuple[Field, ...], parcels: Sequence[Parcel]) -> None:
        self.fields = fields
        self.parcels = [parcel for parcel in parcels if parcel.rows]
        headers = [parcel.layout.header for parcel in self.parcels]
        self._edges = [[[0, *np.cumsum(sizes).tolist()] for sizes in header] for header in headers]
        self._columns = [
            [_parcel_column(field, parcel, at) for at, field in enumerate(fields)] for parcel in self.parcels
        ]

    def read_buckets_as_table(self, first: int, stop: int) -> pa.Table:
        """Return the rows of buckets first…stop-1 as one Arrow table, with a chunk for each parcel."""
        tables = [chunk.to_arrow() for chunk in self.read_buckets_as_frames(first, stop)]
        return pa.concat_tables(tables) if tables else empty_table(self.fields)

    def read_buckets_as_frames(self, first: int, stop: int) -> list[Frame]:
        """Return the rows of buckets first…stop-1: for each parcel that has some, a frame over its memory."""
        frames = []
        for whole, (rows, *sizes) in zip(self._columns, self._edges, strict=True):
            start, end = rows[first], rows[stop]
            if start == end:
                continue
            spans = ((edges[first], edges[stop]) for edges in sizes)
            columns = tuple(
                column.slice_fixed_width(start, end)
                if column.offsets is None
                else _slice_variable_width(column, start, end, *next(spans))
                for column in whole
            )
            frames.append(Frame(self.fields, columns, end - start))
        return frames


def _parcel_column(field: Field, parcel: Parcel, index: int) -> Column:
    """Return column number `index` of a parcel with all rows.

    A variable-width column has lengths in place of offsets.
    """
    values_at, bytes_at, valid_at = parcel.layout.starts[index]
    rows = parcel.rows
    valid = parcel.data[valid_at : valid_at + rows] if field.nullable else None
    if field.has_variable_width:
        return Column(parcel.data[bytes_at:], parcel.data[values_at : values_at + 4 * rows].view(np.int32), valid)
    values = parcel.data[values_at : values_at + field.width * rows]
    return Column(values.view(storage_dtype(field.width)), None, valid)


def _slice_variable_width(column: Column, start: int, stop: int, first_byte: int, stop_byte: int) -> Column:
    """Return rows start…stop-1 of a variable-width `_parcel_column`; their bytes are first_byte…stop_byte-1."""
    assert column.offsets is not None
    offsets = np.zeros(stop - start + 1, np.int64)
    np.cumsum(column.offsets[start:stop], out=offsets[1:])
    return Column(
        column.values[first_byte:stop_byte], offsets, None if column.valid is None else column.valid[start:stop]
    )


def group_buckets(
    left: BucketReader, right: BucketReader, stop_bucket: int, rows_per_group: int, *, first_bucket: int = 0
) -> Iterator[tuple[int, int]]:
    """Group buckets into ranges of about `rows_per_group` left and right rows; yields first and stop bucket of each."""
    sizes = np.zeros(stop_bucket, np.int64)
    for parcel in (*left.parcels, *right.parcels):
        sizes += parcel.layout.header[0, :stop_bucket]
    total = 0
    for bucket in range(first_bucket, stop_bucket):
        if bucket > first_bucket and total + sizes[bucket] > rows_per_group:
            yield first_bucket, bucket
            first_bucket, total = bucket, 0
        total += int(sizes[bucket])
    if first_bucket < stop_bucket:
        yield first_bucket, stop_bucket


class RowReader(Protocol):
    """Reads the rows of one side that are joined, by the numbers of their buckets (or blocks)."""

    def read_buckets_as_table(self, first: int, stop: int) -> pa.Table:
        """Return the rows of the buckets (or blocks) first…stop-1 as one Arrow table."""

    def read_buckets_as_frames(self, first: int, stop: int) -> list[Frame]:
        """Return the rows of the buckets (or blocks) first…stop-1 as frames, none of them empty."""


class WholeTableReader:
    """A `RowReader` that returns all rows of its parcels for any bucket or block."""

    def __init__(self, fields: tuple[Field, ...], parcels: Sequence[Parcel]) -> None:
        buckets = len(parcels[0].layout.header[0])
        self._table = BucketReader(fields, parcels).read_buckets_as_table(0, buckets).combine_chunks()
        frame = Frame.from_arrow(self._table).with_nullable_fields({field.name: field.nullable for field in fields})
        self._chunks = [frame] if frame.rows else []
        self.rows = frame.rows

    def read_buckets_as_table(self, first: int, stop: int) -> pa.Table:
        return self._table

    def read_buckets_as_frames(self, first: int, stop: int) -> list[Frame]:
        return self._chunks


class ChunkBlockReader:
    """A `RowReader` of an unpartitioned chunk, in blocks of at most `rows` rows, at least one block per thread."""

    def __init__(self, frame: Frame, rows: int, threads: int) -> None:
        self._frame = frame
        self.count = max(-(-frame.rows // rows), min(threads, frame.rows // BLOCK), 1)

    def read_buckets_as_table(self, first: int, stop: int) -> pa.Table:
        return self._frame.slice(*self._block_edges(first, stop)).to_arrow()

    def read_buckets_as_frames(self, first: int, stop: int) -> list[Frame]:
        rows = self._frame.view_rows(*self._block_edges(first, stop))
        return [rows] if rows.rows else []

    def _block_edges(self, first: int, stop: int) -> tuple[int, int]:
        return self._frame.rows * first // self.count, self._frame.rows * stop // self.count

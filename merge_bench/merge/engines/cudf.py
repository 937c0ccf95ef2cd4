"""cuDF: the engine for NVIDIA GPUs. Only this module uses pylibcudf; `gpu_memory` has the device memory.

Frames stay in device memory from `load_chunks` to `result_tables`. The partition of a chunk leaves each worker's rows
of a column in one run. A column of fixed width without nulls is sent as it lies, and received at its place in the whole
column. The other columns of a parcel are packed into one run more; a header says what travels.

All work, and all memory, is ordered by one CUDA stream of our own, and UCX works on streams of its own. So the stream
is drained wherever memory changes hands: in `partition_chunks`, before UCX reads the parcels; in
`make_receive_buffers`, because the pool may hand out memory that kernels still in the stream are using, and UCX would
write over it; at the end of `join_received_rows`, so that the phase is timed whole. The other direction needs nothing:
a receive is complete when its bytes are in place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from merge_bench.errors import RunFailed, UsageError
from merge_bench.merge.engines import EngineDescription
from merge_bench.merge.engines.base import JoinKind, JoinShape, OutgoingParcel, Side, TableExchangingEngine
from merge_bench.merge.engines.gpu_memory import (
    DeviceBytes,
    allocate_device_buffers,
    copy_device_bytes,
    load_rapids,
    process_cuda_stream,
    translate_rapids_errors,
)
from merge_bench.merge.engines.join_columns import null_key_row_numbers
from merge_bench.merge.frame import Bytes, Field, Frame, arrow_schema, as_integer_type
from merge_bench.merge.partition import ByteRuns

# libcudf's Arrow import (`arrow_to_cudf_type`) maps integers, floats, booleans, decimals of up to 128 bits, strings,
# dates (as a timestamp in days), timestamps (the zone is dropped, the instant stays) and durations.
ENGINE = EngineDescription(
    name="cudf",
    help="libcudf's join, on NVIDIA GPUs",
    attribute="CudfEngine",
    packages=("pylibcudf",),
    place=1,
    device_memory=True,
    dask_backend="cudf",
    refuses=(("time", "cuDF has no type for a time of day"), ("large_binary", "cuDF has no type for byte strings")),
    result_copies=1.25,
)

MOST_ROWS = 2**31 - 1  # libcudf counts rows with 32 bits
NO_ROW = -(2**31)  # what libcudf's joins put into a map where there is no match
# libcudf's join hashes with seed 0. With the same seed here, all keys on one worker would agree in the hash's remainder
# by the number of workers, and crowd together in the join's table.
PARTITION_SEED = 0x9E3779B9
NOTHING = DeviceBytes(0, 0)

_COUNTS = 24  # bytes of the numbers at the beginning of a header, int64 each
# libcudf 26.10 describes a table in 16 bytes and each column in 40; the offsets of strings are a column (its pack.cpp).
# Other releases may need more, so there is room to grow.
_TABLE_BYTES, _COLUMN_BYTES = 128, 64


@dataclass(frozen=True, eq=False)
class GpuParcel:
    """The rows that one worker sends to another, in device memory, at the sender or at the receiver.

    `runs`: the values of each column that is sent without packing. `packed`: the other columns, packed by libcudf, and
    their `description`.
    """

    rows: int
    runs: tuple[DeviceBytes, ...] = ()
    packed: DeviceBytes = NOTHING
    description: bytes = b""

    @property
    def byte_runs(self) -> ByteRuns:
        return ByteRuns((*self.runs, self.packed))


@dataclass(frozen=True, eq=False)
class ReceivedRows:
    """The rows of one side that a worker joins: device memory of whole `columns`, and the `parcels` of all ranks."""

    columns: tuple[DeviceBytes, ...]
    parcels: tuple[GpuParcel, ...]

    @property
    def rows(self) -> int:
        return sum(parcel.rows for parcel in self.parcels)


class ParcelHeader(NamedTuple):
    """The decoded header of a parcel: rows, and libcudf's description and the size in bytes of packed columns."""

    rows: int
    description: bytes
    packed: int


class GpuParcelLayout:
    """The layout in which the columns of one side are sent between GPUs.

    `in_place`: positions of the fields that are sent without packing. `packed`: positions of the others.
    `description_room`: bytes that each header reserves for libcudf's description of packed columns. `header_bytes`: the
    size of every header.
    """

    def __init__(self, shape: JoinShape, side: Side) -> None:
        self._rank, self._side, fields = shape.rank, side, shape.fields(side)
        self.packed = [at for at, field in enumerate(fields) if field.has_variable_width or field.nullable]
        self.in_place = [at for at in range(len(fields)) if at not in self.packed]
        self._widths = [fields[at].width for at in self.in_place]
        columns = sum(2 if fields[at].has_variable_width else 1 for at in self.packed)
        self.description_room = _TABLE_BYTES + columns * _COLUMN_BYTES if columns else 0
        self.header_bytes = _COUNTS + self.description_room

    def outgoing_parcel(self, parcel: GpuParcel) -> OutgoingParcel:
        """Add the header to a parcel.

        Raises `RunFailed` if libcudf's description does not fit into `description_room`.
        """
        size = len(parcel.description)
        if size > self.description_room:
            raise _unsupported_libcudf_error(
                f"needs {size} bytes to describe the columns of the {self._side.value} frame, but engine cudf reserves"
                f" only {self.description_room}"
            )
        header = np.zeros(self.header_bytes, np.uint8)
        header[:_COUNTS].view(np.int64)[:] = parcel.rows, size, parcel.packed.size
        header[_COUNTS : _COUNTS + size] = np.frombuffer(parcel.description, np.uint8)
        return OutgoingParcel(header, parcel.byte_runs)

    def read_header(self, source_rank: int, header: Bytes) -> ParcelHeader:
        """Decode the header of a parcel from one rank; raises `RunFailed` if the bytes are not a valid header."""
        rows, size, packed = (int(n) for n in np.frombuffer(header[:_COUNTS].tobytes(), np.int64))
        if rows < 0 or not 0 <= size <= self.description_room or packed < 0:
            raise RunFailed(
                f"rank {self._rank} received an invalid header from rank {source_rank}: {rows} rows described in {size}"
                f" bytes, {packed} bytes packed"
            )
        return ParcelHeader(rows, header[_COUNTS : _COUNTS + size].tobytes(), packed)

    def slice_columns(self, columns: Sequence[DeviceBytes], row_range: tuple[int, int]) -> tuple[DeviceBytes, ...]:
        """Return the device memory of a range of rows (start…stop-1), for each column that is sent without packing."""
        start, stop = row_range
        return tuple(each[start * width : stop * width] for each, width in zip(columns, self._widths, strict=True))

    def allocate_received_rows(
        self, own_parcel: GpuParcel, headers_by_rank: Mapping[int, ParcelHeader]
    ) -> ReceivedRows:
        """Allocate device memory for one side's parcels of all ranks, by the sizes in the headers of the other ranks.

        `own_parcel`: this worker's rows of its own chunk. Its packed columns stay where they are; the others are still
        to be copied.
        """
        headers = {**headers_by_rank, self._rank: ParcelHeader(own_parcel.rows, own_parcel.description, 0)}
        edges = [0, *itertools.accumulate(headers[source].rows for source in range(len(headers)))]
        whole = [edges[-1] * width for width in self._widths]
        memory = allocate_device_buffers([*whole, *(header.packed for header in headers_by_rank.values())])
        columns = tuple(memory[: len(whole)])
        packed = {**dict(zip(headers_by_rank, memory[len(whole) :], strict=True)), self._rank: own_parcel.packed}
        parcels = (
            GpuParcel(
                headers[source].rows, self.slice_columns(columns, span), packed[source], headers[source].description
            )
            for source, span in enumerate(itertools.pairwise(edges))
        )
        return ReceivedRows(columns, tuple(parcels))


class CudfEngine:
    """Partitions rows by hash on the GPU, and joins all rows of a worker at once with libcudf.

    With one worker nothing is partitioned: all rows are its own. Make the engine before the process's UCX context,
    because UCX looks for CUDA when the context is made. A CUDA context is bound in the thread that makes the engine;
    call `bind_cuda_context` in any other thread that uses it.

    Raises `UsageError` if there is no GPU that CUDA can use here, `RunFailed` if CUDA refuses a context or a stream.
    """

    name: ClassVar[str] = ENGINE.name
    piece_rows: ClassVar[int] = 1 << 22  # of the result, brought to the host at once

    def __init__(self, shape: JoinShape) -> None:
        self._plc, self._rmm = load_rapids()
        self._stream: Any = process_cuda_stream()
        self._rmm.statistics.enable_statistics()
        self._rmm.statistics.push_statistics()  # counts from zero: the process may have held another engine
        self.shape = shape
        self._keys = {side: shape.key_positions(side) for side in Side}
        self._chunks: dict[Side, Any] = {}
        self._whole: dict[Side, Any] = {}  # with one worker, the rows that can match
        self._layouts = {side: GpuParcelLayout(shape, side) for side in Side}
        self._own: dict[Side, GpuParcel] = {}  # this worker's rows of its own chunk
        self._received: dict[Side, ReceivedRows] = {}
        self._joined = dict.fromkeys(Side, 0)  # rows of each side in the last join
        self._maps: dict[Side, Any] = {}  # of kept rows without a key: their numbers, and `NO_ROW` as often
        self._result: Any = None
        self._without_key: list[Any] = []  # rows of the result for these rows

    def load_chunks(self, left: Frame, right: Frame) -> None:
        for side, frame in zip(Side, (left, right), strict=True):
            if frame.rows > MOST_ROWS:
                raise UsageError(
                    f"the {side.value} chunk has {frame.rows:,} rows, but engine cudf can hold only {MOST_ROWS:,};"
                    " use a smaller --chunk or more workers"
                )
            with translate_rapids_errors(self.shape.rank, "copying the chunks to the GPU"):
                stored = _to_storage_types(frame.to_arrow(), self.shape.fields(side))
                self._chunks[side] = self._plc.Table.from_arrow(stored, stream=self._stream)
                rows = null_key_row_numbers(frame, self.shape.keys) if self.shape.how.keeps_unmatched(side) else ()
                if len(rows):
                    maps = pa.table({"rows": rows, "no rows": np.full(len(rows), NO_ROW, np.int32)})
                    self._maps[side] = self._plc.Table.from_arrow(maps, stream=self._stream)
                self._stream.synchronize()

    def parcel_header_bytes(self, side: Side) -> int:
        return self._layouts[side].header_bytes

    def begin_iteration(self) -> None:
        self._without_key = []
        self._result = None
        self._whole, self._own, self._received = {}, {}, {}

    def partition_chunks(self) -> dict[Side, list[OutgoingParcel]]:
        """Split both chunks into one parcel per worker by libcudf's hash of their keys; 0.0 and -0.0 are equal."""
        outgoing = {side: self._split_chunk_into_parcels(side) for side in Side}
        with translate_rapids_errors(self.shape.rank, "partitioning the frames"):
            self._without_key = [self._unmatched_result_rows(side, maps) for side, maps in self._maps.items()]
            self._stream.synchronize()
        return outgoing

    def chunk_tables(self) -> dict[Side, Any]:
        with translate_rapids_errors(self.shape.rank, "leaving out rows that match nothing"):
            self._without_key = [self._unmatched_result_rows(side, maps) for side, maps in self._maps.items()]
            return {side: self._rows_without_null_keys(side) for side in Side}

    def set_received_table(self, side: Side, table: Any) -> None:
        with translate_rapids_errors(self.shape.rank, "receiving rows"):
            self._whole[side] = self._empty_table(side) if table is None else table

    def wait_for_device(self) -> None:
        with translate_rapids_errors(self.shape.rank, "waiting for the GPU"):
            self._stream.synchronize()

    def make_receive_buffers(self, side: Side, headers: Mapping[int, Bytes]) -> dict[int, ByteRuns]:
        if not headers or side in self._whole:
            return {source: GpuParcel(0).byte_runs for source in headers}
        layout, own = self._layouts[side], self._own[side]
        others = {source: layout.read_header(source, header) for source, header in headers.items()}
        rows = own.rows + sum(each.rows for each in others.values())
        if rows > MOST_ROWS:
            raise RunFailed(
                f"rank {self.shape.rank} received {rows:,} rows of the {side.value} table, but engine cudf can join"
                f" only {MOST_ROWS:,}; use a smaller --chunk or more workers"
            )
        with translate_rapids_errors(self.shape.rank, "allocating memory for received rows"):
            received = self._received[side] = layout.allocate_received_rows(own, others)
        return {source: received.parcels[source].byte_runs for source in headers}

    def reuse_sent_parcel_memory(self, side: Side) -> None:
        """Do nothing: the memory of sent parcels is kept until the next `begin_iteration`."""

    def join_received_rows(self) -> int:
        """Join all received rows at once: find the row numbers of the pairs, then gather the columns of each side."""
        with translate_rapids_errors(self.shape.rank, "joining"):
            left, right = self._assemble_received_table(Side.LEFT), self._assemble_received_table(Side.RIGHT)
            self._joined = {Side.LEFT: left.num_rows(), Side.RIGHT: right.num_rows()}
            left_map, right_map = self._matching_row_numbers(left, right)
            columns = self._gather_rows(left, left_map, may_be_missing=self.shape.how.keeps_unmatched_right)
            del left, left_map
            if self.shape.how.has_right_columns:
                columns = self._add_right_columns(columns, right, right_map)
            self._stream.synchronize()
        self._result = self._plc.Table(columns)
        return int(sum(table.num_rows() for table in (self._result, *self._without_key)))

    def _matching_row_numbers(self, left: Any, right: Any) -> tuple[Any, Any]:
        """Return the left and the right row number of each row of the result, or `NO_ROW` where that side has no match.

        The right row numbers are None if the join makes no pairs (semi and anti join).
        """
        plc, how, stream = self._plc, self.shape.how, self._stream
        ours, theirs = (
            self._select_columns(left, self._keys[Side.LEFT]),
            self._select_columns(right, self._keys[Side.RIGHT]),
        )
        unequal = plc.types.NullEquality.UNEQUAL
        right_map = None
        if how is JoinKind.SEMI:
            left_map = plc.join.left_semi_join(ours, theirs, unequal, stream=stream)
        elif how is JoinKind.ANTI:
            left_map = plc.join.left_anti_join(ours, theirs, unequal, stream=stream)
        elif how is JoinKind.LEFT:
            left_map, right_map = plc.join.left_join(ours, theirs, unequal, stream=stream)
        elif how is JoinKind.RIGHT:
            right_map, left_map = plc.join.left_join(theirs, ours, unequal, stream=stream)
        elif how is JoinKind.OUTER:
            left_map, right_map = plc.join.full_join(ours, theirs, unequal, stream=stream)
        else:
            left_map, right_map = plc.join.inner_join(ours, theirs, unequal, stream=stream)
        return left_map, right_map

    def _gather_rows(self, table: Any, row_numbers: Any, *, may_be_missing: bool) -> list[Any]:
        """Gather the rows with these numbers from a table.

        Returns the columns, with null for `NO_ROW` if `may_be_missing`.
        """
        copying = self._plc.copying
        if may_be_missing:
            gathered = copying.gather(table, row_numbers, copying.OutOfBoundsPolicy.NULLIFY, stream=self._stream)
        else:
            gathered = copying.gather(table, row_numbers, copying.OutOfBoundsPolicy.DONT_CHECK, stream=self._stream)
        return list(gathered.columns())

    def _add_right_columns(self, columns: list[Any], right: Any, row_numbers: Any) -> list[Any]:
        """Append the right columns to the left ones, and fill in the keys of rows that only the right side has."""
        how = self.shape.how
        if how.keeps_unmatched_right:
            keys = self._gather_rows(
                self._select_columns(right, self._keys[Side.RIGHT]),
                row_numbers,
                may_be_missing=how.keeps_unmatched_left,
            )
            for at, key in zip(self._keys[Side.LEFT], keys, strict=True):
                columns[at] = self._plc.replace.replace_nulls(columns[at], key, stream=self._stream)
        if self.shape.right_payload_positions:
            payload = self._select_columns(right, self.shape.right_payload_positions)
            columns += self._gather_rows(payload, row_numbers, may_be_missing=how.keeps_unmatched_left)
        return columns

    def _unmatched_result_rows(self, side: Side, row_maps: Any) -> Any:
        """Return the result rows of one side's rows with null keys, with nulls for the other side's columns."""
        rows, no_rows = row_maps.columns()
        own = self._gather_rows(self._chunks[side], rows, may_be_missing=False)
        if not self.shape.how.has_right_columns:
            return self._plc.Table(own)
        nulls = self._gather_rows(self._chunks[side.opposite], no_rows, may_be_missing=True)
        left, right = (own, nulls) if side is Side.LEFT else (nulls, own)
        if side is Side.RIGHT:
            for at, key in zip(self._keys[Side.LEFT], self._keys[Side.RIGHT], strict=True):
                left[at] = right[key]
        return self._plc.Table([*left, *(right[at] for at in self.shape.right_payload_positions)])

    def received_row_counts(self) -> dict[str, int]:
        return {side.value: rows for side, rows in self._joined.items()}

    def result_tables(self) -> Iterator[pa.Table]:
        """Yield the result as Arrow tables of at most `piece_rows` rows; one empty table if there are no rows."""
        schema = arrow_schema(self.shape.output_fields)
        whole = [] if self._result is None else [self._result, *self._without_key]
        tables = [table for table in whole if table.num_rows()]
        if not tables:
            yield schema.empty_table()
        for table in tables:
            rows = int(table.num_rows())
            for start in range(0, rows, self.piece_rows):
                bounds = [start, min(start + self.piece_rows, rows)]
                with translate_rapids_errors(self.shape.rank, "copying the result to the host"):
                    piece = self._plc.copying.slice(table, bounds, stream=self._stream)[0]
                    host = piece.to_arrow(schema.names, stream=self._stream)
                yield _from_storage_types(host, schema)

    def peak_device_bytes(self) -> int | None:
        """The most bytes that this process had allocated through RMM at once since the engine was made.

        Counted by RMM's statistics adaptor on top of the pool: what the pool holds in reserve does not count, nor do
        CUDA's context and UCX's own buffers. None if someone has since put another memory resource on top.
        """
        counted = self._rmm.statistics.get_statistics()
        return None if counted is None else int(counted.peak_bytes)

    def _rows_without_null_keys(self, side: Side) -> Any:
        """Return the chunk of one side without the rows that have a null or NaN key, which match nothing."""
        table, keys, fields = self._chunks[side], self._keys[side], self.shape.fields(side)
        compaction = self._plc.stream_compaction
        nullable = [index for index in keys if fields[index].nullable]
        floating = [index for index in keys if fields[index].is_floating]
        if nullable:
            table = compaction.drop_nulls(table, nullable, len(nullable), stream=self._stream)
        if floating:
            table = compaction.drop_nans(table, floating, len(floating), stream=self._stream)
        return table

    def _split_chunk_into_parcels(self, side: Side) -> list[OutgoingParcel]:
        """Start to partition one side's chunk on the CUDA stream; returns one parcel per worker, in rank order."""
        plc, stream, workers = self._plc, self._stream, self.shape.workers
        outgoing_parcel = self._layouts[side].outgoing_parcel
        with translate_rapids_errors(self.shape.rank, f"partitioning the {side.value} frame"):
            table = self._rows_without_null_keys(side)
            if workers == 1 or side is self.shape.stationary_side:
                self._whole[side] = table
                return [outgoing_parcel(GpuParcel(0))] * workers
            if side is self.shape.sent:
                (self._own[side],) = self._make_parcels(side, table, [0, table.num_rows()])
                return [outgoing_parcel(self._own[side])] * workers
            table, offsets = plc.partitioning.hash_partition(
                table, self._keys[side], workers, seed=PARTITION_SEED, stream=stream
            )
            parcels = self._make_parcels(side, table, [*offsets[:workers], table.num_rows()])
        self._own[side] = parcels[self.shape.rank]
        return [outgoing_parcel(parcel) for parcel in parcels]

    def _make_parcels(self, side: Side, table: Any, row_edges: Sequence[int]) -> list[GpuParcel]:
        layout, columns, spans = self._layouts[side], table.columns(), list(itertools.pairwise(row_edges))
        values = [self._column_device_bytes(self.shape.fields(side)[at], columns[at]) for at in layout.in_place]
        runs = [layout.slice_columns(values, span) for span in spans]
        if not layout.packed:
            return [GpuParcel(stop - start, lying) for (start, stop), lying in zip(spans, runs, strict=True)]
        others, bounds = self._select_columns(table, layout.packed), [edge for span in spans for edge in span]
        parts = self._plc.copying.slice(others, bounds, stream=self._stream)
        return [self._pack_columns(part, lying) for part, lying in zip(parts, runs, strict=True)]

    def _column_device_bytes(self, field: Field, column: Any) -> DeviceBytes:
        """Return the device memory of the values of a libcudf column.

        Raises `RunFailed` if its size is not as expected.
        """
        values, expected = column.data(), int(column.size()) * field.width
        memory = NOTHING if values is None else DeviceBytes(values.ptr, values.size, values)
        if memory.size != expected:
            raise _unsupported_libcudf_error(
                f"holds column {field.name!r} in {memory.size} bytes, but engine cudf expects {expected}"
            )
        return memory

    def _pack_columns(self, table: Any, runs: tuple[DeviceBytes, ...]) -> GpuParcel:
        if table.num_rows() == 0:
            return GpuParcel(0, runs)
        description, data = self._plc.contiguous_split.pack(table, stream=self._stream).release()
        packed = DeviceBytes(data.ptr, data.nbytes, data)
        return GpuParcel(int(table.num_rows()), runs, packed, bytes(description))

    def _assemble_received_table(self, side: Side) -> Any:
        """Make one table of all rows of a side that this worker joins; its parcels are freed."""
        if side in self._whole:
            return self._whole.pop(side)
        layout, chunk = self._layouts[side], self._chunks[side]
        own, received = self._own.pop(side), self._received.pop(side)
        if not received.rows:
            return self._empty_table(side)
        for source, target in zip(own.runs, received.parcels[self.shape.rank].runs, strict=True):
            copy_device_bytes(source, target)
        types = [column.type() for column in chunk.columns()]
        columns = [
            self._plc.Column(types[at], received.rows, values, None, 0, 0, [])
            for at, values in zip(layout.in_place, received.columns, strict=True)
        ]
        if layout.packed:
            columns += self._unpack_columns(received.parcels)
        order = [*layout.in_place, *layout.packed]
        return self._plc.Table([columns[order.index(at)] for at in range(len(order))])

    def _empty_table(self, side: Side) -> Any:
        """Return a table without rows that has the columns of a side."""
        return self._plc.copying.slice(self._chunks[side], [0, 0], stream=self._stream)[0]

    def _unpack_columns(self, parcels: Sequence[GpuParcel]) -> list[Any]:
        """Unpack the packed columns of all parcels and concatenate them."""
        unpack = self._plc.contiguous_split.unpack_from_memoryviews
        tables = [
            unpack(memoryview(each.description), each.packed, stream=self._stream) for each in parcels if each.rows
        ]
        whole = tables[0] if len(tables) == 1 else self._plc.concatenate.concatenate(tables, stream=self._stream)
        return list(whole.columns())

    def _select_columns(self, table: Any, positions: Sequence[int]) -> Any:
        """A table of the columns at positions `positions`."""
        columns = table.columns()
        return self._plc.Table([columns[index] for index in positions])


_COMPLETE: type[TableExchangingEngine] = CudfEngine  # for the type checker: it has every method


def _unsupported_libcudf_error(reason: str) -> RunFailed:
    """Make the error that the installed libcudf does not work with this engine, for the given reason."""
    return RunFailed(f"the installed libcudf does not work with engine cudf: libcudf {reason}; use another --engine")


def _storage_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type under which values are stored on the device: integers for dates and times, strings for bytes.

    libcudf has no time of day, no time zones and no byte strings; a merge only compares values for equality, and that
    is the same for their integers and bytes. Other types are unchanged.
    """
    return pa.large_string() if pa.types.is_large_binary(arrow_type) else as_integer_type(arrow_type)


def _to_storage_types(table: pa.Table, fields: Sequence[Field]) -> pa.Table:
    """Convert a table to the types of `_storage_type`, without copying."""
    arrays = [
        column.chunk(0).view(_storage_type(field.type)) for field, column in zip(fields, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=table.column_names)


def _from_storage_types(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a table from the device's types to those of `schema`.

    Decimals from libcudf have the largest precision.
    """
    arrays = [
        pa.concat_arrays(column.cast(_storage_type(field.type)).chunks).view(field.type)
        for field, column in zip(schema, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)

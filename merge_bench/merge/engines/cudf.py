"""cuDF: the engine for NVIDIA GPUs. Only this module uses pylibcudf; `gpu_memory` has the device memory.

Frames stay in device memory from `load` to `results`. Each partition is packed into one contiguous device buffer, which
UCX sends as it is; its header carries libcudf's description of what lies where in it.

All work goes to one CUDA stream, and UCX works on streams of its own. So the stream is drained wherever memory changes
hands: in `partition`, before UCX reads what was packed; in `inbox`, because the pool may hand out memory that kernels
still in the stream are using, and UCX would write over it; at the end of `join`, so that the phase is timed whole. The
other direction needs nothing: a receive is complete only when its bytes are in place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from merge_bench.errors import RunFailed, UsageError, first_line
from merge_bench.merge.engines import Description
from merge_bench.merge.engines.base import Engine, JoinShape, Outgoing, Side
from merge_bench.merge.engines.gpu_memory import DeviceBytes, allocate, load_rapids
from merge_bench.merge.frame import Bytes, Field, Frame, arrow_schema, integer_type

# libcudf's Arrow import (`arrow_to_cudf_type`) maps integers, floats, booleans, decimals of up to 128 bits, strings,
# dates (as a timestamp in days), timestamps (the zone is dropped, the instant stays) and durations.
ENGINE = Description(
    name="cudf",
    help="libcudf's join, on NVIDIA GPUs",
    attribute="CudfEngine",
    packages=("pylibcudf",),
    place=1,
    device_memory=True,
    dask_backend="cudf",
    refuses=(
        ("time", "cuDF has no type for a time of day"),
        ("large_binary", "cuDF has no type for byte strings"),
    ),
    result_copies=1.25,
)

MOST_ROWS = 2**31 - 1  # libcudf counts rows with 32 bits
RESULT_PIECE_ROWS = 1 << 22  # rows brought to the host at once
# libcudf's join hashes with seed 0. With the same seed here, all keys on one worker would agree in the hash's remainder
# by the number of workers, and crowd together in the join's table.
PARTITION_SEED = 0x9E3779B9

_LENGTHS = 16  # bytes of a header before the description: its length and the length of the data, int64 each
# libcudf 26.10 describes a table in 16 bytes and each column in 40; the offsets of strings are a column (its pack.cpp).
# Other releases may need more, so there is room to grow.
_TABLE_BYTES, _COLUMN_BYTES = 128, 64


@dataclass(frozen=True, eq=False)
class _Packed:
    description: bytes
    data: DeviceBytes


class CudfEngine:
    """Hash-partitions, packs, and joins once over everything that a worker owns.

    With one worker nothing is partitioned or packed: all rows are its own. Make the engine before the process's UCX
    context, because UCX looks for CUDA when the context is made.

    A CUDA context is bound in the thread that makes the engine; call `cuda_context.bind` in any other thread that uses
    it.

    Raises
    ------
    UsageError
        If there is no GPU that CUDA can use here.
    """

    name: ClassVar[str] = ENGINE.name

    def __init__(self, shape: JoinShape) -> None:
        self._plc, self._rmm, self._stream = load_rapids()
        self._rmm.statistics.enable_statistics()
        self._rmm.statistics.push_statistics()  # counts from zero: the process may have held another engine
        self.shape = shape
        self._keys = {side: shape.key_places(side) for side in Side}
        self._chunks: dict[Side, Any] = {}
        self._whole: dict[Side, Any] = {}  # with one worker, the rows that can match
        self._parcels: dict[Side, list[_Packed]] = {side: [] for side in Side}
        self._joined = dict.fromkeys(Side, 0)  # rows of each side in the last join
        self._result: Any = None

    def load(self, left: Frame, right: Frame) -> None:
        """Copy this worker's chunks to the device."""
        for side, frame in ((Side.LEFT, left), (Side.RIGHT, right)):
            if frame.rows > MOST_ROWS:
                raise UsageError(
                    f"the {side.value} chunk has {frame.rows:,} rows, but engine cudf holds at most {MOST_ROWS:,} in"
                    " one table; use a smaller --chunk or more workers"
                )
            with self._named_errors("copying the chunks to the GPU"):
                stored = _stored(frame.to_arrow(), self.shape.fields(side))
                self._chunks[side] = self._plc.Table.from_arrow(stored, stream=self._stream)
                self._stream.synchronize()

    def header_bytes(self, side: Side) -> int:
        """Length of every header of a side: the two lengths and room for libcudf's description."""
        return _LENGTHS + self._capacity(side)

    def begin(self) -> None:
        """Return the memory of the last iteration to the pool."""
        self._result = None
        self._whole = {}
        self._parcels = {side: [] for side in Side}

    def partition(self, side: Side) -> list[Outgoing]:
        """Split a chunk by libcudf's hash of its keys, which takes both zeros for one value, and pack each part."""
        plc, stream = self._plc, self._stream
        with self._named_errors(f"partitioning the {side.value} frame"):
            table = self._joinable(side)
            if self.shape.workers == 1:
                self._whole[side] = table
                return [Outgoing(self._header(side, _EMPTY), _EMPTY.data)]
            workers = self.shape.workers
            table, offsets = plc.partitioning.hash_partition(
                table, self._keys[side], workers, seed=PARTITION_SEED, stream=stream
            )
            edges = [*offsets[:workers], table.num_rows()]
            bounds = [edge for pair in itertools.pairwise(edges) for edge in pair]
            parts = [self._pack(part) for part in plc.copying.slice(table, bounds, stream=stream)]
            stream.synchronize()
        self._parcels[side].append(parts[self.shape.rank])
        return [Outgoing(self._header(side, part), part.data) for part in parts]

    def inbox(self, side: Side, source: int, header: Bytes) -> DeviceBytes:
        """Device memory, out of the pool, for the parcel that `header` describes."""
        length, size = (int(n) for n in np.frombuffer(header[:_LENGTHS].tobytes(), np.int64))
        if not 0 <= length <= self._capacity(side) or size < 0:
            raise RunFailed(f"rank {self.shape.rank} received an invalid header from rank {source}")
        if size == 0:
            return _EMPTY.data
        with self._named_errors("allocating memory for received rows"):
            data = allocate(size)
        parcel = _Packed(header[_LENGTHS : _LENGTHS + length].tobytes(), data)
        self._parcels[side].append(parcel)
        return parcel.data

    def sent(self, side: Side) -> None:
        """The pool keeps what was sent until the next `begin`."""

    def join(self) -> int:
        """Inner join of all parcels at once: two maps of row numbers, then one gather a side."""
        plc, stream = self._plc, self._stream
        dont_check = plc.copying.OutOfBoundsPolicy.DONT_CHECK
        with self._named_errors("joining"):
            left, right = self._owned(Side.LEFT), self._owned(Side.RIGHT)
            self._joined = {Side.LEFT: left.num_rows(), Side.RIGHT: right.num_rows()}
            left_map, right_map = plc.join.inner_join(
                self._select(left, self._keys[Side.LEFT]),
                self._select(right, self._keys[Side.RIGHT]),
                plc.types.NullEquality.UNEQUAL,
                stream=stream,
            )
            columns = list(plc.copying.gather(left, left_map, dont_check, stream=stream).columns())
            del left, left_map
            if self.shape.payload:
                payload = self._select(right, self.shape.payload)
                columns += plc.copying.gather(payload, right_map, dont_check, stream=stream).columns()
            stream.synchronize()
        self._result = plc.Table(columns)
        return int(self._result.num_rows())

    def received_rows(self) -> dict[str, int]:
        """Rows of each side that this worker had to join, its own included."""
        return {side.value: rows for side, rows in self._joined.items()}

    def results(self) -> Iterator[pa.Table]:
        """The result in pieces of at most `RESULT_PIECE_ROWS` rows; one empty piece if there are none."""
        rows = int(self._result.num_rows()) if self._result is not None else 0
        schema = arrow_schema(self.shape.output)
        if rows == 0:
            yield schema.empty_table()
        for start in range(0, rows, RESULT_PIECE_ROWS):
            with self._named_errors("copying the result to the host"):
                bounds = [start, min(start + RESULT_PIECE_ROWS, rows)]
                piece = self._plc.copying.slice(self._result, bounds, stream=self._stream)[0]
                host = piece.to_arrow(schema.names, stream=self._stream)
            yield _restored(host, schema)

    def peak_device_bytes(self) -> int | None:
        """The most bytes that this process had allocated through RMM at once since the engine was made.

        Counted by RMM's statistics adaptor on top of the pool: what the pool holds in reserve does not count, nor do
        CUDA's context and UCX's own buffers. None if someone has since put another memory resource on top.
        """
        counted = self._rmm.statistics.get_statistics()
        return None if counted is None else int(counted.peak_bytes)

    def _joinable(self, side: Side) -> Any:
        """The chunk without the rows that match nothing: those with a null or a NaN among their keys."""
        table, keys, fields = self._chunks[side], self._keys[side], self.shape.fields(side)
        compaction = self._plc.stream_compaction
        nullable = [index for index in keys if fields[index].nullable]
        floating = [index for index in keys if fields[index].floating]
        if nullable:
            table = compaction.drop_nulls(table, nullable, len(nullable), stream=self._stream)
        if floating:
            table = compaction.drop_nans(table, floating, len(floating), stream=self._stream)
        return table

    def _pack(self, part: Any) -> _Packed:
        if part.num_rows() == 0:
            return _EMPTY
        description, data = self._plc.contiguous_split.pack(part, stream=self._stream).release()
        return _Packed(bytes(description), DeviceBytes(data.ptr, data.nbytes, data))

    def _header(self, side: Side, part: _Packed) -> Bytes:
        header = np.zeros(self.header_bytes(side), np.uint8)
        end = _LENGTHS + len(part.description)
        if end > header.size:
            raise RunFailed(
                f"the installed libcudf does not work with engine cudf: libcudf needs {len(part.description)} bytes to"
                f" describe the columns of the {side.value} frame, but engine cudf reserves only"
                f" {self._capacity(side)}; use another --engine"
            )
        header[:_LENGTHS].view(np.int64)[:] = len(part.description), part.data.size
        header[_LENGTHS:end] = np.frombuffer(part.description, np.uint8)
        return header

    def _capacity(self, side: Side) -> int:
        columns = sum(2 if field.variable else 1 for field in self.shape.fields(side))
        return _TABLE_BYTES + columns * _COLUMN_BYTES

    def _owned(self, side: Side) -> Any:
        """All rows of one side that this worker joins, as one table; its parcels are freed."""
        if side in self._whole:
            return self._whole.pop(side)
        plc = self._plc
        parcels = [parcel for parcel in self._parcels[side] if parcel.data.size]
        self._parcels[side] = []
        if not parcels:
            return plc.copying.slice(self._chunks[side], [0, 0], stream=self._stream)[0]
        unpack = plc.contiguous_split.unpack_from_memoryviews
        tables = [unpack(memoryview(parcel.description), parcel.data, stream=self._stream) for parcel in parcels]
        rows = sum(table.num_rows() for table in tables)
        if rows > MOST_ROWS:
            raise RunFailed(
                f"rank {self.shape.rank} received {rows:,} {side.value} rows, but engine cudf joins at most"
                f" {MOST_ROWS:,}; use a smaller --chunk or more workers"
            )
        return tables[0] if len(tables) == 1 else plc.concatenate.concatenate(tables, stream=self._stream)

    def _select(self, table: Any, indices: Sequence[int]) -> Any:
        columns = table.columns()
        return self._plc.Table([columns[index] for index in indices])

    @contextmanager
    def _named_errors(self, doing: str) -> Iterator[None]:
        """Turn exceptions of libcudf and RMM into one sentence."""
        try:
            yield
        except MemoryError as error:
            raise RunFailed(
                f"rank {self.shape.rank} ran out of GPU memory while {doing}; use a smaller --chunk, more workers or a"
                " larger --rmm-pool-size"
            ) from error
        except (RuntimeError, ValueError, TypeError, ArithmeticError, IndexError) as error:
            raise RunFailed(f"rank {self.shape.rank} failed while {doing}: {first_line(error)}") from error


_COMPLETE: type[Engine] = CudfEngine  # for the type checker: it has every method
_EMPTY = _Packed(b"", DeviceBytes(0, 0))


def _storage_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type under which values lie on the device: dates and times as integers, bytes as strings, the rest as is.

    libcudf has no time of day, no zones and no byte strings; equality, which is all that a merge asks of a value, is
    the same for their integers and bytes.
    """
    return pa.large_string() if pa.types.is_large_binary(arrow_type) else integer_type(arrow_type)


def _stored(table: pa.Table, fields: Sequence[Field]) -> pa.Table:
    """The table under its storage types, without copying."""
    arrays = [
        column.chunk(0).view(_storage_type(field.type)) for field, column in zip(fields, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=table.column_names)


def _restored(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table from the device under the types it had before: libcudf returns decimals as wide as can be."""
    arrays = [
        pa.concat_arrays(column.cast(_storage_type(field.type)).chunks).view(field.type)
        for field, column in zip(schema, table.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)

"""Columns and tables of pylibcudf in the memory of `fake_device`.

Views share their owner: a slice that of the whole, an unpacked table the buffer that it was unpacked from. A column
without nulls has no mask, wherever it comes from. A boolean is a byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tests.helpers.fake_device import DEFAULT_STREAM, Block, Bytes, Process, hand_over, read, use, write

TYPES = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.large_string(),
)
DECIMAL, OFFSETS = 100, 200
DESCRIPTION_BYTES = [40]  # per column; see `columns_described_in`
TABLE = struct.Struct("<8sq")
COLUMN = struct.Struct("<qqqqq")
MAGIC = b"columns\0"


@contextmanager
def columns_described_in(size: int) -> Iterator[None]:
    """A release of libcudf that describes a column in so many bytes."""
    before, DESCRIPTION_BYTES[0] = DESCRIPTION_BYTES[0], size
    try:
        yield
    finally:
        DESCRIPTION_BYTES[0] = before


PART = 64  # packed columns lie at multiples of it


@dataclass(frozen=True)
class Part:
    """Bytes on the device; whoever holds this holds their owner."""

    ptr: int
    size: int
    owner: Any


@dataclass(frozen=True)
class DataType:
    """`kind`: as Arrow calls it."""

    kind: pa.DataType

    @property
    def width(self) -> int:
        """Bytes of a value; 0 for strings."""
        if pa.types.is_large_string(self.kind):
            return 0
        return 1 if pa.types.is_boolean(self.kind) else int(self.kind.bit_width) // 8


class Column:
    """Spans are anything with `ptr` and `size`; a column of strings has one of offsets as its child."""

    def __init__(
        self,
        data_type: DataType,
        size: int,
        data: Any,
        mask: Any,
        null_count: int,
        offset: int,
        children: Sequence[Column],
        validate: bool = True,
    ) -> None:
        for span in (data, mask):
            if validate and span is not None and not (hasattr(span, "ptr") and hasattr(span, "size")):
                raise TypeError(f"data must satisfy Span protocol (have .ptr and .size), got {type(span).__name__}")
        assert data is None or (offset + size) * data_type.width <= data.size, "kernels would read beyond the data"
        self._type, self._size, self._data, self._mask = data_type, size, data, mask
        self._nulls, self._offset, self._children = null_count, offset, list(children)

    def type(self) -> DataType:
        return self._type

    def size(self) -> int:
        return self._size

    def offset(self) -> int:
        return self._offset

    def null_count(self) -> int:
        return self._nulls

    def data(self) -> Any:
        return self._data

    def null_mask(self) -> Any:
        return self._mask

    def children(self) -> list[Column]:
        return self._children


def as_array(column: Column) -> pa.Array:
    """What work on the stream finds in a column."""
    kind, rows, offset = column.type().kind, column.size(), column.offset()
    spans = [column.null_mask(), *(child.data() for child in column.children()), column.data()]
    buffers = [None if span is None else pa.py_buffer(read(span.ptr, span.size)) for span in spans]
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(pa.uint8(), rows, buffers, -1, offset).cast(kind)
    return pa.Array.from_buffers(kind, rows, buffers, -1, offset)


class Table:
    def __init__(self, columns: Any, num_rows: int | None = None) -> None:
        self._columns = tuple(columns)
        assert len({column.size() for column in self._columns}) <= 1, "columns of one table are equally long"
        self._rows = self._columns[0].size() if self._columns else num_rows or 0

    def columns(self) -> tuple[Column, ...]:
        return self._columns

    def num_columns(self) -> int:
        return len(self._columns)

    def num_rows(self) -> int:
        return self._rows

    @staticmethod
    def from_arrow(obj: pa.Table, dtype: Any = None, stream: Any = None, mr: Any = None) -> Table:
        use(stream)
        return Table([_column(chunked.type, chunked.chunks, _owned) for chunked in obj.columns])

    def to_arrow(self, metadata: list[str] | None = None, stream: Any = None) -> pa.Table:
        use(stream)
        arrays = []
        for column in self._columns:
            array = as_array(column)
            if pa.types.is_large_string(array.type):
                array = array.cast(pa.string())
            elif pa.types.is_decimal(array.type):
                array = array.cast(pa.decimal128(38, array.type.scale))
            arrays.append(array)
        return pa.Table.from_arrays(arrays, names=metadata)


def arrow(table: Table) -> pa.Table:
    """What work on the stream finds in a table."""
    return pa.Table.from_arrays(
        [as_array(column) for column in table.columns()], names=[str(n) for n in range(table.num_columns())]
    )


def result(table: pa.Table) -> Table:
    """A table that libcudf makes, and hands over buffer by buffer."""
    return Table([new_column(chunked.type, chunked.chunks) for chunked in table.columns])


def new_column(kind: pa.DataType, arrays: list[pa.Array]) -> Column:
    """A column that libcudf makes, and hands over buffer by buffer."""
    return _column(kind, arrays, _handed_over)


def _column(kind: pa.DataType, arrays: list[pa.Array], new: Any) -> Column:
    assert kind in TYPES or pa.types.is_decimal128(kind), kind
    array = pa.concat_arrays([*arrays, pa.array([], kind)])
    validity, parts = _parts(array)
    mask = None if validity is None else new(validity)
    *offsets, data = (new(part) for part in parts)
    children = [Column(DataType(pa.int64()), span.size // 8, span, None, 0, 0, []) for span in offsets]
    # libcudf knows the scale of a decimal, and not its precision.
    return Column(DataType(_kind(_code(kind))), len(array), data, mask, array.null_count, 0, children)


def _parts(array: pa.Array) -> tuple[Bytes | None, list[Bytes]]:
    """What a column has in memory: validity in bits, None without nulls; then the offsets of strings, and values."""
    kind, rows = DataType(array.type), len(array)
    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    array = pa.concat_arrays([array, pa.array([], array.type)])  # at least two: then it copies, and begins at 0
    validity, *others = array.buffers()
    mask = np.frombuffer(validity, np.uint8) if array.null_count else None
    parts = [np.frombuffer(part or b"", np.uint8) for part in others]
    return mask, [parts[0][: rows * kind.width]] if kind.width else parts


def _owned(part: Bytes) -> Part:
    block = Block(part.size, Process.stream, part)
    return Part(block.ptr, block.size, block)


def _handed_over(part: Bytes) -> gpumemoryview:
    buffer = TakenBuffer(Block(part.size, Process.stream, part))
    hand_over(Process.stream)
    return gpumemoryview(buffer)


def view(column: Column, start: int, stop: int) -> Column:
    """Rows of a column, which keep the memory of all."""

    def rows(null_count: int) -> Column:
        spans, offset = (column.data(), column.null_mask()), column.offset() + start
        return Column(column.type(), stop - start, *spans, null_count, offset, column.children())

    return rows(as_array(rows(0)).null_count)


class DeviceBuffer:
    def __init__(self, *, ptr: int = 0, size: int = 0, stream: Any = DEFAULT_STREAM, mr: Any = None) -> None:
        self._block = Block(size, use(stream), read(ptr, size) if ptr else None)

    @property
    def ptr(self) -> int:
        return self._block.ptr

    @property
    def size(self) -> int:
        return self._block.size

    @property
    def nbytes(self) -> int:
        return self._block.size

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (self.ptr, False), "shape": (self.size,), "strides": None, "typestr": "|u1", "version": 3}


class TakenBuffer(DeviceBuffer):
    """Of memory that libcudf took."""

    def __init__(self, block: Block) -> None:
        self._block = block


def copy_device_to_ptr(d_src: int, d_dst: int, count: int, stream: Any = DEFAULT_STREAM) -> None:
    write(d_dst, read(d_src, count), count, use(stream))


def copy_host_to_ptr(hb: Any, db: int, stream: Any = DEFAULT_STREAM) -> None:
    source = memoryview(hb).cast("B")
    write(db, np.frombuffer(source, np.uint8), len(source), use(stream))  # not copied: it is read when it is done


class gpumemoryview:
    """A span with its owner. It cannot be sliced but by `byte_slice`."""

    def __init__(self, data: Any) -> None:
        self._obj, self._cai = data, data.__cuda_array_interface__

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self._cai)

    def __len__(self) -> int:
        return int(self._cai["shape"][0])

    @property
    def ptr(self) -> int:
        return int(self._cai["data"][0])

    @property
    def obj(self) -> Any:
        return self._obj

    @property
    def cai(self) -> dict[str, Any]:
        return dict(self._cai)

    @property
    def nbytes(self) -> int:
        return len(self)

    @property
    def size(self) -> int:
        return len(self)


class PackedColumns:
    """What `pack` gives, once."""

    _content: tuple[bytes, Block] | None

    def __init__(self) -> None:
        raise ValueError("PackedColumns should not be constructed directly. Use one of the factories.")

    def release(self) -> tuple[memoryview, gpumemoryview]:
        if self._content is None:
            raise ValueError("Cannot release empty PackedColumns")
        (description, block), self._content = self._content, None
        hand_over(block.stream)
        return memoryview(description), gpumemoryview(TakenBuffer(block))


class _MadeColumns(PackedColumns):
    """As a factory makes them."""

    def __init__(self, description: bytes, block: Block) -> None:
        self._content = (description, block)


def pack(input: Table, stream: Any = None, mr: Any = None) -> PackedColumns:
    on = use(stream, "pack")
    entries, pieces, end = [], [], 0
    for column in input.columns():
        array, places = as_array(column), []
        mask, parts = _parts(array)
        for part in (mask, *parts):
            places.append(-1 if part is None else end)
            if part is not None:
                pieces.append((end, part))
                end = -(-(end + part.size) // PART) * PART
        entries.append((_code(column.type().kind), len(array), array.null_count, places[0], places[-1]))
        if len(parts) == 2:
            entries.append((OFFSETS, parts[1].size, 0, -1, places[1]))
    block = Block(end, on)
    for start, content in pieces:
        write(block.ptr + start, content, content.size, on)
    each = DESCRIPTION_BYTES[0]
    description = TABLE.pack(MAGIC, input.num_rows()) + b"".join(COLUMN.pack(*e).ljust(each, b"\0") for e in entries)
    return _MadeColumns(description, block)


def unpack_from_memoryviews(metadata: memoryview, gpu_data: Any, stream: Any = None) -> Table:
    use(stream, "unpack")
    assert isinstance(metadata, memoryview)
    magic, rows = TABLE.unpack_from(metadata)
    assert magic == MAGIC, "the description is not one of libcudf"
    entries = [COLUMN.unpack_from(metadata, start) for start in range(TABLE.size, len(metadata), DESCRIPTION_BYTES[0])]

    def part(place: int, size: int) -> Part | None:
        assert place < 0 or place + size <= gpu_data.size, "a column lies beyond the end of the data"
        return None if place < 0 else Part(gpu_data.ptr + place, size, gpu_data)

    columns = []
    while entries:
        code, size, nulls, validity, place = entries.pop(0)
        assert size == rows
        kind, children, length = DataType(_kind(code)), [], 0
        if not kind.width:
            child, length, _, _, offsets = entries.pop(0)
            assert child == OFFSETS
            span = part(offsets, 8 * (size + 1))
            children = [Column(DataType(pa.int64()), size + 1, span, None, 0, 0, [])]
        data = part(place, length or size * kind.width)
        columns.append(Column(kind, size, data, part(validity, -(-size // 8)), nulls, 0, children))
    return Table(columns, rows)


def _code(kind: pa.DataType) -> int:
    return DECIMAL + kind.scale if pa.types.is_decimal(kind) else TYPES.index(kind)


def _kind(code: int) -> pa.DataType:
    return pa.decimal128(38, code - DECIMAL) if DECIMAL <= code < OFFSETS else TYPES[code]

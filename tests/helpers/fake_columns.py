"""Columns and tables of pylibcudf in the memory of `fake_device`.

Views share their owner: a slice that of the whole, an unpacked table the buffer that it was unpacked from. A column
without nulls has no mask, wherever it comes from.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tests.helpers.fake_device import DEFAULT_STREAM, Block, Bytes, read, use, write

TYPES = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float32(), pa.float64(), pa.large_string(),
)  # fmt: skip
DECIMAL, OFFSETS = 100, 200
DESCRIPTION_BYTES = [40]  # per column; a test raises it
TABLE = struct.Struct("<8sq")
COLUMN = struct.Struct("<qqqqq")
MAGIC = b"columns\0"
PART = 64  # packed columns lie at multiples of it


@dataclass(frozen=True)
class Part:
    """Bytes on the device; whoever holds this holds their owner."""

    ptr: int
    size: int
    owner: Any

    def bytes(self) -> Bytes:
        return read(self.ptr, self.size)


class Column:
    """`_parts`: validity, offsets of strings, and values, as in Arrow; None for what there is not."""

    def __init__(self, kind: pa.DataType, size: int, offset: int, nulls: int, parts: tuple[Part | None, ...]) -> None:
        self._kind, self._size, self._offset, self._nulls, self._parts = kind, size, offset, nulls, parts

    def size(self) -> int:
        return self._size

    def offset(self) -> int:
        return self._offset

    def null_count(self) -> int:
        return self._nulls

    def _array(self) -> pa.Array:
        buffers = [None if part is None else pa.py_buffer(part.bytes()) for part in self._parts]
        return pa.Array.from_buffers(self._kind, self._size, buffers, -1, self._offset)


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
        return stored(obj)

    def to_arrow(self, metadata: list[str] | None = None, stream: Any = None) -> pa.Table:
        use(stream)
        arrays = []
        for column in self._columns:
            array = column._array()
            if pa.types.is_large_string(array.type):
                array = array.cast(pa.string())
            elif pa.types.is_decimal(array.type):
                array = array.cast(pa.decimal128(38, array.type.scale))
            arrays.append(array)
        return pa.Table.from_arrays(arrays, names=metadata)


def arrow(table: Table) -> pa.Table:
    """What work on the stream finds in a table."""
    return pa.Table.from_arrays(
        [c._array() for c in table.columns()], names=[str(n) for n in range(table.num_columns())]
    )


def stored(table: pa.Table) -> Table:
    """A new table on the device."""
    return Table([new_column(chunked.type, chunked.chunks) for chunked in table.columns])


def new_column(kind: pa.DataType, arrays: list[pa.Array]) -> Column:
    assert kind in TYPES or pa.types.is_decimal128(kind), kind
    array = pa.concat_arrays([*arrays, pa.array([], kind), pa.array([], kind)])  # at least two: then it copies
    validity, *others = array.buffers()
    parts = [validity if array.null_count else None, *others]
    return Column(kind, len(array), 0, array.null_count, tuple(None if part is None else _new(part) for part in parts))


def _new(buffer: pa.Buffer) -> Part:
    block = Block(buffer.size, np.frombuffer(buffer, np.uint8))
    return Part(block.ptr, block.size, block)


def view(column: Column, start: int, stop: int) -> Column:
    """Rows of a column, which keep the memory of all."""
    offset = column.offset() + start
    array = Column(column._kind, stop - start, offset, 0, column._parts)._array()
    return Column(column._kind, stop - start, offset, array.null_count, column._parts)


class DeviceBuffer:
    def __init__(self, *, ptr: int = 0, size: int = 0, stream: Any = DEFAULT_STREAM, mr: Any = None) -> None:
        use(stream)
        self._block = Block(size, read(ptr, size) if ptr else None)

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

    _content: tuple[bytes, DeviceBuffer] | None

    def __init__(self) -> None:
        raise ValueError("PackedColumns should not be constructed directly. Use one of the factories.")

    def release(self) -> tuple[memoryview, gpumemoryview]:
        if self._content is None:
            raise ValueError("Cannot release empty PackedColumns")
        (description, data), self._content = self._content, None
        return memoryview(description), gpumemoryview(data)


def pack(input: Table, stream: Any = None, mr: Any = None) -> PackedColumns:
    use(stream)
    entries, pieces, end = [], [], 0
    for column in input.columns():
        array = pa.concat_arrays([column._array(), pa.array([], column._kind)])
        validity, *others = array.buffers()
        places = []
        for buffer in [validity if array.null_count else None, *others]:
            places.append(-1 if buffer is None else end)
            if buffer is not None:
                pieces.append((end, np.frombuffer(buffer, np.uint8)))
                end = -(-(end + buffer.size) // PART) * PART
        entries.append((_code(column._kind), len(array), array.null_count, places[0], places[-1]))
        if len(others) == 2:
            entries.append((OFFSETS, others[1].size if others[1] is not None else 0, 0, -1, places[1]))
    data = DeviceBuffer(size=end, stream=stream)
    for start, content in pieces:
        write(data.ptr + start, content, content.size)
    each = DESCRIPTION_BYTES[0]
    description = TABLE.pack(MAGIC, input.num_rows()) + b"".join(COLUMN.pack(*e).ljust(each, b"\0") for e in entries)
    packed = PackedColumns.__new__(PackedColumns)
    packed._content = (description, data)
    return packed


def unpack_from_memoryviews(metadata: memoryview, gpu_data: Any, stream: Any = None) -> Table:
    use(stream)
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
        parts = [part(validity, -(-size // 8))]
        kind = _kind(code)
        if pa.types.is_large_string(kind):
            child, length, _, _, offsets = entries.pop(0)
            assert child == OFFSETS
            parts += [part(offsets, 8 * (size + 1)), part(place, length)]
        else:
            parts.append(part(place, -(-size * kind.bit_width // 8)))
        columns.append(Column(kind, size, 0, nulls, tuple(parts)))
    return Table(columns, rows)


def _code(kind: pa.DataType) -> int:
    return DECIMAL + kind.scale if pa.types.is_decimal(kind) else TYPES.index(kind)


def _kind(code: int) -> pa.DataType:
    return pa.decimal128(38, code - DECIMAL) if DECIMAL <= code < OFFSETS else TYPES[code]

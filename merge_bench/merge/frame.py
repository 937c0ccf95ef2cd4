"""Frames as flat NumPy arrays: the CPU engines partition, send and check them.

`Frame.from_arrow` flattens an Arrow table once, outside of timed intervals. `BucketReader` (`partition.py`) makes Arrow
tables over received bytes without copies.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from merge_bench.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Array: TypeAlias = "npt.NDArray[Any]"
Bytes: TypeAlias = "npt.NDArray[np.uint8]"

VARIABLE_BYTES = 16  # assumed for a value of variable width
SLACK = 64  # 1/64 more memory for a parcel, so that one of nearly the same size can be received into it
BLOCK = 1 << 15  # rows that loops hash at a time: 256 KiB of hashes stay in the L2 cache


@dataclass(frozen=True)
class Field:
    """The description of one column of a frame, the same on every worker.

    `width`: bytes of a value, 0 for strings and binaries. A boolean takes one byte here.
    """

    name: str
    type: pa.DataType
    width: int
    nullable: bool = False

    @property
    def has_variable_width(self) -> bool:
        """Whether values have different lengths, as strings do."""
        return self.width == 0

    @property
    def assumed_width(self) -> int:
        """The bytes of a value; for variable width a guess that is the same on every worker."""
        return self.width or VARIABLE_BYTES

    @property
    def is_floating(self) -> bool:
        """Whether values are floating-point numbers, so that NaN and two zeros can occur."""
        import pyarrow as pa

        return bool(pa.types.is_floating(self.type))


def arrow_schema(fields: Sequence[Field]) -> pa.Schema:
    """Return the Arrow schema of these fields."""
    import pyarrow as pa

    return pa.schema([(field.name, field.type) for field in fields])


def empty_table(fields: Sequence[Field]) -> pa.Table:
    """Return an Arrow table of these fields without rows; `pa.Schema.empty_table` would import pandas."""
    import pyarrow as pa

    return pa.table([pa.nulls(0, field.type) for field in fields], schema=arrow_schema(fields))


@dataclass
class Column:
    """The values of one column as NumPy arrays.

    `values`: shape (n,) of the field's `storage_dtype`, or, for variable width, all bytes end to end with `offsets` of
    shape (n + 1,) int64, the first of them 0 unless `Frame.view_rows` made the column. `valid`: shape (n,), 1 where not
    null, or None.
    """

    values: Array
    offsets: npt.NDArray[np.int64] | None = None
    valid: Bytes | None = None

    @property
    def word_pairs(self) -> npt.NDArray[np.uint64]:
        """The values of a 16-byte column as two 64-bit words each: shape (n, 2)."""
        import numpy as np

        return self.values.view(np.uint64).reshape(-1, 2)

    def slice_fixed_width(self, start: int, stop: int) -> Column:
        """Return rows start…stop-1 of a column of fixed width, over the same memory."""
        return Column(self.values[start:stop], None, None if self.valid is None else self.valid[start:stop])

    def from_first_byte(self) -> Column:
        """Return the same rows over the same memory, with bytes of theirs alone and offsets that begin at 0."""
        if self.offsets is None or (self.offsets[0] == 0 and self.offsets[-1] == self.values.size):
            return self
        first, last = self.offsets[0], self.offsets[-1]
        return Column(self.values[first:last], self.offsets - first, self.valid)


@dataclass
class Frame:
    """The rows of one worker's chunk of the left or the right frame, as NumPy columns."""

    fields: tuple[Field, ...]
    columns: tuple[Column, ...]
    rows: int

    def __len__(self) -> int:
        return self.rows

    @property
    def nbytes(self) -> int:
        """The bytes of the frame as the metrics count them: rows × item sizes; for variable width, Arrow's buffers."""
        import pyarrow as pa

        total, bits = 0, (self.rows + 7) // 8
        for field, column in zip(self.fields, self.columns, strict=True):
            total += bits if pa.types.is_boolean(field.type) else column.values.nbytes
            total += 0 if column.offsets is None else column.offsets.nbytes
            total += 0 if column.valid is None else bits
        return total

    def column(self, name: str) -> tuple[Field, Column]:
        """Return the field and the values of the column called `name`."""
        named = {field.name: (field, column) for field, column in zip(self.fields, self.columns, strict=True)}
        return named[name]

    def slice(self, start: int, stop: int) -> Frame:
        """Return rows start…stop-1 as a frame over the same memory; only offsets are copied."""
        view = self.view_rows(start, stop)
        return Frame(view.fields, tuple(column.from_first_byte() for column in view.columns), view.rows)

    def view_rows(self, start: int, stop: int) -> Frame:
        """Return rows start…stop-1 as a frame over the same memory, without any copy.

        A column of variable width has all bytes of this frame's, and offsets that may begin anywhere in them.
        """
        columns = []
        for column in self.columns:
            part = column.slice_fixed_width(start, stop)
            if column.offsets is not None:
                part.values, part.offsets = column.values, column.offsets[start : stop + 1]
            columns.append(part)
        return Frame(self.fields, tuple(columns), stop - start)

    def copy_first_row(self) -> Frame:
        """Return a frame with a copy of the first row; without rows if this frame has none."""
        first = self.slice(0, min(1, self.rows))
        columns = [
            Column(each.values.copy(), each.offsets, None if each.valid is None else each.valid.copy())
            for each in first.columns
        ]
        return Frame(self.fields, tuple(columns), first.rows)

    def select_columns(self, names: Collection[str]) -> Frame:
        """Return a frame of the same rows with only the columns called `names`."""
        kept = [at for at, field in enumerate(self.fields) if field.name in names]
        return Frame(tuple(self.fields[at] for at in kept), tuple(self.columns[at] for at in kept), self.rows)

    def with_nullable_fields(self, nullable_by_name: dict[str, bool]) -> Frame:
        """Return a frame of the same rows whose fields are nullable, by name, as all workers together need it."""
        import numpy as np

        fields, columns = [], []
        for field, column in zip(self.fields, self.columns, strict=True):
            wanted = nullable_by_name[field.name]
            if wanted and column.valid is None:
                column = replace(column, valid=np.ones(self.rows, np.uint8))
            fields.append(replace(field, nullable=wanted))
            columns.append(column)
        return Frame(tuple(fields), tuple(columns), self.rows)

    def to_arrow(self) -> pa.Table:
        """Return the same rows as an Arrow table over the same memory.

        Only booleans and validity are packed into bits.
        """
        import pyarrow as pa

        arrays = [
            _column_to_array(field, column, self.rows) for field, column in zip(self.fields, self.columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=arrow_schema(self.fields))

    @staticmethod
    def from_arrow(table: pa.Table) -> Frame:
        """Make a frame of an Arrow table (one copy), whose types must be canonical: see `canonical_type`."""
        fields, columns = [], []
        for name, chunked in zip(table.column_names, table.columns, strict=True):
            array = chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()
            field = make_field(name, array.type, nullable=array.null_count > 0)
            fields.append(field)
            columns.append(_array_to_column(field, array))
        return Frame(tuple(fields), tuple(columns), table.num_rows)


def canonical_type(arrow_type: pa.DataType, column_name: str) -> pa.DataType:
    """Return the Arrow type under which values of this type are exchanged and joined.

    Dictionaries as their values, extension types as what they are stored as, strings and binaries (also those of one
    width, as UUIDs) with 64-bit offsets, dates as days, timestamps with a zone as instants in UTC, half floats as
    floats, decimals in 128 bits.

    Raises `UsageError`, naming the column, if no engine can merge the type.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(arrow_type):
        return canonical_type(arrow_type.value_type, column_name)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return canonical_type(arrow_type.storage_type, column_name)
    if types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return pa.large_string()
    binary = (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    if any(holds(arrow_type) for holds in binary):
        return pa.large_binary()
    if types.is_float16(arrow_type):
        return pa.float32()
    if types.is_decimal(arrow_type) and arrow_type.precision <= 38:
        return pa.decimal128(arrow_type.precision, arrow_type.scale)
    if types.is_date64(arrow_type):
        return pa.date32()
    if types.is_timestamp(arrow_type) and arrow_type.tz is not None:
        return pa.timestamp(arrow_type.unit, "UTC")
    temporal = types.is_temporal(arrow_type) and not types.is_interval(arrow_type)
    numbers = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal128
    if not temporal and not any(holds(arrow_type) for holds in numbers):
        raise UsageError(f"column {column_name!r} has type {arrow_type}, which no engine can merge")
    return arrow_type


def make_field(name: str, arrow_type: pa.DataType, *, nullable: bool) -> Field:
    """Make the field of a column with this name and canonical Arrow type."""
    import pyarrow as pa

    variable = pa.types.is_large_string(arrow_type) or pa.types.is_large_binary(arrow_type)
    return Field(name, arrow_type, 0 if variable else (arrow_type.bit_width + 7) // 8, nullable)


def as_integer_type(arrow_type: pa.DataType, *, include_floats: bool = False) -> pa.DataType:
    """Return the integer type of the same width for dates, times and durations; other types unchanged.

    `include_floats`: floating types, too, become integers. Libraries that lack such a type, or round its values, get
    integers: equality is the same.
    """
    import pyarrow as pa

    if pa.types.is_temporal(arrow_type) or (include_floats and pa.types.is_floating(arrow_type)):
        return pa.int32() if arrow_type.bit_width == 32 else pa.int64()
    return arrow_type


def reinterpret_column(column: pa.ChunkedArray, arrow_type: pa.DataType) -> pa.ChunkedArray:
    """Reinterpret a column's values as another type of the same width, without copies."""
    import pyarrow as pa

    return pa.chunked_array([chunk.view(arrow_type) for chunk in column.chunks], arrow_type)


def storage_dtype(width: int) -> np.dtype[Any]:
    """Return the NumPy type in which values of `width` bytes are stored and moved; complex128 for 16 bytes."""
    import numpy as np

    return np.dtype({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}[width])


def _array_to_column(field: Field, array: pa.Array) -> Column:
    """Convert an Arrow array to a column of NumPy arrays."""
    import numpy as np
    import pyarrow as pa

    rows, start = len(array), array.offset
    validity, *buffers = array.buffers()
    valid = _unpack_bits(validity, start, rows) if field.nullable and validity is not None else None
    if field.has_variable_width:
        if rows == 0:
            return Column(np.zeros(0, np.uint8), np.zeros(1, np.int64), valid)
        offsets = buffer_as_array(buffers[0])[8 * start : 8 * (start + rows + 1)].view(np.int64)
        return Column(buffer_as_array(buffers[1])[offsets[0] : offsets[-1]], offsets - offsets[0], valid)
    if pa.types.is_boolean(field.type):
        return Column(_unpack_bits(buffers[0], start, rows), None, valid)
    values = buffer_as_array(buffers[0])[field.width * start : field.width * (start + rows)]
    return Column(values.view(storage_dtype(field.width)), None, valid)


def _column_to_array(field: Field, column: Column, rows: int) -> pa.Array:
    """Convert a column of NumPy arrays to an Arrow array."""
    import numpy as np
    import pyarrow as pa

    validity = None
    if column.valid is not None and not column.valid.all():
        validity = pa.py_buffer(np.packbits(column.valid, bitorder="little"))
    values = np.packbits(column.values, bitorder="little") if pa.types.is_boolean(field.type) else column.values
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(values))]
    if column.offsets is not None:
        buffers.insert(1, pa.py_buffer(column.offsets))
    return pa.Array.from_buffers(field.type, rows, buffers)


def _unpack_bits(buffer: pa.Buffer, start: int, rows: int) -> Bytes:
    """Unpack bits start…start+rows-1 of an Arrow buffer to one byte each."""
    import numpy as np

    packed = buffer_as_array(buffer)[start // 8 : (start + rows + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[start % 8 : start % 8 + rows]


class _WritableBufferView:
    """An object that exposes an Arrow buffer's memory to NumPy as writable."""

    def __init__(self, buffer: pa.Buffer) -> None:
        self.buffer = buffer  # keeps the memory
        place = {"shape": (buffer.size,), "typestr": "|u1", "data": (buffer.address, False), "version": 3}
        self.__array_interface__ = place


def buffer_as_array(buffer: pa.Buffer | None) -> Bytes:
    """Return the bytes of an Arrow buffer as a NumPy array without a copy, empty for None. Do not write to it.

    The array is flagged as writable all the same, because numba compiles a loop once more for read-only arrays.
    """
    import numpy as np

    return np.asarray(_WritableBufferView(buffer)) if buffer else np.zeros(0, np.uint8)

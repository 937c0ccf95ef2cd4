"""Copies of Parquet files without the logical types of some columns, for values that DuckDB refuses to read.

DuckDB refuses text that is not UTF-8, and times that its own types do not hold. Without logical types it reads the
bytes and integers that lie in the file. Only the footer is written anew (Thrift's compact protocol): the pages are
copied as they are.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection

_CONVERTED, _LOGICAL, _NAME = 6, 10, 4  # fields of a SchemaElement
_SCHEMA = 2  # of the FileMetaData
_STRUCT, _LIST, _SET, _MAP = 12, 9, 10, 11
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}  # bytes of a value: both booleans, byte, double


def copy_without_types(source: str, target: str, columns: Collection[str]) -> None:
    """Copy a Parquet file; the columns named, which are not nested, lose their logical types."""
    size = os.path.getsize(source)
    with open(source, "rb") as opened, open(target, "wb") as written:
        opened.seek(size - 8)
        length = int.from_bytes(opened.read(4), "little")
        opened.seek(size - 8 - length)
        footer = opened.read(length)
        opened.seek(0)
        shutil.copyfileobj(opened, written, 1 << 20)
        written.truncate(size - 8 - length)
        written.seek(size - 8 - length)
        changed = _footer_without_types(footer, {name.encode(errors="surrogateescape") for name in columns})
        written.write(changed + len(changed).to_bytes(4, "little") + b"PAR1")


def _footer_without_types(footer: bytes, columns: Collection[bytes]) -> bytes:
    """The bytes of a footer whose columns of these names have no type but the physical one."""
    fields, _ = _read_fields(footer, 0)
    changed = []
    for number, kind, start, end in fields:
        value = footer[start:end]
        if number == _SCHEMA:
            value = _elements_without_types(footer, start, columns)
        changed.append((number, kind, value))
    return _make_struct(changed)


def _elements_without_types(data: bytes, position: int, columns: Collection[bytes]) -> bytes:
    start = position
    count, _, position = _read_list_header(data, position)
    parts = [data[start:position]]
    for _ in range(count):
        begin = position
        fields, position = _read_fields(data, begin)
        values = {number: data[first:last] for number, _, first, last in fields}
        name = values[_NAME][_read_varint(values[_NAME], 0)[1] :]
        if name in columns and 5 not in values:  # 5: the number of children
            kept = [(n, kind, data[a:b]) for n, kind, a, b in fields if n not in (_CONVERTED, _LOGICAL)]
            parts.append(_make_struct(kept))
        else:
            parts.append(data[begin:position])
    return b"".join(parts)


def _read_fields(data: bytes, position: int) -> tuple[list[tuple[int, int, int, int]], int]:
    """The fields of a struct: number, type, start and end of the value; and where the struct ends."""
    fields: list[tuple[int, int, int, int]] = []
    number = 0
    while True:
        header = data[position]
        position += 1
        if header == 0:
            return fields, position
        kind = header & 15
        if header >> 4:
            number += header >> 4
        else:
            zigzag, position = _read_varint(data, position)
            number = (zigzag >> 1) ^ -(zigzag & 1)
        end = _value_end(data, position, kind)
        fields.append((number, kind, position, end))
        position = end


def _value_end(data: bytes, position: int, kind: int) -> int:
    """The position where the value of type `kind` at `position` ends."""
    if kind in _FIXED:
        return position + _FIXED[kind]
    if kind == _STRUCT:
        return _read_fields(data, position)[1]
    if kind in (_LIST, _SET):
        count, element, position = _read_list_header(data, position)
        for _ in range(count):
            position = position + 1 if element in (1, 2) else _value_end(data, position, element)
        return position
    if kind == _MAP:
        count, position = _read_varint(data, position)
        if count:
            kinds, position = data[position], position + 1
            for _ in range(count):
                position = _value_end(data, _value_end(data, position, kinds >> 4), kinds & 15)
        return position
    length, position = _read_varint(data, position)  # an integer, or the length of bytes (8)
    return position + length if kind == 8 else position


def _read_list_header(data: bytes, position: int) -> tuple[int, int, int]:
    """The number of a list's elements, their type, and where they begin."""
    header = data[position]
    if header >> 4 < 15:
        return header >> 4, header & 15, position + 1
    count, position = _read_varint(data, position + 1)
    return count, header & 15, position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def _make_struct(fields: list[tuple[int, int, bytes]]) -> bytes:
    """The bytes of a struct of these fields, whose numbers ascend by at most 15."""
    parts, last = [], 0
    for number, kind, value in fields:
        parts += [bytes([(number - last) << 4 | kind]), value]
        last = number
    return b"".join([*parts, b"\0"])

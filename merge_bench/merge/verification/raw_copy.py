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
        changed = _without_types(footer, {name.encode(errors="surrogateescape") for name in columns})
        written.write(changed + len(changed).to_bytes(4, "little") + b"PAR1")


def _without_types(footer: bytes, columns: Collection[bytes]) -> bytes:
    """The FileMetaData, with a schema whose elements of these names have no type but the physical one."""
    fields, _ = _fields(footer, 0)
    changed = []
    for number, kind, start, end in fields:
        value = footer[start:end]
        if number == _SCHEMA:
            value = _plain_elements(footer, start, columns)
        changed.append((number, kind, value))
    return _struct(changed)


def _plain_elements(data: bytes, position: int, columns: Collection[bytes]) -> bytes:
    start = position
    count, _, position = _list_header(data, position)
    parts = [data[start:position]]
    for _ in range(count):
        begin = position
        fields, position = _fields(data, begin)
        values = {number: data[first:last] for number, _, first, last in fields}
        name = values[_NAME][_varint(values[_NAME], 0)[1] :]
        if name in columns and 5 not in values:  # 5: the number of children
            kept = [(n, kind, data[a:b]) for n, kind, a, b in fields if n not in (_CONVERTED, _LOGICAL)]
            parts.append(_struct(kept))
        else:
            parts.append(data[begin:position])
    return b"".join(parts)


def _fields(data: bytes, position: int) -> tuple[list[tuple[int, int, int, int]], int]:
    """The fields of a struct: number, type, first and last place of the value; and where the struct ends."""
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
            zigzag, position = _varint(data, position)
            number = (zigzag >> 1) ^ -(zigzag & 1)
        end = _skip(data, position, kind)
        fields.append((number, kind, position, end))
        position = end


def _skip(data: bytes, position: int, kind: int) -> int:
    """Where a value of a type ends."""
    if kind in _FIXED:
        return position + _FIXED[kind]
    if kind == _STRUCT:
        return _fields(data, position)[1]
    if kind in (_LIST, _SET):
        count, element, position = _list_header(data, position)
        for _ in range(count):
            position = position + 1 if element in (1, 2) else _skip(data, position, element)
        return position
    if kind == _MAP:
        count, position = _varint(data, position)
        if count:
            kinds, position = data[position], position + 1
            for _ in range(count):
                position = _skip(data, _skip(data, position, kinds >> 4), kinds & 15)
        return position
    length, position = _varint(data, position)  # an integer, or the length of bytes (8)
    return position + length if kind == 8 else position


def _list_header(data: bytes, position: int) -> tuple[int, int, int]:
    """Number of elements, their type, and where they begin."""
    header = data[position]
    if header >> 4 < 15:
        return header >> 4, header & 15, position + 1
    count, position = _varint(data, position + 1)
    return count, header & 15, position


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def _struct(fields: list[tuple[int, int, bytes]]) -> bytes:
    """A struct of ascending fields that are at most 15 apart."""
    parts, last = [], 0
    for number, kind, value in fields:
        parts += [bytes([(number - last) << 4 | kind]), value]
        last = number
    return b"".join([*parts, b"\0"])

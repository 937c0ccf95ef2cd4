"""Lines to records and back: tolerant (`decode`) and strict (`validate`)."""

from __future__ import annotations

from typing import Any

import msgspec

from merge_bench.records import schema
from merge_bench.records.schema import SCHEMA, Line, Record


class Head(msgspec.Struct, frozen=True, gc=False):
    """The part of a line by which a reader decides whether it can understand the rest."""

    schema: int
    kind: str


KINDS = frozenset(
    str(member.__struct_config__.tag)
    for member in vars(schema).values()
    if isinstance(member, type) and issubclass(member, Line) and member is not Line
)
"""The kinds of line that this version knows."""

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_HEAD_DECODER = msgspec.json.Decoder(Head)
_TOO_DEEP = "it is nested too deeply"


def encode(record: Record) -> bytes:
    """One line for `record`, without the newline.

    Raises
    ------
    ValueError
        If a field has a wrong type or a value out of range; a NaN in a field that may not be null too.
    """
    line = _ENCODER.encode(record)
    try:
        _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise ValueError(f"a {type(record).__name__} would be unreadable: {error}") from None
    return line


def decode(line: bytes | str) -> Record:
    """The record of one line; fields that this version does not know are ignored.

    Where a description of a machine, a UCX or a repository has another form, as in older lines, it counts as missing.

    Raises
    ------
    ValueError
        If `line` is no JSON, or lacks a field, or a field has a wrong type.
    """
    try:
        try:
            return _DECODER.decode(line)
        except msgspec.ValidationError:
            return _DECODER.decode(_ENCODER.encode(_undescribed(msgspec.json.decode(line))))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _undescribed(line: Any) -> Any:
    """A line without the fields that only describe, whose forms have changed."""
    if not isinstance(line, dict):
        return line
    workers = line.get("workers")
    if isinstance(workers, list) and line.get("kind") == "launch":
        without = [
            {name: value for name, value in each.items() if name not in ("ucx", "hardware")}
            if isinstance(each, dict)
            else each
            for each in workers
        ]
        line = {**line, "workers": without}
    return {name: value for name, value in line.items() if name != "git"}


def decode_head(line: bytes | str) -> Head:
    """Only ``schema`` and ``kind`` of a line.

    Raises
    ------
    ValueError
        If `line` is no JSON object that has both.
    """
    try:
        return _HEAD_DECODER.decode(line)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def validate(line: bytes | str) -> Record:
    """Decode one line strictly: this schema, a known kind, and no field that the schema does not name.

    Raises
    ------
    ValueError
        With the path of what is wrong.
    """
    head = decode_head(line)
    if head.schema != SCHEMA:
        raise ValueError(f"schema {head.schema} is not {SCHEMA}")
    record = decode(line)
    unknown = unknown_fields(msgspec.json.decode(line), record)
    if unknown:
        raise ValueError(f"a {head.kind} line has unknown fields: {', '.join(unknown)}")
    return record


def unknown_fields(raw: Any, read: msgspec.Struct) -> list[str]:
    """Paths of the fields that are in `raw`, plain data, and that `read` was made of and does not have."""
    return _unknown(raw, msgspec.to_builtins(read), "")


def _unknown(raw: Any, known: Any, path: str) -> list[str]:
    if isinstance(raw, dict) and isinstance(known, dict):
        missing = [f"{path}{key}" for key in raw if key not in known]
        return missing + [p for key in raw if key in known for p in _unknown(raw[key], known[key], f"{path}{key}.")]
    if isinstance(raw, list) and isinstance(known, list):
        return [
            p for index, (a, b) in enumerate(zip(raw, known, strict=True)) for p in _unknown(a, b, f"{path}{index}.")
        ]
    return []

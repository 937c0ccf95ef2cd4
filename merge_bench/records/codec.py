"""Converts lines to records and back. `decode` is tolerant, `validate` is strict."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from merge_bench.records.schema import SCHEMA, Record


class Head(msgspec.Struct, frozen=True, gc=False):
    """The part of a line that tells a reader whether it can read the rest."""

    schema: int
    kind: str


KINDS = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Record))
"""The kinds of lines that this version knows."""

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_HEAD_DECODER = msgspec.json.Decoder(Head)
_TOO_DEEP = "it is nested too deeply"


def encode(record: Record) -> bytes:
    """One line for `record`, without the newline.

    Raises ValueError if a field has a wrong type, a value out of range, or NaN where null is not allowed.
    """
    line = _ENCODER.encode(record)
    try:
        _DECODER.decode(line)
    except msgspec.ValidationError as error:
        raise ValueError(f"not written, because it could not be read back: {type(record).__name__}: {error}") from None
    return line


def decode(line: bytes | str) -> Record:
    """The record of one line; fields that this version does not know are ignored.

    The description of a machine, a UCX or a repository counts as missing if it has another form, as in older lines.

    Raises ValueError if `line` is not JSON, or lacks a field, or a field has a wrong type.
    """
    try:
        try:
            return _DECODER.decode(line)
        except msgspec.ValidationError:
            return _DECODER.decode(_ENCODER.encode(_without_descriptions(msgspec.json.decode(line))))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _without_descriptions(line: Any) -> Any:
    """A line without the descriptions of a repository and of workers' UCX and hardware, whose forms have changed."""
    match line:
        case {"kind": "launch", "workers": list(workers)}:
            return {**line, "workers": [_without_fields(worker, "ucx", "hardware") for worker in workers]}
    return _without_fields(line, "git")


def _without_fields(line: Any, *names: str) -> Any:
    return {name: line[name] for name in line if name not in names} if isinstance(line, dict) else line


def decode_head(line: bytes | str) -> Head:
    """Only ``schema`` and ``kind`` of a line.

    Raises ValueError if `line` is not a JSON object with both.
    """
    try:
        return _HEAD_DECODER.decode(line)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def validate(line: bytes | str) -> Record:
    """Decode one line strictly: it must have this schema, a known kind and known fields only.

    Raises ValueError, which names the wrong or unknown field.
    """
    head = decode_head(line)
    if head.schema != SCHEMA:
        raise ValueError(f"schema {head.schema} is not {SCHEMA}")
    record = decode(line)
    unknown = unknown_fields(msgspec.json.decode(line), record)
    if unknown:
        raise ValueError(f"a {head.kind} line has unknown fields: {', '.join(unknown)}")
    return record


def unknown_fields(raw: Any, read: Any, path: str = "") -> list[str]:
    """Paths of the fields of `raw`, the plain data that `read` was made of, that `read` does not have."""
    read = msgspec.to_builtins(read)
    if isinstance(raw, list) and isinstance(read, list):
        raw, read = dict(enumerate(raw)), dict(enumerate(read))
    if not (isinstance(raw, dict) and isinstance(read, dict)):
        return []
    missing = [f"{path}{key}" for key in raw if key not in read]
    return missing + [p for key in raw if key in read for p in unknown_fields(raw[key], read[key], f"{path}{key}.")]

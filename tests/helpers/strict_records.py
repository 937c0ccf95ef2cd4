"""Reads lines of records strictly, so that misspelt fields are found; the package reads over what it does not know."""

from __future__ import annotations

from typing import Any

import msgspec

from merge_bench.records.reader import decode_record, decode_record_header
from merge_bench.records.schema import SCHEMA, Record


def validate(line: bytes | str) -> Record:
    """Decode one line strictly: it must have this schema, a known kind and known fields only.

    Raises ValueError, which names the wrong or unknown field.
    """
    head = decode_record_header(line)
    if head.schema != SCHEMA:
        raise ValueError(f"schema {head.schema} is not {SCHEMA}")
    record = decode_record(line)
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

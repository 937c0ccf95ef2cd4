"""Prints the documents of ``--json``."""

from __future__ import annotations

import json

import msgspec

from merge_bench.view.streams import write_output


def print_document(document: msgspec.Struct, *, indent: int = 0) -> None:
    """Print one JSON document, and nothing else, on standard output."""
    write_output(encode_document(document, indent=indent) + b"\n")


def encode_document(document: msgspec.Struct, *, indent: int = 0) -> bytes:
    """The document as JSON, on one line if `indent` is 0; in file names, bytes that are not UTF-8 become escapes."""
    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=indent)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(document)).encode()

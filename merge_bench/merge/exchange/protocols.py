"""How UCX carries tag messages over an endpoint: protocol and transports by message size, as UCX itself prints them.

`ucp_ep_print_info` writes what the endpoint has chosen into a stream in memory. It reads tables that are there anyway,
takes microseconds, and changes nothing, so the endpoints that are measured can be asked; `UCX_PROTO_INFO` would have to
be set before UCX starts and writes to the log of every endpoint. A memory type is listed once it was sent from.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from dataclasses import dataclass

from merge_bench.host.libraries import library_path

_TITLE = re.compile(
    r"\|.*\| tagged message by ucp_tag_send\*(?P<kind>\([^)]*\))? from (?P<memory>\S+)(?: memory)?\s*\|"
)
_ROW = re.compile(r"\|\s*(?P<first>\w+)(?:\.\.(?P<last>\w+))?\s*\|\s*(?P<protocol>.*?)\s*\|\s*(?P<transports>.*?)\s*\|")
_LANE = re.compile(r"\blane\[\d+\]:\s+\d+:(?P<transport>\S+/\S+)\.\d+ ")
_OLD = re.compile(r"^#\s+tag_send: (?P<steps>0\.\..*)$", re.MULTILINE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_OLD_NAMES = {"egr": "eager", "rndv": "rendezvous", "bcopy": "copy-in copy-out", "zcopy": "zero-copy"}


@dataclass(frozen=True)
class Range:
    """What carries tag messages of `first` to `last` bytes (None: no end) out of `memory`.

    `transports`: UCX's own words, like ``cma/memory`` or ``50% on tcp/lo and 50% on tcp/eth0``; empty where this UCX
    does not say. `estimated`: what the sender expects; in a rendezvous the receiver has the last word.
    """

    memory: str
    first: int
    last: int | None
    protocol: str
    transports: str
    estimated: bool


def of_endpoint(handle: int) -> list[Range]:
    """The ranges of an endpoint; `handle` is the `ucp_ep_h` as an integer."""
    return parse(print_endpoint(handle))


def print_endpoint(handle: int) -> str:
    """What `ucp_ep_print_info` prints of an endpoint; empty where it cannot be asked."""
    path = library_path("libucp")
    if path is None:
        return ""
    libc = ctypes.CDLL(None)
    open_stream, close_stream = libc.open_memstream, libc.fclose
    open_stream.restype = ctypes.c_void_p
    close_stream.argtypes = libc.free.argtypes = (ctypes.c_void_p,)
    show = ctypes.CDLL(str(path)).ucp_ep_print_info
    show.argtypes, show.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    stream = open_stream(ctypes.byref(text), ctypes.byref(size))
    if not stream:
        return ""
    try:
        show(handle, stream)
    finally:
        close_stream(stream)  # only now the text is whole
    try:
        return ctypes.string_at(text, size.value).decode(errors="replace") if text.value else ""
    finally:
        libc.free(text)


def parse(text: str) -> list[Range]:
    """Read the tables of plain tag sends (UCX ≥ 1.12 with protocols v2), or the thresholds that older ones print."""
    found: list[Range] = []
    memory: str | None = None
    for line in text.splitlines():
        title = _TITLE.search(line)
        if title:
            # The other kinds of sends (fast-completion, multi) are hints of the sender that the data plane never gives.
            memory = None if title["kind"] else title["memory"]
            continue
        row = _ROW.search(line)
        if row is None:
            if "+--" not in line:  # a table is over
                memory = None
            continue
        if memory is not None:
            found.append(_range(memory, row))
    return found or list(_old(text))


def lanes(text: str) -> list[str]:
    """The lanes that are listed, like ``sysv/memory``, without repeats."""
    return list(dict.fromkeys(match["transport"] for match in _LANE.finditer(text)))


def _range(memory: str, row: re.Match[str]) -> Range:
    protocol = row["protocol"]
    first = _bytes(row["first"]) or 0
    last = _bytes(row["last"]) if row["last"] else first
    estimated = protocol.startswith("(?)")
    return Range(memory, first, last, protocol.removeprefix("(?)").strip(), row["transports"], estimated)


def _bytes(text: str) -> int | None:
    """A size as UCX prints it, ``8191``, ``8K`` or ``inf``."""
    size = re.fullmatch(r"(\d+)([KMGT]?)", text)
    return int(size[1]) * _UNITS[size[2]] if size else None


def _old(text: str) -> Iterator[Range]:
    """Thresholds of protocols v1: ``tag_send: 0..<egr/short>..93..<egr/bcopy>..8192..<rndv>..(inf)``."""
    line = _OLD.search(text)
    parts = line["steps"].split("..") if line else []
    for at in range(1, len(parts) - 1, 2):
        first, last = _bytes(parts[at - 1]) or 0, _bytes(parts[at + 1])
        names = parts[at].strip("<>").split("/")
        protocol = " ".join(_OLD_NAMES.get(name, name) for name in names)
        yield Range("host", first, None if last is None else last - 1, protocol, "", names[0] == "rndv")

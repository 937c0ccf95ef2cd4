"""What UCX selected for an endpoint: its lanes, and protocol and transports of tag messages by size.

`ucp_ep_print_info` writes both into a stream in memory. It reads existing tables, takes microseconds and changes
nothing, so it is called on the endpoints that are measured. (`UCX_PROTO_INFO` would have to be set before UCX starts,
and writes to the log of every endpoint.) A memory type is listed once something was sent from it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator

from merge_bench.config.files import loaded_library
from merge_bench.records.schema import SizeRange

_TITLE = re.compile(
    r"\|.*\| tagged message by ucp_tag_send\*(?P<kind>\([^)]*\))? from (?P<memory>\S+)(?: memory)?\s*\|"
)
_ROW = re.compile(r"\|\s*(?P<first>\w+)(?:\.\.(?P<last>\w+))?\s*\|\s*(?P<protocol>.*?)\s*\|\s*(?P<transports>.*?)\s*\|")
_LANE = re.compile(r"\blane\[\d+\]:\s+\d+:(?P<transport>\S+/\S+)\.\d+ ")
_OLD = re.compile(r"^#\s+tag_send: (?P<steps>0\.\..*)$", re.MULTILINE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_OLD_NAMES = {"egr": "eager", "rndv": "rendezvous", "bcopy": "copy-in copy-out", "zcopy": "zero-copy"}


def print_endpoint(handle: int) -> str:
    """What `ucp_ep_print_info` prints for an endpoint; `handle` is the `ucp_ep_h` as an integer."""
    libc = ctypes.CDLL(None)
    open_stream, close_stream = libc.open_memstream, libc.fclose
    open_stream.restype = ctypes.c_void_p
    close_stream.argtypes = libc.free.argtypes = (ctypes.c_void_p,)
    show = loaded_library("libucp").ucp_ep_print_info
    show.argtypes, show.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    stream = open_stream(ctypes.byref(text), ctypes.byref(size))
    if not stream:
        return ""
    try:
        show(handle, stream)
    finally:
        close_stream(stream)  # only now the text is complete
    try:
        return ctypes.string_at(text, size.value).decode(errors="replace") if text.value else ""
    finally:
        libc.free(text)


def parse(text: str) -> list[SizeRange]:
    """Read the tables of plain tag sends (UCX ≥ 1.12 with protocols v2), or the thresholds that older ones print."""
    found: list[SizeRange] = []
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
    """Transports and devices of the lanes that UCX selected, like ``sysv/memory``, in its order, without repeats."""
    return list(dict.fromkeys(match["transport"] for match in _LANE.finditer(text)))


def _range(memory: str, row: re.Match[str]) -> SizeRange:
    protocol = row["protocol"]
    first = _bytes(row["first"]) or 0
    return SizeRange(
        memory=memory,
        first_bytes=first,
        last_bytes=_bytes(row["last"]) if row["last"] else first,
        protocol=protocol.removeprefix("(?)").strip(),
        transports=row["transports"],
        estimated=protocol.startswith("(?)"),
    )


def _bytes(text: str) -> int | None:
    """A size as UCX prints it, ``8191``, ``8K`` or ``inf``."""
    size = re.fullmatch(r"(\d+)([KMGT]?)", text)
    return int(size[1]) * _UNITS[size[2]] if size else None


def _old(text: str) -> Iterator[SizeRange]:
    """Thresholds of protocols v1: ``tag_send: 0..<egr/short>..93..<egr/bcopy>..8192..<rndv>..(inf)``."""
    line = _OLD.search(text)
    parts = line["steps"].split("..") if line else []
    for at in range(1, len(parts) - 1, 2):
        last = _bytes(parts[at + 1])
        names = parts[at].strip("<>").split("/")
        yield SizeRange(
            memory="host",
            first_bytes=_bytes(parts[at - 1]) or 0,
            last_bytes=None if last is None else last - 1,
            protocol=" ".join(_OLD_NAMES.get(name, name) for name in names),
            transports="",
            estimated=names[0] == "rndv",
        )

"""Byte counters of this host's network interfaces, InfiniBand ports and NVLinks.

UCX reports which transports it selected; these counters show where bytes went. They include other programs' traffic, so
use only differences over a measured interval, and compare them with the bytes exchanged in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from merge_bench.host import files, gpu

Counts: TypeAlias = dict[str, tuple[int, int]]
"""Bytes sent and received, by device: ``eth0``, ``mlx5_0:1``, ``nvlink 00000000:1B:00.0``."""

INFINIBAND_WORD = 4  # bytes: the unit of port_xmit_data and port_rcv_data
_RECEIVED, _SENT = 0, 8  # fields of a line of /proc/net/dev


def read(root: Path = Path("/")) -> Counts:
    """All counters of this host; `root`: where its file systems are mounted."""
    return {**interfaces(root), **infiniband_ports(root), **gpu.nvlink_bytes()}


def interfaces(root: Path = Path("/")) -> Counts:
    """Counters of the network interfaces in this process's network namespace."""
    found: Counts = {}
    for line in (files.text(root / "proc/self/net/dev") or "").splitlines():
        name, colon, numbers = line.rpartition(":")
        fields = numbers.split()
        if colon and len(fields) > _SENT and fields[_SENT].isdigit():
            found[name.strip()] = (int(fields[_SENT]), int(fields[_RECEIVED]))
    return found


def infiniband_ports(root: Path = Path("/")) -> Counts:
    """Counters of the ports of InfiniBand and RoCE adapters, with UCX's names (``mlx5_0:1``)."""
    found: Counts = {}
    for folder in sorted((root / "sys/class/infiniband").glob("*/ports/*/counters")):
        sent, received = files.number(folder / "port_xmit_data"), files.number(folder / "port_rcv_data")
        if sent is not None and received is not None:
            found[f"{folder.parts[-4]}:{folder.parts[-2]}"] = (sent * INFINIBAND_WORD, received * INFINIBAND_WORD)
    return found


def difference(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> Counts:
    """Bytes counted in between: 0 if a counter was reset, nothing for a device that was added or removed."""
    return {
        device: (max(sent - before[device][0], 0), max(received - before[device][1], 0))
        for device, (sent, received) in after.items()
        if device in before
    }

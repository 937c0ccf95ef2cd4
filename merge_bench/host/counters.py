"""What this host's devices have counted so far: network interfaces, InfiniBand ports, NVLinks.

UCX tells which transports it selected; these tell where bytes went. They count everything on the host, other programs
included, so only differences over a measured interval mean anything, and those only beside the bytes exchanged in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from merge_bench.host import gpu

Counts: TypeAlias = dict[str, tuple[int, int]]
"""Bytes sent and received, by device: ``eth0``, ``mlx5_0:1``, ``nvlink 00000000:1B:00.0``."""

INFINIBAND_WORD = 4  # bytes: the unit of port_xmit_data and port_rcv_data
_RECEIVED, _SENT = 0, 8  # fields of a line of /proc/net/dev


def read(root: Path = Path("/")) -> Counts:
    """All counters of this host; `root` is where its file systems are."""
    return {**interfaces(root), **infiniband_ports(root), **gpu.nvlink_bytes()}


def interfaces(root: Path = Path("/")) -> Counts:
    """Of the network interfaces in this process's network namespace."""
    found: Counts = {}
    try:
        lines = (root / "proc/self/net/dev").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        name, colon, numbers = line.rpartition(":")
        fields = numbers.split()
        if colon and len(fields) > _SENT and fields[_SENT].isdigit():
            found[name.strip()] = (int(fields[_SENT]), int(fields[_RECEIVED]))
    return found


def infiniband_ports(root: Path = Path("/")) -> Counts:
    """Of the ports of InfiniBand and RoCE adapters, named as UCX names them (``mlx5_0:1``)."""
    found: Counts = {}
    for folder in sorted((root / "sys/class/infiniband").glob("*/ports/*/counters")):
        try:
            sent, received = (int((folder / name).read_text()) for name in ("port_xmit_data", "port_rcv_data"))
        except (OSError, ValueError):
            continue
        found[f"{folder.parts[-4]}:{folder.parts[-2]}"] = (sent * INFINIBAND_WORD, received * INFINIBAND_WORD)
    return found


def difference(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> Counts:
    """What was counted in between; a device that came, went or started over counts for nothing."""
    return {
        device: (max(sent - before[device][0], 0), max(received - before[device][1], 0))
        for device, (sent, received) in after.items()
        if device in before
    }

"""This host's network as the kernel tells it: which interface, its address, its RDMA devices and where they sit."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from merge_bench.host.memory import parse_cores

SYS = Path("/sys")


def addresses() -> dict[str, str]:
    """The IPv4 address of every interface that has one, else its IPv6 address."""
    found: dict[str, str] = {}
    for name, entries in psutil.net_if_addrs().items():
        by_family = {entry.family: entry.address for entry in reversed(entries)}
        address = by_family.get(socket.AF_INET) or by_family.get(socket.AF_INET6)
        if address:
            found[name] = address
    return found


def address(interface: str) -> str:
    """The IPv4 address of this host's `interface`: Dask's HTTP server cannot be bound to another.

    Raises
    ------
    LookupError
        If there is no such interface, or it has no such address; names those that have one.
    """
    known = {name: found for name, found in addresses().items() if ":" not in found}
    if interface not in known:
        there = ", ".join(sorted(known))
        raise LookupError(f"{socket.gethostname()} has no interface {interface} with an IPv4 address; it has {there}")
    return known[interface]


def is_loopback(address: str) -> bool:
    """Whether only programs of this host reach `address`."""
    return ipaddress.ip_address(address).is_loopback


def towards(peer: str) -> str | None:
    """The interface that packets to `peer` leave by, or None if nothing leads there."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(where)  # of a datagram socket: chooses a route, sends nothing
            own = _plain(probe.getsockname()[0])
    except OSError:
        return None
    known = psutil.net_if_addrs().items()  # an interface may have addresses of both families
    return next((name for name, entries in known if any(_plain(entry.address) == own for entry in entries)), None)


def stack() -> str | None:
    """The boot and the network namespace of this process: over loopback it reaches those alone that have the same."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return None


def started_from(environ: Mapping[str, str]) -> str | None:
    """The address that ssh or srun started this process from, as sshd and slurmd tell it; None where neither did."""
    told = environ.get("SLURM_LAUNCH_NODE_IPADDR") or environ.get("SSH_CONNECTION", "")
    return told.split()[0] if told.split() else None


def address_of(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a name stands for, IPv4 if it has one; None where it has none."""
    try:
        found = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    texts = [_plain(str(where[0])) for *_, where in sorted(found, key=lambda each: each[0])]
    return ipaddress.ip_address(texts[0]) if texts else None


def rdma_devices(interface: str, sys: Path = SYS) -> list[str]:
    """The RDMA devices behind an interface as UCX names them (``mlx5_0:1``); of all its parts if it is a bond."""
    folder = sys / "class/net" / interface
    found = [f"{device}:{_port(folder)}" for device in _names(folder / "device/infiniband")]
    for lower in sorted(folder.glob("lower_*")):
        found += rdma_devices(lower.name.removeprefix("lower_"), sys)
    return list(dict.fromkeys(found))


def net_devices(interface: str, sys: Path = SYS) -> str:
    """``UCX_NET_DEVICES`` for an interface: its RDMA devices and itself, since its name alone would switch RDMA off."""
    return ",".join([*rdma_devices(interface, sys), interface])


def rdma_ports(sys: Path = SYS) -> dict[str, list[str]]:
    """All ports of RDMA devices that are up, as UCX names them, each with its network interfaces; there may be none."""
    owners: dict[str, list[str]] = {}
    for interface in _names(sys / "class/net"):
        folder = sys / "class/net" / interface
        for device in _names(folder / "device/infiniband"):
            owners.setdefault(f"{device}:{_port(folder)}", []).append(interface)
    ports = [
        f"{device}:{port}"
        for device in _names(sys / "class/infiniband")
        for port in _names(sys / "class/infiniband" / device / "ports")
        if _is_up(sys / "class/infiniband" / device / "ports" / port)
    ]
    return {port: owners.get(port, []) for port in ports}


def describe(interface: str, sys: Path = SYS) -> dict[str, Any]:
    """What a host tells of its network, given the interface that UCX gets: what `unused_rdma` judges."""
    return {
        "interface": interface,
        "rdma": rdma_devices(interface, sys),
        "rdma_ports": rdma_ports(sys),
        "addressed": sorted(addresses()),
    }


def rdma_node(device: str, sys: Path = SYS) -> int | None:
    """The NUMA node of an RDMA device."""
    return _node(sys / "class/infiniband" / device.partition(":")[0] / "device/numa_node")


def pci_node(bus_id: str, sys: Path = SYS) -> int | None:
    """The NUMA node of a PCI device; `bus_id` as NVML writes it (``00000000:17:00.0``)."""
    domain, _, rest = bus_id.lower().partition(":")
    return _node(sys / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node")


def node_cores(node: int, sys: Path = SYS) -> frozenset[int]:
    """The cores of a NUMA node; empty where the machine does not tell."""
    try:
        return parse_cores((sys / f"devices/system/node/node{node}/cpulist").read_text())
    except (OSError, ValueError):
        return frozenset()


def numa_nodes(sys: Path = SYS) -> list[int]:
    """This machine's NUMA nodes; none where it does not tell."""
    names = (name.removeprefix("node") for name in _names(sys / "devices/system/node") if name.startswith("node"))
    return sorted(int(name) for name in names if name.isdigit())


def first_sibling(core: int, sys: Path = SYS) -> int:
    """The lowest number among the hardware threads of the core that `core` is one of; itself if nobody tells."""
    try:
        return min(parse_cores((sys / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()))
    except (OSError, ValueError):
        return core


def _plain(address: str) -> str:
    """An IPv6 address without its scope (``fe80::1%eth0``)."""
    return address.partition("%")[0]


def _port(folder: Path) -> int:
    """UCX counts ports from 1; the kernel counts an adapter's interfaces from 0 in ``dev_port``."""
    try:
        return int((folder / "dev_port").read_text()) + 1
    except (OSError, ValueError):
        return 1


def _is_up(port: Path) -> bool:
    """Whether a port can carry data: the kernel writes ``4: ACTIVE``."""
    try:
        return (port / "state").read_text().startswith("4:")
    except OSError:
        return False


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def _node(path: Path) -> int | None:
    try:
        node = int(path.read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None  # -1: this machine has one memory for all

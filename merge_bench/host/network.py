"""This host's network as the kernel describes it: interfaces, their addresses, RDMA devices and NUMA nodes."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import psutil

from merge_bench.host import files
from merge_bench.host.description import Network
from merge_bench.host.memory import parse_cores

SYS = Path("/sys")


def addresses() -> dict[str, str]:
    """The IPv4 address of each interface, or its IPv6 address if it has no other."""
    found: dict[str, str] = {}
    for name, entries in psutil.net_if_addrs().items():
        by_family = {entry.family: entry.address for entry in reversed(entries)}
        address = by_family.get(socket.AF_INET) or by_family.get(socket.AF_INET6)
        if address:
            found[name] = address
    return found


def address(interface: str) -> str:
    """The IPv4 address of this host's `interface`. (Dask's HTTP server cannot bind to an IPv6 address.)

    Raises
    ------
    LookupError
        If the interface does not exist or has no IPv4 address; names the interfaces that have one.
    """
    known = {name: found for name, found in addresses().items() if ":" not in found}
    if interface not in known:
        there = ", ".join(sorted(known))
        raise LookupError(
            f"{socket.gethostname()} has no interface {interface} with an IPv4 address;"
            f" interfaces that have one: {there}"
        )
    return known[interface]


def is_loopback(address: str) -> bool:
    """Whether `address` can be reached from this host only."""
    return ipaddress.ip_address(address).is_loopback


def towards(peer: str) -> str | None:
    """The interface that packets to `peer` leave by, or None if there is no route."""
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
    """The boot and network namespace of this process: loopback connects only processes that have the same ones."""
    boot = files.text(Path("/proc/sys/kernel/random/boot_id"))
    try:
        return f"{boot} {os.readlink('/proc/self/ns/net')}" if boot else None
    except OSError:
        return None


def started_from(environ: Mapping[str, str]) -> str | None:
    """The address from which ssh or srun started this process; None if neither did."""
    words = (environ.get("SLURM_LAUNCH_NODE_IPADDR") or environ.get("SSH_CONNECTION", "")).split()
    return words[0] if words else None


def address_of(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address of a host name, IPv4 if it has one; None if it has no address."""
    try:
        found = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    texts = [_plain(str(where[0])) for *_, where in sorted(found, key=lambda each: each[0])]
    return ipaddress.ip_address(texts[0]) if texts else None


def rdma_devices(interface: str, sys: Path = SYS) -> list[str]:
    """The RDMA devices of an interface, with UCX's names (``mlx5_0:1``); of a bond, those of all its members."""
    folder = sys / "class/net" / interface
    found = _own_devices(folder)
    for lower in sorted(folder.glob("lower_*")):
        found += rdma_devices(lower.name.removeprefix("lower_"), sys)
    return list(dict.fromkeys(found))


def net_devices(interface: str, sys: Path = SYS) -> str:
    """``UCX_NET_DEVICES`` for an interface: its RDMA devices and itself. (Its name alone would turn RDMA off.)"""
    return ",".join([*rdma_devices(interface, sys), interface])


def rdma_ports(sys: Path = SYS) -> dict[str, list[str]]:
    """The ports of RDMA devices that are up, with UCX's names, and the network interfaces of each, if any."""
    owners: dict[str, list[str]] = {}
    for interface in files.names(sys / "class/net"):
        for port in _own_devices(sys / "class/net" / interface):
            owners.setdefault(port, []).append(interface)
    return {port: owners.get(port, []) for port, state in port_states(sys).items() if state == "ACTIVE"}


def port_states(sys: Path = SYS) -> dict[str, str]:
    """The state of every RDMA port, such as ``ACTIVE`` or ``DOWN``, by UCX's name of the port."""
    devices = sys / "class/infiniband"
    return {
        f"{device}:{port}": (files.text(devices / device / "ports" / port / "state") or "?").rpartition(": ")[2]
        for device in files.names(devices)
        for port in files.names(devices / device / "ports")
    }


def describe(interface: str, sys: Path = SYS) -> Network:
    """The network of a host, given UCX's interface; input of `unused_rdma`."""
    return Network(
        interface=interface,
        rdma=rdma_devices(interface, sys),
        rdma_ports=rdma_ports(sys),
        addressed=sorted(addresses()),
    )


def rdma_node(device: str, sys: Path = SYS) -> int | None:
    """The NUMA node of an RDMA device; None if unknown."""
    return _node(sys / "class/infiniband" / device.partition(":")[0] / "device/numa_node")


def pci_node(bus_id: str, sys: Path = SYS) -> int | None:
    """The NUMA node of a PCI device; `bus_id` as NVML writes it (``00000000:17:00.0``)."""
    domain, _, rest = bus_id.lower().partition(":")
    return _node(sys / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node")


def node_cores(node: int, sys: Path = SYS) -> frozenset[int]:
    """The cores of a NUMA node; empty if unknown."""
    return parse_cores(files.text(sys / f"devices/system/node/node{node}/cpulist") or "")


def numa_nodes(sys: Path = SYS) -> list[int]:
    """This machine's NUMA nodes; [] if unknown."""
    names = files.names(sys / "devices/system/node")
    return sorted(int(name[4:]) for name in names if name.startswith("node") and name[4:].isdigit())


def first_sibling(core: int, sys: Path = SYS) -> int:
    """The lowest number among the hardware threads that share a core with `core`; `core` itself if unknown."""
    siblings = files.text(sys / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    return min(parse_cores(siblings or ""), default=core)


def _plain(address: str) -> str:
    """An IPv6 address without its scope (``fe80::1%eth0``)."""
    return address.partition("%")[0]


def _own_devices(interface: Path) -> list[str]:
    """The RDMA devices of an interface's folder. UCX counts ports from 1, the kernel's ``dev_port`` from 0."""
    port = (files.number(interface / "dev_port") or 0) + 1
    return [f"{device}:{port}" for device in files.names(interface / "device/infiniband")]


def _node(path: Path) -> int | None:
    node = files.number(path)
    return None if node is None or node < 0 else node  # -1: the machine has one node

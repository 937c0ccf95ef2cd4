"""This host's network and NUMA nodes as the kernel describes them, and the addresses to serve on."""

from __future__ import annotations

import ipaddress
import itertools
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import psutil

from merge_bench.errors import UsageError
from merge_bench.host import adapters, files
from merge_bench.host.description import Network
from merge_bench.host.memory import parse_cores

SYS = Path("/sys")


def ip_addresses() -> dict[str, str]:
    """The IPv4 address of each interface, or its IPv6 address if it has no other."""
    by_interface: dict[str, str] = {}
    for name, entries in psutil.net_if_addrs().items():
        by_family = {entry.family: entry.address for entry in reversed(entries)}
        address = by_family.get(socket.AF_INET) or by_family.get(socket.AF_INET6)
        if address:
            by_interface[name] = address
    return by_interface


def interface_address(interface: str) -> str:
    """The IPv4 address of this host's `interface`. (Dask's HTTP server cannot bind to an IPv6 address.)

    Raises LookupError if the interface does not exist or has no IPv4 address; names the interfaces that have one.
    """
    usable = {name: found for name, found in ip_addresses().items() if ":" not in found}
    if interface not in usable:
        there = ", ".join(sorted(usable))
        raise LookupError(
            f"{socket.gethostname()} has no interface {interface} with an IPv4 address;"
            f" interfaces that have one: {there}"
        )
    return usable[interface]


def interface_towards(peer: str) -> str | None:
    """The interface that packets to `peer` leave by, or None if there is no route."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(where)  # of a datagram socket: chooses a route, sends nothing
            own = _without_scope(probe.getsockname()[0])
    except OSError:
        return None
    for name, entries in psutil.net_if_addrs().items():  # an interface may have addresses of both families
        if any(_without_scope(entry.address) == own for entry in entries):
            return name
    return None


def network_stack() -> str | None:
    """The boot and network namespace of this process: loopback connects only processes that have the same ones."""
    boot = files.read_text(Path("/proc/sys/kernel/random/boot_id"))
    try:
        return f"{boot} {os.readlink('/proc/self/ns/net')}" if boot else None
    except OSError:
        return None


def starting_host_address(environ: Mapping[str, str]) -> str | None:
    """The address from which ssh or srun started this process; None if neither did."""
    words = (environ.get("SLURM_LAUNCH_NODE_IPADDR") or environ.get("SSH_CONNECTION", "")).split()
    return words[0] if words else None


def resolve_address(peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address of a host name, IPv4 if it has one; None if it has no address."""
    try:
        entries = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    texts = [_without_scope(str(where[0])) for *_, where in sorted(entries, key=lambda each: each[0])]
    return ipaddress.ip_address(texts[0]) if texts else None


def net_devices(interface: str, sys: Path = SYS) -> str:
    """``UCX_NET_DEVICES`` for an interface: the RDMA ports that lead to its network, and itself.

    Its name alone would turn RDMA off.
    """
    return ",".join([*rdma_ports(interface, sys), interface])


def rdma_ports(interface: str, sys: Path = SYS) -> list[str]:
    """The RDMA ports that lead to the network of an interface, with UCX's names (``mlx5_0:1``)."""
    return adapters.usable_ports(interface, ip_addresses(), adapters.active_ports(sys), sys)


def describe_network(interface: str, sys: Path = SYS) -> Network:
    """The network of this host; `interface`: the one that UCX uses."""
    addressed, ports = sorted(ip_addresses()), adapters.active_ports(sys)
    return Network(
        interface=interface,
        rdma=adapters.usable_ports(interface, addressed, ports, sys),
        ports=ports,
        addressed=addressed,
    )


def node_cores(node: int, sys: Path = SYS) -> frozenset[int]:
    """The cores of a NUMA node; empty if unknown."""
    return parse_cores(files.read_text(sys / f"devices/system/node/node{node}/cpulist") or "")


def numa_nodes(sys: Path = SYS) -> list[int]:
    """This machine's NUMA nodes; [] if unknown."""
    names = files.list_names(sys / "devices/system/node")
    return sorted(int(name[4:]) for name in names if name.startswith("node") and name[4:].isdigit())


def first_sibling(core: int, sys: Path = SYS) -> int:
    """The lowest number among the hardware threads that share a core with `core`; `core` itself if unknown."""
    siblings = files.read_text(sys / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    return min(parse_cores(siblings or ""), default=core)


def _without_scope(address: str) -> str:
    """An IPv6 address without its scope (``fe80::1%eth0``)."""
    return address.partition("%")[0]


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `address`, which may be a host name."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def page_origins(address: str, port: int) -> list[str]:
    """``host:port`` of the pages of a server that listens at `address`; pages from elsewhere cannot connect to it.

    Its hosts are only addresses at which it listens: another program may have the port at the others.
    """
    names = {address, *(("localhost",) if is_loopback(address) else ())}
    if address == "localhost":
        names |= {"127.0.0.1", "::1"}
    if address in ("0.0.0.0", "::"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        of_interfaces = itertools.chain.from_iterable(psutil.net_if_addrs().values())
        own = {each.address.partition("%")[0] for each in of_interfaces if each.family == family}
        names = own | {socket.gethostname(), socket.getfqdn(), "localhost"}
    return sorted(f"{host_in_url(name)}:{port}" for name in names)


def host_in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def free_port(address: str, port: int) -> int:
    """`port`, or a free port if that is 0; raises UsageError if nothing can be served on it at this address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot serve on {address}, port {port}: {why}; choose another --address or --port") from None

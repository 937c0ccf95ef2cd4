"""This host's network, RDMA ports and NUMA nodes as the kernel describes them, and the addresses to serve on.

Facts about RDMA ports and nodes come from ``/sys``. Each of them may be missing, as in a container; then it does not
count.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from merge_bench.errors import UsageError
from merge_bench.host import kernel_files
from merge_bench.host.description import NetworkFacts, RdmaPort
from merge_bench.host.kernel_files import parse_core_list

SYS = Path("/sys")
INFINIBAND, ROCE = "InfiniBand", "Ethernet"
ACTIVE = "ACTIVE"
# From near to far, with nvidia-smi's words for the way: PIX, PXB, NODE (or PHB), SYS.
ONE_SWITCH, SWITCHES, ONE_NODE, OTHER_NODE, UNKNOWN = range(5)
DISTANCES = ("same switch", "same PCIe root", "same NUMA node", "other NUMA node", "unknown distance")
_LOCAL, _REMOTE = 10, 20  # distances of NUMA nodes in ACPI's table: to itself, and to another one by default
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


class HostNetwork(Protocol):
    """The network of a host: each method returns for that host what the function of the same name does for this one."""

    def addresses_by_interface(self) -> dict[str, str]: ...

    def ipv4_networks_by_interface(self) -> dict[str, list[ipaddress.IPv4Network]]: ...

    def interface_towards(self, peer_host: str) -> str | None: ...

    def resolve_address(self, peer_host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None: ...

    def network_rdma_ports(self, interface: str) -> list[str]: ...


def addresses_by_interface() -> dict[str, str]:
    """The IPv4 address of each network interface, by the interface's name; the IPv6 address if it has no other."""
    import psutil

    by_interface: dict[str, str] = {}
    for name, entries in psutil.net_if_addrs().items():
        by_family = {entry.family: entry.address for entry in reversed(entries)}
        address = by_family.get(socket.AF_INET) or by_family.get(socket.AF_INET6)
        if address:
            by_interface[name] = address
    return by_interface


def ipv4_networks_by_interface() -> dict[str, list[ipaddress.IPv4Network]]:
    """The IPv4 networks that each interface's addresses are in, by the interface's name."""
    import psutil

    return {
        name: [
            ipaddress.IPv4Network(f"{entry.address}/{entry.netmask}", strict=False)
            for entry in entries
            if entry.family == socket.AF_INET and entry.netmask
        ]
        for name, entries in psutil.net_if_addrs().items()
    }


def interface_ipv4_address(interface: str) -> str:
    """The IPv4 address of this host's `interface`. (Dask's HTTP server cannot bind to an IPv6 address.)

    Raises LookupError if the interface does not exist or has no IPv4 address; names the interfaces that have one.
    """
    usable = {name: address for name, address in addresses_by_interface().items() if ":" not in address}
    if interface not in usable:
        missing = f"{socket.gethostname()} has no interface {interface} with an IPv4 address"
        raise LookupError(f"{missing}; interfaces that have one: {', '.join(sorted(usable))}")
    return usable[interface]


def interface_towards(peer_host: str) -> str | None:
    """The interface that packets to `peer_host` leave by, or None if there is no route."""
    import psutil

    try:
        family, kind, protocol, _, where = socket.getaddrinfo(peer_host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(where)  # of a datagram socket: chooses a route, sends nothing
            own = _remove_ipv6_scope(probe.getsockname()[0])
    except OSError:
        return None
    for name, entries in psutil.net_if_addrs().items():  # an interface may have addresses of both families
        if any(_remove_ipv6_scope(entry.address) == own for entry in entries):
            return name
    return None


def network_stack_id(proc_folder: Path = Path("/proc")) -> str | None:
    """An identifier of this machine's boot and this process's network namespace: loopback connects only equal ones.

    None if `proc_folder` does not show them.
    """
    boot = kernel_files.read_text(proc_folder / "sys/kernel/random/boot_id")
    try:
        return f"{boot} {os.readlink(proc_folder / 'self/ns/net')}" if boot else None
    except OSError:
        return None


def launching_host_address(environ: Mapping[str, str]) -> str | None:
    """The address of the host from which ssh or srun started this process; None if neither did."""
    words = (environ.get("SLURM_LAUNCH_NODE_IPADDR") or environ.get("SSH_CONNECTION", "")).split()
    return words[0] if words else None


def resolve_address(peer_host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address of a host name, IPv4 if it has one; None if it has no address."""
    try:
        entries = socket.getaddrinfo(peer_host, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    texts = [_remove_ipv6_scope(str(where[0])) for *_, where in sorted(entries, key=lambda each: each[0])]
    return ipaddress.ip_address(texts[0]) if texts else None


def ucx_net_devices(interface: str, sys_folder: Path = SYS) -> str:
    """The value of ``UCX_NET_DEVICES`` for an interface: the RDMA ports of its network, and its own name."""
    return ",".join([*network_rdma_ports(interface, sys_folder), interface])


def network_rdma_ports(interface: str, sys_folder: Path = SYS) -> list[str]:
    """The names of the RDMA ports on the network of an interface, as UCX writes them (``mlx5_0:1``)."""
    return rdma_ports_of_same_network(
        interface_rdma_ports(interface, sys_folder), addresses_by_interface(), active_rdma_ports(sys_folder), sys_folder
    )


def describe_network(
    interface: str, sys_folder: Path = SYS, *, addressed_interfaces: Iterable[str] | None = None
) -> NetworkFacts:
    """Describe the interface that UCX uses on this host, and its RDMA ports.

    `interface`: the one that UCX uses. `addressed_interfaces`: the interfaces with an address, by default those that
    have one now.
    """
    addressed_interfaces, ports = (
        sorted(addresses_by_interface() if addressed_interfaces is None else addressed_interfaces),
        active_rdma_ports(sys_folder),
    )
    rdma = rdma_ports_of_same_network(
        interface_rdma_ports(interface, sys_folder), addressed_interfaces, ports, sys_folder
    )
    return NetworkFacts(interface=interface, rdma=rdma, ports=ports, addressed=addressed_interfaces)


def _remove_ipv6_scope(address: str) -> str:
    """An IPv6 address without its scope (``fe80::1%eth0``)."""
    return address.partition("%")[0]


@dataclass(frozen=True)
class HardwareLocation:
    """The location of a GPU or worker in its machine.

    `node`: its NUMA node; `bridges`: the PCI bridges above it, the root port first.
    """

    node: int | None = None
    bridges: Sequence[str] = ()


@dataclass(frozen=True)
class NumaDistances:
    """Distances between NUMA nodes: one row for each node, with one number for each of `order`."""

    order: Sequence[int] = ()
    rows: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def distance_between(self, first_node: int, second_node: int) -> int:
        """The distance between two NUMA nodes, in the units of ACPI's table (10: the same node)."""
        row = self.rows.get(first_node, ())
        if second_node in self.order and len(row) == len(self.order):
            return row[list(self.order).index(second_node)]
        return _LOCAL if first_node == second_node else _REMOTE


def interface_rdma_ports(interface: str, sys_folder: Path = SYS) -> list[str]:
    """The RDMA ports of an interface, with UCX's names (``mlx5_0:1``); of a bond or VLAN, those below it."""
    folder = sys_folder / "class/net" / interface
    ports = _rdma_ports_of_folder(folder)
    for lower in sorted(folder.glob("lower_*")):
        ports += interface_rdma_ports(lower.name.removeprefix("lower_"), sys_folder)
    return list(dict.fromkeys(ports))


def rdma_port_states(sys_folder: Path = SYS) -> dict[str, str]:
    """The state of every RDMA port, such as ``ACTIVE`` or ``DOWN``, by UCX's name of the port."""
    devices = sys_folder / "class/infiniband"
    return {
        f"{device}:{port}": (kernel_files.read_text(devices / device / "ports" / port / "state") or "?").rpartition(
            ": "
        )[2]
        for device in kernel_files.list_file_names(devices)
        for port in kernel_files.list_file_names(devices / device / "ports")
    }


def active_rdma_ports(sys_folder: Path = SYS) -> list[RdmaPort]:
    """The RDMA ports of this host that are up; [] if it has no adapter."""
    owners: dict[str, list[str]] = {}
    for interface in kernel_files.list_file_names(sys_folder / "class/net"):
        for port in _rdma_ports_of_folder(sys_folder / "class/net" / interface):
            owners.setdefault(port, []).append(interface)
    states = rdma_port_states(sys_folder)
    names = sorted({*states, *owners}, key=_natural_sort_key)
    return [
        _describe_rdma_port(name, owners.get(name, []), sys_folder)
        for name in names
        if states.get(name, ACTIVE) == ACTIVE
    ]


def rdma_ports_of_same_network(
    own_ports: Sequence[str], addressed_interfaces: Iterable[str], ports: Sequence[RdmaPort], sys_folder: Path = SYS
) -> list[str]:
    """The names of the RDMA ports on the same network as the ports `own_ports`, these first; [] without `own_ports`.

    Ports of one network have the same link layer. Over InfiniBand they have the same subnet, with Ethernet (RoCE) an
    interface with an address and at least the speed of the first of `own_ports`: a slower one is for management.
    Virtual functions of an adapter that is here itself do not count. `addressed_interfaces`: the interfaces with an
    address.
    """
    mine = [port for port in ports if port.name in own_ports]
    if not mine:
        return []
    first = mine[0]
    with_address = set(addressed_interfaces)
    joined = [
        port.name
        for port in ports
        if port in mine
        or (
            port.layer == first.layer
            and not port.virtual
            and _is_on_same_network(port, first, with_address, sys_folder)
        )
    ]
    return sorted(joined, key=lambda name: (name not in own_ports, _natural_sort_key(name)))


def ucx_can_use_port(port: RdmaPort) -> bool:
    """Whether UCX can use an RDMA port of this kind; EFA, for example, needs a UCX with a module of its own."""
    return port.layer in (None, INFINIBAND, ROCE) and not port.virtual


def nearest_rdma_port_names(
    location: HardwareLocation, ports: Sequence[RdmaPort], numa_distances: NumaDistances
) -> tuple[str, ...]:
    """The names of the ports nearest to `location`, such as a GPU's; all of them if no distance is known."""
    distances = {port.name: rdma_port_distance(location, port, numa_distances) for port in ports}
    least = min(distances.values(), default=None)
    return tuple(name for name, each in distances.items() if each == least)


def rdma_port_distance(location: HardwareLocation, port: RdmaPort, numa_distances: NumaDistances) -> tuple[int, int]:
    """How far an RDMA port is from a location: an index of `DISTANCES`, then the distance of their NUMA nodes."""
    pairs = zip(location.bridges, port.bridges, strict=False)
    shared = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
    if shared:
        beyond = max(len(location.bridges), len(port.bridges)) - shared
        # A switch is a bridge with one bridge below it for each device.
        return (ONE_SWITCH if beyond <= 1 else SWITCHES, 0)
    if location.node is None or port.node is None:
        return UNKNOWN, 0
    far = numa_distances.distance_between(location.node, port.node)
    return (ONE_NODE if location.node == port.node else OTHER_NODE, far)


def pci_bridges(device_folder: Path) -> list[str]:
    """The PCI bridges above a device, the root port first; `device_folder`: its folder, or a link to it."""
    parts = os.path.realpath(device_folder).split("/")
    return [part for part in parts if _PCI_ADDRESS.fullmatch(part)][:-1]


def pci_device_folder(bus_id: str, sys_folder: Path = SYS) -> Path:
    """The folder of a PCI device; `bus_id` as NVML writes it (``00000000:17:00.0``)."""
    domain, _, rest = bus_id.lower().partition(":")
    return sys_folder / "bus/pci/devices" / f"{domain[-4:]}:{rest}"


def location_of_device(device_folder: Path) -> HardwareLocation:
    """The location in this machine of the device with this folder below ``/sys``."""
    return HardwareLocation(read_numa_node(device_folder), tuple(pci_bridges(device_folder)))


def read_numa_node(device_folder: Path) -> int | None:
    """The NUMA node of a device; None if unknown, or if the machine has one node only."""
    node = kernel_files.read_number(device_folder / "numa_node")
    return None if node is None or node < 0 else node


def _rdma_ports_of_folder(interface_folder: Path) -> list[str]:
    """The RDMA ports, with UCX's names, of an interface's folder below ``/sys``.

    UCX counts ports from 1, the kernel's ``dev_port`` from 0.
    """
    port = (kernel_files.read_number(interface_folder / "dev_port") or 0) + 1
    return [f"{device}:{port}" for device in kernel_files.list_file_names(interface_folder / "device/infiniband")]


def _describe_rdma_port(port_name: str, interfaces: list[str], sys_folder: Path) -> RdmaPort:
    """Describe the RDMA port of this name (``mlx5_0:1``), which belongs to these network interfaces."""
    device, _, number = port_name.partition(":")
    folder = sys_folder / "class/infiniband" / device
    port = folder / "ports" / number
    rate = re.match(r"[\d.]+", kernel_files.read_text(port / "rate") or "")
    return RdmaPort(
        name=port_name,
        interfaces=interfaces,
        layer=kernel_files.read_text(port / "link_layer") or None,
        gigabits=float(rate[0]) if rate else None,
        subnet=":".join((kernel_files.read_text(port / "gids/0") or "").split(":")[:4]) or None,
        virtual=(folder / "device/physfn").exists(),
        node=read_numa_node(folder / "device"),
        bridges=pci_bridges(folder / "device"),
    )


def _is_on_same_network(port: RdmaPort, own_port: RdmaPort, addressed_interfaces: set[str], sys_folder: Path) -> bool:
    """Whether an RDMA port leads to the network of `own_port`, which has the same link layer."""
    if port.layer == ROCE:
        slower = port.gigabits is not None and own_port.gigabits is not None and port.gigabits < own_port.gigabits
        return not slower and any(
            addressed_interfaces & _interface_and_bonds_above(interface, sys_folder) for interface in port.interfaces
        )
    return port.subnet is None or own_port.subnet is None or port.subnet == own_port.subnet


def _interface_and_bonds_above(interface: str, sys_folder: Path) -> set[str]:
    """The name of an interface, and those of the bonds and VLANs above it."""
    above = [each.name.removeprefix("upper_") for each in (sys_folder / "class/net" / interface).glob("upper_*")]
    return {interface}.union(*(_interface_and_bonds_above(each, sys_folder) for each in above))


def _natural_sort_key(port_name: str) -> list[tuple[int, str]]:
    """A sort key of port names that orders ``mlx5_2:1`` before ``mlx5_10:1``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", port_name)]


def numa_node_cores(node: int, sys_folder: Path = SYS) -> frozenset[int]:
    """The cores of a NUMA node; empty if unknown."""
    return parse_core_list(kernel_files.read_text(sys_folder / f"devices/system/node/node{node}/cpulist") or "")


def numa_node_numbers(sys_folder: Path = SYS) -> list[int]:
    """The numbers of this machine's NUMA nodes; [] if unknown."""
    names = kernel_files.list_file_names(sys_folder / "devices/system/node")
    return sorted(int(name[4:]) for name in names if name.startswith("node") and name[4:].isdigit())


def first_sibling_thread(core: int, sys_folder: Path = SYS) -> int:
    """The lowest number among the hardware threads that share a core with `core`; `core` itself if unknown."""
    siblings = kernel_files.read_text(sys_folder / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list")
    return min(parse_core_list(siblings or ""), default=core)


def read_numa_node_distances(node: int, sys_folder: Path = SYS) -> list[int]:
    """The distances of a NUMA node to all nodes, in their order; [] if unknown."""
    words = (kernel_files.read_text(sys_folder / f"devices/system/node/node{node}/distance") or "").split()
    return [int(word) for word in words if word.isdecimal()]


def read_numa_distances(sys_folder: Path = SYS) -> NumaDistances:
    """The distances between this machine's NUMA nodes."""
    order = numa_node_numbers(sys_folder)
    return NumaDistances(order, {node: read_numa_node_distances(node, sys_folder) for node in order})


def is_loopback_address(address: str) -> bool:
    """Whether only this machine can reach `address`, which may be a host name."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def allowed_page_origins(address: str, port: int) -> list[str]:
    """The origins, as ``host:port``, of web pages that may connect to a server that listens at `address`.

    Their hosts are only addresses at which the server listens: another program may have the port at the others.
    """
    import psutil

    names = {address, *(("localhost",) if is_loopback_address(address) else ())}
    if address == "localhost":
        names |= {"127.0.0.1", "::1"}
    if address in ("0.0.0.0", "::"):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        of_interfaces = itertools.chain.from_iterable(psutil.net_if_addrs().values())
        own = {each.address.partition("%")[0] for each in of_interfaces if each.family == family}
        names = own | {socket.gethostname(), socket.getfqdn(), "localhost"}
    return sorted(f"{format_host_for_url(name)}:{port}" for name in names)


def format_host_for_url(address: str) -> str:
    """An address as URLs have it: an IPv6 address in brackets."""
    return f"[{address}]" if ":" in address else address


def choose_server_port(address: str, wanted_port: int) -> int:
    """Return a port for a server: `wanted_port`, or a free one if that is 0; raises UsageError if it cannot be used."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, wanted_port))
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot serve on {address}, port {wanted_port}: {why}; choose another --address or --port"
        ) from None

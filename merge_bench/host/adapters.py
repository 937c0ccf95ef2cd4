"""RDMA ports of this host: those that UCX can use with an interface, and those nearest to a GPU or a NUMA node.

Facts come from ``/sys``. Each of them may be missing, as in a container; then it does not count.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from merge_bench.host import files
from merge_bench.host.description import Port

SYS = Path("/sys")
INFINIBAND, ROCE = "InfiniBand", "Ethernet"
ACTIVE = "ACTIVE"
# From near to far, with nvidia-smi's words for the way: PIX, PXB, NODE (or PHB), SYS.
ONE_SWITCH, SWITCHES, ONE_NODE, OTHER_NODE, UNKNOWN = range(5)
DISTANCES = ("same switch", "same PCIe root", "same NUMA node", "other NUMA node", "unknown distance")
_LOCAL, _REMOTE = 10, 20  # distances of NUMA nodes in ACPI's table: to itself, and to another one by default
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


@dataclass(frozen=True)
class Place:
    """Where a GPU or a worker is. `node`: its NUMA node; `bridges`: the PCI bridges above it, the root port first."""

    node: int | None = None
    bridges: Sequence[str] = ()


@dataclass(frozen=True)
class Nodes:
    """Distances between NUMA nodes: one row for each node, with one number for each of `order`."""

    order: Sequence[int] = ()
    rows: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def between(self, one: int, other: int) -> int:
        row = self.rows.get(one, ())
        if other in self.order and len(row) == len(self.order):
            return row[list(self.order).index(other)]
        return _LOCAL if one == other else _REMOTE


def own_ports(interface: str, sys: Path = SYS) -> list[str]:
    """The RDMA ports of an interface, with UCX's names (``mlx5_0:1``); of a bond or VLAN, those below it."""
    folder = sys / "class/net" / interface
    ports = _ports_of(folder)
    for lower in sorted(folder.glob("lower_*")):
        ports += own_ports(lower.name.removeprefix("lower_"), sys)
    return list(dict.fromkeys(ports))


def port_states(sys: Path = SYS) -> dict[str, str]:
    """The state of every RDMA port, such as ``ACTIVE`` or ``DOWN``, by UCX's name of the port."""
    devices = sys / "class/infiniband"
    return {
        f"{device}:{port}": (files.read_text(devices / device / "ports" / port / "state") or "?").rpartition(": ")[2]
        for device in files.list_names(devices)
        for port in files.list_names(devices / device / "ports")
    }


def active_ports(sys: Path = SYS) -> list[Port]:
    """The RDMA ports of this host that are up; [] if it has no adapter."""
    owners: dict[str, list[str]] = {}
    for interface in files.list_names(sys / "class/net"):
        for port in _ports_of(sys / "class/net" / interface):
            owners.setdefault(port, []).append(interface)
    states = port_states(sys)
    names = sorted({*states, *owners}, key=_natural)
    return [_describe(name, owners.get(name, []), sys) for name in names if states.get(name, ACTIVE) == ACTIVE]


def usable_ports(interface: str, addressed: Iterable[str], ports: Sequence[Port], sys: Path = SYS) -> list[str]:
    """The ports that lead to the network of `interface`; [] if it has no RDMA port.

    These are its own port, and others with the same link layer. Over InfiniBand they have the same subnet, with
    Ethernet (RoCE) an interface with an address and at least the speed of its own port: a slower one is for management.
    Virtual functions of an adapter that is here itself do not count. `addressed`: the interfaces with an address.
    """
    return joined_ports(own_ports(interface, sys), addressed, ports, sys)


def joined_ports(own: Sequence[str], addressed: Iterable[str], ports: Sequence[Port], sys: Path = SYS) -> list[str]:
    """The ports that lead to the network of the ports `own`, these first, as `usable_ports` chooses them."""
    mine = [port for port in ports if port.name in own]
    if not mine:
        return []
    first = mine[0]
    with_address = set(addressed)
    found = [
        port.name
        for port in ports
        if port in mine or (port.layer == first.layer and not port.virtual and _joins(port, first, with_address, sys))
    ]
    return sorted(found, key=lambda name: (name not in own, _natural(name)))


def ucx_can_use(port: Port) -> bool:
    """Whether UCX uses ports of this kind; EFA, for example, needs a UCX with a module of its own."""
    return port.layer in (None, INFINIBAND, ROCE) and not port.virtual


def nearest_ports(place: Place, ports: Sequence[Port], nodes: Nodes) -> tuple[str, ...]:
    """All of these ports that are nearest to `place`; all of them if nothing is known about the way."""
    distances = {port.name: distance(place, port, nodes) for port in ports}
    least = min(distances.values(), default=None)
    return tuple(name for name, each in distances.items() if each == least)


def distance(place: Place, port: Port, nodes: Nodes) -> tuple[int, int]:
    """How far a port is: an index of `DISTANCES`, and the distance of the NUMA nodes; a nearer one is smaller."""
    pairs = zip(place.bridges, port.bridges, strict=False)
    shared = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
    if shared:
        beyond = max(len(place.bridges), len(port.bridges)) - shared
        # A switch is a bridge with one bridge below it for each device.
        return (ONE_SWITCH if beyond <= 1 else SWITCHES, 0)
    if place.node is None or port.node is None:
        return UNKNOWN, 0
    far = nodes.between(place.node, port.node)
    return (ONE_NODE if place.node == port.node else OTHER_NODE, far)


def bridges(device: Path) -> list[str]:
    """The PCI bridges above a device, the root port first; `device`: its folder, or a link to it."""
    parts = os.path.realpath(device).split("/")
    return [part for part in parts if _PCI_ADDRESS.fullmatch(part)][:-1]


def pci_device(bus_id: str, sys: Path = SYS) -> Path:
    """The folder of a PCI device; `bus_id` as NVML writes it (``00000000:17:00.0``)."""
    domain, _, rest = bus_id.lower().partition(":")
    return sys / "bus/pci/devices" / f"{domain[-4:]}:{rest}"


def read_node(device: Path) -> int | None:
    """The NUMA node of a device; None if unknown, or if the machine has one node only."""
    node = files.read_number(device / "numa_node")
    return None if node is None or node < 0 else node


def _ports_of(interface: Path) -> list[str]:
    """The RDMA ports of an interface's folder. UCX counts ports from 1, the kernel's ``dev_port`` from 0."""
    port = (files.read_number(interface / "dev_port") or 0) + 1
    return [f"{device}:{port}" for device in files.list_names(interface / "device/infiniband")]


def _describe(name: str, owners: list[str], sys: Path) -> Port:
    device, _, number = name.partition(":")
    folder = sys / "class/infiniband" / device
    port = folder / "ports" / number
    rate = re.match(r"[\d.]+", files.read_text(port / "rate") or "")
    return Port(
        name=name,
        interfaces=owners,
        layer=files.read_text(port / "link_layer") or None,
        gigabits=float(rate[0]) if rate else None,
        subnet=":".join((files.read_text(port / "gids/0") or "").split(":")[:4]) or None,
        virtual=(folder / "device/physfn").exists(),
        node=read_node(folder / "device"),
        bridges=bridges(folder / "device"),
    )


def _joins(port: Port, first: Port, addressed: set[str], sys: Path) -> bool:
    """Whether a port leads to the network of `first`, which has the same link layer."""
    if port.layer == ROCE:
        slower = port.gigabits is not None and first.gigabits is not None and port.gigabits < first.gigabits
        return not slower and any(addressed & _upwards(interface, sys) for interface in port.interfaces)
    return port.subnet is None or first.subnet is None or port.subnet == first.subnet


def _upwards(interface: str, sys: Path) -> set[str]:
    """An interface, with the bonds and VLANs above it."""
    above = [each.name.removeprefix("upper_") for each in (sys / "class/net" / interface).glob("upper_*")]
    return {interface}.union(*(_upwards(each, sys) for each in above))


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that orders ``mlx5_2:1`` before ``mlx5_10:1``."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]

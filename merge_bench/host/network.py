"""This host's network as the kernel describes it, the addresses to serve on, and each worker's part of the host.

A worker's part is its cores, its GPU and the nearest RDMA devices.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from msgspec.structs import asdict

from merge_bench.errors import UsageError
from merge_bench.host import files, gpu
from merge_bench.host.description import Host, Network
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


def rdma_devices(interface: str, sys: Path = SYS) -> list[str]:
    """The RDMA devices of an interface, with UCX's names (``mlx5_0:1``); of a bond, those of all its members."""
    folder = sys / "class/net" / interface
    devices = _rdma_devices_in(folder)
    for lower in sorted(folder.glob("lower_*")):
        devices += rdma_devices(lower.name.removeprefix("lower_"), sys)
    return list(dict.fromkeys(devices))


def net_devices(interface: str, sys: Path = SYS) -> str:
    """``UCX_NET_DEVICES`` for an interface: its RDMA devices and itself. (Its name alone would turn RDMA off.)"""
    return ",".join([*rdma_devices(interface, sys), interface])


def rdma_ports(sys: Path = SYS) -> dict[str, list[str]]:
    """The ports of RDMA devices that are up, with UCX's names, and the network interfaces of each, if any."""
    owners: dict[str, list[str]] = {}
    for interface in files.list_names(sys / "class/net"):
        for port in _rdma_devices_in(sys / "class/net" / interface):
            owners.setdefault(port, []).append(interface)
    return {port: owners.get(port, []) for port, state in port_states(sys).items() if state == "ACTIVE"}


def port_states(sys: Path = SYS) -> dict[str, str]:
    """The state of every RDMA port, such as ``ACTIVE`` or ``DOWN``, by UCX's name of the port."""
    devices = sys / "class/infiniband"
    return {
        f"{device}:{port}": (files.read_text(devices / device / "ports" / port / "state") or "?").rpartition(": ")[2]
        for device in files.list_names(devices)
        for port in files.list_names(devices / device / "ports")
    }


def describe_network(interface: str, sys: Path = SYS) -> Network:
    """The network of this host; `interface`: the one that UCX uses."""
    return Network(
        interface=interface,
        rdma=rdma_devices(interface, sys),
        rdma_ports=rdma_ports(sys),
        addressed=sorted(ip_addresses()),
    )


def rdma_node(device: str, sys: Path = SYS) -> int | None:
    """The NUMA node of an RDMA device; None if unknown."""
    return _read_numa_node(sys / "class/infiniband" / device.partition(":")[0] / "device/numa_node")


def pci_node(bus_id: str, sys: Path = SYS) -> int | None:
    """The NUMA node of a PCI device; `bus_id` as NVML writes it (``00000000:17:00.0``)."""
    domain, _, rest = bus_id.lower().partition(":")
    return _read_numa_node(sys / "bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node")


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


def _rdma_devices_in(interface: Path) -> list[str]:
    """The RDMA devices of an interface's folder. UCX counts ports from 1, the kernel's ``dev_port`` from 0."""
    port = (files.read_number(interface / "dev_port") or 0) + 1
    return [f"{device}:{port}" for device in files.list_names(interface / "device/infiniband")]


def _read_numa_node(path: Path) -> int | None:
    node = files.read_number(path)
    return None if node is None or node < 0 else node  # -1: the machine has one node


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


@dataclass(frozen=True)
class Pin:
    """One worker's part of its host: its cores (empty: any), its GPU, and the nearest RDMA devices.

    `gpu`: its name for `CUDA_VISIBLE_DEVICES`. `own_memory`: False if that GPU uses the host's memory.
    """

    cores: tuple[int, ...]
    gpu: str | None
    devices: tuple[str, ...]
    own_memory: bool = True


def worker_pins(host: Host, workers: int, *, gpus: bool, workers_per_gpu: int = 1) -> list[Pin]:
    """The part of a host that each of `workers` workers gets.

    Workers on GPUs get a share of the cores of their GPU's NUMA node. Workers without GPUs share all cores. If every
    NUMA node has enough cores for a worker, nodes get workers in proportion to their cores, and no worker spans two
    nodes. RDMA devices are those of a worker's node, or all if it has none. With more workers than cores, nothing is
    pinned.
    """

    def near(node: int | None) -> tuple[str, ...]:
        nearest = [device for device in host.rdma if node is not None and host.rdma_nodes.get(device) == node]
        return tuple(nearest or host.rdma)

    if not gpus:
        return [Pin(share, None, near(node)) for node, share in _core_shares(host.cores, host.node_cores, workers)]
    gpu_nodes = dict(enumerate(host.gpu_nodes))
    nodes = [gpu_nodes.get(number // workers_per_gpu) for number in range(workers)]
    parts = []
    for number, node in enumerate(nodes):
        cores = [core for core in host.cores if node is None or core in host.node_cores.get(str(node), [])]
        sharers = [other for other, theirs in enumerate(nodes) if theirs == node]
        share = split_cores(cores or host.cores, len(sharers))[sharers.index(number)]
        name = gpu_name(host.gpu_names, number // workers_per_gpu)
        parts.append(Pin(share, name, near(node), name not in host.gpus_without_memory))
    return parts


def gpu_name(visible: Sequence[str], number: int) -> str:
    """CUDA's name of the visible GPU with this number; the number itself if the names are unknown."""
    return visible[number] if number < len(visible) else str(number)


def split_cores(cores: Sequence[int], shares: int) -> list[tuple[int, ...]]:
    """Divide cores into `shares` equal runs of neighbours; all empty if there are too few cores."""
    size = len(cores) // shares
    return [tuple(cores[number * size : (number + 1) * size]) for number in range(shares)]


def _core_shares(
    cores: Sequence[int], node_cores: Mapping[str, Sequence[int]], workers: int
) -> list[tuple[int | None, tuple[int, ...]]]:
    """The NUMA node of each worker, if any, and its cores."""
    nodes = {int(node): [core for core in cores if core in here] for node, here in node_cores.items()}
    nodes = {node: here for node, here in sorted(nodes.items()) if here}
    size = len(cores) // workers
    if size == 0 or sum(map(len, nodes.values())) < len(cores) or min(map(len, nodes.values())) < size:
        return [(None, share) for share in split_cores(cores, workers)]
    counts = _workers_by_node({node: len(here) for node, here in nodes.items()}, workers)
    return [(node, share) for node, count in counts.items() if count for share in split_cores(nodes[node], count)]


def _workers_by_node(sizes: Mapping[int, int], workers: int) -> dict[int, int]:
    """The number of workers of each NUMA node, in proportion to `sizes`, rounded by the largest remainders."""
    total = sum(sizes.values())
    counts = {node: workers * size // total for node, size in sizes.items()}
    by_rest = sorted(sizes, key=lambda node: (-(workers * sizes[node] % total), node))
    for node in by_rest[: workers - sum(counts.values())]:
        counts[node] += 1
    return counts


def order_cores(cores: Iterable[int], sys: Path = SYS) -> list[int]:
    """These cores, ordered by NUMA node, and within a node by the core that hardware threads share."""
    nodes = {core: node for node in numa_nodes(sys) for core in node_cores(node, sys)}
    return sorted(cores, key=lambda core: (nodes.get(core, -1), first_sibling(core, sys), core))


def describe_host(interface: str, sys: Path = SYS) -> Host:
    """The facts about this host that `worker_pins` needs, and all its RDMA ports. `interface`: what UCX uses."""
    names = gpu.visible_gpus()
    places = {each.index: each.pci_bus_id for each in gpu.gpu_facts()}
    own_network = describe_network(interface, sys)
    gpu_nodes = [pci_node(place, sys) if (place := places.get(gpu.gpu_index(name))) else None for name in names]
    return Host(
        **asdict(own_network),
        cores=order_cores(os.sched_getaffinity(0), sys),
        gpus=len(names),
        gpu_names=list(names),
        gpu_nodes=gpu_nodes,
        gpus_without_memory=[name for name in names if not gpu.has_own_memory(name)],
        node_cores={str(node): sorted(node_cores(node, sys)) for node in numa_nodes(sys)},
        rdma_nodes={device: rdma_node(device, sys) for device in own_network.rdma},
    )

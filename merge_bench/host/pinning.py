"""Each worker's part of its host: its cores, its GPU, and the RDMA ports nearest to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict

from merge_bench.host import adapters, files, gpu
from merge_bench.host.adapters import Nodes, Place
from merge_bench.host.description import Host
from merge_bench.host.network import SYS, describe_network, first_sibling, node_cores, numa_nodes


@dataclass(frozen=True)
class Pin:
    """One worker's part of its host: its cores (empty: any), its GPU, and the RDMA ports nearest to it.

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
    nodes. Of the RDMA ports in `host.rdma` a worker gets all that are nearest to its GPU, or to its node without a GPU
    (`adapters.distance`): those at its PCI switch, else on its node, else on the nearest node. It gets all of them if
    nothing is known about the way. With more workers than cores, nothing is pinned.
    """
    if not gpus:
        shares = _core_shares(host.cores, host.node_cores, workers)
        return [Pin(share, None, near_ports(host, Place(node))) for node, share in shares]
    gpu_nodes = dict(enumerate(host.gpu_nodes))
    distances = node_distances(host)
    own = [gpu_nodes.get(number // workers_per_gpu) for number in range(workers)]
    nodes = [node_with_cores(node, host.node_cores, distances) for node in own]
    parts = []
    for number, node in enumerate(nodes):
        cores = [core for core in host.cores if node is None or core in host.node_cores.get(str(node), [])]
        sharers = [other for other, theirs in enumerate(nodes) if theirs == node]
        share = split_cores(cores or host.cores, len(sharers))[sharers.index(number)]
        index = number // workers_per_gpu
        name = gpu_name(host.gpu_names, index)
        parts.append(Pin(share, name, near_ports(host, gpu_place(host, index)), name not in host.gpus_without_memory))
    return parts


def gpu_place(host: Host, index: int) -> Place:
    """Where the visible GPU with this index is."""
    nodes, bridges = dict(enumerate(host.gpu_nodes)), dict(enumerate(host.gpu_bridges))
    return Place(nodes.get(index), tuple(bridges.get(index, ())))


def near_ports(host: Host, place: Place) -> tuple[str, ...]:
    """The ports in `host.rdma` that are nearest to `place`, in that order."""
    known = {port.name: port for port in host.ports}
    ports = [known[name] for name in host.rdma if name in known]
    return adapters.nearest_ports(place, ports, node_distances(host)) or tuple(host.rdma)


def node_distances(host: Host) -> Nodes:
    """The distances between the host's NUMA nodes."""
    return Nodes([int(node) for node in host.node_cores], {int(k): row for k, row in host.node_distances.items()})


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
    places = find_gpus(names, sys)
    nodes = numa_nodes(sys)
    return Host(
        **asdict(describe_network(interface, sys)),
        cores=order_cores(os.sched_getaffinity(0), sys),
        gpus=len(names),
        gpu_names=list(names),
        gpu_nodes=[place.node for place in places],
        gpu_bridges=[list(place.bridges) for place in places],
        gpu_instances=[gpu.instance(name) for name in names],
        gpus_without_memory=[name for name in names if not gpu.has_own_memory(name)],
        node_cores={str(node): sorted(node_cores(node, sys)) for node in nodes},
        node_distances={str(node): read_distances(node, sys) for node in nodes},
    )


def find_gpus(names: Sequence[str], sys: Path = SYS) -> list[Place]:
    """Where the GPUs of these names are, and of parts of GPUs (MIG) the GPUs that they belong to."""
    buses = {each.index: each.pci_bus_id for each in gpu.gpu_facts()}
    found = []
    for name in names:
        bus = buses.get(gpu.whole_gpu(name))
        device = adapters.pci_device(bus, sys) if bus else None
        found.append(Place(adapters.read_node(device), tuple(adapters.bridges(device))) if device else Place())
    return found


def read_distances(node: int, sys: Path = SYS) -> list[int]:
    """The distances of a NUMA node to all nodes, in their order; [] if unknown."""
    words = (files.read_text(sys / f"devices/system/node/node{node}/distance") or "").split()
    return [int(word) for word in words if word.isdecimal()]


def node_with_cores(node: int | None, cores: Mapping[str, Sequence[int]], distances: Nodes) -> int | None:
    """`node`, or if it has no cores, as a GPU's own memory has none, the nearest node that has some.

    `cores`: of each node.
    """
    if node is None or cores.get(str(node)):
        return node
    known = [int(other) for other, some in cores.items() if some] if distances.rows.get(node) else []
    return min(known, key=lambda other: distances.between(node, other), default=node)

"""Each worker's part of its host: cores, GPU, and the RDMA ports nearest to it; and whether those it uses fit."""

from __future__ import annotations

import fnmatch
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from merge_bench.host import gpu, network
from merge_bench.host.description import HostFacts, RdmaPort
from merge_bench.host.network import DISTANCES, SYS, HardwareLocation, NumaDistances, numa_node_cores, numa_node_numbers


@dataclass(frozen=True)
class WorkerPin:
    """The part of its host that one worker gets: its cores (empty: any), its GPU, and the RDMA ports nearest to it.

    `gpu`: its name for `CUDA_VISIBLE_DEVICES`. `own_memory`: False if that GPU uses the host's memory.
    """

    cores: tuple[int, ...]
    gpu: str | None
    devices: tuple[str, ...]
    own_memory: bool = True


def pin_workers(host: HostFacts, worker_count: int, *, use_gpus: bool, workers_per_gpu: int = 1) -> list[WorkerPin]:
    """Give each of `worker_count` workers its cores, GPU and RDMA ports of a host.

    Workers on GPUs get a share of the cores of their GPU's NUMA node. Workers without GPUs share all cores. If every
    NUMA node has enough cores for a worker, nodes get workers in proportion to their cores, and no worker spans two
    nodes. Of the RDMA ports in `host.rdma` a worker gets all that are nearest to its GPU, or to its node without a GPU
    (`network.rdma_port_distance`): those at its PCI switch, else on its node, else on the nearest node. It gets all of
    them if nothing is known about the way. With more workers than cores, nothing is pinned.
    """
    if not use_gpus:
        shares = _split_cores_by_node(host.cores, host.node_cores, worker_count)
        return [
            WorkerPin(share, None, nearest_rdma_ports_of_host(host, HardwareLocation(node))) for node, share in shares
        ]
    gpu_nodes = dict(enumerate(host.gpu_nodes))
    distances = host_numa_distances(host)
    own = [gpu_nodes.get(number // workers_per_gpu) for number in range(worker_count)]
    nodes = [nearest_node_with_cores(node, host.node_cores, distances) for node in own]
    parts = []
    for number, node in enumerate(nodes):
        cores = [core for core in host.cores if node is None or core in host.node_cores.get(str(node), [])]
        sharers = [other for other, theirs in enumerate(nodes) if theirs == node]
        share = split_cores(cores or host.cores, len(sharers))[sharers.index(number)]
        index = number // workers_per_gpu
        name = visible_gpu_name(host.gpu_names, index)
        parts.append(
            WorkerPin(
                share,
                name,
                nearest_rdma_ports_of_host(host, gpu_location(host, index)),
                name not in host.gpus_without_memory,
            )
        )
    return parts


def gpu_location(host: HostFacts, gpu_number: int) -> HardwareLocation:
    """The location in its host of the visible GPU with this number."""
    nodes, bridges = dict(enumerate(host.gpu_nodes)), dict(enumerate(host.gpu_bridges))
    return HardwareLocation(nodes.get(gpu_number), tuple(bridges.get(gpu_number, ())))


def nearest_rdma_ports_of_host(host: HostFacts, location: HardwareLocation) -> tuple[str, ...]:
    """The names in `host.rdma` of the ports that are nearest to `location`, in the order of `host.rdma`."""
    by_name = {port.name: port for port in host.ports}
    ports = [by_name[name] for name in host.rdma if name in by_name]
    return network.nearest_rdma_port_names(location, ports, host_numa_distances(host)) or tuple(host.rdma)


def host_numa_distances(host: HostFacts) -> NumaDistances:
    """The distances between the host's NUMA nodes."""
    return NumaDistances(
        [int(node) for node in host.node_cores], {int(k): row for k, row in host.node_distances.items()}
    )


def visible_gpu_name(gpu_names: Sequence[str], gpu_number: int) -> str:
    """CUDA's name of the visible GPU with this number; the number itself if the names are unknown."""
    return gpu_names[gpu_number] if gpu_number < len(gpu_names) else str(gpu_number)


def split_cores(cores: Sequence[int], share_count: int) -> list[tuple[int, ...]]:
    """Divide cores into `share_count` equal shares of neighbouring cores; all are empty if there are too few cores."""
    size = len(cores) // share_count
    return [tuple(cores[number * size : (number + 1) * size]) for number in range(share_count)]


def _split_cores_by_node(
    cores: Sequence[int], node_cores: Mapping[str, Sequence[int]], worker_count: int
) -> list[tuple[int | None, tuple[int, ...]]]:
    """Divide cores between workers, so that none spans two NUMA nodes: each worker's node, if any, and its cores."""
    nodes = {int(node): [core for core in cores if core in here] for node, here in node_cores.items()}
    nodes = {node: here for node, here in sorted(nodes.items()) if here}
    size = len(cores) // worker_count
    if size == 0 or sum(map(len, nodes.values())) < len(cores) or min(map(len, nodes.values())) < size:
        return [(None, share) for share in split_cores(cores, worker_count)]
    counts = _count_workers_by_node({node: len(here) for node, here in nodes.items()}, worker_count)
    return [(node, share) for node, count in counts.items() if count for share in split_cores(nodes[node], count)]


def _count_workers_by_node(core_counts: Mapping[int, int], worker_count: int) -> dict[int, int]:
    """The number of workers of each NUMA node, in proportion to `core_counts`, rounded by the largest remainders."""
    total = sum(core_counts.values())
    counts = {node: worker_count * size // total for node, size in core_counts.items()}
    by_rest = sorted(core_counts, key=lambda node: (-(worker_count * core_counts[node] % total), node))
    for node in by_rest[: worker_count - sum(counts.values())]:
        counts[node] += 1
    return counts


def order_cores_by_node(cores: Iterable[int], sys_folder: Path = SYS) -> list[int]:
    """The given core numbers, ordered by NUMA node, and within a node by the core that hardware threads share."""
    nodes = {core: node for node in numa_node_numbers(sys_folder) for core in numa_node_cores(node, sys_folder)}
    return sorted(cores, key=lambda core: (nodes.get(core, -1), network.first_sibling_thread(core, sys_folder), core))


def describe_host(
    interface: str,
    sys_folder: Path = SYS,
    *,
    cores: Iterable[int] | None = None,
    addressed_interfaces: Iterable[str] | None = None,
) -> HostFacts:
    """Describe this host's cores, GPUs, NUMA nodes and RDMA ports, as `pin_workers` needs them.

    `interface`: the one that UCX uses. `cores`: those that workers may use, by default this process's.
    `addressed_interfaces`: the interfaces with an address, by default those that have one now.
    """
    names = gpu.visible_gpu_names()
    places = find_gpu_locations(names, sys_folder)
    return HostFacts(
        **asdict(network.describe_network(interface, sys_folder, addressed_interfaces=addressed_interfaces)),
        cores=order_cores_by_node(os.sched_getaffinity(0) if cores is None else cores, sys_folder),
        gpus=len(names),
        gpu_names=list(names),
        gpu_nodes=[place.node for place in places],
        gpu_bridges=[list(place.bridges) for place in places],
        gpu_instances=[gpu.gpu_instance_id(name) for name in names],
        gpus_without_memory=[name for name in names if not gpu.gpu_has_own_memory(name)],
        node_cores=_cores_by_node(sys_folder),
        node_distances={str(node): list(row) for node, row in network.read_numa_distances(sys_folder).rows.items()},
    )


def _cores_by_node(sys_folder: Path) -> dict[str, list[int]]:
    """The cores of each NUMA node of this host, by the node's number as text."""
    return {str(node): sorted(numa_node_cores(node, sys_folder)) for node in numa_node_numbers(sys_folder)}


def find_gpu_locations(gpu_names: Sequence[str], sys_folder: Path = SYS) -> list[HardwareLocation]:
    """The locations of this host's GPUs with these names; for a part of a GPU (MIG), the location of the whole GPU."""
    buses = {each.index: each.pci_bus_id for each in gpu.describe_gpus()}
    places = []
    for name in gpu_names:
        bus = buses.get(gpu.whole_gpu_index(name))
        places.append(
            network.location_of_device(network.pci_device_folder(bus, sys_folder)) if bus else HardwareLocation()
        )
    return places


def nearest_node_with_cores(
    node: int | None, cores_by_node: Mapping[str, Sequence[int]], distances: NumaDistances
) -> int | None:
    """The NUMA node `node`, or the nearest node with cores if `node` has none, as the node of a GPU's own memory."""
    if node is None or cores_by_node.get(str(node)):
        return node
    others = [int(other) for other, some in cores_by_node.items() if some] if distances.rows.get(node) else []
    return min(others, key=lambda other: distances.distance_between(node, other), default=node)


class WorkerBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, and the cores, GPU and RDMA ports of its host that it uses.

    `worker`: Dask's name for it, empty if there is none. `gpu`: its name in `CUDA_VISIBLE_DEVICES`; `gpu_node`,
    `core_nodes`: NUMA nodes, None or [] if unknown. `ports`: the RDMA ports that UCX may use; `near`: those nearest to
    the GPU, or to the cores; `distance`: how near they are. `problems`: what does not belong together, a sentence each.
    """

    rank: int | None = None
    worker: str = ""
    host: str = ""
    gpu: str | None = None
    gpu_node: int | None = None
    core_nodes: list[int] = []
    ports: list[str] = []
    near: list[str] = []
    distance: str | None = None
    problems: list[str] = []


def describe_binding(
    environ: Mapping[str, str] = os.environ,
    sys_folder: Path = SYS,
    *,
    cores: Iterable[int] | None = None,
    addressed_interfaces: Iterable[str] | None = None,
) -> WorkerBinding:
    """Describe the cores, GPU and RDMA ports that this process uses, and which of them are not near each other.

    `cores`, `addressed_interfaces`: as of `describe_host`.
    """
    ports = network.active_rdma_ports(sys_folder)
    used = allowed_rdma_ports(environ.get("UCX_NET_DEVICES", "all"), ports)
    mine = os.sched_getaffinity(0) if cores is None else set(cores)
    by_node, nodes = _cores_by_node(sys_folder), network.read_numa_distances(sys_folder)
    core_nodes = [int(node) for node, some in by_node.items() if mine & set(some)]
    # A process that may use every GPU of the machine was given none.
    name = next(iter(gpu.visible_gpu_names()), None) if environ.get("CUDA_VISIBLE_DEVICES") else None
    place = HardwareLocation(core_nodes[0]) if len(core_nodes) == 1 else HardwareLocation()
    problems = []
    if name is not None:
        (place,) = find_gpu_locations([name], sys_folder)
        home = nearest_node_with_cores(place.node, by_node, nodes)
        if home is not None and core_nodes and home not in core_nodes:
            problems.append(f"its cores are on NUMA node {_join_with_commas(core_nodes)}, its GPU is on node {home}")
    reachable = network.addresses_by_interface() if addressed_interfaces is None else addressed_interfaces
    same_network = network.rdma_ports_of_same_network(used, reachable, ports, sys_folder) if used else []
    candidates = [port for port in ports if (port.name in same_network if used else network.ucx_can_use_port(port))]
    near, distance = _nearest_ports_with_distance(place, candidates, nodes)
    return WorkerBinding(
        host=socket.gethostname(),
        gpu=name,
        gpu_node=place.node if name is not None else None,
        core_nodes=core_nodes,
        ports=used,
        near=near,
        distance=distance,
        problems=[*problems, *_rdma_port_choice_problems(used, near, distance)],
    )


def expected_gpu_bindings(sys_folder: Path = SYS) -> list[WorkerBinding]:
    """The binding to expect of a worker on each GPU that a process here would see: rank and nearest RDMA ports."""
    ports = [port for port in network.active_rdma_ports(sys_folder) if network.ucx_can_use_port(port)]
    nodes, names, host = network.read_numa_distances(sys_folder), gpu.visible_gpu_names(), socket.gethostname()
    bindings = []
    for rank, (name, place) in enumerate(zip(names, find_gpu_locations(names, sys_folder), strict=True)):
        near, distance = _nearest_ports_with_distance(place, ports, nodes)
        binding = WorkerBinding(
            rank=rank, host=host, gpu=name, gpu_node=place.node, ports=near, near=near, distance=distance
        )
        bindings.append(binding)
    return bindings


def allowed_rdma_ports(net_devices: str, ports: Sequence[RdmaPort]) -> list[str]:
    """The RDMA ports that a value of ``UCX_NET_DEVICES`` allows: ``all``, a list of names or patterns, or ``^`` a list.

    A device's name stands for all of its ports.
    """
    entries = net_devices.removeprefix("^").split(",")

    def is_in_net_devices(port: RdmaPort) -> bool:
        names = (port.name, port.name.partition(":")[0])
        return any(fnmatch.fnmatchcase(name, entry) for name in names for entry in entries) or entries == ["all"]

    return [
        port.name
        for port in ports
        if network.ucx_can_use_port(port) and is_in_net_devices(port) != net_devices.startswith("^")
    ]


def _nearest_ports_with_distance(
    location: HardwareLocation, ports: Sequence[RdmaPort], numa_distances: NumaDistances
) -> tuple[list[str], str | None]:
    """The names of the RDMA ports nearest to a location, and how near they are; [] and None if unknown."""
    if location == HardwareLocation() or not ports:
        return [], None
    least = min(network.rdma_port_distance(location, port, numa_distances) for port in ports)
    return list(network.nearest_rdma_port_names(location, ports, numa_distances)), DISTANCES[least[0]]


def _rdma_port_choice_problems(
    used_ports: Sequence[str], nearest_ports: Sequence[str], distance: str | None
) -> list[str]:
    """A sentence for each way in which a worker's RDMA ports are not the nearest ones.

    Empty if the worker uses no port, or nothing is known about distances.
    """
    if not used_ports or not nearest_ports:
        return []
    far = [name for name in used_ports if name not in nearest_ports]
    idle = [name for name in nearest_ports if name not in used_ports]
    if len(far) == len(used_ports):
        return [
            f"it uses {_join_with_commas(far)}, and {_join_with_commas(idle)} {_is_or_are(idle)} nearer ({distance})"
        ]
    problems = [f"{_join_with_commas(idle)} {_is_or_are(idle)} as near, and unused"] if idle else []
    return [*problems, f"{_join_with_commas(far)} {_is_or_are(far)} farther away"] if far else problems


def _join_with_commas(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))


def _is_or_are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"

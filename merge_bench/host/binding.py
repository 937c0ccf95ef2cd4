"""Whether a process's cores, its GPU and its RDMA ports belong together."""

from __future__ import annotations

import fnmatch
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from merge_bench.host import adapters, gpu, network, pinning
from merge_bench.host.adapters import DISTANCES, SYS, Nodes, Place
from merge_bench.host.description import Port


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, and the parts of its host that it uses.

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


def describe_binding(environ: Mapping[str, str] = os.environ, sys: Path = SYS) -> Binding:
    """The binding of this process, by its environment and affinity."""
    ports = adapters.active_ports(sys)
    used = selected_ports(environ.get("UCX_NET_DEVICES", "all"), ports)
    cores = {str(node): sorted(network.node_cores(node, sys)) for node in network.numa_nodes(sys)}
    mine = os.sched_getaffinity(0)
    core_nodes = [int(node) for node, some in cores.items() if mine & set(some)]
    nodes = Nodes([int(node) for node in cores], {int(node): pinning.read_distances(int(node), sys) for node in cores})
    # A process that may use every GPU of the machine was given none.
    name = next(iter(gpu.visible_gpus()), None) if environ.get("CUDA_VISIBLE_DEVICES") else None
    place = Place(core_nodes[0]) if len(core_nodes) == 1 else Place()
    problems = []
    if name is not None:
        (place,) = pinning.find_gpus([name], sys)
        home = pinning.node_with_cores(place.node, cores, nodes)
        if home is not None and core_nodes and home not in core_nodes:
            problems.append(f"its cores are on NUMA node {_listed(core_nodes)}, its GPU is on node {home}")
    same_network = adapters.joined_ports(used, network.ip_addresses(), ports, sys) if used else []
    candidates = [port for port in ports if (port.name in same_network if used else adapters.ucx_can_use(port))]
    near = list(adapters.nearest_ports(place, candidates, nodes)) if place != Place() else []
    distance = _distance(place, near, candidates, nodes)
    return Binding(
        host=socket.gethostname(),
        gpu=name,
        gpu_node=place.node if name is not None else None,
        core_nodes=core_nodes,
        ports=used,
        near=near,
        distance=distance,
        problems=[*problems, *_port_problems(used, near, distance)],
    )


def expected_bindings(sys: Path = SYS) -> list[Binding]:
    """For each GPU that a process started here would see: the ports nearest to it, and the rank of its worker."""
    ports = [port for port in adapters.active_ports(sys) if adapters.ucx_can_use(port)]
    order = network.numa_nodes(sys)
    nodes = Nodes(order, {node: pinning.read_distances(node, sys) for node in order})
    found = []
    names = gpu.visible_gpus()
    for rank, (name, place) in enumerate(zip(names, pinning.find_gpus(names, sys), strict=True)):
        near = list(adapters.nearest_ports(place, ports, nodes)) if place != Place() else []
        distance = _distance(place, near, ports, nodes)
        found.append(
            Binding(
                rank=rank, host=socket.gethostname(), gpu=name, gpu_node=place.node, ports=near, near=near,
                distance=distance,
            )
        )  # fmt: skip
    return found


def selected_ports(value: str, ports: Sequence[Port]) -> list[str]:
    """The RDMA ports that a value of ``UCX_NET_DEVICES`` allows: ``all``, a list of names or patterns, or ``^`` a list.

    A device's name stands for all of its ports.
    """
    entries = value.removeprefix("^").split(",")

    def named(port: Port) -> bool:
        names = (port.name, port.name.partition(":")[0])
        return any(fnmatch.fnmatchcase(name, entry) for name in names for entry in entries) or entries == ["all"]

    return [port.name for port in ports if adapters.ucx_can_use(port) and named(port) != value.startswith("^")]


def _distance(place: Place, near: Sequence[str], ports: Sequence[Port], nodes: Nodes) -> str | None:
    first = next((port for port in ports if port.name in near), None)
    return None if first is None else DISTANCES[adapters.distance(place, first, nodes)[0]]


def _port_problems(used: Sequence[str], near: Sequence[str], distance: str | None) -> list[str]:
    """What is wrong with the ports that a worker uses; nothing if it uses none, or nothing is known about the way."""
    if not used or not near:
        return []
    far = [name for name in used if name not in near]
    idle = [name for name in near if name not in used]
    if len(far) == len(used):
        return [f"it uses {_listed(far)}, and {_listed(idle)} {_verb(idle)} nearer ({distance})"]
    problems = [f"{_listed(idle)} {_verb(idle)} as near, and unused"] if idle else []
    return [*problems, f"{_listed(far)} {_verb(far)} farther away"] if far else problems


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))


def _verb(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"

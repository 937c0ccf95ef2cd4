"""Which cores, which GPU and which network devices each worker of a host gets, as far as the machine tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from merge_bench.host import network


@dataclass(frozen=True)
class Pin:
    """One worker's part of its host: `cores` it runs on (empty: any), its GPU, and RDMA devices near to it.

    `gpu`: as `CUDA_VISIBLE_DEVICES` names it. `own_memory`: whether that GPU has some, or uses the host's.
    """

    cores: tuple[int, ...]
    gpu: str | None
    devices: tuple[str, ...]
    own_memory: bool = True


def pins(host: dict[str, Any], workers: int, *, gpus: bool, workers_per_gpu: int = 1) -> list[Pin]:
    """How `workers` workers share a host that described itself (`node.describe`).

    Workers on GPUs get a share of the cores of their GPU's NUMA node. Workers on cores share all of them, each on one
    NUMA node if every node has as many as a worker gets: nodes have workers in proportion to their cores. RDMA devices
    are those of a worker's node, or all if it has none. Where there are more workers than cores nothing is pinned.
    """
    everything: list[int] = list(host["cores"])
    devices: list[str] = list(host["rdma"])

    def near(node: int | None) -> tuple[str, ...]:
        found = [device for device in devices if node is not None and host["rdma_nodes"].get(device) == node]
        return tuple(found or devices)

    if not gpus:
        return [Pin(share, None, near(node)) for node, share in _shares(everything, host["node_cores"], workers)]
    nodes = [_node(host, number // workers_per_gpu) for number in range(workers)]
    found = []
    for number, node in enumerate(nodes):
        cores = [core for core in everything if node is None or core in host["node_cores"].get(str(node), [])]
        sharers = [other for other, theirs in enumerate(nodes) if theirs == node]
        share = split(cores or everything, len(sharers))[sharers.index(number)]
        name = gpu_name(host.get("gpu_names", ()), number // workers_per_gpu)
        found.append(Pin(share, name, near(node), name not in host.get("gpus_without_memory", ())))
    return found


def gpu_name(visible: Sequence[str], number: int) -> str:
    """How the GPU that is `number` of the visible ones is named to CUDA; by its number where nobody knows them."""
    return visible[number] if number < len(visible) else str(number)


def split(cores: Sequence[int], shares: int) -> list[tuple[int, ...]]:
    """Cores in `shares` equal runs of neighbours; all empty if there are too few."""
    each = len(cores) // shares
    return [tuple(cores[number * each : (number + 1) * each]) for number in range(shares)]


def _shares(
    cores: Sequence[int], node_cores: Mapping[str, Sequence[int]], workers: int
) -> list[tuple[int | None, tuple[int, ...]]]:
    """The NUMA node of each worker, if it has one, and its cores."""
    nodes = {int(node): [core for core in cores if core in here] for node, here in node_cores.items()}
    nodes = {node: here for node, here in sorted(nodes.items()) if here}
    each = len(cores) // workers
    if each == 0 or sum(map(len, nodes.values())) < len(cores) or min(map(len, nodes.values())) < each:
        return [(None, share) for share in split(cores, workers)]
    counts = _in_proportion({node: len(here) for node, here in nodes.items()}, workers)
    return [(node, share) for node, count in counts.items() if count for share in split(nodes[node], count)]


def _in_proportion(sizes: Mapping[int, int], workers: int) -> dict[int, int]:
    """How many of `workers` each node gets: the whole part of its due, the rest to the largest remainders."""
    total = sum(sizes.values())
    counts = {node: workers * size // total for node, size in sizes.items()}
    by_rest = sorted(sizes, key=lambda node: (-(workers * sizes[node] % total), node))
    for node in by_rest[: workers - sum(counts.values())]:
        counts[node] += 1
    return counts


def neighbours(cores: Iterable[int], sys: Path = network.SYS) -> list[int]:
    """These cores in an order in which NUMA nodes, and within a node the threads of one core, lie side by side."""
    nodes = {core: node for node in network.numa_nodes(sys) for core in network.node_cores(node, sys)}
    return sorted(cores, key=lambda core: (nodes.get(core, -1), network.first_sibling(core, sys), core))


def describe(interface: str, sys: Path = network.SYS) -> dict[str, Any]:
    """What pinning needs of a host, and what RDMA there is beside the interface's own.

    `cores` are in the order of `neighbours`.
    """
    import os

    from merge_bench.host import gpu

    names = gpu.visible_gpus()
    places = {fact["index"]: fact["pci_bus_id"] for fact in gpu.gpu_facts()}
    told = network.describe(interface, sys)
    gpu_nodes = [network.pci_node(place, sys) if (place := places.get(gpu.index_of(name))) else None for name in names]
    return {
        "cores": neighbours(os.sched_getaffinity(0), sys),
        "gpus": len(names),
        "gpu_names": list(names),
        "gpu_nodes": gpu_nodes,
        "gpus_without_memory": [name for name in names if not gpu.has_own_memory(name)],
        "node_cores": {str(node): sorted(network.node_cores(node, sys)) for node in network.numa_nodes(sys)},
        "rdma_nodes": {device: network.rdma_node(device, sys) for device in told["rdma"]},
        **told,
    }


def _node(host: dict[str, Any], gpu: int) -> int | None:
    nodes = host["gpu_nodes"]
    node: int | None = nodes[gpu] if gpu < len(nodes) else None
    return node

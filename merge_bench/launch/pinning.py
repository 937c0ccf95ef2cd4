"""Which cores, which GPU and which network devices each worker of a host gets, as far as the machine tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from merge_bench.launch import network


@dataclass(frozen=True)
class Pin:
    """One worker's part of its host: `cores` it runs on (empty: any), its GPU, and RDMA devices near to it.

    `gpu`: as `CUDA_VISIBLE_DEVICES` names it.
    """

    cores: tuple[int, ...]
    gpu: str | None
    devices: tuple[str, ...]


def pins(host: dict[str, Any], workers: int, *, gpus: bool, workers_per_gpu: int = 1) -> list[Pin]:
    """How `workers` workers share a host that described itself (`node.describe`).

    Workers on GPUs get a share of the cores of their GPU's NUMA node, workers on cores a share of all, side by side.
    Where there are more workers than cores nothing is pinned.
    """
    everything: list[int] = list(host["cores"])
    devices: list[str] = list(host["rdma"])
    if not gpus:
        shares = split(everything, workers)
        return [Pin(shares[number], None, tuple(devices)) for number in range(workers)]
    nodes = [_node(host, number // workers_per_gpu) for number in range(workers)]
    found = []
    for number, node in enumerate(nodes):
        cores = [core for core in everything if node is None or core in host["node_cores"].get(str(node), [])]
        sharers = [other for other, theirs in enumerate(nodes) if theirs == node]
        share = split(cores or everything, len(sharers))[sharers.index(number)]
        near = [d for d in devices if node is not None and host["rdma_nodes"].get(d) == node]
        found.append(Pin(share, gpu_name(host.get("gpu_names", ()), number // workers_per_gpu), tuple(near or devices)))
    return found


def gpu_name(visible: Sequence[str], number: int) -> str:
    """How the GPU that is `number` of the visible ones is named to CUDA; by its number where nobody knows them."""
    return visible[number] if number < len(visible) else str(number)


def split(cores: Sequence[int], shares: int) -> list[tuple[int, ...]]:
    """Cores in `shares` equal runs of neighbours; all empty if there are too few."""
    each = len(cores) // shares
    return [tuple(cores[number * each : (number + 1) * each]) for number in range(shares)]


def describe(interface: str) -> dict[str, Any]:
    """The part of a host's description that pinning needs, and what RDMA there is beside the interface's own."""
    import os

    from merge_bench import gpu

    names = gpu.visible_gpus()
    places = {str(fact["index"]): fact["pci_bus_id"] for fact in gpu.gpu_facts()}
    devices = network.rdma_devices(interface)
    gpu_nodes = [network.pci_node(place) if (place := places.get(name)) else None for name in names]
    nodes = {node for node in gpu_nodes if node is not None}
    return {
        "cores": sorted(os.sched_getaffinity(0)),
        "gpus": len(names),
        "gpu_names": list(names),
        "gpu_nodes": gpu_nodes,
        "node_cores": {str(node): sorted(network.node_cores(node)) for node in nodes},
        "rdma": devices,
        "rdma_nodes": {device: network.rdma_node(device) for device in devices},
        "rdma_ports": network.rdma_ports(),
        "addressed": sorted(network.addresses()),
    }


def _node(host: dict[str, Any], gpu: int) -> int | None:
    nodes = host["gpu_nodes"]
    node: int | None = nodes[gpu] if gpu < len(nodes) else None
    return node

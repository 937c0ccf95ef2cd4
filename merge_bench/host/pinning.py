"""Distributes the cores, GPUs and network devices of a host over its workers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict

from merge_bench.host import gpu, network
from merge_bench.host.description import Host


@dataclass(frozen=True)
class Pin:
    """One worker's part of its host: its cores (empty: any), its GPU, and the nearest RDMA devices.

    `gpu`: its name for `CUDA_VISIBLE_DEVICES`. `own_memory`: False if that GPU uses the host's memory.
    """

    cores: tuple[int, ...]
    gpu: str | None
    devices: tuple[str, ...]
    own_memory: bool = True


def pins(host: Host, workers: int, *, gpus: bool, workers_per_gpu: int = 1) -> list[Pin]:
    """The part of a host that each of `workers` workers gets.

    Workers on GPUs get a share of the cores of their GPU's NUMA node. Workers without GPUs share all cores. If every
    NUMA node has enough cores for a worker, nodes get workers in proportion to their cores, and no worker spans two
    nodes. RDMA devices are those of a worker's node, or all if it has none. With more workers than cores, nothing is
    pinned.
    """

    def near(node: int | None) -> tuple[str, ...]:
        found = [device for device in host.rdma if node is not None and host.rdma_nodes.get(device) == node]
        return tuple(found or host.rdma)

    if not gpus:
        return [Pin(share, None, near(node)) for node, share in _shares(host.cores, host.node_cores, workers)]
    gpu_nodes = dict(enumerate(host.gpu_nodes))
    nodes = [gpu_nodes.get(number // workers_per_gpu) for number in range(workers)]
    found = []
    for number, node in enumerate(nodes):
        cores = [core for core in host.cores if node is None or core in host.node_cores.get(str(node), [])]
        sharers = [other for other, theirs in enumerate(nodes) if theirs == node]
        share = split(cores or host.cores, len(sharers))[sharers.index(number)]
        name = gpu_name(host.gpu_names, number // workers_per_gpu)
        found.append(Pin(share, name, near(node), name not in host.gpus_without_memory))
    return found


def gpu_name(visible: Sequence[str], number: int) -> str:
    """CUDA's name of the visible GPU with this number; the number itself if the names are unknown."""
    return visible[number] if number < len(visible) else str(number)


def split(cores: Sequence[int], shares: int) -> list[tuple[int, ...]]:
    """Divide cores into `shares` equal runs of neighbours; all empty if there are too few cores."""
    each = len(cores) // shares
    return [tuple(cores[number * each : (number + 1) * each]) for number in range(shares)]


def _shares(
    cores: Sequence[int], node_cores: Mapping[str, Sequence[int]], workers: int
) -> list[tuple[int | None, tuple[int, ...]]]:
    """The NUMA node of each worker, if any, and its cores."""
    nodes = {int(node): [core for core in cores if core in here] for node, here in node_cores.items()}
    nodes = {node: here for node, here in sorted(nodes.items()) if here}
    each = len(cores) // workers
    if each == 0 or sum(map(len, nodes.values())) < len(cores) or min(map(len, nodes.values())) < each:
        return [(None, share) for share in split(cores, workers)]
    counts = _in_proportion({node: len(here) for node, here in nodes.items()}, workers)
    return [(node, share) for node, count in counts.items() if count for share in split(nodes[node], count)]


def _in_proportion(sizes: Mapping[int, int], workers: int) -> dict[int, int]:
    """The number of workers of each node, in proportion to `sizes`, rounded by the largest remainders."""
    total = sum(sizes.values())
    counts = {node: workers * size // total for node, size in sizes.items()}
    by_rest = sorted(sizes, key=lambda node: (-(workers * sizes[node] % total), node))
    for node in by_rest[: workers - sum(counts.values())]:
        counts[node] += 1
    return counts


def neighbours(cores: Iterable[int], sys: Path = network.SYS) -> list[int]:
    """These cores, ordered by NUMA node, and within a node by the core that hardware threads share."""
    nodes = {core: node for node in network.numa_nodes(sys) for core in network.node_cores(node, sys)}
    return sorted(cores, key=lambda core: (nodes.get(core, -1), network.first_sibling(core, sys), core))


def describe(interface: str, sys: Path = network.SYS) -> Host:
    """The facts about this host that `pins` needs, and all its RDMA ports. `interface`: UCX's."""
    names = gpu.visible_gpus()
    places = {each.index: each.pci_bus_id for each in gpu.gpu_facts()}
    known = network.describe(interface, sys)
    gpu_nodes = [network.pci_node(place, sys) if (place := places.get(gpu.index_of(name))) else None for name in names]
    return Host(
        **asdict(known),
        cores=neighbours(os.sched_getaffinity(0), sys),
        gpus=len(names),
        gpu_names=list(names),
        gpu_nodes=gpu_nodes,
        gpus_without_memory=[name for name in names if not gpu.has_own_memory(name)],
        node_cores={str(node): sorted(network.node_cores(node, sys)) for node in network.numa_nodes(sys)},
        rdma_nodes={device: network.rdma_node(device, sys) for device in known.rdma},
    )

"""Structures that describe a process, its host and its UCX. Each worker makes them, and the records contain them.

A fact that is unknown, or that an older program did not record, is None.
"""

from __future__ import annotations

import msgspec


class NetworkInterface(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a network interface. Its speed is None if the kernel does not know it, as for loopback."""

    up: bool | None = None
    megabits_per_second: int | None = None
    mtu: int | None = None


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """The constant facts about a GPU, so that two runs on one machine record the same.

    `index`: in the order of the PCI bus. `memory_bandwidth`: bytes per second at the highest memory clock, with two
    transfers per cycle over the width of the bus. `compute_capability`: like ``9.0``. `nvlink`: how many links are up,
    by the bus id at their other end, a GPU or a switch.
    """

    index: int | None = None
    driver_version: str | None = None
    name: str | None = None
    memory_bytes: int | None = None
    memory_bandwidth: int | None = None
    compute_capability: str | None = None
    pci_bus_id: str | None = None
    nvlink: dict[str, int] | None = None


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU at one moment: clocks, temperature, power, and why its clocks are not higher.

    `watts`: the driver's average, over a second on recent GPUs. `reasons`: as in `gpu.CLOCK_REASONS`, [] for none.
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    celsius: int | None = None
    watts: float | None = None
    reasons: list[str] | None = None


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that computes on a GPU, and the device memory that it uses."""

    pid: int
    memory_bytes: int | None = None


class GpuWithProcesses(Gpu, frozen=True, kw_only=True):
    """A GPU and the other processes that compute on it now."""

    processes: list[GpuProcess] = []


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """The hardware and kernel of a host, as far as a process may use them.

    `cores`: how many cores the process may use; `affinity`: their numbers (``0-3,8``); `cores_online`: how many cores
    the host has. `cpu_quota`: CPU time limit in cores, None without a limit. `cache_bytes`: the largest cache;
    `l2_bytes`: a core's second-level cache.
    `cpu_id`: vendor, family, model and stepping; virtual machines often hide which processor it is in `cpu_model`.
    """

    cpu_model: str | None = None
    cpu_id: str | None = None
    cores: int | None = None
    affinity: str | None = None
    cores_online: int | None = None
    cpu_quota: float | None = None
    cache_bytes: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    available_bytes: int | None = None
    kernel: str | None = None
    machine: str | None = None
    numa_nodes: int | None = None
    interfaces: dict[str, NetworkInterface] | None = None
    infiniband: list[str] | None = None
    huge_pages: str | None = None
    tcp_congestion_control: str | None = None
    gpus: list[Gpu] | None = None


class UcxDescription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The UCX that a process has loaded: version, path, origin and settings; all None if it has loaded none.

    `origin`: ``wheel`` or ``system``; of an MPI rank ``its own``, or the library. `config`: settings of its context.
    `lanes`, `pml`: of an MPI rank, as UCX and Open MPI report them. `sha256`: of the wheel, if it is a release in the
    user's cache.
    """

    version: str | None = None
    path: str | None = None
    origin: str | None = None
    config: dict[str, str] = {}
    lanes: list[str] | None = None
    pml: str | None = None
    sha256: str | None = None


class ProcessFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A process: its host, effective environment, package versions, UCX and hardware."""

    host: str
    pid: int
    environment: dict[str, str] = {}
    versions: dict[str, str | None] = {}
    ucx: UcxDescription = UcxDescription()
    hardware: Hardware = Hardware()


class RdmaPort(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A port of an RDMA adapter that is up.

    `name`: UCX's name (``mlx5_0:1``). `interfaces`: its network interfaces. `layer`: ``InfiniBand``, or ``Ethernet``
    for RoCE; another word for an adapter of another kind, as EFA is. `gigabits`: per second. `subnet`: the prefix of
    its addresses. `virtual`: whether it is a virtual function. `node`: its NUMA node. `bridges`: the PCI bridges above
    the adapter, the root port first.
    """

    name: str
    interfaces: list[str] = []
    layer: str | None = None
    gigabits: float | None = None
    subnet: str | None = None
    virtual: bool = False
    node: int | None = None
    bridges: list[str] = []


class NetworkFacts(msgspec.Struct, kw_only=True):
    """The network interface and the RDMA ports of a host.

    `interface`: the one that UCX uses; `rdma`: the RDMA ports that lead to the network of that interface, with UCX's
    names; `ports`: all RDMA ports that are up; `addressed`: the interfaces that have an address.
    """

    interface: str = ""
    rdma: list[str] = []
    ports: list[RdmaPort] = []
    addressed: list[str] = []


class HostFacts(NetworkFacts, kw_only=True):
    """The facts about a host that determine on which cores and GPUs its workers run.

    `cores`: in the order of `pinning.order_cores_by_node`; `node_cores`: the cores of each NUMA node; `node_distances`:
    from each NUMA node to all, in the order of `node_cores`. `gpu_names`: names for `CUDA_VISIBLE_DEVICES`;
    `gpu_nodes`: the NUMA node of each GPU, None if unknown; `gpu_bridges`: the PCI bridges above each GPU;
    `gpu_instances`: of each part of a GPU (MIG) the GPU and its instance, None for a whole GPU.
    """

    cores: list[int] = []
    gpus: int = 0
    gpu_names: list[str] = []
    gpu_nodes: list[int | None] = []
    gpu_bridges: list[list[str]] = []
    gpu_instances: list[str | None] = []
    gpus_without_memory: list[str] = []
    node_cores: dict[str, list[int]] = {}
    node_distances: dict[str, list[int]] = {}


class InstalledMergeBench(msgspec.Struct, frozen=True, kw_only=True):
    """The merge_bench that is installed on a host: its version, and the checksum of its source files."""

    version: str = ""
    sources: str = ""


class HostReport(HostFacts, kw_only=True):
    """The report of a host agent (`host_agent.HostAgent.describe_host`); other versions may omit fields.

    `address`: of UCX's interface. `stack`: the result of `network.network_stack_id`. `scratch`: the agent's folder.
    """

    host: str = ""
    project: InstalledMergeBench = InstalledMergeBench()
    versions: dict[str, str | None] = {}
    address: str = ""
    stack: str | None = None
    scratch: str = ""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check of a host. `found`: the fact; `spoils`: its effect on a run; `remedy`: what to do."""

    check: str
    state: str
    fact: str = msgspec.field(name="found")  # in documents
    spoils: str = ""
    remedy: str = ""
    host: str = ""

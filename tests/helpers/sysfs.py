"""Makes the parts of ``/sys`` that describe GPUs, RDMA adapters and NUMA nodes, for kinds of machines in public use.

Each kind names the public sources of its facts. Bridges between a root port and a device are simplified: as many as
make `nvidia-smi topo -m` print PIX, PXB, NODE or SYS where it does so on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

IB, ROCE, NEITHER = "InfiniBand", "Ethernet", "Unknown"
SUBNET = "fe80:0000:0000:0000"


@dataclass(frozen=True)
class Device:
    """A PCI device: the addresses from the root port to the device itself, and its NUMA node."""

    path: tuple[str, ...]
    node: int = -1

    @property
    def bus_id(self) -> str:
        """The address as NVML writes it."""
        domain, _, rest = self.path[-1].partition(":")
        return f"{domain.zfill(8)}:{rest}".upper()


@dataclass(frozen=True)
class Adapter:
    """An RDMA device with one port. `interface`: its network interface, if any; `members`: more of them."""

    name: str
    device: Device
    interface: str = ""
    layer: str = IB
    gigabits: int = 200
    state: str = "4: ACTIVE"
    subnet: str = SUBNET
    members: tuple[str, ...] = ()
    virtual: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of machine. `nodes`: the cores of each NUMA node; `distances`: between them, by row.

    `interface`: what a user gives to ``--interface``; `addresses`: of interfaces; `bonds`: the members of each bond.
    """

    name: str
    nodes: Mapping[int, str]
    gpus: Sequence[Device] = ()
    adapters: Sequence[Adapter] = ()
    interface: str = "eth0"
    addresses: Mapping[str, str] = field(default_factory=dict)
    distances: Mapping[int, Sequence[int]] = field(default_factory=dict)
    bonds: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def cores(self) -> set[int]:
        return {core for text in self.nodes.values() for core in _numbers(text)}

    def addresses_by_interface(self) -> dict[str, str]:
        with_one = {each.interface: f"10.0.{number}.1" for number, each in enumerate(self.adapters) if each.interface}
        return {"lo": "127.0.0.1", "eth0": "192.168.0.1", **with_one, **self.addresses}


def make(kind: Kind, root: Path) -> Path:
    """Write the tree of a machine; its root is `root`."""
    for node, cores in kind.nodes.items():
        _put(root, f"devices/system/node/node{node}/cpulist", cores)
        if node in kind.distances:
            _put(root, f"devices/system/node/node{node}/distance", " ".join(map(str, kind.distances[node])))
    for gpu in kind.gpus:
        _device(root, gpu)
    _put(root, "class/net/eth0/address", "00:00:00:00:00:00")
    for adapter in kind.adapters:
        _adapter(root, adapter)
    for bond, members in kind.bonds.items():
        _put(root, f"class/net/{bond}/address", "00:00:00:00:00:01")
        for member in members:
            (root / f"class/net/{bond}/lower_{member}").symlink_to(f"../{member}")
            (root / f"class/net/{member}/upper_{bond}").symlink_to(f"../{bond}")
    return root


def _adapter(root: Path, adapter: Adapter) -> None:
    device = _device(root, adapter.device)
    rdma = device / "infiniband" / adapter.name
    for name, text in {
        "state": adapter.state,
        "link_layer": adapter.layer,
        "rate": f"{adapter.gigabits} Gb/sec (4X)",
        "gids/0": f"{adapter.subnet}:0000:0000:0000:{adapter.device.path[-1][-7:-5]}00",
    }.items():
        _put(rdma, f"ports/1/{name}", text)
    (rdma / "device").symlink_to(device)
    _link(root / "class/infiniband" / adapter.name, rdma)
    if adapter.virtual:
        (device / "physfn").mkdir(exist_ok=True)
    for interface in filter(None, (adapter.interface, *adapter.members)):
        folder = device / "net" / interface
        _put(folder, "dev_port", "0")
        (folder / "device").symlink_to(device)
        _link(root / "class/net" / interface, folder)


def _device(root: Path, device: Device) -> Path:
    """The folder of a PCI device, made below those of its bridges."""
    folder = (root / f"devices/pci{device.path[0][:-5]}").joinpath(*device.path)
    _put(folder, "numa_node", str(device.node))
    _link(root / "bus/pci/devices" / device.path[-1], folder)
    return folder


def _link(at: Path, to: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    if not at.is_symlink():
        at.symlink_to(to)


def _put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def _numbers(text: str) -> Iterator[int]:
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _below(root_port: str, *buses: str, node: int) -> list[Device]:
    """Devices (``07`` or ``29:00.1``) that hang on the downstream ports of one switch below a root port: PIX."""
    domain, _, rest = root_port.partition(":")
    up = f"{domain}:{int(rest[:2], 16) + 1:02x}:00.0"
    down = f"{domain}:{int(rest[:2], 16) + 2:02x}"
    return [
        Device((root_port, up, f"{down}:{2 * number:02x}.0", _address(domain, bus)), node)
        for number, bus in enumerate(buses)
    ]


def _two_levels(root_port: str, *buses: str, node: int) -> list[Device]:
    """Devices that hang on switches of their own below one switch: PXB."""
    domain = root_port.partition(":")[0]
    return [
        Device((*one.path[:-1], f"{domain}:f{number}:00.0", f"{domain}:f{number + 4}:00.0", one.path[-1]), node)
        for number, one in enumerate(_below(root_port, *buses, node=node))
    ]


def _address(domain: str, bus: str) -> str:
    return f"{domain}:{bus}" if ":" in bus else f"{domain}:{bus}:00.0"


def _alone(address: str, node: int) -> Device:
    """A device at a root port of its own."""
    domain = address.partition(":")[0]
    return Device((f"{domain}:00:00.0", address), node)


def _quads(sockets: int, each: int) -> dict[int, list[int]]:
    """Distances of `each` NUMA nodes on each socket, of an EPYC 7002 and later: 10, 12, and 32 to the other socket."""
    count = sockets * each
    return {
        row: [10 if row == column else 12 if row // each == column // each else 32 for column in range(count)]
        for row in range(count)
    }


def dgx_a100() -> Kind:
    """DGX A100: 8 GPUs, 8 ConnectX-6 for InfiniBand, 2 more for storage, 8 NUMA nodes (NPS4).

    Sources: github.com/NVIDIA/nccl/issues/1505 (`nvidia-smi topo -m`: PXB from each GPU to two adapters, NUMA nodes
    3, 1, 7, 5, cores; NCCL's graph: GPU 07:00.0, mlx5_0 0c:00.0, mlx5_4 61:00.0 on NUMA node 0), the DGX A100
    system architecture white paper (two GPUs and two adapters on a switch). The other bus numbers are assumed.
    """
    gpus, adapters = [], []
    groups = (
        (3, "0000:00:01.1", ("07", "0f"), ("0c", "12"), (0, 1)),
        (1, "0000:40:01.1", ("47", "4e"), ("4b", "54"), (2, 3)),
        (7, "0000:80:01.1", ("87", "90"), ("8d", "94"), (6, 7)),
        (5, "0000:b0:01.1", ("b7", "bd"), ("ba", "cc"), (8, 9)),
    )
    for node, port, cards, nics, numbers in groups:
        first, second, *others = _two_levels(port, *cards, *nics, node=node)
        gpus += [first, second]
        adapters += [
            Adapter(f"mlx5_{number}", nic, f"ibp{int(bus, 16)}s0")
            for number, nic, bus in zip(numbers, others, nics, strict=True)
        ]
    for node, port, bus, first_number in ((0, "0000:60:03.1", "61", 4), (4, "0000:e0:03.1", "e1", 10)):
        adapters += [
            Adapter(f"mlx5_{first_number}", Device((port, f"0000:{bus}:00.0"), node), f"enp{bus}f0", ROCE),
            Adapter(
                f"mlx5_{first_number + 1}",
                Device((port, f"0000:{bus}:00.1"), node),
                f"enp{bus}f1",
                ROCE,
                state="1: DOWN",
            ),
        ]
    nodes = {node: f"{16 * node}-{16 * node + 15},{128 + 16 * node}-{143 + 16 * node}" for node in range(8)}
    return Kind("DGX A100", nodes, gpus, _in_order(adapters), "ibp12s0", distances=_quads(2, 4))


def dgx_h100() -> Kind:
    """DGX H100: 8 GPUs, 8 ConnectX-7 for InfiniBand, 2 with two ports each for storage, 2 NUMA nodes.

    Sources: the DGX BasePOD deployment guide (InfiniBand at 18, 40, 4f, 5e, 9a, c0, ce and dc:00.0),
    github.com/bytedance/flux/issues/14 (`nvidia-smi topo -m`: each GPU PXB to one adapter, SYS to the others; the
    storage ports PIX; cores), github.com/NVIDIA/nccl-tests/issues/256 (a GPU and its adapter below one switch). The
    GPUs' bus numbers and the storage subnet are assumed.
    """
    pairs = (
        (0, "0000:15:01.0", "1b", "18", 0),
        (0, "0000:3d:01.0", "43", "40", 3),
        (0, "0000:4c:01.0", "52", "4f", 4),
        (0, "0000:5b:01.0", "61", "5e", 5),
        (1, "0000:97:01.0", "9d", "9a", 6),
        (1, "0000:bd:01.0", "c3", "c0", 9),
        (1, "0000:cb:01.0", "d1", "ce", 10),
        (1, "0000:d9:01.0", "df", "dc", 11),
    )
    gpus, adapters = [], []
    for node, port, card, nic, number in pairs:
        gpu, device = _two_levels(port, card, nic, node=node)
        gpus.append(gpu)
        adapters.append(Adapter(f"mlx5_{number}", device, f"ibp{int(nic, 16)}s0", gigabits=400))
    for node, port, bus, number in ((0, "0000:26:01.0", "29", 1), (1, "0000:a7:01.0", "aa", 7)):
        first, second = (Device((port, f"0000:{bus}:00.{function}"), node) for function in (0, 1))
        adapters += [
            Adapter(f"mlx5_{number}", first, f"ibp{int(bus, 16)}s0f0", gigabits=400, subnet="fec0:0000:0000:0002"),
            Adapter(f"mlx5_{number + 1}", second, f"enp{int(bus, 16)}s0f1np1", ROCE, state="1: DOWN"),
        ]
    nodes = {0: "0-55,112-167", 1: "56-111,168-223"}
    return Kind("DGX H100", nodes, gpus, _in_order(adapters), "ibp24s0", distances={0: [10, 21], 1: [21, 10]})


def four_gpus_two_adapters() -> Kind:
    """Two sockets, each with a PCIe switch that has an adapter and two GPUs.

    Source: github.com/NVIDIA/nccl/issues/1405 (`lspci -tv` of two Ice Lake sockets with a switch each, one adapter
    and GPUs below).
    """
    gpus, adapters = [], []
    for node, port, buses in ((0, "0000:30:02.0", ("34", "35", "33")), (1, "0000:97:02.0", ("9b", "9c", "9a"))):
        first, second, nic = _below(port, *buses, node=node)
        gpus += [first, second]
        adapters.append(Adapter(f"mlx5_{node}", nic, f"ib{node}"))
    nodes = {0: "0-31,64-95", 1: "32-63,96-127"}
    return Kind("4 GPUs, 2 adapters", nodes, gpus, adapters, "ib0", distances={0: [10, 20], 1: [20, 10]})


def four_adapters() -> Kind:
    """Two sockets with two adapters each at root ports of their own, and no GPUs; `ib0` is on the first socket."""
    places = ((0, "0000:17:00.0"), (0, "0000:31:00.0"), (1, "0000:b1:00.0"), (1, "0000:ca:00.0"))
    adapters = [
        Adapter(f"mlx5_{number}", Device((f"0000:{int(address[5:7], 16) - 1:02x}:01.0", address), node), f"ib{number}")
        for number, (node, address) in enumerate(places)
    ]
    nodes = {0: "0-31", 1: "32-63"}
    return Kind("no GPU, 4 adapters", nodes, (), adapters, "ib0", distances={0: [10, 20], 1: [20, 10]})


def gb200(*, own_nodes: bool = False) -> Kind:
    """GB200 (Arm64): two Grace with two GPUs and two ConnectX-7 each; the GPUs' memory is NUMA nodes without cores.

    `own_nodes`: a kernel that names a GPU's own memory as its NUMA node, as `nvidia-smi` does in "GPU NUMA ID".

    Sources: github.com/NVIDIA/nccl/issues/1769 (GPUs 0008:01, 0009:01, 0018:01 and 0019:01:00.0),
    github.com/sgl-project/sglang/issues/11208 (cores 0-71 and 72-143, GPU NUMA IDs 2, 10, 18 and 26, no switch
    between GPUs and adapters), github.com/ishandhanani/srt-slurm/pull/164 (GPUs 0 and 1 on node 0, 2 and 3 on node
    1), github.com/NVIDIA/NVSentinel/pull/1221 (a management adapter shares a NUMA node with GPUs; the link layer
    tells it apart). The addresses of the adapters are assumed.
    """
    own = (2, 10, 18, 26)
    places = (("0008", 0), ("0009", 0), ("0018", 1), ("0019", 1))
    gpus = [_alone(f"{domain}:01:00.0", own[n] if own_nodes else node) for n, (domain, node) in enumerate(places)]
    compute = ((0, "0000", 0), (1, "0002", 0), (3, "0010", 1), (4, "0012", 1))
    adapters = [
        Adapter(f"mlx5_{number}", _alone(f"{domain}:03:00.0", node), f"ib{prefix}p3s0", gigabits=400)
        for number, domain, node in compute
        for prefix in [f"P{int(domain, 16)}" if int(domain, 16) else ""]
    ]
    adapters += [
        Adapter(f"mlx5_{number}", _alone(f"{domain}:03:00.0", node), f"enP{int(domain, 16)}p3s0f0np0", ROCE)
        for number, domain, node in ((2, "0006", 0), (5, "0016", 1))
    ]
    nodes = {0: "0-71", 1: "72-143", **dict.fromkeys(range(2, 34), "")}

    def socket(node: int) -> int:
        return node if node < 2 else int(node >= 18)

    def far(one: int, other: int) -> int:
        if one == other:
            return 10
        if one < 2 and other < 2:
            return 40
        return 80 if socket(one) == socket(other) else 120

    distances = {one: [far(one, other) for other in nodes] for one in nodes}
    name = "GB200, GPUs on their own nodes" if own_nodes else "GB200"
    return Kind(name, nodes, gpus, _in_order(adapters), "ibp3s0", distances=distances)


def cloud_efa() -> Kind:
    """A cloud instance with four A10G and EFA, and a network interface of another device; one NUMA node.

    Sources: github.com/aws/aws-ofi-nccl/issues/466 (g5.12xlarge: GPUs 00:1b.0 to 00:1e.0, one NUMA node), Linux
    drivers/infiniband/hw/efa (the port's link layer is not specified, which sysfs prints as Unknown),
    github.com/openucx/ucx/pull/10021 (a UCX needs a module of its own for EFA). The address of EFA is assumed.
    """
    gpus = [Device((f"0000:00:{slot}.0",), 0) for slot in ("1b", "1c", "1d", "1e")]
    efa = Adapter("efa_0", Device(("0000:00:1a.0",), 0), "", NEITHER, 100)
    return Kind("cloud, EFA", {0: "0-47"}, gpus, [efa], "eth0")


def cloud_without() -> Kind:
    """The same instance without EFA: no /sys/class/infiniband."""
    return Kind("cloud, no adapter", {0: "0-47"}, cloud_efa().gpus)


def roce() -> Kind:
    """Two sockets with a GPU and a RoCE adapter on a switch each, a slower adapter for management, InfiniBand unused.

    Its facts are those of any RoCE cluster: an IP subnet for each adapter, names as Linux gives them.
    """
    gpus, adapters = [], []
    for node, port in enumerate(("0000:15:01.0", "0000:97:01.0")):
        gpu, nic = _below(port, f"{(0x18, 0x9A)[node]:02x}", f"{(0x19, 0x9B)[node]:02x}", node=node)
        gpus.append(gpu)
        adapters.append(Adapter(f"mlx5_{node}", nic, f"ens{node}np0", ROCE, 400))
    slow = Device(("0000:30:01.0", "0000:31:00.0"), 0)
    storage = Device(("0000:b0:01.0", "0000:b1:00.0"), 1)
    adapters += [Adapter("mlx5_2", slow, "ens9np0", ROCE, 25), Adapter("mlx5_3", storage, "ib0", IB, 400)]
    return Kind("RoCE", {0: "0-31", 1: "32-63"}, gpus, adapters, "ens0np0")


def bonded() -> Kind:
    """A RoCE bond of both ports of one card: one RDMA device, `mlx5_bond_0`, which belongs to the first member.

    Source: the mlx5 driver's RoCE LAG (Linux drivers/infiniband/hw/mlx5: ``mlx5_bond_%d``).
    """
    card = Device(("0000:15:01.0", "0000:16:00.0"), 0)
    bond = Adapter("mlx5_bond_0", card, "ens1f0", ROCE, 100, members=("ens1f1",))
    gpus = [Device(("0000:15:02.0", "0000:18:00.0"), 0), Device(("0000:97:01.0", "0000:98:00.0"), 1)]
    return Kind(
        "bond",
        {0: "0-15", 1: "16-31"},
        gpus,
        [bond],
        "bond0",
        {"bond0": "10.1.0.1"},
        bonds={"bond0": ("ens1f0", "ens1f1")},
    )


def ports_down() -> Kind:
    """`four_gpus_two_adapters` with the second adapter's cable pulled."""
    whole = four_gpus_two_adapters()
    first, second = whole.adapters
    down = Adapter(second.name, second.device, second.interface, state="1: DOWN")
    return Kind("port down", whole.nodes, whole.gpus, [first, down], "ib0", distances=whole.distances)


def _in_order(adapters: Iterable[Adapter]) -> list[Adapter]:
    return sorted(adapters, key=lambda each: int(each.name.removeprefix("mlx5_")))


KINDS = (
    dgx_a100,
    dgx_h100,
    four_gpus_two_adapters,
    four_adapters,
    gb200,
    roce,
    bonded,
    ports_down,
    cloud_efa,
    cloud_without,
)

"""Which RDMA ports each worker gets, on trees of ``/sys`` of machines in public use (`tests.helpers.sysfs`)."""

from __future__ import annotations

import sys as modules
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from merge_bench.host import network, pinning
from merge_bench.host.description import HostFacts
from merge_bench.host.kernel_files import format_core_list
from merge_bench.host.network import HardwareLocation
from tests.helpers import sysfs
from tests.helpers.fake_nvml import library
from tests.helpers.sysfs import Kind

Describe = Callable[..., HostFacts]


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Describe:
    """What a host with this tree reports of itself."""

    def describe(kind: Kind, interface: str | None = None) -> HostFacts:
        root = sysfs.make(kind, tmp_path / kind.name)

        def pci(handle: int) -> SimpleNamespace:
            return SimpleNamespace(busId=kind.gpus[handle].bus_id)

        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setitem(modules.modules, "pynvml", library(len(kind.gpus), nvmlDeviceGetPciInfo=pci))
        where = interface or kind.interface
        return pinning.describe_host(
            where, root, cores=kind.cores(), addressed_interfaces=kind.addresses_by_interface()
        )

    return describe


def numbers(host: HostFacts, workers: int, *, gpus: bool) -> list[str]:
    """The ports of each worker, without what all names have in common: ``0 1`` for ``mlx5_0:1`` and ``mlx5_1:1``."""
    pins = pinning.pin_workers(host, workers, use_gpus=gpus)
    return [" ".join(port.removeprefix("mlx5_").removesuffix(":1") for port in pin.devices) for pin in pins]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (sysfs.dgx_a100, ["0 1", "0 1", "2 3", "2 3", "6 7", "6 7", "8 9", "8 9"]),
        (sysfs.dgx_h100, ["0", "3", "4", "5", "6", "9", "10", "11"]),
        (sysfs.four_gpus_two_adapters, ["0", "0", "1", "1"]),
        (sysfs.gb200, ["0 1", "0 1", "3 4", "3 4"]),
        (lambda: sysfs.gb200(own_nodes=True), ["0 1", "0 1", "3 4", "3 4"]),
        (sysfs.cloud_efa, ["", "", "", ""]),
        (sysfs.cloud_without, ["", "", "", ""]),
        (sysfs.roce, ["0", "1"]),
        (sysfs.bonded, ["bond_0", "bond_0"]),
        (sysfs.ports_down, ["0", "0", "0", "0"]),
    ],
    ids=lambda value: value().name if callable(value) else "",
)
def test_each_gpu_worker_gets_all_ports_near_its_gpu(
    described: Describe, make: Callable[[], Kind], expected: list[str]
) -> None:
    kind = make()
    assert numbers(described(kind), len(kind.gpus), gpus=True) == expected


@pytest.mark.parametrize(
    ("make", "workers", "expected"),
    [
        (sysfs.four_adapters, 2, ["0 1", "2 3"]),
        (sysfs.four_adapters, 4, ["0 1", "0 1", "2 3", "2 3"]),
        (sysfs.four_adapters, 1, ["0 1 2 3"]),
        # Nodes without an adapter get those of their socket.
        (sysfs.dgx_a100, 8, ["0 1 2 3", "2 3", "0 1 2 3", "0 1", "6 7 8 9", "8 9", "6 7 8 9", "6 7"]),
        (sysfs.gb200, 2, ["0 1", "3 4"]),
        (sysfs.cloud_efa, 4, ["", "", "", ""]),
    ],
)
def test_each_worker_on_cores_gets_all_ports_near_its_node(
    described: Describe, make: Callable[[], Kind], workers: int, expected: list[str]
) -> None:
    assert numbers(described(make()), workers, gpus=False) == expected


@pytest.mark.parametrize(
    ("make", "interface", "ports"),
    [
        (sysfs.dgx_a100, "ibp148s0", "7 0 1 2 3 6 8 9"),  # its own first
        (sysfs.dgx_a100, "enp61f0", "4 10"),
        (sysfs.dgx_h100, "ibp41s0f0", "1 7"),  # another subnet
        (sysfs.roce, "ens0np0", "0 1"),
        (sysfs.roce, "ens9np0", "2 0 1"),  # from the slow one, faster ones are no loss
        (sysfs.roce, "ib0", "3"),
        (sysfs.bonded, "bond0", "bond_0"),
        (sysfs.bonded, "ens1f1", "bond_0"),
        (sysfs.ports_down, "ib1", ""),
        (sysfs.ports_down, "eth0", ""),
        (sysfs.cloud_efa, "eth0", ""),
    ],
)
def test_ports_of_an_interface_are_those_that_lead_to_its_network(
    described: Describe, make: Callable[[], Kind], interface: str, ports: str
) -> None:
    found = described(make(), interface).rdma
    assert [name.removeprefix("mlx5_").removesuffix(":1") for name in found] == ports.split()


def test_a_roce_port_without_an_address_is_of_no_network(tmp_path: Path) -> None:
    root = sysfs.make(sysfs.roce(), tmp_path)
    assert network.describe_network("ens0np0", root, addressed_interfaces=["lo", "ens0np0", "ens1np0"]).rdma == [
        "mlx5_0:1",
        "mlx5_1:1",
    ]
    assert network.describe_network("ens0np0", root, addressed_interfaces=["lo", "ens0np0"]).rdma == ["mlx5_0:1"]


def test_virtual_functions_of_an_adapter_that_is_here_do_not_count(described: Describe) -> None:
    whole = sysfs.four_adapters()
    device = sysfs.Device(("0000:16:01.0", "0000:17:00.2"), 0)
    part = sysfs.Adapter("mlx5_9", device, "ib9", virtual=True)
    kind = Kind("with functions", whole.nodes, (), [*whole.adapters, part], "ib0")
    assert "mlx5_9:1" not in described(kind).rdma
    kind = Kind("on a function", whole.nodes, (), [*whole.adapters, part], "ib9")
    assert described(kind).rdma[0] == "mlx5_9:1"


def test_cores_beside_a_gpu_whose_node_has_none_are_those_of_the_nearest_node(described: Describe) -> None:
    for own_nodes in (False, True):
        pins = pinning.pin_workers(described(sysfs.gb200(own_nodes=own_nodes)), 4, use_gpus=True)
        assert [format_core_list(pin.cores) for pin in pins] == ["0-35", "36-71", "72-107", "108-143"]


@pytest.mark.parametrize(
    ("make", "gpu", "port", "expected"),
    [
        (sysfs.four_gpus_two_adapters, 0, "mlx5_0:1", network.ONE_SWITCH),
        (sysfs.four_gpus_two_adapters, 0, "mlx5_1:1", network.OTHER_NODE),
        (sysfs.dgx_a100, 0, "mlx5_1:1", network.SWITCHES),
        (sysfs.gb200, 0, "mlx5_1:1", network.ONE_NODE),
        (sysfs.cloud_efa, 0, "efa_0:1", network.ONE_NODE),
    ],
)
def test_distances_are_those_of_nvidia_smi(
    described: Describe, make: Callable[[], Kind], gpu: int, port: str, expected: int
) -> None:
    host = described(make())
    (found,) = (each for each in host.ports if each.name == port)
    assert (
        network.rdma_port_distance(pinning.gpu_location(host, gpu), found, pinning.host_numa_distances(host))[0]
        == expected
    )


def test_a_tree_that_lacks_every_optional_file_gives_all_ports_to_all(tmp_path: Path) -> None:
    for name in ("mlx5_0", "mlx5_1"):
        (tmp_path / "class/net/ib0/device/infiniband" / name).mkdir(parents=True)
    host = pinning.describe_host("ib0", tmp_path, addressed_interfaces=[])
    assert host.rdma == ["mlx5_0:1", "mlx5_1:1"]
    assert pinning.nearest_rdma_ports_of_host(host, HardwareLocation(0)) == ("mlx5_0:1", "mlx5_1:1")
    assert network.describe_network("ib0", tmp_path / "none").ports == []

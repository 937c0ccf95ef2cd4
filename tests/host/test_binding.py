"""Whether a worker's cores, GPU and RDMA ports belong together, and the tables that show it."""

from __future__ import annotations

import io
import sys as modules
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from merge_bench.host import network
from merge_bench.host.description import RdmaPort
from merge_bench.host.doctor import OK, WARN, HostCheckFacts, check_gpu_adapters
from merge_bench.host.gpu import describe_gpus
from merge_bench.host.pinning import WorkerBinding, allowed_rdma_ports, describe_binding, expected_gpu_bindings
from merge_bench.report.host_and_config import write_worker_bindings
from merge_bench.view.terminal import print_page_at_exit
from tests.helpers import sysfs
from tests.helpers.fake_nvml import library
from tests.helpers.sysfs import Kind

Be = Callable[[Kind], Path]


@pytest.fixture
def be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Be:
    """Make this process believe that it runs on a machine of this kind; gives the root of its ``/sys``."""

    def pretend(kind: Kind) -> Path:
        def pci(handle: int) -> SimpleNamespace:
            return SimpleNamespace(busId=kind.gpus[handle].bus_id)

        monkeypatch.setitem(modules.modules, "pynvml", library(len(kind.gpus), nvmlDeviceGetPciInfo=pci))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        return sysfs.make(kind, tmp_path / "machine/sys")

    return pretend


def interfaces(root: Path) -> list[str]:
    """All interfaces of a machine, by the root of its ``/sys``."""
    return [each.name for each in (root / "class/net").glob("*")]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorkerBinding]:
    """The binding of a worker with this GPU, these cores and these devices."""

    def describe(root: Path, gpu: str | None, cores: range, devices: str) -> WorkerBinding:
        environ = {"UCX_NET_DEVICES": devices}
        if gpu is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu)
            environ["CUDA_VISIBLE_DEVICES"] = gpu
        return describe_binding(environ, root, cores=cores, addressed_interfaces=interfaces(root))

    return describe


def test_a_worker_that_has_all_near_ports_and_cores_fits(be: Be, worker: Callable[..., WorkerBinding]) -> None:
    found = worker(be(sysfs.dgx_a100()), "2,3", range(16, 20), "mlx5_2:1,mlx5_3:1,ibp12s0")
    assert (found.gpu, found.gpu_node, found.core_nodes) == ("2", 1, [1])
    assert found.ports == found.near == ["mlx5_2:1", "mlx5_3:1"]
    assert (found.distance, found.problems) == ("same PCIe root", [])


@pytest.mark.parametrize(
    ("cores", "devices", "problems"),
    [
        (range(4), "mlx5_2:1,mlx5_3:1", ["its cores are on NUMA node 0, its GPU is on node 1"]),
        (range(16, 20), "mlx5_0:1,ibp12s0", ["it uses mlx5_0:1, and mlx5_2:1, mlx5_3:1 are nearer (same PCIe root)"]),
        (range(16, 20), "mlx5_2:1", ["mlx5_3:1 is as near, and unused"]),
        (range(16, 20), "mlx5_2:1,mlx5_3:1,mlx5_0:1", ["mlx5_0:1 is farther away"]),
        (range(256), "lo", []),
    ],
)
def test_what_does_not_belong_together_is_a_sentence(
    be: Be, worker: Callable[..., WorkerBinding], cores: range, devices: str, problems: list[str]
) -> None:
    assert worker(be(sysfs.dgx_a100()), "2", cores, devices).problems == problems


def test_a_gpu_whose_memory_is_a_node_without_cores_fits_the_cores_beside_it(
    be: Be, worker: Callable[..., WorkerBinding]
) -> None:
    root = be(sysfs.gb200(own_nodes=True))
    assert worker(root, "3", range(100, 110), "mlx5_3:1,mlx5_4:1,ibp3s0").problems == []
    assert len(worker(root, "3", range(10), "mlx5_3:1,mlx5_4:1,ibp3s0").problems) == 1


def test_a_worker_on_cores_is_compared_with_its_node(be: Be, worker: Callable[..., WorkerBinding]) -> None:
    root = be(sysfs.four_adapters())
    assert worker(root, None, range(40, 44), "mlx5_2:1,mlx5_3:1,ib0").problems == []
    found = worker(root, None, range(40, 44), "mlx5_0:1,ib0")
    assert (found.gpu, found.gpu_node) == (None, None)
    assert found.problems == ["it uses mlx5_0:1, and mlx5_2:1, mlx5_3:1 are nearer (same NUMA node)"]
    assert worker(root, None, range(64), "mlx5_0:1,ib0").problems == []  # on both nodes: nothing is nearer


@pytest.mark.parametrize("make", [sysfs.cloud_efa, sysfs.cloud_without])
def test_without_an_adapter_of_ucx_there_is_nothing_to_fit(
    be: Be, worker: Callable[..., WorkerBinding], make: Callable[[], Kind]
) -> None:
    found = worker(be(make()), "1", range(4), "eth0")
    assert (found.ports, found.near, found.distance, found.problems) == ([], [], None, [])


def test_an_empty_tree_says_nothing(be: Be, worker: Callable[..., WorkerBinding], tmp_path: Path) -> None:
    be(sysfs.cloud_without())
    found = worker(tmp_path / "none", None, range(2), "lo")
    assert found == replace_host(WorkerBinding(), found.host)


def replace_host(binding: WorkerBinding, host: str) -> WorkerBinding:
    return WorkerBinding(**{**{name: getattr(binding, name) for name in binding.__struct_fields__}, "host": host})


@pytest.mark.parametrize(
    ("value", "ports"),
    [
        ("all", "ab"),
        ("a:1", "a"),
        ("a", "a"),
        ("^a:1", "b"),
        ("*:1", "ab"),
        ("eth0", ""),
        ("^all", ""),
        ("b:1,eth0", "b"),
    ],
)
def test_devices_of_ucx_name_ports(value: str, ports: str) -> None:
    known = [RdmaPort(name="a:1"), RdmaPort(name="b:1"), RdmaPort(name="efa_0:1", layer="Unknown")]
    assert allowed_rdma_ports(value, known) == [f"{each}:1" for each in ports]


def test_doctor_expects_a_worker_on_each_gpu(be: Be) -> None:
    found = expected_gpu_bindings(be(sysfs.dgx_h100()))
    assert [(each.rank, each.gpu, each.gpu_node) for each in found] == [(n, str(n), int(n > 3)) for n in range(8)]
    assert [each.ports for each in found][:2] == [["mlx5_0:1"], ["mlx5_3:1"]]


def finding(root: Path) -> tuple[str, str]:
    found = check_gpu_adapters(HostCheckFacts(root=root.parent, gpus=describe_gpus()))
    return found.state, found.fact


def test_doctor_shows_the_ports_near_each_gpu(be: Be) -> None:
    state, fact = finding(be(sysfs.four_gpus_two_adapters()))
    assert (state, fact) == (OK, "GPU 0, 1: mlx5_0:1 (same switch); GPU 2, 3: mlx5_1:1 (same switch)")


def test_doctor_warns_of_gpus_without_a_port_on_their_node(be: Be) -> None:
    state, fact = finding(be(sysfs.ports_down()))
    assert state == WARN
    assert fact == "GPU 0, 1: mlx5_0:1 (same switch); GPU 2, 3: mlx5_0:1 (other NUMA node)"


@pytest.mark.parametrize("make", [sysfs.cloud_efa, sysfs.cloud_without, sysfs.four_adapters])
def test_doctor_needs_both_a_gpu_and_a_port(be: Be, make: Callable[[], Kind]) -> None:
    assert finding(be(make())) == (OK, "not needed without both a GPU and an RDMA adapter")


def printed(*bindings: WorkerBinding) -> str:
    text = io.StringIO()
    with print_page_at_exit(text) as page:
        write_worker_bindings(page, bindings)
    return text.getvalue()


def test_the_table_names_what_does_not_fit() -> None:
    good = WorkerBinding(
        rank=0, host="n1", gpu="0", gpu_node=0, core_nodes=[0], ports=["a:1"], near=["a:1"], distance="near"
    )
    bad = WorkerBinding(rank=1, host="n1", gpu="1", gpu_node=1, core_nodes=[0], problems=["its cores are elsewhere"])
    text = printed(good, bad)
    assert "rank 1 on n1: its cores are elsewhere" in text
    rows = [line.split() for line in text.splitlines() if " n1 " in line and line.strip()[0].isdigit()]
    assert [row[-1] for row in rows] == ["yes", "no"]


def test_without_gpu_and_adapter_there_is_no_table() -> None:
    assert printed(WorkerBinding(rank=0, host="n1", core_nodes=[0]), WorkerBinding(rank=1, host="n1")) == ""


def test_the_ports_of_a_kind_that_lacks_bridges_are_compared_by_node(be: Be) -> None:
    kind = sysfs.four_gpus_two_adapters()
    flat = replace(
        kind,
        gpus=[sysfs.Device(each.path[-1:], each.node) for each in kind.gpus],
        adapters=[
            replace(each, device=sysfs.Device(each.device.path[-1:], each.device.node)) for each in kind.adapters
        ],
    )
    assert {each.distance for each in expected_gpu_bindings(be(flat))} == {network.DISTANCES[network.ONE_NODE]}

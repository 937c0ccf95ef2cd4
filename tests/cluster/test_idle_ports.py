"""RDMA ports that carry nothing are a warning with what that costs; the user's own devices stand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.dask_commands import ProcessLocation, dask_process_commands
from merge_bench.cluster.host_check import IDLE, idle_rdma_port_warnings, unusable_rdma_port_warnings
from merge_bench.cluster.hosts import HostSpec
from merge_bench.errors import WarningMessage
from merge_bench.host import network, pinning
from merge_bench.host.description import HostFacts, HostReport
from merge_bench.host.pinning import WorkerPin
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import SyntheticSpec
from tests.helpers import sysfs
from tests.helpers.fake_agents import started
from tests.helpers.sysfs import Kind

TWO_RAILS = {"UCX_MAX_RNDV_RAILS": "2"}


@pytest.fixture
def describe(tmp_path: Path) -> Callable[..., HostFacts]:
    def made(kind: Kind, interface: str | None = None) -> HostFacts:
        root = sysfs.make(kind, tmp_path / kind.name)
        where = interface or kind.interface
        host = pinning.describe_host(
            where, root, cores=kind.cores(), addressed_interfaces=kind.addresses_by_interface()
        )
        folders = [network.pci_device_folder(gpu.bus_id, root) for gpu in kind.gpus]
        nodes, bridges = map(network.read_numa_node, folders), map(network.pci_bridges, folders)
        return replace(host, gpu_nodes=list(nodes), gpu_bridges=list(bridges))

    return made


def warned(host: HostFacts, workers: int, config: dict[str, str], *, gpus: bool = True) -> list[WarningMessage]:
    pins = pinning.pin_workers(host, workers, use_gpus=gpus)
    return idle_rdma_port_warnings({"n1": host, "n2": host}, {"n1": pins, "n2": pins}, config)


def test_one_port_for_a_message_where_two_are_near_is_half_the_speed(describe: Callable[..., HostFacts]) -> None:
    (caution,) = warned(describe(sysfs.dgx_a100()), 8, {})
    assert caution.code == IDLE
    assert caution.message == (
        "workers on n1, n2 use at most 4 of 8 RDMA ports (800 of 1,600 Gb/s): UCX_MAX_RNDV_RAILS=1 lets a message use"
        " 1 port, and a worker has 2"
    )
    assert caution.remedy == "set UCX_MAX_RNDV_RAILS=2 in the config, or start more workers"
    assert warned(describe(sysfs.gb200()), 4, {})[0].message.partition(":")[0].endswith("(800 of 1,600 Gb/s)")


def test_workers_on_half_of_the_gpus_leave_the_ports_of_the_others(describe: Callable[..., HostFacts]) -> None:
    (caution,) = warned(describe(sysfs.dgx_h100()), 4, TWO_RAILS)
    assert caution.message == (
        "workers on n1, n2 use at most 4 of 8 RDMA ports (1,600 of 3,200 Gb/s): no worker is near mlx5_6:1, mlx5_9:1,"
        " mlx5_10:1, mlx5_11:1"
    )
    assert caution.remedy == "start a worker for each GPU or NUMA node"


def test_ports_that_are_near_to_no_gpu_may_lead_to_storage(describe: Callable[..., HostFacts]) -> None:
    whole = sysfs.dgx_h100()
    nics = [dataclasses.replace(each, subnet=sysfs.SUBNET) for each in whole.adapters]
    (caution,) = warned(describe(dataclasses.replace(whole, adapters=nics)), 8, TWO_RAILS)
    assert "at most 8 of 10 RDMA ports (3,200 of 4,000 Gb/s): no worker is near mlx5_1:1, mlx5_7:1" in caution.message
    assert caution.remedy.startswith("if they lead to the other hosts, and not to storage, set UCX_NET_DEVICES")


@pytest.mark.parametrize(
    ("kind", "workers", "gpus"),
    [
        (sysfs.dgx_a100(), 8, True),
        (sysfs.dgx_h100(), 8, True),
        (sysfs.four_gpus_two_adapters(), 4, True),
        (sysfs.gb200(), 4, True),
        (sysfs.cloud_efa(), 4, True),
        (sysfs.cloud_without(), 4, True),
        (sysfs.roce(), 2, True),
        (sysfs.bonded(), 2, True),
        (sysfs.ports_down(), 4, True),
        (sysfs.four_adapters(), 2, False),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else "",
)
def test_a_worker_for_each_gpu_or_node_and_two_rails_leave_no_port(
    describe: Callable[..., HostFacts], kind: Kind, workers: int, gpus: bool
) -> None:
    assert warned(describe(kind), workers, TWO_RAILS, gpus=gpus) == []


def test_an_unknown_speed_is_a_share(describe: Callable[..., HostFacts]) -> None:
    host = describe(sysfs.four_adapters())
    host = replace(host, ports=[replace(port, gigabits=None) for port in host.ports])
    assert "use at most 2 of 4 RDMA ports (50% of the speed)" in warned(host, 1, TWO_RAILS, gpus=False)[0].message


@pytest.mark.parametrize("config", [{"UCX_NET_DEVICES": "mlx5_3:1"}, {"UCX_TLS": "tcp,self"}])
def test_no_warning_where_the_user_chose_devices_or_no_rdma(
    describe: Callable[..., HostFacts], config: dict[str, str]
) -> None:
    assert warned(describe(sysfs.dgx_a100()), 8, config) == []


def test_no_warning_of_a_single_host(describe: Callable[..., HostFacts]) -> None:
    host = describe(sysfs.dgx_a100())
    assert idle_rdma_port_warnings({"n1": host}, {"n1": pinning.pin_workers(host, 8, use_gpus=True)}, {}) == []


def test_an_interface_of_a_slow_network_leaves_the_fast_one_unused(describe: Callable[..., HostFacts]) -> None:
    host = describe(sysfs.dgx_a100(), "enp61f0")
    (caution,) = unusable_rdma_port_warnings({"n1": host, "n2": host}, {})
    assert caution.message.startswith("UCX on n1, n2 cannot use mlx5_0:1 (ibp12s0), mlx5_1:1 (ibp18s0), ")
    assert caution.message.endswith("which has mlx5_4:1, mlx5_10:1: 400 Gb/s of 2,000 Gb/s")
    assert caution.remedy.startswith("use --interface ibp12s0 or ibp18s0 or ")


@pytest.mark.parametrize("make", [sysfs.dgx_h100, sysfs.gb200, sysfs.cloud_efa, sysfs.cloud_without])
def test_storage_and_management_are_no_loss_and_efa_is_no_port_of_ucx(
    describe: Callable[..., HostFacts], make: Callable[[], Kind]
) -> None:
    host = describe(make())
    assert unusable_rdma_port_warnings({"n1": host, "n2": host}, {}) == []


def test_tcp_beside_fast_ports_says_what_they_would_carry(describe: Callable[..., HostFacts]) -> None:
    host = describe(sysfs.dgx_a100(), "eth0")
    (caution,) = unusable_rdma_port_warnings({"n1": host, "n2": host}, {})
    assert caution.message.endswith("which has no RDMA device: 2,000 Gb/s are unused")


def plan(workers: int) -> Plan:
    return Plan(
        SyntheticSpec(1000, 0.3, 0),
        workers,
        iterations=1,
        warmup=0,
        launches=1,
        engine="cudf",
        exchange="ucx",
        protocol="tls",
        verify="ends",
        timeout=15.0,
        seed=0,
    )


def test_the_launcher_warns_of_the_ports_that_its_workers_do_not_get(
    describe: Callable[..., HostFacts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    host = replace(describe(sysfs.dgx_h100()), gpus=8)
    node = HostReport(**{name: getattr(host, name) for name in HostFacts.__struct_fields__})
    settings = ClusterSettings({}, Path("results"), hosts=(HostSpec("n1", slots=2), HostSpec("n2", slots=2)))
    with started({"n1": node, "n2": node}, plan(4), settings, tmp_path) as launcher:
        (caution,) = launcher.host_warnings(settings)
    assert caution.code == IDLE


def pins(host: HostFacts, workers: int) -> Sequence[WorkerPin]:
    return pinning.pin_workers(host, workers, use_gpus=True)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ["mlx5_0:1,mlx5_1:1,ibp12s0"] * 2 + ["mlx5_2:1,mlx5_3:1,ibp12s0"] * 2),
        ({"UCX_NET_DEVICES": "mlx5_8:1"}, ["mlx5_8:1"] * 4),
    ],
)
def test_ports_and_the_interface_reach_each_worker_unless_the_config_names_devices(
    describe: Callable[..., HostFacts], config: dict[str, str], expected: list[str]
) -> None:
    host = describe(sysfs.dgx_a100())
    place = ProcessLocation("n1", "/scratch", host.interface, "10.0.0.1", tuple(host.rdma))
    parts = dict(enumerate(pins(host, 4)))
    made = dask_process_commands(plan(4), ClusterSettings(config, Path("results")), place, parts, config, {}, 1)
    assert [each.environment["UCX_NET_DEVICES"] for each in made[1:]] == expected

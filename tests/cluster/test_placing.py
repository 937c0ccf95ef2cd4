"""Which hosts, how many workers on each, and how a host describes its network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from merge_bench.cluster import host_agent, host_check
from merge_bench.cluster.hosts import HostSpec, default_worker_count, place_workers
from merge_bench.cluster.launchers import choose_launcher, pbs, slurm
from merge_bench.config.options import ClusterOptions
from merge_bench.errors import UsageError
from merge_bench.host import network
from merge_bench.host.description import HostReport, InstalledMergeBench
from merge_bench.host.kernel_files import format_core_list, parse_core_list
from tests.helpers import fake_scontrol


def test_workers_by_slots_then_gpus_then_one() -> None:
    hosts = (HostSpec("a", slots=3, gpus=8), HostSpec("b", gpus=4), HostSpec("c"))
    assert default_worker_count(hosts) == 8
    assert default_worker_count(hosts, workers_per_gpu=2) == 12
    assert [p.workers for p in place_workers(hosts, 8)] == [(0, 1, 2), (3, 4, 5, 6), (7,)]


def test_another_number_is_spread_evenly() -> None:
    hosts = (HostSpec("a"), HostSpec("b"), HostSpec("c"))
    assert [p.workers for p in place_workers(hosts, 5)] == [(0, 1), (2, 3), (4,)]
    assert [(p.host.name, p.workers) for p in place_workers(hosts, 2)] == [("a", (0,)), ("b", (1,))]


def test_a_host_gets_no_more_workers_than_its_max_slots() -> None:
    hosts = (HostSpec("a", slots=2, most=4), HostSpec("b"))
    assert [p.workers for p in place_workers(hosts, 8)] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    with pytest.raises(UsageError, match="a would get 5 workers, but its max_slots is 4"):
        place_workers(hosts, 9)


def test_core_lists() -> None:
    assert parse_core_list("0-3,8\n") == {0, 1, 2, 3, 8}
    assert format_core_list({0, 1, 2, 3, 8}) == "0-3,8"
    assert parse_core_list(format_core_list(range(5))) == set(range(5))


def fake_sys(root: Path) -> Path:
    def put(path: str, text: str = "") -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    put("class/net/ib0/device/infiniband/mlx5_0/node_desc")
    put("class/net/ib1/device/infiniband/mlx5_0/node_desc")
    put("class/net/ib1/dev_port", "1\n")
    put("class/net/eth0/address")
    put("class/net/bond0/lower_ib0/address")
    put("class/net/bond0/lower_eth0/address")
    put("class/infiniband/mlx5_0/device/numa_node", "1\n")
    put("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
    put("class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n")
    put("class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n")
    put("bus/pci/devices/0000:17:00.0/numa_node", "0\n")
    put("bus/pci/devices/0000:18:00.0/numa_node", "-1\n")
    put("devices/system/node/node1/cpulist", "4-7\n")
    return root


def test_rdma_devices_of_an_interface(tmp_path: Path) -> None:
    root = fake_sys(tmp_path)
    assert network.interface_rdma_ports("ib0", root) == ["mlx5_0:1"]
    assert network.interface_rdma_ports("ib1", root) == ["mlx5_0:2"]
    assert network.interface_rdma_ports("bond0", root) == ["mlx5_0:1"]
    assert network.interface_rdma_ports("eth0", root) == []


def test_rdma_ports_that_are_up_and_their_interfaces(tmp_path: Path) -> None:
    found = {port.name: port.interfaces for port in network.active_rdma_ports(fake_sys(tmp_path))}
    assert found == {"mlx5_0:1": ["ib0"], "mlx5_1:1": []}
    assert network.active_rdma_ports(tmp_path / "none") == []


def test_numa_nodes(tmp_path: Path) -> None:
    root = fake_sys(tmp_path)
    assert [port.node for port in network.active_rdma_ports(root)] == [1, None]
    assert network.read_numa_node(network.pci_device_folder("00000000:17:00.0", root)) == 0
    assert network.read_numa_node(network.pci_device_folder("00000000:18:00.0", root)) is None
    assert network.numa_node_cores(1, root) == {4, 5, 6, 7}
    assert network.numa_node_cores(9, root) == frozenset()


def chosen(environ: dict[str, str]) -> tuple[str, tuple[HostSpec, ...]]:
    kind, hosts = choose_launcher(ClusterOptions(), environ)
    return kind.name, hosts


def test_slurm_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake_scontrol.put_on_path(monkeypatch, tmp_path, {"n[1-3]": ("n1", "n2", "n3")})
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3", **path}
    tasks = {**job, "SLURM_TASKS_PER_NODE": "4(x2),1"}
    assert [host.slots for host in slurm.allocated_hosts(tasks)] == [4, 4, 1]
    assert [host.gpus for host in slurm.allocated_hosts({**tasks, "SLURM_GPUS_PER_NODE": "a100:4"})] == [4, 4, 4]
    assert [host.slots for host in slurm.allocated_hosts(job)] == [None, None, None]
    assert chosen(job)[0] == "slurm"
    with pytest.raises(UsageError, match="inside a SLURM allocation"):
        slurm.allocated_hosts({})


def test_pbs_allocation(tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("p1\np1\np2\np2\n")
    job = {"PBS_NODEFILE": str(file)}
    assert pbs.allocated_hosts(job) == (HostSpec("p1", slots=2), HostSpec("p2", slots=2))
    assert chosen(job) == ("pbs", pbs.allocated_hosts(job))
    with pytest.raises(UsageError, match="inside a PBS job"):
        pbs.allocated_hosts({})
    with pytest.raises(UsageError, match="No such file"):
        pbs.allocated_hosts({"PBS_NODEFILE": str(tmp_path / "gone")})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"launcher": "ssh"}, "needs --hosts"),
        ({"launcher": "existing"}, "needs --scheduler-address"),
        ({"launcher": "local", "hosts": "x"}, "--hosts cannot be combined with --launcher local"),
        ({"launcher": "ssh", "scheduler_file": "x"}, "--scheduler-file use a running cluster"),
    ],
)
def test_contradictions(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        choose_launcher(ClusterOptions(**changed), {})


def test_local_is_the_default() -> None:
    assert chosen({}) == ("local", ())
    assert chosen({"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "1"}) == ("local", ())


def test_hosts_that_differ_are_refused_by_name() -> None:
    from merge_bench import __version__
    from merge_bench.host import machine

    project = InstalledMergeBench(
        version=__version__, sources=host_agent.source_checksum(host_agent.ROOT / "merge_bench")
    )
    same = HostReport(versions=dict(machine.installed_package_versions()), project=project)
    host_check.check_same_software({"a": same, "b": same})
    older = HostReport(versions={**machine.installed_package_versions(), "polars": "0.1"}, project=project)
    with pytest.raises(UsageError, match=r"b and this host have different software.*polars 0\.1 instead of"):
        host_check.check_same_software({"a": same, "b": older})
    changed = InstalledMergeBench(version=__version__, sources="0")
    other = HostReport(versions=dict(machine.installed_package_versions()), project=changed)
    with pytest.raises(
        UsageError, match=r"b and this host have different software.*merge_bench .* with sources 0 instead of"
    ):
        host_check.check_same_software({"a": same, "b": other})


def test_machines_that_hide_their_boot_count_as_different(tmp_path: Path) -> None:
    assert network.network_stack_id() is not None
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/net").symlink_to("net:[4026531840]")
    assert network.network_stack_id(tmp_path) is None
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("a1\n")
    assert network.network_stack_id(tmp_path) == "a1 net:[4026531840]"


def test_a_host_whose_answer_has_another_form_is_refused_by_name() -> None:
    assert host_check.parse_host_description("b", {"stack": "here", "newer": 1}) == HostReport(stack="here")
    with pytest.raises(UsageError, match="b and this host have different releases of merge_bench"):
        host_check.parse_host_description("b", {"versions": ["polars 0.1"]})


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_loopback_is_for_hosts_that_share_the_driver_s_network(address: str) -> None:
    here, there = (HostReport(interface="lo", address=address, stack=stack) for stack in ("here", "there"))
    far = HostReport(interface="eth0", address="fe80::1%eth0", stack="there")
    host_check.check_no_remote_loopback({"a": here, "b": far}, "here")
    host_check.check_no_remote_loopback({"a": there}, None)  # where nobody can tell
    with pytest.raises(UsageError, match=r"b would listen only on lo \(.*1\)"):
        host_check.check_no_remote_loopback({"a": here, "b": there}, "here")


def test_two_names_that_lead_to_one_host_are_refused() -> None:
    host_check.check_distinct_hosts(
        {"a": HostReport(stack="1"), "b": HostReport(stack="2"), "c": HostReport(), "d": HostReport()}
    )
    with pytest.raises(UsageError, match="a and c are names of one host"):
        host_check.check_distinct_hosts(
            {"a": HostReport(stack="1"), "b": HostReport(stack="2"), "c": HostReport(stack="1")}
        )


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({"SSH_CONNECTION": "fe80::9%eth0 51234 fe80::1%eth0 22"}, "fe80::9%eth0"),
        ({"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9"}, "10.0.0.9"),
        ({"SSH_CONNECTION": ""}, None),
        ({}, None),
    ],
)
def test_where_an_agent_was_started_from(environ: dict[str, str], address: str | None) -> None:
    assert network.launching_host_address(environ) == address


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_an_interface_is_found_by_any_of_its_addresses(address: str) -> None:
    assert network.interface_towards(address) == "lo"


def test_fingerprint_sees_every_source(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    first = host_agent.source_checksum(tmp_path)
    (tmp_path / "a.py").write_text("2")
    assert host_agent.source_checksum(tmp_path) != first

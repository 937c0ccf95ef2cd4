"""Where hosts have RDMA that the chosen interface leaves out, the records say so, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from merge_bench.campaign.cluster_session import slow_host_warnings
from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.host_check import unusable_rdma_port_warnings
from merge_bench.cluster.hosts import HostSpec
from merge_bench.host import network
from merge_bench.host.description import HostReport
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.probe.ranks import launch as ranks
from merge_bench.probe.ranks.messages import RankDescription
from merge_bench.records.schema import Worker
from tests.cluster.test_placing import fake_sys
from tests.helpers.fake_agents import started


def host(sys: Path, interface: str, *, addressed: tuple[str, ...] = ("lo", "eth0", "ib0")) -> HostReport:
    """What an agent tells of a machine with this /sys."""
    return HostReport(
        interface=interface,
        rdma=network.rdma_ports(interface, sys),
        ports=network.active_rdma_ports(sys),
        addressed=list(addressed),
    )


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    return fake_sys(tmp_path)


def test_hosts_interface_devices_and_the_interface_to_name_instead(sys: Path) -> None:
    (caution,) = unusable_rdma_port_warnings(
        {"n1": host(sys, "eth0"), "n2": host(sys, "ib0"), "n3": host(sys, "eth0")}, {}
    )
    assert caution.message == (
        "UCX on n1, n3 cannot use mlx5_0:1 (ib0), mlx5_1:1 (no interface), because it is limited to interface eth0,"
        " which has no RDMA device"
    )
    assert caution.remedy == "use --interface ib0"


def test_an_interface_without_an_address_cannot_be_named(sys: Path) -> None:
    plain = host(sys, "eth0", addressed=("lo", "eth0"))
    (caution,) = unusable_rdma_port_warnings({"n1": plain, "n2": plain}, {})
    assert caution.remedy == (
        "assign an IP address to ib0 and use it with --interface,"
        " or set UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1,eth0 in the config"
    )


@pytest.mark.parametrize(
    ("interface", "config"),
    [
        ("ib0", {}),
        ("bond0", {}),
        ("eth0", {"UCX_NET_DEVICES": "eth0"}),  # `check` speaks of this one
        ("eth0", {"UCX_TLS": "tcp,sm,self"}),
    ],
)
def test_no_warning_where_rdma_is_used_or_not_wanted(sys: Path, interface: str, config: dict[str, str]) -> None:
    assert unusable_rdma_port_warnings(dict.fromkeys(("n1", "n2"), host(sys, interface)), config) == []


def test_no_warning_without_rdma_or_of_a_single_host(sys: Path, tmp_path: Path) -> None:
    assert unusable_rdma_port_warnings(dict.fromkeys(("n1", "n2"), host(tmp_path / "none", "eth0")), {}) == []
    assert unusable_rdma_port_warnings({"n1": host(sys, "eth0")}, {}) == []


def test_ucx_tls_that_names_rdma_does_not_silence_it(sys: Path) -> None:
    assert unusable_rdma_port_warnings(dict.fromkeys(("n1", "n2"), host(sys, "eth0")), {"UCX_TLS": "rc,tcp,sm,self"})


@pytest.mark.parametrize(
    ("exchange", "protocol", "told"), [("ucx", "tls", 1), ("dask", "ucx", 1), ("dask", "tls", 0), ("dask", "tcp", 0)]
)
def test_it_becomes_a_warning_in_the_records_where_something_goes_over_ucx(
    sys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: str, protocol: str, told: int
) -> None:
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    monkeypatch.delenv("UCX_TLS", raising=False)
    settings = ClusterSettings({}, Path("results"), hosts=(HostSpec("n1"), HostSpec("n2")))
    plan = Plan(
        SyntheticSpec(1000, 0.3, 0),
        2,
        iterations=1,
        warmup=0,
        launches=1,
        engine="native",
        exchange=exchange,
        protocol=protocol,
        verify="ends",
        timeout=15.0,
        seed=0,
    )
    with started(dict.fromkeys(("n1", "n2"), host(sys, "eth0")), plan, settings, tmp_path) as launcher:
        found = slow_host_warnings(launcher, plan, settings)
    assert [(each.code, each.remedy) for each in found] == told * [("rdma-unused", "use --interface ib0")]
    assert all(each.message.startswith("UCX on n1, n2 cannot use ") for each in found)


def told_by_ranks(sys: Path, *interfaces: str | None) -> list[RankDescription]:
    """What MPI ranks tell that were given these interfaces of machines with this /sys; None: they chose devices."""
    networks = [
        replace(network.describe_network(name, sys), addressed=["ib0"]) if name else None for name in interfaces
    ]
    return [
        RankDescription(worker=Worker(rank=rank, host="", pid=1, name=""), host_number=rank, network=each)
        for rank, each in enumerate(networks)
    ]


def test_ranks_over_mpi_have_the_same_warning_once_a_host(sys: Path) -> None:
    told = told_by_ranks(sys, "eth0", "eth0", "eth0")
    expected = unusable_rdma_port_warnings(dict.fromkeys(("n1", "n2"), host(sys, "eth0")), {})
    assert len(expected) == 1
    assert ranks.unused_rdma_warnings(told, [("n1", 2), ("n2", 1)], {}) == expected


@pytest.mark.parametrize(
    ("interfaces", "hosts", "config"),
    [
        (("ib0", "ib0"), [("n1", 1), ("n2", 1)], {}),
        (("eth0", "eth0"), [("n1", 2)], {}),
        ((None, None), [("n1", 1), ("n2", 1)], {}),
        (("eth0", "eth0"), [("n1", 1), ("n2", 1)], {"UCX_TLS": "tcp,sm,self"}),
    ],
)
def test_ranks_over_mpi_give_no_warning_where_rdma_is_used_or_not_wanted(
    sys: Path, interfaces: tuple[str | None, ...], hosts: list[tuple[str, int]], config: dict[str, str]
) -> None:
    assert ranks.unused_rdma_warnings(told_by_ranks(sys, *interfaces), hosts, config) == []

"""Network measurements between hosts that have RDMA devices beside the interface that they were given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.conftest import Run
from tests.hosts.make_hosts import Hosts

pytestmark = pytest.mark.cluster

ADAPTER = """
device=$(readlink /sys/class/net/eth0)
mount -t tmpfs tmpfs /sys/class
mkdir -p /sys/class/net /sys/class/infiniband/mlx5_0/ports/1
ln -s "$device" /sys/class/net/eth0
echo "4: ACTIVE" > /sys/class/infiniband/mlx5_0/ports/1/state
"""
FEW = ("--sizes", "1K", "--iterations", "10")


@pytest.fixture
def with_adapters(hosts: Hosts) -> Iterator[Hosts]:
    """Hosts whose /sys tells of an RDMA device that is up and belongs to no interface."""
    for host in hosts.hosts:
        host.inside("sh", "-ec", ADAPTER)
    yield hosts
    for host in hosts.hosts:
        host.inside("umount", "/sys/class")


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("mpi", ("--placement", "two-hosts", *FEW)),
        ("reduce-scatter", ("--workers", "2", "--counts", "30", "--iterations", "5")),
        ("rma", FEW),
    ],
)
def test_rdma_that_is_left_out_is_told(
    with_adapters: Hosts, results: Path, verb: str, options: tuple[str, ...]
) -> None:
    where = ("--hosts", str(with_adapters.hosts_file), "--repetitions", "1")
    outcome = Run(with_adapters, results, *where, *options, command=("probe", verb)).finish()
    assert outcome.status == 0, outcome.errors
    (warning,) = outcome.document["warnings"]
    assert warning == {
        "code": "rdma-unused",
        "message": "on node1, node2 UCX is given interface eth0, which has no RDMA device, so that mlx5_0:1 (no"
        " interface) cannot be used",
        "remedy": "set UCX_NET_DEVICES=mlx5_0:1,eth0 in the config",
    }

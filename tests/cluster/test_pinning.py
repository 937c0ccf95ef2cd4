"""Which cores, GPU and devices each worker of a host gets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from merge_bench.campaign.measure_launch import threads_per_worker
from merge_bench.host import pinning
from merge_bench.host.description import Hardware, HostFacts, RdmaPort
from merge_bench.host.kernel_files import format_core_list


def machine(**changes: Any) -> HostFacts:
    """A host of two NUMA nodes with two GPUs and a network adapter on each."""
    host = HostFacts(
        cores=list(range(16)),
        gpu_nodes=[0, 0, 1, 1],
        rdma=["mlx5_0:1", "mlx5_1:1"],
        ports=[RdmaPort(name=f"mlx5_{node}:1", node=node) for node in (0, 1)],
        node_cores={"0": list(range(8)), "1": list(range(8, 16))},
    )
    return replace(host, **changes)


def test_workers_on_gpus_get_the_near_cores_and_adapter() -> None:
    found = pinning.pin_workers(machine(), 4, use_gpus=True)
    assert [pin.gpu for pin in found] == ["0", "1", "2", "3"]
    assert [pin.cores for pin in found] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)]
    assert [pin.devices for pin in found] == [("mlx5_0:1",), ("mlx5_0:1",), ("mlx5_1:1",), ("mlx5_1:1",)]


def test_workers_get_the_gpus_that_their_host_was_given_by_the_names_they_have_there() -> None:
    host = machine(gpu_names=["2", "GPU-3f"], gpu_nodes=[1, None])
    pins = pinning.pin_workers(host, 4, use_gpus=True, workers_per_gpu=2)
    assert [pin.gpu for pin in pins] == ["2", "2", "GPU-3f", "GPU-3f"]


def test_where_nodes_are_unknown_cores_are_shared_out() -> None:
    found = pinning.pin_workers(machine(gpu_nodes=[None, None]), 2, use_gpus=True)
    assert [pin.cores for pin in found] == [tuple(range(8)), tuple(range(8, 16))]
    assert all(pin.devices == ("mlx5_0:1", "mlx5_1:1") for pin in found)


def test_workers_on_cores_share_them_and_more_workers_than_cores_are_not_pinned() -> None:
    assert [pin.cores for pin in pinning.pin_workers(machine(cores=[2, 3, 5, 7]), 2, use_gpus=False)] == [
        (2, 3),
        (5, 7),
    ]
    assert {pin.cores for pin in pinning.pin_workers(machine(cores=[0, 1]), 3, use_gpus=False)} == {()}


def two_nodes(root: Path, siblings: int = 0) -> Path:
    """node0 with cores 0–3 and 8–11, node1 with 4–7 and 12–15; core n and n + `siblings` share an execution unit."""
    for name, text in {"node0/cpulist": "0-3,8-11\n", "node1/cpulist": "4-7,12-15\n", "online": "0-1\n"}.items():
        path = root / "devices/system/node" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for core in range(16 if siblings else 0):
        path = root / f"devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{core % siblings},{core % siblings + siblings}\n")
    for device, where in {"mlx5_0": 0, "mlx5_1": 1}.items():
        path = root / "class/infiniband" / device / "device/numa_node"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{where}\n")
        (root / "class/net/ib0/device/infiniband" / device).mkdir(parents=True, exist_ok=True)
    return root


@pytest.fixture
def described(tmp_path: Path) -> Callable[..., HostFacts]:
    """What a host says of itself that has two interleaved nodes, and lets this process run on `cores`."""

    def describe(cores: range, siblings: int = 0) -> HostFacts:
        return pinning.describe_host("ib0", two_nodes(tmp_path, siblings), cores=cores)

    return describe


@pytest.mark.parametrize(
    ("workers", "cores", "adapters"),
    [
        (2, ["0-3,8-11", "4-7,12-15"], "01"),
        (4, ["0-3", "8-11", "4-7", "12-15"], "0011"),
        (3, ["0-3", "8-11", "4-7,12-15"], "001"),
    ],
)
def test_workers_on_cores_lie_on_one_node_each_with_its_adapter(
    described: Callable[..., HostFacts], workers: int, cores: list[str], adapters: str
) -> None:
    found = pinning.pin_workers(described(range(16)), workers, use_gpus=False)
    assert [format_core_list(pin.cores) for pin in found] == cores
    assert [pin.devices for pin in found] == [(f"mlx5_{adapter}:1",) for adapter in adapters]


def test_the_threads_of_one_core_go_to_one_worker(described: Callable[..., HostFacts]) -> None:
    host = described(range(16), siblings=8)
    assert host.cores[:4] == [0, 8, 1, 9]
    found = pinning.pin_workers(host, 4, use_gpus=False)
    assert [format_core_list(pin.cores) for pin in found] == ["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"]


def test_a_worker_larger_than_a_node_takes_node_after_node_and_all_adapters(
    described: Callable[..., HostFacts],
) -> None:
    (pin,) = pinning.pin_workers(described(range(16)), 1, use_gpus=False)
    assert len(pin.cores) == 16
    assert pin.devices == ("mlx5_0:1", "mlx5_1:1")


def test_nodes_have_workers_in_proportion_to_the_cores_that_may_be_used(described: Callable[..., HostFacts]) -> None:
    found = pinning.pin_workers(described(range(2, 12)), 3, use_gpus=False)  # six cores of node0, four of node1
    assert [format_core_list(pin.cores) for pin in found] == ["2-3,8", "9-11", "4-7"]
    found = pinning.pin_workers(described(range(5)), 2, use_gpus=False)  # node1 has fewer than a worker gets
    assert [pin.cores for pin in found] == [(0, 1), (2, 3)]


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 64))
def test_no_core_is_given_twice_and_every_worker_has_some(sizes: list[int], workers: int) -> None:
    edges = [0, *itertools.accumulate(sizes)]
    nodes = {str(n): list(range(*edge)) for n, edge in enumerate(itertools.pairwise(edges))}
    host = HostFacts(cores=list(range(edges[-1])), node_cores=nodes)
    found = pinning.pin_workers(host, workers, use_gpus=False)
    given_out = [core for pin in found for core in pin.cores]
    assert len(found) == workers
    assert len(set(given_out)) == len(given_out)
    assert all(bool(pin.cores) == (workers <= edges[-1]) for pin in found)


def test_one_node_is_shared_out_in_the_order_of_its_cores(tmp_path: Path) -> None:
    (tmp_path / "devices/system/node/node0").mkdir(parents=True, exist_ok=True)
    (tmp_path / "devices/system/node/node0/cpulist").write_text("0-1\n")
    for root in (tmp_path, tmp_path / "nothing-is-told"):
        found = pinning.pin_workers(pinning.describe_host("eth0", root, cores=(0, 1)), 2, use_gpus=False)
        assert [pin.cores for pin in found] == [(0,), (1,)]


def test_no_worker_has_more_threads_than_cores_that_it_may_run_on() -> None:
    affinities = ("0-3", "8-11", "4-7,12-15", "0-1", "0-1")
    workers: list[Any] = [
        SimpleNamespace(host=host, hardware=Hardware(affinity=its))
        for host, its in zip("aaabb", affinities, strict=True)
    ]
    assert threads_per_worker(workers) == [4, 4, 5, 1, 1]

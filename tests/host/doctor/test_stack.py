"""Checks of adapters, GPUs and software."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from merge_bench.host import doctor
from merge_bench.host.description import GpuProcess, GpuWithProcesses
from merge_bench.host.doctor import BAD, OK, WARN, WorkerUcx
from tests.host.doctor.conftest import Make

PORT = "sys/class/infiniband/mlx5_0/ports/1/state"
ACTIVE, DOWN = {PORT: "4: ACTIVE"}, {PORT: "1: DOWN"}
RDMA = WorkerUcx("1.20.0", "system", frozenset({"tcp", "rc_mlx5", "ud_mlx5"}))
GPU = GpuWithProcesses(index=0, driver_version="580.65.06")


@pytest.mark.parametrize(
    ("ucx", "state"),
    [
        (WorkerUcx("1.21.0", "wheel"), OK),
        (WorkerUcx("1.19.0", "system"), OK),
        (WorkerUcx("1.18.1", "system"), BAD),
        (None, BAD),
    ],
)
def test_ucx(machine: Make, ucx: WorkerUcx | None, state: str) -> None:
    assert doctor.check_loaded_ucx(machine(ucx=ucx, ucx_error="ImportError: no ucxx")).state == state


def test_the_reason_why_no_ucx_loads_is_shown(machine: Make) -> None:
    assert doctor.check_loaded_ucx(machine(ucx=None, ucx_error="ImportError: no ucxx")).fact == "ImportError: no ucxx"


@pytest.mark.parametrize(("also", "state"), [(set(), BAD), ({"cuda_copy", "cuda_ipc"}, OK)])
def test_a_ucx_without_cuda_beside_a_gpu(machine: Make, also: set[str], state: str) -> None:
    ucx = WorkerUcx("1.21.0", "system", frozenset({"tcp", "sysv", *also}))
    found = doctor.check_loaded_ucx(machine(ucx=ucx, gpus=(GPU,)))
    assert found.state == state
    assert ("--ucx wheel" in found.remedy) == (state == BAD)
    assert doctor.check_loaded_ucx(machine(ucx=ucx)).state == OK


def test_no_adapter_is_fine(machine: Make) -> None:
    assert doctor.check_infiniband(machine()).state == OK


def test_an_adapter_that_the_loaded_ucx_cannot_use(machine: Make) -> None:
    found = doctor.check_infiniband(machine(ACTIVE))
    assert found.state == BAD
    assert "UCX 1.21.0 (wheel) has no RDMA transport" in found.fact
    assert "--ucx system" in found.remedy


def test_an_adapter_that_it_can_use(machine: Make) -> None:
    found = doctor.check_infiniband(machine(ACTIVE, ucx=RDMA))
    assert (found.state, found.fact) == (OK, "mlx5_0:1 ACTIVE; rc_mlx5, ud_mlx5")


def test_an_adapter_whose_port_is_down(machine: Make) -> None:
    assert doctor.check_infiniband(machine(DOWN, ucx=RDMA)).state == BAD


@pytest.mark.parametrize(
    ("modules", "state"),
    [("", WARN), ("nvidia_peermem 16384 0 - Live 0x0", OK), ("nv_peer_mem 1 0", OK), ("nvidia_peermem_x 1 0", WARN)],
)
def test_peer_memory(machine: Make, modules: str, state: str) -> None:
    made = machine({**ACTIVE, "proc/modules": f"ib_core 1 0\n{modules}"}, gpus=[GPU], ucx=RDMA)
    assert doctor.check_gpu_peer_memory(made).state == state


def test_peer_memory_needs_both_a_gpu_and_an_adapter(machine: Make) -> None:
    assert doctor.check_gpu_peer_memory(machine(gpus=[GPU])).state == OK
    assert doctor.check_gpu_peer_memory(machine(ACTIVE)).state == OK


def test_other_gpu_users(machine: Make) -> None:
    assert doctor.check_other_gpu_users(machine()).state == OK
    assert doctor.check_other_gpu_users(machine(gpus=[GPU])).state == OK
    busy = replace(GPU, processes=[GpuProcess(pid=7, memory_bytes=1 << 30), GpuProcess(pid=8)])
    found = doctor.check_other_gpu_users(machine(gpus=[GPU, busy]))
    assert found.state == WARN
    assert found.fact == "process 7 on GPU 0 (1.00 GiB), process 8 on GPU 0"


@pytest.mark.parametrize(
    ("driver", "packages", "state"),
    [
        ("580.65.06", {"cudf-cu13": "26.10.0"}, OK),
        ("550.54.15", {"cudf-cu13": "26.10.0"}, BAD),
        ("550.54.15", {"cudf-cu12": "26.10.0"}, OK),
        ("525.60.13", {"cudf-cu12": "26.10.0"}, BAD),
        ("525.60.13", {"ucxx-cu13": "0.52.0"}, OK),  # the cpu stack has this build of UCXX
        (None, {"cudf-cu13": "26.10.0"}, OK),
    ],
)
def test_gpu_driver(machine: Make, driver: str | None, packages: dict[str, str], state: str) -> None:
    made = machine(gpus=[replace(GPU, driver_version=driver)], packages=packages)
    assert doctor.check_gpu_driver(made).state == state


@pytest.mark.parametrize(
    ("changed", "state", "told"),
    [
        ({}, OK, "ucxx 0.52.0"),
        ({"distributed": "2026.6.0"}, BAD, "dask 2026.7.1 with distributed 2026.6.0"),
        ({"distributed": None}, BAD, "not installed: distributed"),
        ({"ucxx-cu12": "0.52.0"}, BAD, "for both cu12 and cu13"),
        ({"distributed-ucxx-cu13": "0.51.0"}, BAD, "ucxx 0.52.0 with distributed-ucxx 0.51.0"),
        ({"distributed-ucxx-cu13": "0.52.1"}, OK, ""),
        ({"ucxx-cu13": None, "distributed-ucxx-cu13": None}, WARN, "ucxx is not installed"),
    ],
)
def test_packages(machine: Make, changed: dict[str, str | None], state: str, told: str) -> None:
    found = doctor.check_python_packages(machine(packages={**machine().packages, **changed}))
    assert found.state == state
    assert told in found.fact


def test_cuda_is_named_only_beside_a_gpu(machine: Make) -> None:
    """The packages for machines without a GPU are those for CUDA 13."""
    assert doctor.check_python_packages(machine()).fact.endswith("ucxx 0.52.0")
    assert doctor.check_python_packages(machine(gpus=[GPU])).fact.endswith("ucxx 0.52.0 (cu13)")


def test_the_ports_of_ucx_between_hosts_are_named(machine: Make) -> None:
    assert (
        "27000-27999"
        in doctor.check_ucx_ports(machine(ucx=WorkerUcx("1.21.0", "wheel", frozenset({"tcp", "sysv"})))).fact
    )
    assert doctor.check_ucx_ports(machine(ucx=WorkerUcx("1.21.0", "wheel", frozenset({"sysv"})))).fact == "none"
    assert doctor.check_ucx_ports(machine(ucx=None)).fact == "none"

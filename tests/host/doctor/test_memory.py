"""Checks of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.host import doctor
from merge_bench.host.doctor import BAD, OK, WARN
from merge_bench.host.machine import shared_memory_segment_problem
from tests.host.doctor.conftest import Make

MIB, GIB = 1 << 20, 1 << 30
SYSV = {"proc/sys/kernel/shmmax": "68719476736", "proc/sys/kernel/shmall": "16777216", "proc/sys/kernel/shmmni": "4096"}
ADAPTER = {"sys/class/infiniband/mlx5_0/node_type": "1: CA"}
THP = "sys/kernel/mm/transparent_hugepage/enabled"


@pytest.mark.parametrize(
    ("there", "state"),
    [
        (None, BAD),
        ((64 * MIB, 39 * MIB), BAD),
        ((64 * MIB, 64 * MIB), WARN),
        ((GIB, GIB), OK),
        ((64 * GIB, 20 * MIB), BAD),
    ],
)
def test_shared_memory(machine: Make, there: tuple[int, int] | None, state: str) -> None:
    found = doctor.check_shared_memory(machine(shared_memory=there))
    assert found.state == state
    assert bool(found.remedy) == (state != OK)
    assert bool(found.spoils) == (state != OK)


def test_free_shared_memory_that_refuses_a_segment_is_bad(machine: Make) -> None:
    found = doctor.check_shared_memory(machine(segment_problem="Read-only file system"))
    assert found.state == BAD
    assert "Read-only file system" in found.fact
    assert "remount,rw" in found.remedy


def test_shared_memory_of_a_container_names_the_container_option(machine: Make) -> None:
    found = doctor.check_shared_memory(machine(shared_memory=(64 * MIB, 64 * MIB)))
    assert found.fact == "64.00 MiB free of 64.00 MiB"
    assert "--shm-size" in found.remedy


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, OK),
        ({"proc/sys/kernel/shmmax": "18446744073692774399", "proc/sys/kernel/shmall": "18446744073692774399"}, OK),
        ({"proc/sys/kernel/shmmax": "33554432"}, BAD),
        ({"proc/sys/kernel/shmall": "2097"}, BAD),
        ({"proc/sys/kernel/shmall": "131072"}, WARN),
    ],
)
def test_sysv_limits(machine: Make, changed: dict[str, str], state: str) -> None:
    assert doctor.check_sysv_limits(machine({**SYSV, **changed})).state == state


def test_unknown_sysv_limits(machine: Make) -> None:
    assert doctor.check_sysv_limits(machine()).state == WARN


def test_locked_memory_matters_where_there_is_rdma(machine: Make) -> None:
    limited = {"memlock": 8 * MIB}
    assert doctor.check_locked_memory(machine(limits=limited)).state == OK
    found = doctor.check_locked_memory(machine(ADAPTER, limits=limited))
    assert found.state == BAD
    assert "mlx5_0" in found.spoils
    assert "ulimit -l unlimited" in found.remedy
    assert doctor.check_locked_memory(machine(ADAPTER, limits={"memlock": None})).state == OK


@pytest.mark.parametrize(("available", "state"), [(GIB - 1, BAD), (GIB, WARN), (4 * GIB, OK)])
def test_available(machine: Make, available: int, state: str) -> None:
    assert doctor.check_available_memory(machine(available_bytes=available)).state == state


@pytest.mark.parametrize(
    ("text", "state", "told"),
    [
        ("always madvise [never]", WARN, "never"),
        ("always [madvise] never", OK, "madvise"),
        ("[always] madvise never", OK, "always"),
    ],
)
def test_transparent_huge_pages(machine: Make, text: str, state: str, told: str) -> None:
    found = doctor.check_transparent_huge_pages(machine({THP: text}))
    assert (found.state, found.fact) == (state, told)


def test_a_kernel_without_transparent_huge_pages(machine: Make) -> None:
    assert doctor.check_transparent_huge_pages(machine()).state == OK


@pytest.mark.parametrize(("pages", "state"), [(0, OK), (1000, OK), (8000, WARN)])
def test_reserved_huge_pages(machine: Make, pages: int, state: str) -> None:
    info = f"MemTotal: 67108864 kB\nHugePages_Total: {pages}\nHugePages_Free: {pages}\nHugepagesize: 2048 kB"
    assert doctor.check_reserved_huge_pages(machine({"proc/meminfo": info})).state == state


@pytest.mark.parametrize(("free", "state"), [(8388608, OK), (0, WARN)])
def test_swap(machine: Make, free: int, state: str) -> None:
    assert doctor.check_swap(machine({"proc/meminfo": f"SwapTotal: 8388608 kB\nSwapFree: {free} kB"})).state == state


def test_a_segment_is_really_created_and_removed(tmp_path: Path) -> None:
    assert shared_memory_segment_problem(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []
    assert shared_memory_segment_problem(tmp_path / "none") == "No such file or directory"
    assert shared_memory_segment_problem(Path("/sys/kernel"))  # where no process can create a file

"""Checks of kernel and processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from merge_bench.host import doctor
from merge_bench.host.doctor import BAD, OK, WARN, OutputFolder, WorkerUcx
from merge_bench.host.other_load import OtherProcessLoad
from tests.host.doctor.conftest import Make

YAMA = "proc/sys/kernel/yama/ptrace_scope"
STATUS = "proc/self/status"
CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"


@pytest.mark.parametrize(
    ("scope", "capabilities", "state"),
    [
        ("0", "0", OK),
        ("1", "0", OK),
        ("2", "0", WARN),
        ("2", "0000000000080000", OK),
        ("2", "fffffffffff7ffff", WARN),
        ("3", "ffffffffffffffff", WARN),
    ],
)
def test_ptrace_scope(machine: Make, scope: str, capabilities: str, state: str) -> None:
    found = doctor.check_ptrace_scope(machine({YAMA: scope, STATUS: f"Name:\tx\nCapEff:\t{capabilities}"}))
    assert found.state == state
    assert ("cma" in found.spoils) == (state != OK)


def test_a_kernel_without_yama(machine: Make) -> None:
    assert doctor.check_ptrace_scope(machine()).state == OK


def test_cma_as_ucx_found_it(machine: Make) -> None:
    assert doctor.check_cross_memory_attach(machine()).state == OK
    without = WorkerUcx("1.21.0", "wheel", frozenset({"tcp", "sysv"}))
    assert doctor.check_cross_memory_attach(machine(ucx=without)).state == WARN
    assert doctor.check_cross_memory_attach(machine(ucx=None)).state == WARN


@pytest.mark.parametrize(("limit", "state"), [(100, BAD), (1024, WARN), (4096, OK), (None, OK)])
def test_open_files(machine: Make, limit: int | None, state: str) -> None:
    assert doctor.check_open_files(machine(limits={"nofile": limit})).state == state


def governors(*chosen: str) -> dict[str, str]:
    return {f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_governor": text for n, text in enumerate(chosen)}


def test_governor(machine: Make) -> None:
    assert doctor.check_cpu_governor(machine()).state == OK


def test_governor_of_every_core_counts(machine: Make) -> None:
    found = doctor.check_cpu_governor(machine(governors("powersave", "powersave", "performance")))
    assert found.state == WARN
    assert found.fact == "2 × powersave, 1 × performance"
    assert "cpupower" in found.remedy


def test_governor_for_performance(machine: Make) -> None:
    made = machine({**governors("performance", "performance"), "sys/devices/system/cpu/cpufreq/x": "powersave"})
    assert doctor.check_cpu_governor(made).state == OK


@pytest.mark.parametrize(("source", "state"), [("tsc", OK), ("kvm-clock", OK), ("hpet", WARN), ("acpi_pm", WARN)])
def test_clock_source(machine: Make, source: str, state: str) -> None:
    found = doctor.check_clock_source(machine({CLOCK: source}))
    assert (found.state, found.fact) == (state, source)


@pytest.mark.parametrize(("on", "nodes", "state"), [("1", 2, WARN), ("0", 2, OK), ("1", 1, OK)])
def test_numa_balancing(machine: Make, on: str, nodes: int, state: str) -> None:
    files = {f"sys/devices/system/node/node{n}/cpulist": "0" for n in range(nodes)}
    files |= {"sys/devices/system/node/possible": "0", "proc/sys/kernel/numa_balancing": on}
    assert doctor.check_numa_balancing(machine(files)).state == state


@pytest.mark.parametrize(("busy", "state"), [(0.0, OK), (1.9, OK), (2.0, WARN), (7.1, WARN), (7.2, BAD)])
def test_load_is_measured_by_the_cores(machine: Make, busy: float, state: str) -> None:
    assert doctor.check_other_load(machine(load=OtherProcessLoad(busy, 8))).state == state


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({}, OK),
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, OK),
        ({"sys/fs/cgroup/cpu.max": "800000 100000"}, OK),
        ({"sys/fs/cgroup/cpu.max": "350000 100000"}, WARN),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, OK),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, WARN),
    ],
)
def test_cpu_quota(machine: Make, files: dict[str, str], state: str) -> None:
    assert doctor.check_cpu_quota(machine(files)).state == state


@pytest.mark.parametrize(("chosen", "state"), [("cubic", OK), ("reno", OK), ("bbr", WARN), ("bbr3", WARN)])
def test_a_tcp_that_paces(machine: Make, chosen: str, state: str) -> None:
    found = doctor.check_congestion_control(machine({"proc/sys/net/ipv4/tcp_congestion_control": f"{chosen}\n"}))
    assert (found.state, found.fact) == (state, chosen)


def test_unknown_congestion_control(machine: Make) -> None:
    assert doctor.check_congestion_control(machine()).state == OK


@pytest.mark.parametrize(
    ("records", "temporary", "state", "named"),
    [
        (1 << 30, 1 << 30, OK, ""),
        ((1 << 30) - 1, 1 << 30, WARN, "--results DIR"),
        (1 << 30, 5 << 20, BAD, "TMPDIR"),
        (None, 1 << 30, OK, ""),
        (0, None, BAD, "--results DIR"),
    ],
)
def test_disk_space(machine: Make, records: int | None, temporary: int | None, state: str, named: str) -> None:
    disks = (
        OutputFolder("records", Path("/data/results"), records, "--results DIR"),
        OutputFolder("temporary files", Path("/tmp"), temporary, "TMPDIR"),
    )
    found = doctor.check_disk_space(machine(disks=disks))
    assert (found.state, found.remedy.partition("folder: ")[2]) == (state, named)
    assert "/data/results" in found.fact
    assert "/tmp" in found.fact
    assert bool(found.spoils) == (state != OK)

"""Energy counters of processors, in made-up trees of /sys."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from merge_bench.host.machine import (
    EnergyCounterReading,
    ProcessorEnergyCounter,
    processor_joules,
    read_energy_counters,
    read_processor_energy_counters,
)
from tests.helpers.fake_nvml import library

RANGE = 262_143_328_850  # microjoules, of a Xeon


def zone(root: Path, folder: str, name: str, microjoules: int | None, size: int | None = RANGE) -> None:
    made = root / "sys/class/powercap" / folder
    made.mkdir(parents=True)
    (made / "name").write_text(name + "\n")
    if microjoules is not None:
        (made / "energy_uj").write_text(f"{microjoules}\n")
    if size is not None:
        (made / "max_energy_range_uj").write_text(f"{size}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two packages, each with zones inside it, the machine as a whole, and the first package by another way."""
    zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    zone(tmp_path, "intel-rapl:0:0", "core", 500_000)
    zone(tmp_path, "intel-rapl:0:1", "dram", 200_000)
    zone(tmp_path, "intel-rapl:1", "package-1", 3_000_000)
    zone(tmp_path, "intel-rapl:2", "psys", 9_000_000)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 1_000_001)
    return tmp_path


def between(
    first: dict[str, ProcessorEnergyCounter], last: dict[str, ProcessorEnergyCounter], seconds: float = 10
) -> tuple[float | None, str | None]:
    return processor_joules(EnergyCounterReading(100.0, first, None), EnergyCounterReading(100.0 + seconds, last, None))


def test_only_packages_count_and_each_once(root: Path) -> None:
    first = read_processor_energy_counters(root)
    assert first == {
        "package-0": ProcessorEnergyCounter(1_000_000, RANGE),
        "package-1": ProcessorEnergyCounter(3_000_000, RANGE),
    }
    (root / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("4000000\n")
    (root / "sys/class/powercap/intel-rapl:1/energy_uj").write_text("3500000\n")
    assert between(first, read_processor_energy_counters(root)) == (3.5, None)


def test_a_counter_that_went_round_once(root: Path) -> None:
    first, last = ProcessorEnergyCounter(RANGE - 999_999, RANGE), ProcessorEnergyCounter(1_000_000, RANGE)
    assert between({"package-0": first}, {"package-0": last}) == (2.0, None)


def test_a_counter_that_may_have_gone_round_more_than_once_is_not_used() -> None:
    small = ProcessorEnergyCounter(5, 65_532_610_987)
    joules, why = between({"package-0": small}, {"package-0": small}, seconds=94)
    assert joules is None
    assert "more than once" in (why or "")
    assert between({"package-0": small}, {"package-0": small}, seconds=93) == (0.0, None)


def test_a_counter_that_went_back_without_a_known_range() -> None:
    joules, why = between(
        {"package-0": ProcessorEnergyCounter(5, None)}, {"package-0": ProcessorEnergyCounter(4, None)}
    )
    assert joules is None
    assert "went back" in (why or "")


def test_counters_that_only_root_can_read(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    zone(tmp_path, "intel-rapl:1", "package-1", None)  # for `read_text`, the same as without the right to read it
    found = read_processor_energy_counters(tmp_path)
    assert found["package-1"].microjoules is None
    joules, why = between(found, found)
    assert joules is None
    assert "root" in (why or "")


def test_a_machine_without_counters(tmp_path: Path) -> None:
    found = read_energy_counters(with_gpu=False, root_folder=tmp_path)
    assert (found.packages, found.gpu) == ({}, None)
    joules, why = processor_joules(found, read_energy_counters(with_gpu=False, root_folder=tmp_path))
    assert joules is None
    assert "no energy counters" in (why or "")


def test_without_gpus_their_library_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []
    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlInit=lambda: asked.append("nvmlInit")))
    read_energy_counters(with_gpu=False, root_folder=tmp_path)
    assert asked == []
    read_energy_counters(with_gpu=True, root_folder=tmp_path)
    assert asked


def test_this_machine_can_be_read() -> None:
    first = read_energy_counters(with_gpu=False)
    joules, why = processor_joules(first, read_energy_counters(with_gpu=False))
    assert (joules is None) != (why is None)

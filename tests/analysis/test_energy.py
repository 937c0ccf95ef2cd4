"""Joules of a merge and throttled GPUs, from records whose numbers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from merge_bench.analysis.dataframes import launch_rows as launch_rows
from merge_bench.host.description import GpuState
from merge_bench.records import schema as s
from merge_bench.records.reader import read_campaign
from merge_bench.records.writer import encode_record
from merge_bench.report.run import print_campaign_report
from merge_bench.view.export.bencher_prometheus import exported_benchmarks
from tests.analysis.summaries import append, codes, document
from tests.helpers.strict_records import validate
from tests.helpers.synthetic_campaigns import Script, launches, plan, write_campaign

LONG = (0.4, 0.5, 0.6)  # seconds of the timed iterations; the readings are 1.6 s apart
SECONDS = 1.6


def gpu(index: int = 0, joules: float | None = 480.0, **changed: Any) -> s.GpuPower:
    state = GpuState(sm_mhz=1755, memory_mhz=2619, celsius=41, watts=300.0, reasons=[])
    given: dict[str, Any] = {
        "host": "node0",
        "index": index,
        "name": "H",
        "ranks": [index],
        "seconds": SECONDS,
        "joules": joules,
        "throttled_seconds": {"power cap": 0.0, "temperature": 0.0},
        "before": state,
        "after": state,
        "limit_watts": 700.0,
        "max_sm_mhz": 1980,
        "max_memory_mhz": 3201,
    }
    return s.GpuPower(**given | changed)


def cpus(joules: float | None = 160.0, *, packages: int = 1, **changed: Any) -> s.HostPower:
    return s.HostPower(**{"host": "node0", "seconds": SECONDS, "joules": joules, "packages": packages} | changed)


NO_COUNTERS = cpus(None, packages=0, unknown="none are shown")


def recorded(
    tmp_path: Path,
    *,
    gpus: list[s.GpuPower] | None = None,
    hosts: list[s.HostPower] | None = None,
    walls: tuple[float, ...] = LONG,
) -> Path:
    """A campaign of one launch of two workers, with these readings."""
    folder = write_campaign(tmp_path, Script(walls=walls))
    append(folder, s.PowerLine(launch=0, gpus=gpus, hosts=[NO_COUNTERS] if hosts is None else hosts))
    return folder


def test_a_line_is_read_as_it_was_written() -> None:
    line = s.PowerLine(launch=0, gpus=[gpu()], hosts=[cpus(), NO_COUNTERS])
    assert validate(encode_record(line)) == line


def energy(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = document(folder)["energy"]
    return found


def test_older_records_have_no_energy(tmp_path: Path) -> None:
    assert energy(write_campaign(tmp_path)) is None


def test_gpus_and_processors_are_added_up(tmp_path: Path) -> None:
    found = energy(recorded(tmp_path, gpus=[gpu(0), gpu(1, 240.0)], hosts=[cpus()]))
    assert found["gpu_joules_per_merge"] == pytest.approx(240)  # (480 + 240) ÷ 3 iterations
    assert found["cpu_joules_per_merge"] == pytest.approx(160 / 3)
    assert found["joules_per_merge"] == pytest.approx(240 + 160 / 3)
    assert found["counts"] == "GPUs and processors"
    assert found["unknown"] == []
    assert [(each["joules_per_merge"], each["watts"]) for each in found["gpus"]] == [(160, 300), (80, 150)]
    (host,) = found["hosts"]
    assert (host["watts"], host["packages"]) == (pytest.approx(100), 1)


def test_a_gpu_in_a_virtual_machine_without_counters_of_processors(tmp_path: Path) -> None:
    found = energy(recorded(tmp_path, gpus=[gpu(ranks=[0, 1])]))
    assert (found["joules_per_merge"], found["counts"]) == (160, "GPUs")
    assert found["cpu_joules_per_merge"] is None
    assert found["unknown"] == ["Processors: none are shown"]
    assert found["hosts"] == []


def test_a_merge_on_processors(tmp_path: Path) -> None:
    found = energy(recorded(tmp_path, hosts=[cpus()]))
    assert (found["joules_per_merge"], found["counts"]) == (pytest.approx(160 / 3), "processors")
    assert found["gpus"] == []


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ([gpu(0)], "GPUs: NVML does not show the whole GPU of rank 1"),
        ([], "GPUs: NVML does not show the whole GPU of rank 0"),
        ([gpu(0), gpu(1, None)], "GPU 1 of node0: its driver counts no energy"),
        ([gpu(0, seconds=3.0), gpu(1)], "GPUs: merges took only 50% of the time between the two readings"),
    ],
)
def test_one_unknown_gpu_makes_the_sum_unknown(tmp_path: Path, gpus: list[s.GpuPower], why: str) -> None:
    found = energy(recorded(tmp_path, gpus=gpus, hosts=[cpus()]))
    assert found["gpu_joules_per_merge"] is None
    assert (found["joules_per_merge"], found["counts"]) == (None, None)  # processors alone are not this merge's energy
    assert found["cpu_joules_per_merge"] == pytest.approx(160 / 3)
    (reason,) = found["unknown"]
    assert reason.startswith(why)


def test_short_iterations_have_no_energy_of_gpus(tmp_path: Path) -> None:
    short = {"seconds": 0.35}
    folder = recorded(tmp_path, gpus=[gpu(0, **short), gpu(1, **short)], hosts=[cpus(**short)], walls=(0.1, 0.1, 0.1))
    found = energy(folder)
    assert found["gpu_joules_per_merge"] is None
    assert found["cpu_joules_per_merge"] == pytest.approx(160 / 3)  # their counters are finer
    assert found["unknown"] == ["GPUs: the timed iterations took 0.3 s, less than the 1 s that the counters need"]
    assert [each["watts"] for each in found["gpus"]] == [None, None]


def test_the_energy_of_a_run_is_the_median_over_launches(tmp_path: Path) -> None:
    scripts = [Script(index=k, block=k, walls=LONG, plan=plan(launches=3)) for k in range(3)]
    folder = write_campaign(tmp_path, *scripts)
    for index, joules in enumerate((300.0, 900.0, 330.0)):
        append(folder, s.PowerLine(launch=index, gpus=[gpu(ranks=[0, 1], joules=joules)], hosts=[NO_COUNTERS]))
    assert energy(folder)["joules_per_merge"] == 110
    campaign = read_campaign(folder)
    assert [row["gpu_joules_per_merge"] for row in launch_rows(campaign)] == [100, 300, 110]
    (subject,) = exported_benchmarks([campaign])
    assert {figure.name: figure.value for figure in subject.figures}["gpu_energy_joules"] == 110


def test_extremes_of_all_readings_are_shown(tmp_path: Path) -> None:
    hot = GpuState(sm_mhz=1200, memory_mhz=2619, celsius=83, reasons=["temperature"])
    (found,) = energy(recorded(tmp_path, gpus=[gpu(ranks=[0, 1], after=hot)]))["gpus"]
    assert (found["sm_mhz"], found["max_sm_mhz"], found["celsius"]) == (1200, 1980, 83)
    assert found["reasons"] == ["temperature"]
    idle = GpuState(sm_mhz=345, memory_mhz=1593, celsius=40, reasons=["idle"])
    (found,) = energy(recorded(tmp_path / "idle", gpus=[gpu(ranks=[0, 1], before=idle)]))["gpus"]
    assert (found["sm_mhz"], found["memory_mhz"], found["reasons"]) == (1755, 2619, ["idle"])
    unknown = {"before": GpuState(), "after": GpuState(), "throttled_seconds": {}, "limit_watts": None}
    (found,) = energy(recorded(tmp_path / "unknown", gpus=[gpu(ranks=[0, 1], **unknown)]))["gpus"]
    assert [found[name] for name in ("sm_mhz", "celsius", "reasons", "throttled_share", "limit_watts")] == [None] * 5


def throttling(folder: Path) -> list[str]:
    return [each["message"] for each in document(folder)["warnings"] if each["code"] == "gpu-throttled"]


def test_a_throttled_gpu_is_a_warning_with_a_remedy(tmp_path: Path) -> None:
    folder = recorded(tmp_path, gpus=[gpu(ranks=[0, 1], throttled_seconds={"power cap": 0.368, "temperature": 0.0})])
    assert throttling(folder) == [
        "GPU 0 was throttled (power cap) for 23% of the timed iterations, so merges took longer"
    ]
    (remedy,) = [each["remedy"] for each in document(folder)["warnings"] if each["code"] == "gpu-throttled"]
    assert "power limit" in remedy


@pytest.mark.parametrize(
    ("throttled", "reasons", "warned"),
    [
        ({"power cap": 0.01}, [], False),  # less than 1 % of the time
        ({"power cap": 0.0}, ["power cap"], False),  # the counter saw that it is not for long
        ({}, ["power cap"], True),
        ({"power cap": 0.0}, ["power brake"], True),
        ({}, ["idle", "application clocks", "sync boost", "display clocks"], False),
        ({}, None, False),
    ],
)
def test_what_counts_as_throttling(
    tmp_path: Path, throttled: dict[str, float], reasons: list[str] | None, warned: bool
) -> None:
    after = GpuState(reasons=reasons)
    folder = recorded(tmp_path, gpus=[gpu(ranks=[0, 1], throttled_seconds=throttled, after=after)])
    assert ("gpu-throttled" in codes(document(folder))) == warned


def test_the_report_has_a_row_for_each_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    some = {"power cap": 0.16}
    folder = recorded(tmp_path, gpus=[gpu(0), gpu(1, 240.0, throttled_seconds=some)], hosts=[cpus()])
    print_campaign_report(read_campaign(folder), width=120)
    text = capsys.readouterr().out
    assert "Energy per merge (J)" in text
    assert "GPUs and processors" in text
    assert "300 of 700" in text
    assert "1755 of 1980" in text
    assert "10% (power cap)" in text


def test_the_report_of_a_machine_without_counters_has_no_such_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_campaign_report(read_campaign(recorded(tmp_path)), width=120)
    assert "Energy" not in capsys.readouterr().out


def test_several_launches_count_the_time_of_all(tmp_path: Path) -> None:
    folder = write_campaign(tmp_path, *launches(2))
    for index, seconds in enumerate((0.8, 0.0)):
        append(folder, s.PowerLine(launch=index, gpus=[gpu(ranks=[0, 1], throttled_seconds={"temperature": seconds})]))
    assert throttling(folder) == [
        "GPU 0 was throttled (temperature) for 25% of the timed iterations, so merges took longer"
    ]

"""Energy, clocks and throttling of a GPU, as drivers report them that know all of it, some of it, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from merge_bench.host import gpu, machine
from merge_bench.host.description import GpuState
from merge_bench.host.gpu import GpuCounterReading, read_own_gpu_counters
from tests.helpers.fake_nvml import POWER_QUESTIONS, function_not_found, identity, library, not_supported, unsupported


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., GpuCounterReading | None]:
    """Reads the GPU of a worker with this library and these GPUs to see."""

    def reading(module: ModuleType | None, visible: str = "0") -> GpuCounterReading | None:
        monkeypatch.setitem(sys.modules, "pynvml", module)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        return read_own_gpu_counters()

    return reading


def known(found: GpuCounterReading | None) -> GpuCounterReading:
    assert found is not None
    return found


def test_a_driver_that_answers_everything(read: Callable[..., GpuCounterReading | None]) -> None:
    module = library(
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: 5_000_000 + handle,
        nvmlDeviceGetViolationStatus=lambda handle, policy: SimpleNamespace(violationTime=7 + policy),
        nvmlDeviceGetCurrentClocksEventReasons=lambda handle: 0x4 | 0x20,
    )
    found = known(read(module, "1,0"))
    assert (found.index, found.key, found.name) == (1, identity(1), "GPU 1")
    assert found.millijoules == 5_000_001
    assert found.throttled == {"power cap": 7, "temperature": 8}
    assert found.state == GpuState(
        sm_mhz=1755, memory_mhz=2619, celsius=41, watts=400.0, reasons=["power cap", "temperature"]
    )
    assert (found.limit_watts, found.max_sm_mhz, found.max_memory_mhz) == (700.0, 1980, 3201)


def test_a_gpu_named_by_its_uuid_is_the_same_as_by_its_number(read: Callable[..., GpuCounterReading | None]) -> None:
    by_uuid = known(read(library(), identity(1)))
    assert (by_uuid.index, by_uuid.key) == (1, known(read(library(), "1")).key)


@pytest.mark.parametrize("refusal", [unsupported, not_supported, function_not_found])
@pytest.mark.parametrize("question", POWER_QUESTIONS)
def test_each_answer_may_be_missing_alone(
    read: Callable[..., GpuCounterReading | None], question: str, refusal: Callable[..., Any]
) -> None:
    complete, found = known(read(library())), known(read(library(**{question: refusal})))
    assert found.state.memory_mhz == (None if question == "nvmlDeviceGetClockInfo" else complete.state.memory_mhz)
    assert found.state.celsius == (None if question == "nvmlDeviceGetTemperature" else 41)
    assert found.limit_watts == (None if question == "nvmlDeviceGetEnforcedPowerLimit" else 700.0)
    assert (found.millijoules is None) == (question == "nvmlDeviceGetTotalEnergyConsumption")
    assert (found.throttled == {}) == (question == "nvmlDeviceGetViolationStatus")
    assert found.state.reasons == []  # either function tells them


@pytest.mark.parametrize("refusal", [unsupported, not_supported, function_not_found, None])
def test_a_virtual_machine_without_any_counter(
    read: Callable[..., GpuCounterReading | None], refusal: Callable[..., Any] | None
) -> None:
    module = library(**(dict.fromkeys((*POWER_QUESTIONS, "nvmlDeviceGetMaxClockInfo"), refusal) if refusal else {}))
    if refusal is None:  # a library of another age, in which the names are not there at all
        for name in (*POWER_QUESTIONS, "nvmlDeviceGetMaxClockInfo", "NVML_CLOCK_SM", "NVML_PERF_POLICY_POWER"):
            delattr(module, name)
    found = known(read(module))
    assert (found.millijoules, found.throttled, found.state) == (None, {}, GpuState())
    assert (found.limit_watts, found.max_sm_mhz, found.max_memory_mhz) == (None, None, None)
    assert machine.gpu_joules(found, found) is None
    assert machine.gpu_throttled_seconds(found, found) == {}


def test_time_of_throttling_comes_from_fields_where_the_function_is_gone(
    read: Callable[..., GpuCounterReading | None],
) -> None:
    def fields(handle: int, asked: list[int]) -> list[SimpleNamespace]:
        assert asked == [74, 75]
        values = ((0, 3_000_000), (3, 0))  # the second is not supported
        return [SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(ullVal=value)) for status, value in values]

    module = library(nvmlDeviceGetViolationStatus=function_not_found, nvmlDeviceGetFieldValues=fields)
    assert known(read(module)).throttled == {"power cap": 3_000_000}


def test_an_old_driver_has_reasons_under_their_old_name(read: Callable[..., GpuCounterReading | None]) -> None:
    module = library(
        nvmlDeviceGetCurrentClocksEventReasons=function_not_found,
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x1 | 0x80,
    )
    assert known(read(module)).state.reasons == ["idle", "power brake"]
    module.nvmlDeviceGetCurrentClocksThrottleReasons = function_not_found
    assert known(read(module)).state.reasons is None


def test_only_what_slows_a_gpu_against_its_chosen_clocks_is_throttling() -> None:
    harmless = {"idle", "application clocks", "sync boost", "display clocks"}
    assert set(gpu.CLOCK_REASONS.values()) - gpu.THROTTLING == harmless
    assert set(gpu.CLOCK_REASONS.values()) >= gpu.THROTTLING


@pytest.mark.parametrize(
    ("module", "visible"),
    [
        (None, "0"),
        (library(nvmlInit=unsupported), "0"),
        (library(count=0), "0"),
        (library(), ""),
        (library(), "MIG-0000000a"),
        (library(nvmlDeviceGetHandleByIndex=unsupported), "0"),
    ],
)
def test_without_a_whole_gpu_there_is_no_reading(
    read: Callable[..., GpuCounterReading | None], module: ModuleType | None, visible: str
) -> None:
    assert read(module, visible) is None


def reading(at: float, millijoules: int | None = None, **throttled: int) -> GpuCounterReading:
    named = {name.replace("_", " "): count for name, count in throttled.items()}
    return GpuCounterReading(at, 0, "GPU-a", None, millijoules, named, GpuState(), None, None, None)


@pytest.mark.parametrize(
    ("first", "last", "joules"),
    [(1000, 3500, 2.5), (1000, 1000, None), (1000, 0, None), (None, 1000, None), (1000, None, None)],
)
def test_joules_between_two_readings(first: int | None, last: int | None, joules: float | None) -> None:
    assert machine.gpu_joules(reading(0, first), reading(1, last)) == joules


def test_throttled_seconds_leave_out_counters_that_cannot_be_right() -> None:
    first = reading(10, power_cap=5, temperature=10**9, other=0)
    last = reading(12, power_cap=5 + 10**9, temperature=0, other=10**10)  # reset; more than the time that passed
    assert machine.gpu_throttled_seconds(first, last) == {"power cap": 1.0}
    assert machine.gpu_throttled_seconds(reading(10, power_cap=0), reading(12, power_cap=2 * 10**9 + 1)) == {
        "power cap": 2.0
    }
    assert machine.gpu_throttled_seconds(reading(10, power_cap=0), reading(12)) == {}

"""NVIDIA's management library, `pynvml`, as far as merge_bench and dask-cuda ask it."""

from __future__ import annotations

import os
import time
from types import ModuleType, SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """What the library raises."""


class NVMLError_NotSupported(NVMLError):
    """The GPU has no such thing."""


class NVMLError_FunctionNotFound(NVMLError):
    """The driver is older than the function."""


def function_not_found(*_: Any) -> Any:
    raise NVMLError_FunctionNotFound("Function Not Found")


def unsupported(*_: Any) -> Any:
    raise NVMLError("Unknown Error")


def not_supported(*_: Any) -> Any:
    raise NVMLError_NotSupported("Not Supported")


def identity(handle: int) -> str:
    """The UUID of a GPU."""
    return f"GPU-{10 + handle:08x}-1111-2222-3333-444444444444"


POWER_QUESTIONS = (
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetViolationStatus",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
)
"""What a driver may not answer: before Volta, in a virtual GPU, or in a virtual machine."""
WATTS = 400


def millijoules(handle: int) -> int:
    """The energy of a GPU that has used 400 W since it was there."""
    return int(WATTS * 1000 * time.monotonic())


def throttled() -> Any:
    """A function that reports a GPU as throttled by its power cap for a quarter of the time, never by temperature."""

    def status(handle: int, policy: int) -> SimpleNamespace:
        now = time.monotonic_ns()
        return SimpleNamespace(referenceTime=now // 1000, violationTime=now // 4 if policy == 0 else 0)

    return status


def library(count: int = 2, **changed: Any) -> ModuleType:
    """The management library of a machine with `count` GPUs; `changed`: other functions in place of its own."""
    module = ModuleType("pynvml")
    mine, other = SimpleNamespace(pid=os.getpid(), usedGpuMemory=5), SimpleNamespace(pid=1, usedGpuMemory=None)
    members = {
        "NVMLError": NVMLError,
        "NVMLError_NotSupported": NVMLError_NotSupported,
        "NVMLError_FunctionNotFound": NVMLError_FunctionNotFound,
        "NVML_NVLINK_MAX_LINKS": 36,
        "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX": 138,
        "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX": 139,
        "nvmlDeviceGetFieldValues": unsupported,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.65.06",
        "nvmlDeviceGetCount": lambda: count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetHandleByUUID": lambda uuid: [identity(index) for index in range(count)].index(uuid.decode()),
        "nvmlDeviceIsMigDeviceHandle": lambda handle: False,
        "nvmlDeviceGetMigMode": lambda handle: (0, 0),
        "nvmlDeviceGetUUID": identity,
        "nvmlDeviceGetCpuAffinity": lambda handle, words: [2**64 - 1] * words,
        "nvmlDeviceGetName": lambda handle: f"GPU {handle}",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=80 * 2**30, free=(70 + handle) * 2**30),
        "NVML_CLOCK_MEM": 2,
        "NVML_CLOCK_SM": 1,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_PERF_POLICY_POWER": 0,
        "NVML_PERF_POLICY_THERMAL": 1,
        "NVML_FI_DEV_PERF_POLICY_POWER": 74,
        "NVML_FI_DEV_PERF_POLICY_THERMAL": 75,
        "nvmlDeviceGetTotalEnergyConsumption": millijoules,
        "nvmlDeviceGetViolationStatus": throttled(),
        "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 0,
        "nvmlDeviceGetClockInfo": lambda handle, clock: 2619 if clock == 2 else 1755,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 41,
        "nvmlDeviceGetPowerUsage": lambda handle: WATTS * 1000,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
        "nvmlDeviceGetMaxClockInfo": lambda handle, clock: 3201 if clock == 2 else 1980,
        "nvmlDeviceGetMemoryBusWidth": lambda handle: 6144,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=b"00000000:1B:00.0"),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [mine, other],
        "nvmlDeviceGetNvLinkState": lambda handle, link: 1 if link < 2 else 0,
        "nvmlDeviceGetNvLinkRemotePciInfo": lambda handle, link: SimpleNamespace(busId=f"bus {link % 1}"),
    }
    vars(module).update(members | changed)
    return module

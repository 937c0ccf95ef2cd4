"""NVIDIA's management library, `pynvml`, as far as merge_bench and dask-cuda ask it."""

from __future__ import annotations

import os
from types import ModuleType, SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """What the library raises."""


class NVMLError_NotSupported(NVMLError):
    """The GPU has no such thing."""


def unsupported(*_: Any) -> Any:
    raise NVMLError("Unknown Error")


def not_supported(*_: Any) -> Any:
    raise NVMLError_NotSupported("Not Supported")


def identity(handle: int) -> str:
    """The UUID of a GPU."""
    return f"GPU-{10 + handle:08x}-1111-2222-3333-444444444444"


def library(count: int = 2, **changed: Any) -> ModuleType:
    """The management library of a machine with `count` GPUs; `changed`: other functions in place of its own."""
    module = ModuleType("pynvml")
    mine, other = SimpleNamespace(pid=os.getpid(), usedGpuMemory=5), SimpleNamespace(pid=1, usedGpuMemory=None)
    members = {
        "NVMLError": NVMLError,
        "NVMLError_NotSupported": NVMLError_NotSupported,
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

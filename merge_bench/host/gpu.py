"""The GPUs of this machine, as NVIDIA's management library reports them; no other module calls that library.

Asking makes no CUDA context and takes no device memory. Where there is no driver, no library or no GPU, functions
return empty results, and raise nothing.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from merge_bench.host.description import Gpu, GpuProcess, GpuState, GpuWithProcesses

IN_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # without it CUDA's number 0 is the fastest GPU
_ALL_LINKS = 0xFFFFFFFF  # scope of a field: the sum over a GPU's links
_PART = "MIG-"  # a part of a GPU
_UUIDS = ("GPU-", _PART)
_NVLINK_UNIT = 1024  # bytes: NVLink data counters are in KiB

POWER_CAP, THERMAL = "power cap", "temperature"
"""The causes of throttling for which the driver counts the time."""
CLOCK_REASONS = {
    0x001: "idle",
    0x002: "application clocks",
    0x004: POWER_CAP,
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: THERMAL,
    0x040: "hardware temperature",
    0x080: "power brake",
    0x100: "display clocks",
}
"""Names of the bits `nvmlClocksEventReason…` of nvml.h, which older drivers call `nvmlClocksThrottleReason…`."""
THROTTLING = frozenset((POWER_CAP, "hardware slowdown", THERMAL, "hardware temperature", "power brake"))
"""The reasons that slow a GPU down against the clocks that its user chose."""


@dataclass(frozen=True)
class GpuCounterReading:
    """The counters of a GPU at one moment, its state just after, and its limits; None: not supported.

    `at`: seconds on this host's monotonic clock when the counters were read. `key`: the same for every process of the
    host that uses this GPU. `millijoules`: used since the driver was loaded. `throttled`: nanoseconds in which the GPU
    was slower than the chosen clocks, by cause; {} where they are not counted.
    """

    at: float
    index: int
    key: str
    name: str | None
    millijoules: int | None
    throttled: Mapping[str, int]
    state: GpuState
    limit_watts: float | None
    max_sm_mhz: int | None
    max_memory_mhz: int | None


def visible_gpu_names() -> tuple[str, ...]:
    """Names of the GPUs that a process started here would see, as in `CUDA_VISIBLE_DEVICES`: numbers or UUIDs.

    Numbers are those of `describe_gpus`; CUDA takes them so with `IN_ORDER` in its environment. A job that was given
    two of eight has "2" and "3", and its workers must be given these names and not "0" and "1". In a job without GPUs,
    SLURM sets the variable to "NoDevFiles".
    """
    with _open_nvml() as nvml:
        count = _count_gpus(nvml)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or count == 0:
        return tuple(map(str, range(count)))

    def is_gpu_name(entry: str) -> bool:
        return entry.startswith(_UUIDS) or (entry.isdecimal() and int(entry) < count)

    # CUDA stops at the first entry that names no device.
    return tuple(itertools.takewhile(is_gpu_name, map(str.strip, visible.split(","))))


def count_visible_gpus() -> int:
    """How many GPUs a process started here would see."""
    return len(visible_gpu_names())


def gpu_index(gpu_name: str) -> int | None:
    """The index, in the order of the PCI bus, of the GPU with this name in `CUDA_VISIBLE_DEVICES`.

    `gpu_name`: a number, or the start of a UUID. None for a part of a GPU (MIG), and for what is not there.
    """
    with _open_nvml() as nvml:
        if gpu_name.isdigit():
            return int(gpu_name) if int(gpu_name) < _count_gpus(nvml) else None
        for index, handle in enumerate(_open_gpu_handles(nvml)):
            if gpu_name and (_decode_text(_call_nvml(nvml.nvmlDeviceGetUUID, handle)) or "").startswith(gpu_name):
                return index
    return None


def whole_gpu_index(gpu_name: str) -> int | None:
    """The index, in the order of the PCI bus, of the GPU of this name, or of the GPU whose part (MIG) has this name."""
    if not gpu_name.startswith(_PART):
        return gpu_index(gpu_name)
    with _open_nvml() as nvml:
        part = _call_nvml(nvml.nvmlDeviceGetHandleByUUID, gpu_name.encode())
        index = _call_nvml(nvml.nvmlDeviceGetIndex, _call_nvml(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, part))
    return None if index is None else int(index)


def gpu_instance_id(gpu_name: str) -> str | None:
    """The GPU instance of a part of a GPU (MIG), as ``0/3``, or the part's name if unknown; None for a whole GPU.

    Parts with one instance have the same memory. If a GPU in MIG mode is named as a whole, CUDA uses its first part.
    """
    index = whole_gpu_index(gpu_name)
    with _open_nvml() as nvml:
        if not gpu_name.startswith(_PART):
            mode = _call_nvml(nvml.nvmlDeviceGetMigMode, _call_nvml(nvml.nvmlDeviceGetHandleByIndex, index))
            return f"{index}/first" if mode and mode[0] else None
        number = _call_nvml(
            nvml.nvmlDeviceGetGpuInstanceId, _call_nvml(nvml.nvmlDeviceGetHandleByUUID, gpu_name.encode())
        )
    return gpu_name if index is None or number is None else f"{index}/{number}"


def gpu_has_own_memory(gpu_name: str) -> bool:
    """Whether the GPU of this name has memory of its own; False only where the driver says so, as for GB10."""
    index = gpu_index(gpu_name)
    with _open_nvml() as nvml:
        handle = _call_nvml(nvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            return True
        try:
            nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError_NotSupported:
            return False
        except Exception:  # as in `_call_nvml`
            return True
    return True


def describe_gpus() -> list[GpuWithProcesses]:
    """The machine's GPUs in the order of their PCI bus, `CUDA_VISIBLE_DEVICES` notwithstanding; [] if there are none.

    A fact that the driver does not report is None.
    """
    with _open_nvml() as nvml:
        return [
            _describe_gpu(nvml, handle, index)
            for index, handle in enumerate(_open_gpu_handles(nvml))
            if handle is not None
        ]


def describe_constant_gpu_facts() -> list[Gpu]:
    """The facts about the machine's GPUs that do not change from one moment to the next."""
    return [Gpu(**{name: getattr(each, name) for name in Gpu.__struct_fields__}) for each in describe_gpus()]


def free_gpu_memory_bytes() -> list[int]:
    """Free bytes of each GPU's device memory, in the order of `describe_gpus`; 0 where they are unknown."""
    with _open_nvml() as nvml:
        memories = [_call_nvml(nvml.nvmlDeviceGetMemoryInfo, handle) for handle in _open_gpu_handles(nvml)]
    return [0 if memory is None else int(memory.free) for memory in memories]


def read_nvlink_byte_counters() -> dict[str, tuple[int, int]]:
    """Bytes that the NVLinks of each GPU have sent and received so far, as ``nvlink <bus id>``; {} where unknown."""
    counts = {}
    with _open_nvml() as nvml:
        for handle in _open_gpu_handles(nvml):
            pci = _call_nvml(nvml.nvmlDeviceGetPciInfo, handle)
            if pci is None:
                continue
            fields = nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX
            values = _call_nvml(nvml.nvmlDeviceGetFieldValues, handle, [(field, _ALL_LINKS) for field in fields])
            if values and all(value.nvmlReturn == 0 for value in values):
                sent, received = (int(value.value.ullVal) * _NVLINK_UNIT for value in values)
                counts[f"nvlink {_decode_text(pci.busId)}"] = (sent, received)
    return counts


def read_own_gpu_counters() -> GpuCounterReading | None:
    """Read energy, clocks and state of the first GPU that this process sees, on which a worker computes.

    None without one, and for a part of a GPU (MIG), whose energy and clocks are not its own.
    """
    with _open_nvml() as nvml:
        index = gpu_index(next(iter(visible_gpu_names()), ""))
        handle = _call_nvml(nvml.nvmlDeviceGetHandleByIndex, index)
        return None if index is None or handle is None else _read_gpu_counters(nvml, handle, index)


def _read_gpu_counters(nvml: Any, handle: Any, index: int) -> GpuCounterReading:
    """Read energy, clocks and state of the GPU of an NVML handle; None for what its driver or the library lacks."""
    millijoules = _call_nvml(lambda: int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)))
    at, throttled = time.monotonic(), _read_throttled_nanoseconds(nvml, handle)
    uuid = _call_nvml(lambda: _decode_text(nvml.nvmlDeviceGetUUID(handle)))
    return GpuCounterReading(
        at=at,
        index=index,
        key=uuid or str(index),
        name=_call_nvml(lambda: _decode_text(nvml.nvmlDeviceGetName(handle))),
        millijoules=millijoules,
        throttled=throttled,
        state=GpuState(
            sm_mhz=_call_nvml(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))),
            memory_mhz=_call_nvml(lambda: int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM))),
            celsius=_call_nvml(lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))),
            watts=_call_nvml(lambda: int(nvml.nvmlDeviceGetPowerUsage(handle)) / 1000),
            reasons=_read_clock_reasons(nvml, handle),
        ),
        limit_watts=_call_nvml(lambda: int(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)) / 1000),
        max_sm_mhz=_call_nvml(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))),
        max_memory_mhz=_call_nvml(lambda: int(nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM))),
    )


def _read_throttled_nanoseconds(nvml: Any, handle: Any) -> dict[str, int]:
    """Nanoseconds for which a GPU was throttled since the driver was loaded, by cause.

    They are read as fields where the function is missing, which NVIDIA removes in CUDA 14. The fields of other causes
    are not used: their numbers differ between drivers.
    """
    status = {
        POWER_CAP: _call_nvml(lambda: nvml.nvmlDeviceGetViolationStatus(handle, nvml.NVML_PERF_POLICY_POWER)),
        THERMAL: _call_nvml(lambda: nvml.nvmlDeviceGetViolationStatus(handle, nvml.NVML_PERF_POLICY_THERMAL)),
    }
    counts = {cause: int(each.violationTime) for cause, each in status.items() if each is not None}
    if counts:
        return counts
    fields = _call_nvml(
        lambda: nvml.nvmlDeviceGetFieldValues(
            handle, [nvml.NVML_FI_DEV_PERF_POLICY_POWER, nvml.NVML_FI_DEV_PERF_POLICY_THERMAL]
        )
    )
    pairs = zip(status, fields or (), strict=False)
    return {cause: int(field.value.ullVal) for cause, field in pairs if field.nvmlReturn == 0}


def _read_clock_reasons(nvml: Any, handle: Any) -> list[str] | None:
    """Names of the reasons why a GPU's clocks are not higher; None if unknown."""
    mask = _call_nvml(lambda: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)))
    if mask is None:  # drivers before 535
        mask = _call_nvml(lambda: int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)))
    return None if mask is None else [name for bit, name in CLOCK_REASONS.items() if mask & bit]


def _count_gpus(nvml: Any) -> int:
    return _call_nvml(nvml.nvmlDeviceGetCount) or 0


def _open_gpu_handles(nvml: Any) -> Iterator[Any]:
    """Yield the NVML handle of each GPU, in the order of `describe_gpus`; None where the driver gives none."""
    for index in range(_count_gpus(nvml)):
        yield _call_nvml(nvml.nvmlDeviceGetHandleByIndex, index)


def _describe_gpu(nvml: Any, handle: Any, index: int) -> GpuWithProcesses:
    """The constant facts about the GPU of an NVML handle, and the other processes that compute on the GPU."""
    memory = _call_nvml(nvml.nvmlDeviceGetMemoryInfo, handle)
    capability = _call_nvml(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    pci = _call_nvml(nvml.nvmlDeviceGetPciInfo, handle)
    processes = _call_nvml(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return GpuWithProcesses(
        index=index,
        driver_version=_decode_text(_call_nvml(nvml.nvmlSystemGetDriverVersion)),
        name=_decode_text(_call_nvml(nvml.nvmlDeviceGetName, handle)),
        memory_bytes=None if memory is None else int(memory.total),
        memory_bandwidth=_memory_bytes_per_second(nvml, handle),
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        pci_bus_id=None if pci is None else _decode_text(pci.busId),
        nvlink=_count_active_nvlinks(nvml, handle),
        processes=[
            GpuProcess(pid=int(other.pid), memory_bytes=other.usedGpuMemory)
            for other in processes
            if other.pid != os.getpid()
        ],
    )


def _memory_bytes_per_second(nvml: Any, handle: Any) -> int | None:
    """The bandwidth of a GPU's memory: two transfers per cycle at the highest clock, over the width of the bus."""
    try:
        megahertz = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)
        return int(megahertz) * 1_000_000 * 2 * int(nvml.nvmlDeviceGetMemoryBusWidth(handle)) // 8 or None
    except Exception:  # as in `_call_nvml`: not every driver tells the width
        return None


def _count_active_nvlinks(nvml: Any, handle: Any) -> dict[str, int]:
    """How many NVLinks of a GPU are up, by the bus id at their other end."""
    ends: Counter[str] = Counter()
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = _call_nvml(nvml.nvmlDeviceGetNvLinkState, handle, link)
        if state is None:  # no more links, or none at all
            break
        remote = _call_nvml(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link) if state else None
        if remote is not None:
            ends[_decode_text(remote.busId) or ""] += 1
    return dict(ends)


class _MissingNvml:
    """Replaces NVIDIA's library where it is missing: each function returns None."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@contextmanager
def _open_nvml() -> Iterator[Any]:
    """NVIDIA's library, initialized for the block; a replacement whose functions return None where it is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # not installed, no driver, or a driver that does not answer
        yield cast(Any, _MissingNvml())
        return
    try:
        yield pynvml
    finally:
        _call_nvml(pynvml.nvmlShutdown)


def _call_nvml(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of NVIDIA's library, and return its result; None if the call fails, or an argument is None."""
    try:
        return None if any(argument is None for argument in arguments) else function(*arguments)
    except Exception:  # NVMLError has a subclass for every status, and old drivers lack some functions
        return None


def _decode_text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value

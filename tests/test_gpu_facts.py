"""What is told of GPUs, by a management library that is a fake one, broken, or not there."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from merge_bench.gpu import gpu_count, gpu_facts


class NVMLError(Exception):
    pass


def unsupported(*_: Any) -> Any:
    raise NVMLError("Not Supported")


def library(count: int = 2, **changed: Any) -> ModuleType:
    module = ModuleType("pynvml")
    mine, other = SimpleNamespace(pid=os.getpid(), usedGpuMemory=5), SimpleNamespace(pid=1, usedGpuMemory=None)
    members = {
        "NVML_NVLINK_MAX_LINKS": 4,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: b"580.65.06",
        "nvmlDeviceGetCount": lambda: count,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: f"GPU {handle}",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=80 * 2**30),
        "nvmlDeviceGetCudaComputeCapability": lambda handle: (9, 0),
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=b"00000000:1B:00.0"),
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [mine, other],
        "nvmlDeviceGetNvLinkState": lambda handle, link: 1 if link < 2 else 0,
        "nvmlDeviceGetNvLinkRemotePciInfo": lambda handle, link: SimpleNamespace(busId=f"bus {link % 1}"),
    }
    vars(module).update(members | changed)
    return module


def test_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    facts = gpu_facts()
    assert len(facts) == 2
    assert facts[1] == {
        "index": 1,
        "name": "GPU 1",
        "memory_bytes": 80 * 2**30,
        "driver_version": "580.65.06",
        "compute_capability": "9.0",
        "pci_bus_id": "00000000:1B:00.0",
        "nvlink": {"bus 0": 2},
        "processes": [{"pid": 1, "memory_bytes": None}],
    }


def test_what_the_driver_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {name: unsupported for name in vars(library()) if name.startswith("nvmlDeviceGet")}
    told["nvmlDeviceGetHandleByIndex"] = told["nvmlDeviceGetCount"] = lambda *_: 1
    monkeypatch.setitem(sys.modules, "pynvml", library(**told, nvmlShutdown=unsupported))
    (facts,) = gpu_facts()
    assert facts.pop("index") == 0
    assert facts.pop("driver_version") == "580.65.06"
    assert facts.pop("nvlink") == {}
    assert facts.pop("processes") == []
    assert set(facts.values()) == {None}


@pytest.mark.parametrize("module", [None, library(nvmlInit=unsupported), library(nvmlDeviceGetCount=unsupported)])
def test_without_library_driver_or_answer_there_is_nothing(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert gpu_facts() == []
    assert gpu_count() == 0


@pytest.mark.parametrize(
    ("visible", "count"),
    [(None, 4), ("", 0), ("0", 1), ("3,1", 2), ("-1", 0), ("0,9,1", 1), ("GPU-1234,MIG-56", 2), ("1, 2", 2)],
)
def test_count_minds_what_is_visible(monkeypatch: pytest.MonkeyPatch, visible: str | None, count: int) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(count=4))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_count() == count

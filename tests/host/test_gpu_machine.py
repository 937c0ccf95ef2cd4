"""GPUs as a management library describes them that is a fake one, broken, or not there."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from merge_bench.host.description import GpuProcess, GpuWithProcesses
from merge_bench.host.gpu import (
    count_visible_gpus,
    describe_constant_gpu_facts,
    describe_gpus,
    free_gpu_memory_bytes,
    gpu_has_own_memory,
    gpu_index,
    gpu_instance_id,
    visible_gpu_names,
    whole_gpu_index,
)
from merge_bench.host.machine import describe_hardware
from tests.helpers.fake_nvml import NVMLError_NotSupported, library, unsupported


def test_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    facts = describe_gpus()
    assert len(facts) == 2
    assert facts[1] == GpuWithProcesses(
        index=1,
        name="GPU 1",
        memory_bytes=80 * 2**30,
        memory_bandwidth=4_916_736_000_000,  # of an H200, whose data sheet says 4.8 TB/s
        driver_version="580.65.06",
        compute_capability="9.0",
        pci_bus_id="00000000:1B:00.0",
        nvlink={"bus 0": 2},
        processes=[GpuProcess(pid=1)],
    )


def test_what_the_driver_does_not_report_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {name: unsupported for name in vars(library()) if name.startswith("nvmlDeviceGet")}
    told["nvmlDeviceGetHandleByIndex"] = told["nvmlDeviceGetCount"] = lambda *_: 1
    monkeypatch.setitem(sys.modules, "pynvml", library(**told, nvmlShutdown=unsupported))
    (facts,) = describe_gpus()
    assert facts == GpuWithProcesses(index=0, driver_version="580.65.06", nvlink={}, processes=[])


@pytest.mark.parametrize("module", [None, library(nvmlInit=unsupported), library(nvmlDeviceGetCount=unsupported)])
def test_without_library_driver_or_answer_there_is_nothing(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert describe_gpus() == []
    assert free_gpu_memory_bytes() == []
    assert count_visible_gpus() == 0


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ("0", "1", "2", "3")),
        ("", ()),
        ("0", ("0",)),
        ("3,1", ("3", "1")),
        ("-1", ()),
        ("0,9,1", ("0",)),
        ("GPU-1234,MIG-56", ("GPU-1234", "MIG-56")),
        ("1, 2", ("1", "2")),
        ("NoDevFiles", ()),
        ("1,none", ("1",)),
    ],
)
def test_visible_gpus_have_the_names_that_cuda_takes(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, names: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(count=4))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpu_names() == names
    assert count_visible_gpus() == len(names)


def test_free_memory_is_that_of_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(count=2))
    assert free_gpu_memory_bytes() == [70 * 2**30, 71 * 2**30]
    monkeypatch.setitem(sys.modules, "pynvml", library(count=1, nvmlDeviceGetMemoryInfo=unsupported))
    assert free_gpu_memory_bytes() == [0]


def test_what_is_recorded_of_gpus_does_not_change_with_who_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(count=1))
    (recorded,) = describe_hardware().gpus or ()
    assert [recorded] == describe_constant_gpu_facts()
    assert recorded.name == "GPU 0"
    assert "processes" not in recorded.__struct_fields__


@pytest.mark.parametrize(
    ("name", "index"),
    [("1", 1), ("2", None), ("GPU-0000000b", 1), ("GPU-", 0), ("GPU-77", None), ("MIG-0000000b", None), ("", None)],
)
def test_the_index_of_a_gpu_by_any_of_its_names(monkeypatch: pytest.MonkeyPatch, name: str, index: int | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(count=2))
    assert gpu_index(name) == index


def test_a_gpu_has_memory_of_its_own_unless_the_driver_reports_that_it_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def memory(handle: int) -> SimpleNamespace:
        if handle == 1:
            raise NVMLError_NotSupported
        return SimpleNamespace(total=1, free=1)

    monkeypatch.setitem(sys.modules, "pynvml", library(count=2, nvmlDeviceGetMemoryInfo=memory))
    names = ("0", "1", "GPU-0000000b", "MIG-7", "9")
    assert [gpu_has_own_memory(name) for name in names] == [True, False, False, True, True]
    monkeypatch.setitem(sys.modules, "pynvml", library(count=2, nvmlDeviceGetMemoryInfo=unsupported))
    assert gpu_has_own_memory("0")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_has_own_memory("0")


def test_a_part_of_a_gpu_has_the_place_of_its_gpu_and_an_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {b"MIG-a": (1, 3), b"MIG-b": (1, 4), b"MIG-c": (1, 3)}
    monkeypatch.setitem(
        sys.modules,
        "pynvml",
        library(
            2,
            nvmlDeviceGetHandleByUUID=lambda uuid: parts[uuid],
            nvmlDeviceGetDeviceHandleFromMigDeviceHandle=lambda part: part[0],
            nvmlDeviceGetGpuInstanceId=lambda part: part[1],
            nvmlDeviceGetIndex=lambda handle: handle,
            nvmlDeviceGetMigMode=lambda handle: (handle, 0),
        ),
    )
    assert [whole_gpu_index(name) for name in ("0", "MIG-a", "MIG-z", "9")] == [0, 1, None, None]
    names = ("0", "1", "MIG-a", "MIG-b", "MIG-c", "MIG-z")
    assert [gpu_instance_id(name) for name in names] == [None, "1/first", "1/3", "1/4", "1/3", "MIG-z"]
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (whole_gpu_index("MIG-a"), gpu_instance_id("MIG-a"), gpu_instance_id("0")) == (None, "MIG-a", None)

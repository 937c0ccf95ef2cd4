"""A CUDA context is bound in each thread that uses the GPU, and a status that is not success is one sentence."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from merge_bench.errors import MergeBenchError, RunFailed, UsageError
from merge_bench.merge import worker
from merge_bench.merge.engines import gpu_memory
from tests.helpers import fake_cuda, fake_rapids
from tests.helpers.dask_worker import become_worker
from tests.helpers.fake_cuda import CUresult, Driver

IN_ORDER = ["cuInit", "cuDriverGetVersion", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"]


def install(monkeypatch: pytest.MonkeyPatch, driver: Driver, version: str = "13.5.0") -> Driver:
    modules = {**fake_rapids.modules(driver), **fake_cuda.modules(driver, version)}
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return driver


def in_a_thread(work: Callable[[], Any]) -> Any:
    """What `work` gives, or raises, in a thread of its own."""
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(work())
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(ended[0], Exception):
        raise ended[0]
    return ended[0]


def test_the_primary_context_is_current_in_the_thread_that_asked_and_in_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = install(monkeypatch, Driver())
    gpu_memory.bind_cuda_context()
    assert driver.calls == IN_ORDER
    assert driver.current == fake_cuda.PRIMARY
    assert in_a_thread(lambda: driver.current) == 0
    with pytest.raises(RuntimeError, match=r"invalid device context \(201\)"):
        in_a_thread(fake_rapids.DEFAULT_STREAM.synchronize)


@pytest.mark.parametrize(
    ("call", "status", "kind", "sentence"),
    [
        ("cuInit", CUresult.CUDA_ERROR_NO_DEVICE, UsageError, r"cuInit returned CUDA_ERROR_NO_DEVICE \(100\)"),
        ("cuDriverGetVersion", CUresult.CUDA_ERROR_INVALID_VALUE, RunFailed, "cuDriverGetVersion returned CUDA_ERROR_"),
        ("cuDeviceGet", CUresult.CUDA_ERROR_INVALID_DEVICE, RunFailed, r"cuDeviceGet returned .* \(101\); run nvidia"),
        ("cuDevicePrimaryCtxRetain", CUresult.CUDA_ERROR_OUT_OF_MEMORY, RunFailed, r"\(2\); end other processes"),
        ("cuDevicePrimaryCtxRetain", CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE, RunFailed, r"\(46\); another process"),
        ("cuCtxSetCurrent", CUresult.CUDA_ERROR_INVALID_CONTEXT, RunFailed, r"cuCtxSetCurrent returned .* \(201\)"),
    ],
)
def test_a_status_that_is_not_success_ends_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, call: str, status: CUresult, kind: type[MergeBenchError], sentence: str
) -> None:
    driver = install(monkeypatch, Driver(refusals={call: status}))
    with pytest.raises(kind, match=sentence) as caught:
        gpu_memory.bind_cuda_context()
    assert "\n" not in str(caught.value)
    assert driver.calls == IN_ORDER[: IN_ORDER.index(call) + 1]
    assert driver.current == 0


def test_without_a_driver_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Driver(installed=False))
    with pytest.raises(UsageError, match=r"engine cudf needs an NVIDIA GPU, .*: there is no NVIDIA driver"):
        gpu_memory.bind_cuda_context()


def test_without_cuda_bindings_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Driver())
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(UsageError, match="engine cudf needs the package cuda-bindings"):
        gpu_memory.bind_cuda_context()


@pytest.mark.parametrize(
    ("driver", "packages", "enough"), [(13000, "13.5.0", True), (12080, "13.5.0", False), (13020, "12.9.10", True)]
)
def test_a_driver_too_old_for_the_packages_is_refused(
    monkeypatch: pytest.MonkeyPatch, driver: int, packages: str, enough: bool
) -> None:
    install(monkeypatch, Driver(version=driver), packages)
    if enough:
        gpu_memory.bind_cuda_context()
        return
    with pytest.raises(
        UsageError, match=r"supports CUDA 12\.8, but the installed packages need CUDA 13; .* for CUDA 12: .*cu12"
    ):
        gpu_memory.bind_cuda_context()


def test_the_context_comes_before_any_library(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Driver(refusals={"cuCtxSetCurrent": CUresult.CUDA_ERROR_INVALID_CONTEXT}))
    monkeypatch.setitem(sys.modules, "rmm", None)
    monkeypatch.setitem(sys.modules, "pylibcudf", None)
    with pytest.raises(RunFailed, match="cuCtxSetCurrent"):
        gpu_memory.set_up_memory_pool(None)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> worker.MergeWorker:
    """This process as a Dask worker with the plugin."""
    return become_worker(monkeypatch, tmp_path).plugin


@pytest.mark.usefixtures("plugin")
def test_each_step_on_a_gpu_binds_the_context_in_the_thread_that_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(monkeypatch, Driver())
    in_a_thread(worker.make_cuda_context)
    in_a_thread(lambda: gpu_memory.set_up_memory_pool(None))
    assert driver.current == 0
    for _ in range(2):
        assert in_a_thread(lambda: worker.current_plugin() and driver.current) == fake_cuda.PRIMARY
    in_a_thread(lambda: (worker.current_plugin(), fake_rapids.DEFAULT_STREAM.synchronize()))


@pytest.mark.usefixtures("plugin")
def test_a_step_on_the_host_calls_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = install(monkeypatch, Driver())
    worker.current_plugin()
    assert driver.calls == []


def test_a_worker_whose_gpu_failed_can_still_run_steps(
    monkeypatch: pytest.MonkeyPatch, plugin: worker.MergeWorker
) -> None:
    install(monkeypatch, Driver(installed=False))
    with pytest.raises(UsageError):
        worker.make_cuda_context()
    assert worker.current_plugin() is plugin

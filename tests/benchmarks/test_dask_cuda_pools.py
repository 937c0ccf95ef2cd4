"""Pools for dask-cuda's benchmark: made in the thread in which its tasks run, of one size on one GPU."""

from __future__ import annotations

import threading

import pytest
from distributed import Client, LocalCluster

from benchmarks.peer.dask_cuda_merge import set_up_pools
from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.engines.gpu_memory import GpuMemory

CALLS: list[tuple[str, str, int | None]] = []


def bind() -> None:
    CALLS.append(("bind", threading.current_thread().name, None))


def inspect() -> GpuMemory:
    CALLS.append(("inspect", threading.current_thread().name, None))
    return GpuMemory(90 * 10**9, 100 * 10**9)


def set_up_pool(size: int | None) -> None:
    CALLS.append(("pool", threading.current_thread().name, size))


def task_thread() -> str:
    return threading.current_thread().name


def test_pools_are_made_in_the_task_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory, "bind_context", bind)
    monkeypatch.setattr(gpu_memory, "inspect", inspect)
    monkeypatch.setattr(gpu_memory, "set_up_pool", set_up_pool)
    CALLS.clear()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        workers = client.scheduler_info(n_workers=-1)["workers"]
        threads = {client.submit(task_thread, workers=[each], pure=False).result() for each in workers}
        set_up_pools(client, 2)
    assert [call for call, _, _ in CALLS] == ["bind"] * 2 + ["inspect"] * 2 + ["pool"] * 2
    assert {thread for _, thread, _ in CALLS} == threads
    assert {size for call, _, size in CALLS if call == "pool"} == {45 * 10**9 // 256 * 256}

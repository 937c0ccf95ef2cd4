"""Workers that share a GPU get pools of one size, whichever of them is first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from merge_bench.campaign.cluster_session import set_up_gpu_memory_pools
from merge_bench.errors import UsageError
from merge_bench.merge import worker
from merge_bench.merge.engines import gpu_memory
from merge_bench.merge.engines.gpu_memory import GpuMemoryUsage
from merge_bench.records.schema import Worker

GB = 10**9


class Cluster:
    """Workers on GPUs of 100 GB: a context takes 1 GB, and each looks and takes when it is its turn."""

    def __init__(
        self, gpus: Sequence[str], *, pooled: Sequence[int] = (), used: int = 0, asked: int | None = None
    ) -> None:
        self.gpus, self.pools = gpus, dict.fromkeys(pooled, 5 * GB)
        self.free = dict.fromkeys(gpus, (100 - used) * GB)
        self.asked = asked
        self.facts = [
            Worker(rank=rank, host="here", pid=1, name="", environment={"CUDA_VISIBLE_DEVICES": gpu})
            for rank, gpu in enumerate(gpus)
        ]

    def run_on_all(self, step: Callable[..., Any]) -> list[Any]:
        return [self.do(rank, step) for rank in range(len(self.gpus))]

    def submit(self, step: Callable[..., Any], each: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [self.do(rank, step, *arguments) for rank, arguments in enumerate(each)]

    def wait_for_results(self, found: list[Any]) -> list[Any]:
        return found

    def do(self, rank: int, step: Callable[..., Any], *arguments: Any) -> Any:
        gpu = self.gpus[rank]
        if step is worker.make_cuda_context:
            self.free[gpu] -= GB
        elif step is gpu_memory.inspect_gpu_memory:
            return None if rank in self.pools else GpuMemoryUsage(self.free[gpu], 100 * GB)
        elif step is gpu_memory.set_up_memory_pool and rank not in self.pools:
            (size,) = arguments
            assert size <= self.free[gpu], "the pool does not fit any more"
            self.free[gpu] -= size
            self.pools[rank] = size
        return None


def pools(cluster: Cluster) -> list[int]:
    set_up_gpu_memory_pools(cluster, cluster.facts, cluster.asked)
    return [cluster.pools[rank] for rank in range(len(cluster.gpus))]


@pytest.mark.parametrize("used", [0, 30, 80])
def test_workers_on_one_gpu_have_pools_of_one_size(used: int) -> None:
    shared = pools(Cluster(["0"] * 4, used=used))
    assert len(set(shared)) == 1
    assert 4 * shared[0] > 0.85 * (100 - used - 4) * GB


def test_each_gpu_is_shared_among_its_own_workers() -> None:
    one, two, alone = pools(Cluster(["0", "0", "GPU-7"]))
    assert one == two == 45 * GB // 256 * 256
    assert alone == 90 * GB // 256 * 256


def test_a_pool_that_a_running_cluster_brought_stays() -> None:
    kept, made = pools(Cluster(["0", "1"], pooled=[0]))
    assert (kept, made) == (5 * GB, 90 * GB // 256 * 256)
    assert pools(Cluster(["0"], pooled=[0], used=97)) == [5 * GB]


def test_pools_that_do_not_fit_together_are_refused_before_any_is_made() -> None:
    cluster = Cluster(["0"] * 3, asked=40 * GB)
    with pytest.raises(UsageError, match=r"3 RMM pools of .* do not fit"):
        pools(cluster)
    assert not cluster.pools

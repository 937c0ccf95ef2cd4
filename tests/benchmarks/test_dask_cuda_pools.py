"""Pools for dask-cuda's benchmark: made in the thread in which its tasks run, of one size on one GPU."""

from __future__ import annotations

import pytest
from distributed import Client, LocalCluster

from benchmarks.peer.dask_cuda_merge import set_up_pools
from merge_bench.merge.engines.gpu_memory import POOL_ALIGN
from tests.helpers import fake_rapids
from tests.helpers.fake_cuda import PRIMARY


def current_context() -> int:
    """Of the calling thread; 0: it has none."""
    return fake_rapids.Process.driver.current


@pytest.mark.usefixtures("rapids")
def test_pools_are_made_in_the_task_threads() -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        set_up_pools(client, 2)
        workers = client.scheduler_info(n_workers=-1)["workers"]
        contexts = [client.submit(current_context, workers=[each], pure=False) for each in workers]
        assert client.gather(contexts) == [PRIMARY] * 2
        assert set(client.run(current_context).values()) == {0}  # the thread of the workers' event loops
    pool = fake_rapids.Device.resource
    assert isinstance(pool, fake_rapids.PoolMemoryResource)
    assert pool.pool_size() == int(0.9 * fake_rapids.Device.free / 2) // POOL_ALIGN * POOL_ALIGN

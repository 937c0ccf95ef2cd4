"""What the scheduler reports of workers that execute none of a run's tasks; the scheduler and its workers are real."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster, Status, Worker

from merge_bench.cluster.dask_scheduler_functions import worker_states

FREE = threading.Event()


def hold() -> bool:
    """Keep a worker busy until `FREE` is set."""
    return FREE.wait(60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two workers of one thread in this process."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=0
    ) as made:
        yield made


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.scheduler_address, set_as_default=False) as made:
        yield made


def states(client: Client, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The states once they are as expected: heartbeats take half a second."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found: dict[str, Any] = client.run_on_scheduler(worker_states, client.id)
        if until(found):
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def pause(client: Client, worker: Worker, status: Status) -> None:
    async def change() -> None:
        worker.status = status

    client.sync(change)


@pytest.mark.slow
def test_who_waits_with_which_state(cluster: LocalCluster, client: Client) -> None:
    one, other = cluster.workers.values()
    assert all(each["waiting"] is None for each in client.run_on_scheduler(worker_states, client.id).values())
    with Client(cluster.scheduler_address, set_as_default=False) as stranger:
        busy = stranger.submit(hold, workers=[one.address], pure=False)
        states(stranger, lambda now: now[one.address]["waiting"] is None and bool(one.state.executing))
        mine = client.submit(lambda: 1, workers=[one.address], allow_other_workers=False, pure=False)
        found = states(client, lambda now: now[one.address]["waiting"] is not None and now[one.address]["others"] == 1)
        assert found[other.address]["waiting"] is None
        FREE.set()
        assert mine.result(timeout=30) == 1
        assert busy.result(timeout=30)
    pause(client, one, Status.paused)
    try:
        states(client, lambda now: now[one.address]["status"] == "paused")
        first = client.submit(lambda: 2, workers=[one.address], allow_other_workers=False, pure=False)
        after = client.submit(lambda x: x + 1, first, workers=[other.address], pure=False)  # waits for the other task
        found = states(client, lambda now: now[one.address]["waiting"] is not None)
        assert found[one.address]["status"] == "paused"
        assert found[other.address]["waiting"] is None
        again = states(client, lambda now: now[one.address]["silence"] < 0.4)
        assert again[one.address]["waiting"] == found[one.address]["waiting"]
    finally:
        pause(client, one, Status.running)
    assert after.result(timeout=30) == 3
    assert client.run_on_scheduler(worker_states, client.id)[one.address]["waiting"] is None

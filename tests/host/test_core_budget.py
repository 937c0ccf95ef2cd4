"""Whether a host has a core for each process that polls."""

from __future__ import annotations

import pytest

from merge_bench.host.description import Hardware
from merge_bench.host.machine import CoreShortage, find_core_shortage, perftest_core_problem


def worker(host: str, affinity: str, cores: int | None = None, quota: float | None = None) -> tuple[str, Hardware]:
    return host, Hardware(affinity=affinity, cores=cores, cpu_quota=quota)


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ([worker("a", "0-1", 2)] * 2, "4 polling processes on 2 cores of a"),
        ([worker("a", "0-3", 4)] * 2, None),
        ([worker("a", "0", 1), worker("b", "0-1", 2)], "2 polling processes on 1 core of a"),
        ([worker("a", "0-1", 2), worker("b", "0-1", 2)], None),
        # Bound workers: four cores are there, but each worker's programs have only its own.
        ([worker("a", "0,1", 2), worker("a", "2,3", 2)], None),
        ([worker("a", "0-2", 3), worker("a", "3", 1)], "2 polling processes on core 3 of a"),
        # A container's quota counts for all of them.
        ([worker("a", "0-15", 16, 2.5)] * 2, "4 polling processes on 2.5 cores of a"),
        ([("a", Hardware()), ("a", Hardware())], None),  # nothing is known of the machine
    ],
)
def test_every_worker_has_two_processes_that_poll(workers: list[tuple[str, Hardware]], said: str | None) -> None:
    assert perftest_core_problem(workers) == said


@pytest.mark.parametrize(
    ("workers", "found"),
    [
        ([worker("a", "0-1", 2)] * 2, None),
        ([worker("a", "0-1", 2)] * 4, CoreShortage("a", 4, 2)),
        # Less than a core, which one worker shares with nobody.
        ([worker("a", "0-7", 8, 0.5)], None),
        ([worker("a", "0-7", 8, 0.5)] * 2, CoreShortage("a", 2, 0.5)),
        ([worker("a", "0-7", 8, 1.5)] * 2, CoreShortage("a", 2, 1.5)),
        # The host has nine cores for four workers, two of which are bound to the same one.
        ([worker("a", "0", 1)] * 2 + [worker("a", "1-8", 8)] * 2, CoreShortage("a", 2, 1, "0")),
    ],
)
def test_workers_that_share_cores(workers: list[tuple[str, Hardware]], found: CoreShortage | None) -> None:
    assert find_core_shortage(workers) == found
    assert found is None or found.max_worker_count >= 1


def test_shared_cores_are_named() -> None:
    assert [CoreShortage("a", 4, *rest).cores_text for rest in ((2.0,), (1,), (1.5,), (2, "0-1"))] == [
        "2 cores of a",
        "1 core of a",
        "1.5 cores of a",
        "cores 0-1 of a",
    ]

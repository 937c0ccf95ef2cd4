"""Whether a host has a core for each process that polls."""

from __future__ import annotations

import pytest

from merge_bench.host.core_budget import crowded
from merge_bench.host.description import Hardware


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
        ([worker("a", "0-2", 3), worker("a", "3", 1)], "2 polling processes on 1 core of a"),
        # A container's quota counts for all of them.
        ([worker("a", "0-15", 16, 2.5)] * 2, "4 polling processes on 2 cores of a"),
        ([("a", Hardware()), ("a", Hardware())], None),  # nothing is known of the machine
    ],
)
def test_every_worker_has_two_processes_that_poll(workers: list[tuple[str, Hardware]], said: str | None) -> None:
    assert crowded(workers) == said

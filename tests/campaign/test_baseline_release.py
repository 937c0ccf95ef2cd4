"""Between two merges of the baseline the last result has to be gone: Dask would hand it out again by its name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from merge_bench.campaign.dask_baseline import wait_until_result_released
from merge_bench.cluster import dask_scheduler_functions
from merge_bench.errors import RunFailed


def session(known: list[int], timeout: float) -> Any:
    """A session whose scheduler knows so many of the result's keys, question by question."""
    asked: list[Any] = []

    def run_on_scheduler(question: Any, keys: Any) -> Any:
        asked.append(keys)
        return known.pop(0) if len(known) > 1 else known[0]

    client = SimpleNamespace(_run_on_scheduler=run_on_scheduler)
    workers = SimpleNamespace(client=client, wait_for_coroutine=lambda answer: answer)
    return SimpleNamespace(workers=workers, plan=SimpleNamespace(timeout=timeout), asked=asked)


def test_waits_until_the_scheduler_has_forgotten_every_part() -> None:
    stub = session([2, 1, 0], timeout=5.0)
    wait_until_result_released(stub, ["a", "b"])
    assert stub.asked == [["a", "b"]] * 3


def test_a_result_that_stays_ends_the_run() -> None:
    with pytest.raises(RunFailed, match="did not release"):
        wait_until_result_released(session([1], timeout=0.05), ["a"])


def test_counts_what_the_scheduler_knows() -> None:
    scheduler = SimpleNamespace(tasks={"a": 1, "c": 2, "d": 3})
    assert dask_scheduler_functions.count_results_on_scheduler(["a", "b", "c"], scheduler) == 2

"""Waiting for the workers of a cluster that already runs: their number is printed at once, and no wait is in vain."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from distributed import LocalCluster

from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.launchers.existing import ExistingCluster
from merge_bench.cluster.scheduler_client import Workers, wait_for_workers
from merge_bench.errors import UsageError
from tests.helpers import plans

SETTINGS = ClusterSettings({}, Path("results"), launcher="existing", scheduler_file="s.json", start_timeout=60.0)
LATER = float("inf")


def workers(count: int) -> Workers:
    return {f"tcp://10.0.0.1:{number}": ("10.0.0.1", f"own-{number}") for number in range(count)}


def test_how_many_workers_there_are_is_printed_once_before_the_wait(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    counts = iter([2, 3, 4])

    def ask() -> Workers:
        told.append(capsys.readouterr().err)
        return workers(next(counts))

    assert wait_for_workers(ask, ExistingCluster(), SETTINGS, 4, LATER) == workers(4)
    assert told == ["", "merge_bench: waiting up to 60 s for 4 workers; the cluster at s.json now has 2\n", ""]


def test_nothing_is_printed_where_all_workers_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert wait_for_workers(lambda: workers(3), ExistingCluster(), SETTINGS, 2, LATER) == workers(3)
    assert capsys.readouterr().err == ""


def test_the_end_of_the_wait_gives_both_numbers() -> None:
    with pytest.raises(UsageError, match="only 2 of 4 workers connected within 0 s"):
        wait_for_workers(lambda: workers(2), ExistingCluster(), replace(SETTINGS, start_timeout=0.0), 4, 0.0)


def test_workers_that_were_counted_and_left_are_not_waited_for() -> None:
    counts = iter([2])
    with pytest.raises(UsageError, match=r"s\.json has 2 workers, but had 3 when this run began"):
        wait_for_workers(lambda: workers(next(counts)), ExistingCluster(), replace(SETTINGS, counted=3), 3, LATER)


@pytest.mark.parametrize(("asked", "counted"), [({}, 3), ({"workers": 3}, None)])
def test_workers_are_counted_if_their_number_is_not_given(
    tmp_path: Path, asked: dict[str, int], counted: int | None
) -> None:
    file = tmp_path / "s.json"
    with LocalCluster(n_workers=3, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        file.write_text(json.dumps({"address": cluster.scheduler_address}))
        (prepared,) = plans.prepared(scheduler_file=str(file), chunk=1000, **asked)
    assert (prepared.plan.workers, prepared.settings.counted) == (3, counted)

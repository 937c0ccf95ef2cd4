"""The cluster for tests: a whole campaign in threads, with records that every reader takes for those of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

import merge_bench
from merge_bench.errors import RunFailed, UsageError
from merge_bench.testing import fake_cluster

SMALL = {"chunk": 1000, "workers": 3, "iterations": 2}


@pytest.mark.parametrize("engine", ["native", "pandas"])
def test_a_run_is_verified_and_has_all_that_a_cluster_measures(tmp_path: Path, engine: str) -> None:
    with fake_cluster():
        result = merge_bench.run(**SMALL, engine=engine, runtime_filter="on", verify="every", results=tmp_path)
    run = result.document
    assert run["verified"]
    assert result.status == 0
    assert run["bandwidth_bytes_per_second"]["harmonic_mean"] > 0
    assert run["link"]["limit_bytes_per_second"] > 0
    assert len(result.campaign.launches_not_replaced[0].timed_iterations[0].workers) == 3
    assert merge_bench.load(result.folder).document == run


@pytest.mark.slow
def test_several_configs_and_launches_are_one_campaign(tmp_path: Path) -> None:
    with fake_cluster():
        result = merge_bench.run(**SMALL, engine=["native", "polars"], launches=2, results=tmp_path)
    assert len(result.campaign.launches_not_replaced) == 4
    assert list(result.campaign.run_labels) == ["native", "polars"]


def test_a_step_that_fails_ends_the_launch(tmp_path: Path) -> None:
    with (
        fake_cluster({"run_merge_iterations": RunFailed("rank 0 lost its link")}),
        pytest.raises(RunFailed, match="lost its link"),
    ):
        merge_bench.run(**SMALL, results=tmp_path)


@pytest.mark.parametrize("option", [{"exchange": "dask"}, {"pipeline": "on"}])
def test_what_needs_a_real_cluster_is_refused(tmp_path: Path, option: dict[str, str]) -> None:
    with fake_cluster(), pytest.raises((RunFailed, UsageError), match="the cluster for tests has neither"):
        merge_bench.run(**SMALL, **option, results=tmp_path)

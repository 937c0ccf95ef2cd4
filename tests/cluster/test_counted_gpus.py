"""Hosts report their GPUs before a worker starts, so that no host of several GPUs gets one worker by mistake."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.host_check import check_gpu_counts
from merge_bench.cluster.hosts import HostSpec, place_workers
from merge_bench.cluster.start_on_hosts import RemoteLauncher
from merge_bench.config.option import COMMAND_LINE, DEFAULT
from merge_bench.errors import UsageError
from merge_bench.host.description import HostReport
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import SyntheticSpec
from tests.helpers.fake_agents import started
from tests.helpers.runs import ROOT

UNCOUNTED = (HostSpec("a"), HostSpec("b"))


def check(hosts: Sequence[HostSpec], workers: int, *gpus: int, per_gpu: int = 1, chosen: bool = False) -> None:
    found = dict(zip((host.name for host in hosts), gpus, strict=True))
    check_gpu_counts(place_workers(hosts, workers, per_gpu), found, per_gpu, worker_count_given=chosen)


def test_one_worker_on_a_host_of_several_gpus_is_refused_with_what_to_write() -> None:
    with pytest.raises(UsageError) as caught:
        check(UNCOUNTED, 2, 4, 1)
    assert "file: a gpus=4, b gpus=1" in str(caught.value)
    with pytest.raises(UsageError, match="file: a gpus=1, b gpus=1;"):
        check(UNCOUNTED, 2, 1, 1, per_gpu=2)


def test_a_number_of_gpus_taken_from_another_host_counts_as_not_given() -> None:
    hosts = (HostSpec("a", gpus=1), HostSpec("b", gpus=1, assumed=True))
    with pytest.raises(UsageError, match="file: b gpus=4;"):
        check(hosts, 2, 4, 4)
    check(hosts, 2, 4, 1)


@pytest.mark.parametrize(
    ("hosts", "workers", "gpus", "chosen"),
    [
        (UNCOUNTED, 2, (1, 1), False),
        (UNCOUNTED, 2, (4, 4), True),
        (UNCOUNTED, 6, (4, 4), True),
        ((HostSpec("a", slots=1), HostSpec("b", gpus=2)), 3, (4, 4), False),
    ],
)
def test_what_fits_or_was_asked_for_goes_on(
    hosts: Sequence[HostSpec], workers: int, gpus: tuple[int, ...], chosen: bool
) -> None:
    check(hosts, workers, *gpus, chosen=chosen)


def test_more_workers_than_gpus_are_refused_even_where_they_were_asked_for() -> None:
    with pytest.raises(UsageError, match="b has 1 GPU, but its 2 workers need 2;"):
        check(UNCOUNTED, 4, 2, 1, chosen=True)


def here(host: HostSpec, command: Sequence[str], settings: ClusterSettings) -> tuple[str, ...]:
    """Hosts that are this machine, made to believe that it has two GPUs."""
    return ("env", f"PYTHONPATH={ROOT / 'tests' / 'helpers' / 'fake_gpu_site'}{os.pathsep}{ROOT}", *command)


@pytest.fixture
def launcher() -> Iterator[RemoteLauncher]:
    made = RemoteLauncher("here", here)
    yield made
    made.stop_processes()


def plan() -> Plan:
    return Plan(
        SyntheticSpec(1000, 0.3, 0),
        2,
        iterations=1,
        warmup=0,
        launches=1,
        engine="cudf",
        exchange="ucx",
        protocol="tcp",
        verify="ends",
        timeout=15.0,
        seed=0,
    )


def settings(source: str) -> ClusterSettings:
    return ClusterSettings(
        {}, Path("results"), interface="lo", hosts=UNCOUNTED, start_timeout=120.0, sources={"workers": source}
    )


@pytest.mark.cluster
def test_hosts_report_their_gpus_before_a_worker_starts(launcher: RemoteLauncher, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="file: a gpus=2, b gpus=2;"):
        launcher.start_processes(plan(), settings(DEFAULT), tmp_path, "")


def test_a_number_of_workers_that_was_given_stands(tmp_path: Path) -> None:
    hosts = {name: HostReport(interface="lo", gpus=2, gpu_names=["0", "1"]) for name in "ab"}
    with started(hosts, plan(), settings(COMMAND_LINE), tmp_path) as launcher:
        assert launcher.hosts_by_process_role() == {"scheduler": "a", "worker-0": "a", "worker-1": "b"}
    with (
        pytest.raises(UsageError, match="file: a gpus=2, b gpus=2;"),
        started(hosts, plan(), settings(DEFAULT), tmp_path),
    ):
        pass

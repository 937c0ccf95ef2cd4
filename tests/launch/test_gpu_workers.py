"""Workers on GPUs: what `dask cuda worker` is told, and a whole run of it with the GPU's libraries played by others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from merge_bench import gpu, setup
from merge_bench.errors import UsageError
from merge_bench.launch import commands
from merge_bench.launch.base import ClusterSettings
from merge_bench.launch.commands import Place
from merge_bench.launch.local import LocalLauncher
from merge_bench.plan import Plan
from merge_bench.record.schema import LaunchLine
from merge_bench.workload.synthetic import SyntheticSpec
from tests.helpers.runs import ROOT, run

PLACE = Place("here", "/scratch", "lo", "127.0.0.1")
PRETENCE = os.pathsep.join([str(ROOT / "tests" / "fake_gpu_site"), str(ROOT)])
# dask-cuda's own switches for machines without a GPU: no CPU affinity and no memory limits asked of the driver.
WITHOUT_DRIVER = {
    "DASK_CUDA_TEST_DISABLE_DEVICE_SPECIFIC": "1", "DASK_CUDA_TEST_SINGLE_GPU": "1",
    "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False",
}  # fmt: skip


def plan(workers: int = 2, protocol: str = "tcp") -> Plan:
    return Plan(
        SyntheticSpec(1000, 0.3, 0), workers, iterations=1, warmup=0, launches=1, engine="cudf", exchange="ucx",
        protocol=protocol, verify="ends", timeout=15.0, seed=0,
    )  # fmt: skip


@pytest.mark.parametrize("protocol", ["tcp", "ucx"])
def test_dask_cuda_takes_the_command_line(protocol: str) -> None:
    worker = pytest.importorskip("dask_cuda.cli").worker
    settings = ClusterSettings({}, Path("results"), gpus=1)
    command = commands.worker(plan(protocol=protocol), settings, PLACE, 3, {}, "2")
    words = command.argv[command.argv.index("worker") + 1 :]
    found = worker.make_context("worker", list(words)).params
    assert found["scheduler"] is None
    assert found["preload_argv"] == ()  # what it does not know would end up here
    assert found["preload"] == (commands.PRELOAD,)
    assert (found["name"], found["protocol"], found["nthreads"]) == ("worker-3", protocol, 1)
    assert command.environment["CUDA_VISIBLE_DEVICES"] == "2"


def test_workers_share_the_gpus_that_this_process_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "visible_gpus", lambda: ("5", "GPU-7"))
    settings = ClusterSettings({}, Path("results"), gpus=2, workers_per_gpu=2)
    made = LocalLauncher().commands(plan(workers=4), settings)[1:]
    assert [command.environment["CUDA_VISIBLE_DEVICES"] for command in made] == ["5", "5", "GPU-7", "GPU-7"]


def test_more_workers_than_gpus_are_refused_with_what_would_help() -> None:
    with pytest.raises(UsageError, match="--workers 5 needs 5 GPUs at --workers-per-gpu 1, and 2 can be seen here;"
                                         " --workers-per-gpu 3 lets workers share"):  # fmt: skip
        setup._check_gpus(5, 2, 1)
    setup._check_gpus(4, 2, 2)
    setup._check_gpus(4, 0, 1)


@pytest.fixture
def pretended() -> dict[str, str]:
    pytest.importorskip("dask_cuda")
    return {"PYTHONPATH": PRETENCE, **WITHOUT_DRIVER}


@pytest.mark.cluster
def test_a_run_on_workers_that_share_a_gpu(tmp_path: Path, pretended: dict[str, str]) -> None:
    asked = ("--engine", "cudf", "--workers", "2", "--workers-per-gpu", "2", "--chunk", "3000", "--iterations", "2")
    finished = run(tmp_path, *asked, environ=pretended)
    assert finished.status == 0, finished.errors
    assert finished.document["verified"]
    assert finished.document["plan"]["engine"] == "cudf"
    (launch,) = finished.of(LaunchLine)
    assert {worker.environment["CUDA_VISIBLE_DEVICES"] for worker in launch.workers} == {"0"}
    assert [[each["name"] for each in worker.hardware["gpus"]] for worker in launch.workers] == [["GPU 0", "GPU 1"]] * 2


@pytest.mark.cluster
def test_a_pool_that_does_not_fit_ends_the_run_with_its_sentence(tmp_path: Path, pretended: dict[str, str]) -> None:
    asked = ("--engine", "cudf", "--workers", "2", "--chunk", "3000", "--iterations", "2", "--rmm-pool-size", "95GB")
    finished = run(tmp_path, *asked, environ=pretended)
    assert finished.status == 2
    assert "an RMM pool of " in finished.errors
    assert "does not fit" in finished.errors

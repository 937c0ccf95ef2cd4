"""Workers on GPUs: options of `dask cuda worker`, and whole runs of it with fakes of the GPU's libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from merge_bench.campaign.machine_checks import check_engine, check_gpu_count
from merge_bench.cluster import dask_commands
from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.dask_commands import ProcessLocation
from merge_bench.cluster.launchers.local import LocalLauncher
from merge_bench.errors import UsageError
from merge_bench.host import machine, pinning
from merge_bench.host.description import HostFacts
from merge_bench.host.pinning import WorkerPin
from merge_bench.merge.engines import describe_engine
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.records.schema import IterationLine, LaunchLine, PowerLine
from tests.helpers import leftovers
from tests.helpers.fake_nvml import WATTS, identity, library, not_supported
from tests.helpers.runs import LIMIT, ROOT, Finished, Running, environment, run, start

PLACE = ProcessLocation("here", "/scratch", "lo", "127.0.0.1")
PRETENCE = os.pathsep.join([str(ROOT / "tests" / "helpers" / "fake_gpu_site"), str(ROOT)])
# dask-cuda goes on where it finds no GPU to make a context on, and Dask does not watch GPUs.
WITHOUT_DRIVER = {"DASK_CUDA_TEST_SINGLE_GPU": "1", "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False"}


def plan(workers: int = 2, protocol: str = "tcp") -> Plan:
    return Plan(
        SyntheticSpec(1000, 0.3, 0),
        workers,
        iterations=1,
        warmup=0,
        launches=1,
        engine="cudf",
        exchange="ucx",
        protocol=protocol,
        verify="ends",
        timeout=15.0,
        seed=0,
    )


@pytest.mark.parametrize("protocol", ["tcp", "ucx"])
def test_dask_cuda_takes_the_command_line(protocol: str) -> None:
    worker = pytest.importorskip("dask_cuda.cli").worker
    settings = ClusterSettings({}, Path("results"), gpus=1)
    command = dask_commands.worker_command(plan(protocol=protocol), settings, PLACE, 3, {}, WorkerPin((), "2", ()))
    words = command.argv[command.argv.index("worker") + 1 :]
    found = worker.make_context("worker", list(words)).params
    assert found["scheduler"] is None
    assert found["preload_argv"] == ()  # what it does not know would end up here
    assert found["preload"] == (dask_commands.PRELOAD,)
    assert (found["name"], found["protocol"], found["nthreads"]) == ("worker-3", protocol, 1)
    assert command.environment["CUDA_VISIBLE_DEVICES"] == "2"
    assert command.environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize("own_memory", [True, False])
def test_dask_cuda_moves_no_data_to_the_host(monkeypatch: pytest.MonkeyPatch, own_memory: bool) -> None:
    worker = pytest.importorskip("dask_cuda.cli").worker
    from dask_cuda import utils
    from dask_cuda.worker_common import worker_data_function

    monkeypatch.setattr(utils, "pynvml", library() if own_memory else library(nvmlDeviceGetMemoryInfo=not_supported))
    command = dask_commands.worker_command(
        plan(), ClusterSettings({}, Path("results")), PLACE, 0, {}, WorkerPin((), "0", (), own_memory)
    )
    words = list(command.argv[command.argv.index("worker") + 1 :])
    limit = worker.make_context("worker", words).params["device_memory_limit"]
    # Of `--memory-limit 0` Dask makes None.
    data = worker_data_function(device_memory_limit=limit, memory_limit=None)(0)
    assert data[1]["device_memory_limit"] is None if own_memory else data == {}


def test_what_a_gpu_has_of_its_own_decides_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def memory(handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=80 << 30, free=70 << 30) if handle == 1 else not_supported()

    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlDeviceGetMemoryInfo=memory))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"1,{identity(0)}")
    limits = [command.argv[-1] for command in LocalLauncher().commands(plan(), ClusterSettings({}, Path(), gpus=2))[1:]]
    assert limits == ["0", "default"]
    host = HostFacts(cores=[0, 1], gpu_nodes=[None, None], gpu_names=["1", "GPU-7"], gpus_without_memory=["GPU-7"])
    assert [pin.own_memory for pin in pinning.pin_workers(host, 2, gpus=True)] == [True, False]


def test_another_order_of_gpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = describe_engine("cudf")
    for fine in ({}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}):
        check_engine(engine, fine, 2, workers_are_here=False)
    with pytest.raises(UsageError, match=r"CUDA_DEVICE_ORDER=FASTEST_FIRST, GPU numbers differ .*; unset it"):
        check_engine(engine, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, 2, workers_are_here=False)


def test_workers_share_the_gpus_that_this_process_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library(8))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-7")
    settings = ClusterSettings({}, Path("results"), gpus=2, workers_per_gpu=2)
    made = LocalLauncher().commands(plan(workers=4), settings)[1:]
    assert [command.environment["CUDA_VISIBLE_DEVICES"] for command in made] == ["5", "5", "GPU-7", "GPU-7"]


def test_more_workers_than_gpus_are_refused_with_what_would_help() -> None:
    with pytest.raises(
        UsageError,
        match="--workers 5 with --workers-per-gpu 1 needs 5 GPUs, but only 2 can be used;"
        " use --workers-per-gpu 3 to share GPUs",
    ):
        check_gpu_count(5, 2, 1)
    check_gpu_count(4, 2, 2)
    check_gpu_count(4, 0, 1)


def test_only_workers_on_this_machine_need_its_gpu() -> None:
    check_engine(describe_engine("cudf"), {}, 0, workers_are_here=False)
    with pytest.raises(UsageError, match="need an NVIDIA GPU, but none is visible on this host"):
        check_engine(describe_engine("cudf"), {}, 0, workers_are_here=True)


@pytest.fixture
def pretended() -> dict[str, str]:
    pytest.importorskip("dask_cuda")
    return {"PYTHONPATH": PRETENCE, **WITHOUT_DRIVER}


@pytest.mark.cluster
def test_a_run_on_workers_that_share_a_gpu_and_keep_to_their_cores(tmp_path: Path, pretended: dict[str, str]) -> None:
    before = os.sched_getaffinity(0)
    given = max(before)
    asked = ("--engine", "cudf", "--workers", "2", "--workers-per-gpu", "2", "--chunk", "3000", "--iterations", "2")
    os.sched_setaffinity(0, {given})  # dask-cuda's plugin takes all cores, which are all near to the GPU here
    try:
        finished = run(tmp_path, *asked, environ=pretended)
    finally:
        os.sched_setaffinity(0, before)
    finished.check_ended(0)  # no semaphore of a nanny is left either
    assert finished.document["verified"]
    assert finished.document["plan"]["engine"] == "cudf"
    (launch,) = finished.of(LaunchLine)
    assert [worker.hardware.affinity for worker in launch.workers] == [str(given)] * 2
    assert {worker.environment["CUDA_VISIBLE_DEVICES"] for worker in launch.workers} == {"0"}
    assert {worker.environment["CUDA_DEVICE_ORDER"] for worker in launch.workers} == {"PCI_BUS_ID"}
    assert [[each.name for each in worker.hardware.gpus or ()] for worker in launch.workers] == [["GPU 0", "GPU 1"]] * 2
    check_power_of_a_shared_gpu(finished)


def check_power_of_a_shared_gpu(finished: Finished) -> None:
    """One reading for the GPU that both workers use, as the fake library reports it; too short for a figure."""
    (line,) = finished.of(PowerLine)
    (used,) = line.gpus or ()
    assert (used.index, used.ranks) == (0, [0, 1])
    assert used.joules == pytest.approx(WATTS * used.seconds, rel=0.1)
    assert used.throttled_seconds["power cap"] == pytest.approx(used.seconds / 4, rel=0.01)
    assert used.seconds > sum(
        iteration.wall_seconds for iteration in finished.of(IterationLine) if not iteration.warmup
    )
    assert finished.document["energy"]["gpu_joules_per_merge"] is None
    (row,) = finished.document["energy"]["gpus"]
    assert row["throttled_share"]["power cap"] == pytest.approx(0.25, rel=0.01)
    assert "gpu-throttled" in [warning["code"] for warning in finished.document["warnings"]]


@pytest.mark.soak  # the run above records them the same way
@pytest.mark.cluster
def test_transports_are_asked_with_device_memory(tmp_path: Path, pretended: dict[str, str]) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "merge_bench",
            "transports",
            "--engine",
            "cudf",
            "--workers",
            "2",
            "--workers-per-gpu",
            "2",
            "--json",
        ],
        env=environment(tmp_path, pretended),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["pairs"]) == 2


ENDLESS = ("--engine", "cudf", "--workers", "1", "--chunk", "2000", "--iterations", "1_000_000", "--verify", "off")


@pytest.fixture
def endless(tmp_path: Path, pretended: dict[str, str]) -> Iterator[Running]:
    running = start(tmp_path, *ENDLESS, environ=pretended)
    yield running
    running.end()


def processes_of(running: Running) -> list[psutil.Process]:
    """All that it started, once there are three: on GPUs a worker is the child of a nanny."""
    found: list[psutil.Process] = []

    def all_there() -> bool:
        found[:] = psutil.Process(running.process.pid).children(recursive=True)
        return len(found) >= 3

    running.until(all_there, "a scheduler, a nanny and a worker")
    return found


@pytest.mark.cluster
def test_a_driver_that_is_killed_leaves_no_worker_and_no_nanny(endless: Running) -> None:
    processes_of(endless)
    endless.process.kill()
    endless.process.wait()
    deadline = time.monotonic() + 20
    while left := leftovers.processes(endless.temp):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.mark.cluster
def test_a_worker_that_dies_ends_the_run_though_its_nanny_lives(endless: Running) -> None:
    endless.until_merging(1)
    started = processes_of(endless)
    (launch,) = [line for line in endless.lines() if isinstance(line, LaunchLine)]
    psutil.Process(launch.workers[0].pid).kill()
    finished = endless.finish(60).check_ended(3)
    assert finished.failure.rank == 0
    assert psutil.wait_procs(started, timeout=20)[1] == []


@pytest.mark.parametrize(
    ("path", "origin"),
    [
        ("/venv/lib/python3.12/site-packages/libucx/lib/libucp.so.0", "wheel"),
        ("/elsewhere/packages/libucx_cu13.libs/libucp-1a2b3c4d.so.0", "wheel"),
        ("/usr/lib/x86_64-linux-gnu/libucp.so.0", "system"),
    ],
)
def test_the_origin_of_the_loaded_ucx_is_found_wherever_packages_lie(tmp_path: Path, path: str, origin: str) -> None:
    maps = tmp_path / "maps"
    loaded = ("/usr/bin/env", path)
    maps.write_text("".join(f"7f40c0a00000-7f40c0a02000 r-xp 00000000 fe:00 4711    {each}\n" for each in loaded))
    found = machine.describe_loaded_ucx(maps)
    assert (found.path, found.origin) == (path, origin)

"""Readings of workers become one entry for each GPU and one for each host."""

from __future__ import annotations

from pathlib import Path

import merge_bench
from merge_bench.campaign.recording import gpu_power_between_readings, host_power_between_readings
from merge_bench.cluster.worker_calls import LaunchedWorker
from merge_bench.host.description import GpuState
from merge_bench.host.gpu import GpuReading
from merge_bench.host.machine import PowerReading, ProcessorEnergyCounter
from merge_bench.records.reader import read_campaign
from merge_bench.testing import fake_cluster

HOSTS = ("a", "a", "b", "b")
MEMBERS = [LaunchedWorker(rank, f"tcp://{host}:{rank}", f"worker-{rank}", host, 1) for rank, host in enumerate(HOSTS)]


def reading(at: float, key: str | None, millijoules: int, microjoules: int = 0, celsius: int = 40) -> PowerReading:
    gpu = None
    if key is not None:
        state = GpuState(celsius=celsius)
        gpu = GpuReading(at, int(key[-1]), key, "H", millijoules, {"power cap": 0}, state, 700.0, 1980, 2619)
    return PowerReading(at, {"package-0": ProcessorEnergyCounter(microjoules, 10**12)}, gpu)


def test_workers_that_share_a_gpu_or_a_host_count_once() -> None:
    keys = ("GPU-0", "GPU-0", "GPU-0", "GPU-1")  # those of host b are others than that of host a
    before = [reading(10 + rank, key, 1000) for rank, key in enumerate(keys)]
    after = [reading(12 + rank, key, 3000, 5_000_000 + rank, celsius=50) for rank, key in enumerate(keys)]
    gpus = gpu_power_between_readings(MEMBERS, before, after)
    assert [(gpu.host, gpu.index, gpu.ranks, gpu.joules, gpu.seconds) for gpu in gpus] == [
        ("a", 0, [0, 1], 2.0, 2.0),
        ("b", 0, [2], 2.0, 2.0),
        ("b", 1, [3], 2.0, 2.0),
    ]
    assert (gpus[0].before.celsius, gpus[0].after.celsius, gpus[0].limit_watts) == (40, 50, 700.0)
    assert gpus[0].throttled_seconds == {"power cap": 0.0}
    hosts = host_power_between_readings(MEMBERS, before, after)
    assert [(host.host, host.joules, host.packages) for host in hosts] == [("a", 5.0, 1), ("b", 5.000002, 1)]


def test_a_gpu_that_could_not_be_read_both_times_is_left_out() -> None:
    before = [reading(10, key, 1000) for key in ("GPU-0", None, "GPU-0", "GPU-1")]
    after = [reading(12, key, 3000) for key in (None, "GPU-0", "GPU-1", "GPU-1")]
    assert [(gpu.host, gpu.index, gpu.ranks) for gpu in gpu_power_between_readings(MEMBERS, before, after)] == [
        ("b", 1, [3])
    ]


def test_every_launch_records_its_readings(tmp_path: Path) -> None:
    with fake_cluster():
        result = merge_bench.run(chunk=1000, iterations=2, workers=2, launches=2, results=tmp_path)
    for launch in read_campaign(result.folder).launches:
        assert launch.power is not None
        assert launch.power.gpus is None
        (host,) = launch.power.hosts
        assert host.seconds > sum(iteration.wall_seconds for iteration in launch.timed_iterations)
        assert (host.joules is None) == (host.unknown is not None)

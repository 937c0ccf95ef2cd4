"""What a dry run prints of hosts that nobody has asked: what the options say, and words for what the host knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from merge_bench.cluster.base import ClusterSettings, Command
from merge_bench.cluster.environment import THREAD_COUNTS
from merge_bench.cluster.hosts import HostSpec
from merge_bench.cluster.launchers.slurm import srun
from merge_bench.cluster.openssh import ssh
from merge_bench.cluster.remote_launcher import RemoteLauncher
from merge_bench.host.facts import Node
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload.synthetic import SyntheticSpec
from tests.helpers.runs import run

HOSTS = (HostSpec("a", slots=3), HostSpec("b", slots=1))


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in THREAD_COUNTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)


def plan(engine: str = "native") -> Plan:
    return Plan(
        SyntheticSpec(1000, 0.3, 0), 4, iterations=1, warmup=0, launches=1, engine=engine, exchange="ucx",
        protocol="tls", verify="ends", timeout=15.0, seed=0, threads=7,
    )  # fmt: skip


def started(launcher: RemoteLauncher, config: dict[str, str] | None = None, **plan_options: str) -> list[Command]:
    settings = ClusterSettings(config or {}, Path("results"), hosts=HOSTS, interface="ib0")
    return [each for each in launcher.commands(plan(**plan_options), settings) if each.role != "agent"]


def host(cores: int, rdma: list[str]) -> Node:
    return Node(
        scratch="/tmp/s", interface="ib0", address="10.0.0.1", rdma=rdma, cores=list(range(cores)),
        gpu_names=["6", "7", "GPU-8"],
    )  # fmt: skip


@pytest.mark.parametrize("reach", [ssh, srun])
def test_threads_of_hosts_that_were_not_asked_are_a_word(reach: Callable[..., tuple[str, ...]]) -> None:
    for command in started(RemoteLauncher("name", reach)):
        assert {command.environment[name] for name in THREAD_COUNTS} == {"THREADS"}, command.role


def test_threads_that_the_config_gives_are_printed() -> None:
    for command in started(RemoteLauncher("ssh", ssh), {"OMP_NUM_THREADS": "5"}):
        assert command.environment["OMP_NUM_THREADS"] == "5"
        assert command.environment["NUMBA_NUM_THREADS"] == "THREADS"


def test_devices_and_gpus_of_hosts_that_were_not_asked_are_words() -> None:
    scheduler, *workers = started(RemoteLauncher("ssh", ssh), engine="cudf")
    assert {each.environment["UCX_NET_DEVICES"] for each in (scheduler, *workers)} == {"RDMA-OF-ib0,ib0"}
    gpus = [each.environment["CUDA_VISIBLE_DEVICES"] for each in workers]
    assert gpus == ["VISIBLE-GPU-0", "VISIBLE-GPU-1", "VISIBLE-GPU-2", "VISIBLE-GPU-0"]


def test_hosts_that_were_asked_give_each_worker_what_they_have() -> None:
    launcher = RemoteLauncher("ssh", ssh)
    launcher._hosts = {"a": host(12, ["mlx5_0:1"]), "b": host(6, [])}
    scheduler, *workers = started(launcher, engine="cudf")
    assert [each.environment["OMP_NUM_THREADS"] for each in (scheduler, *workers)] == ["4", "4", "4", "4", "6"]
    assert [each.environment["UCX_NET_DEVICES"] for each in workers] == ["mlx5_0:1,ib0"] * 3 + ["ib0"]
    assert [each.environment["CUDA_VISIBLE_DEVICES"] for each in workers] == ["6", "7", "GPU-8", "6"]


def test_a_dry_run_over_hosts_prints_no_number_of_threads(tmp_path: Path) -> None:
    file = tmp_path / "hosts.txt"
    file.write_text("nowhere1 slots=2\nnowhere2\n")
    finished = run(tmp_path, "--hosts", file, "--chunk", "2e4", "--dry-run", json_output=False)
    assert finished.status == 0, finished.shown()
    commands = [line for line in finished.output.splitlines() if " dask " in line]
    assert len(commands) == 4
    for command in commands:
        words = dict(word.partition("=")[::2] for word in command.split())
        assert {words[name] for name in THREAD_COUNTS} == {"THREADS"}

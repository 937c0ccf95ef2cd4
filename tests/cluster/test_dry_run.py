"""What a dry run prints of hosts that were not reached: values of options, and words in capitals for the rest."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from merge_bench.cli import cli
from merge_bench.cluster.base import ClusterSettings, ProcessCommand
from merge_bench.cluster.dask_commands import THREAD_COUNTS
from merge_bench.cluster.hosts import HostSpec
from merge_bench.cluster.launchers.slurm import srun_command
from merge_bench.cluster.launchers.ssh import ssh_command
from merge_bench.cluster.start_on_hosts import RemoteLauncher
from merge_bench.host.description import HostReport
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import SyntheticSpec
from tests.helpers import fake_agents

HOSTS = (HostSpec("a", slots=3), HostSpec("b", slots=1))


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = [name for name in os.environ if name.startswith("UCX") or name in THREAD_COUNTS]
    for name in outside:  # UCXX sets variables when a test before this one imports it
        monkeypatch.delenv(name)


def plan(engine: str = "native") -> Plan:
    return Plan(
        SyntheticSpec(1000, 0.3, 0),
        4,
        iterations=1,
        warmup=0,
        launches=1,
        engine=engine,
        exchange="ucx",
        protocol="tls",
        verify="ends",
        timeout=15.0,
        seed=0,
        threads=7,
    )


def settings(config: dict[str, str] | None = None) -> ClusterSettings:
    return ClusterSettings(config or {}, Path("results"), hosts=HOSTS, interface="ib0")


def started(
    launcher: RemoteLauncher, config: dict[str, str] | None = None, **plan_options: str
) -> list[ProcessCommand]:
    return [each for each in launcher.process_commands(plan(**plan_options), settings(config)) if each.role != "agent"]


def host(cores: int, rdma: list[str]) -> HostReport:
    return HostReport(
        scratch="/tmp/s",
        interface="ib0",
        address="10.0.0.1",
        rdma=rdma,
        cores=list(range(cores)),
        gpus=3,
        gpu_names=["6", "7", "GPU-8"],
    )


@pytest.mark.parametrize("reach", [ssh_command, srun_command])
def test_threads_of_hosts_that_were_not_asked_are_a_word(reach: Callable[..., tuple[str, ...]]) -> None:
    for command in started(RemoteLauncher("name", reach)):
        assert {command.environment[name] for name in THREAD_COUNTS} == {"THREADS"}, command.role


def test_threads_that_the_config_gives_are_printed() -> None:
    for command in started(RemoteLauncher("ssh", ssh_command), {"OMP_NUM_THREADS": "5"}):
        assert command.environment["OMP_NUM_THREADS"] == "5"
        assert command.environment["NUMBA_NUM_THREADS"] == "THREADS"


def test_devices_and_gpus_of_hosts_that_were_not_asked_are_words() -> None:
    scheduler, *workers = started(RemoteLauncher("ssh", ssh_command), engine="cudf")
    assert {each.environment["UCX_NET_DEVICES"] for each in (scheduler, *workers)} == {"RDMA-OF-ib0,ib0"}
    gpus = [each.environment["CUDA_VISIBLE_DEVICES"] for each in workers]
    assert gpus == ["VISIBLE-GPU-0", "VISIBLE-GPU-1", "VISIBLE-GPU-2", "VISIBLE-GPU-0"]


def test_hosts_that_were_asked_give_each_worker_what_they_have(tmp_path: Path) -> None:
    hosts = {"a": host(12, ["mlx5_0:1"]), "b": host(6, [])}
    with fake_agents.started(hosts, plan("cudf"), settings(), tmp_path) as launcher:
        scheduler, *workers = started(launcher, engine="cudf")
    assert [each.environment["OMP_NUM_THREADS"] for each in (scheduler, *workers)] == ["4", "4", "4", "4", "6"]
    assert [each.environment["UCX_NET_DEVICES"] for each in workers] == ["mlx5_0:1,ib0"] * 3 + ["ib0"]
    assert [each.environment["CUDA_VISIBLE_DEVICES"] for each in workers] == ["6", "7", "GPU-8", "6"]


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """A dry run over hosts that do not exist; it fails if it starts anything."""
    file = tmp_path / "hosts.txt"
    file.write_text("nowhere1 slots=2\nnowhere2\n")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a dry run starts nothing"))

    def print_it(*options: str) -> Result:
        asked = ["run", "--dry-run", "--hosts", str(file), "--chunk", "2e4", *options]
        return CliRunner().invoke(cli, asked, standalone_mode=False)

    return print_it


def test_a_dry_run_names_every_host_and_prints_no_number_of_threads(printed: Callable[..., Result]) -> None:
    done = printed("--interface", "eth0")
    assert done.exit_code == 0, done.stderr
    lines = done.output.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# agent on nowhere1",
        "# scheduler on nowhere1",
        "# worker-0 on nowhere1, with the environment of scheduler on nowhere1",
        "# worker-1 on nowhere1, with the environment of scheduler on nowhere1",
        "# agent on nowhere2",
        "# worker-2 on nowhere2, with the environment of scheduler on nowhere1",
    ]
    assert "StrictHostKeyChecking=yes" in lines[1]
    commands = [line for line in lines if ".start_dask " in line]
    assert len(commands) == 4
    for command in commands:
        assert "--protocol tls" in command
        assert "--host ADDRESS-OF-eth0" in command
    words = dict(word.partition("=")[::2] for word in commands[0].split())  # the environment of all of them
    assert {words[name] for name in THREAD_COUNTS} == {"THREADS"}


def test_open_ports_across_hosts_have_to_be_asked_for(printed: Callable[..., Result]) -> None:
    for protocol in ("tcp", "ucx"):
        done = printed("--protocol", protocol)
        assert done.exit_code == 2
        assert "--insecure" in done.stderr
    assert "--protocol tcp" in printed("--insecure").output

"""`exec` of programs that are not ours, between two hosts: both sides get the settings, and nothing of them is left."""

from __future__ import annotations

import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from merge_bench.analysis.compare import compare_campaigns
from merge_bench.command.placeholders import STAY_HERE
from merge_bench.probe.ranks.mpirun import find_mpi
from tests.command.test_run_command import processes_with
from tests.helpers.mpiruns import OWN, SYSTEM
from tests.hosts.conftest import Outcome, Run
from tests.hosts.make_hosts import SUBNET, Hosts

NODES = ("node1", "node2")
PINGPONG = ["-m", "mpi4py.bench", "pingpong", "-m", "65536", "-n", "1048576", "-l", "100", "--loop-large", "20"]
TAG_BW = ["-t", "tag_bw", "-s", "65536", "-n", "500"]
PERFTEST = Path(__file__).with_name("perftest.sh")
SETTING = "UCX_TCP_TX_SEG_SIZE"
LIMIT = ("--timeout", "3m")
PROGRAMS = ("mpirun", "ucx_perftest")


@pytest.fixture(autouse=True)
def _programs() -> None:
    if SYSTEM is None or shutil.which("ucx_perftest") is None:
        pytest.skip("needs openmpi-bin and ucx_perftest")


@pytest.fixture
def configs(tmp_path: Path) -> str:
    """Two configs: the defaults, and TCP with segments of 64 KiB."""
    file = tmp_path / "segments.cfg"
    file.write_text(f"UCX_TLS=tcp,self\n{SETTING}=64k\n")
    return f"default.cfg,{file}"


@pytest.fixture
def rank(tmp_path: Path) -> str:
    """A program that prints rank, host and setting before it becomes the program in its arguments."""
    script = tmp_path / "rank.sh"
    script.write_text(f'#!/bin/sh\necho "rank $OMPI_COMM_WORLD_RANK on $(uname -n): ${{{SETTING}-unset}}"\nexec "$@"\n')
    script.chmod(0o755)
    return str(script)


def start(hosts: Hosts, results: Path, *words: str, mpirun: str = str(SYSTEM)) -> Run:
    environment = {"TMPDIR": str(results.parent), "MPI4PY_LIBMPI": str(find_mpi(mpirun).library)}
    return Run(hosts, results, *words, command=("exec",), environment=environment)


def mpirun_words(hosts: Hosts, mpirun: str = str(SYSTEM)) -> list[str]:
    """mpirun for a rank on each host, up to its placeholder."""
    new = mpirun == OWN  # Open MPI 5: its daemons have options of their own
    daemons = {
        "plm_ssh_agent" if new else "plm_rsh_agent": f"ssh -F {hosts.ssh_config}",
        "prte_if_include" if new else "oob_tcp_if_include": f"{SUBNET}.0/24",
    }
    ranks = {"pml": "ucx", "pml_ucx_tls": "any", "pml_ucx_devices": "any", "btl_tcp_if_include": f"{SUBNET}.0/24"}
    words = [mpirun, "--allow-run-as-root", "-n", "2", "--host", "node1:1,node2:1", "--bind-to", "none"]
    words += ["-x", "MPI4PY_LIBMPI"]  # mpi4py has to load the MPI that mpirun is of
    words += [word for each in daemons.items() for word in ("--prtemca" if new else "--mca", *each)]
    return words + [word for each in ranks.items() for word in ("--mca", *each)]


def perftest_words(hosts: Hosts, *options: str) -> list[str]:
    """ucx_perftest with its server on the second host and its client on the first."""
    return [str(PERFTEST), str(hosts.ssh_config), "node2", "node1", *options]


def printed_by_config(outcome: Outcome) -> dict[str, str]:
    """What the last launch under each config printed."""
    assert outcome.status == 0, outcome.errors
    return {
        launch.line.config: (outcome.folder / f"logs/launch-{launch.index:03d}-command.out").read_text()
        for launch in outcome.campaign.launches
    }


def settings_of_ranks(text: str) -> set[tuple[str, ...]]:
    """Rank, host and setting, as each rank printed them."""
    return set(re.findall(r"^rank (\d) on (\w+): (\w+)$", text, re.MULTILINE))


def settings_of_hosts(text: str) -> set[tuple[str, ...]]:
    """Host and setting, as each side of ucx_perftest printed them."""
    return set(re.findall(rf"^(\w+): {SETTING}=(\w+)\r?$", text, re.MULTILINE))


def warning_codes(outcome: Outcome) -> list[str]:
    return [warning.code for warning in outcome.campaign.warnings]


@pytest.mark.parametrize(
    "mpirun", [pytest.param(str(SYSTEM), id="system"), pytest.param(OWN, id="own", marks=pytest.mark.soak)]
)
def test_ranks_on_both_hosts_get_the_settings(
    hosts: Hosts, results: Path, configs: str, rank: str, mpirun: str
) -> None:
    options = ("--configs", configs, "--launches", "1", "--preset", "mpi4py.bench", *LIMIT)
    words = [*mpirun_words(hosts, mpirun), "{x}", rank, sys.executable, *PINGPONG]
    outcome = start(hosts, results, *options, "--", *words, mpirun=mpirun).finish()
    printed = printed_by_config(outcome)
    assert settings_of_ranks(printed["default"]) == {("0", "node1", "unset"), ("1", "node2", "unset")}
    assert settings_of_ranks(printed["segments"]) == {("0", "node1", "64k"), ("1", "node2", "64k")}
    assert STAY_HERE not in warning_codes(outcome)
    assert all(launch.iterations[0].values["bandwidth"] > 0.0 for launch in outcome.campaign.launches)


def test_without_the_placeholder_the_settings_stay_here_and_a_warning_says_so(
    hosts: Hosts, results: Path, configs: str, rank: str
) -> None:
    options = ("--config", configs.partition(",")[2], "--launches", "1", *LIMIT)
    outcome = start(hosts, results, *options, "--", *mpirun_words(hosts), rank, "true").finish()
    printed = printed_by_config(outcome)
    assert settings_of_ranks(printed["segments"]) == {("0", "node1", "unset"), ("1", "node2", "unset")}
    assert STAY_HERE in warning_codes(outcome)
    assert f"warning: {STAY_HERE}: " in outcome.errors


def test_a_script_gives_the_settings_to_a_server_on_another_host(hosts: Hosts, results: Path, configs: str) -> None:
    options = ("--configs", configs, "--launches", "1", "--preset", "ucx_perftest", *LIMIT)
    outcome = start(hosts, results, *options, "--", *perftest_words(hosts, *TAG_BW)).finish()
    printed = printed_by_config(outcome)
    assert settings_of_hosts(printed["default"]) == set()
    assert settings_of_hosts(printed["segments"]) == {(node, "64k") for node in NODES}
    assert STAY_HERE not in warning_codes(outcome)
    for launch in outcome.campaign.launches:
        assert set(launch.iterations[0].values) == {"bandwidth", "latency", "messages"}


@pytest.mark.soak
@pytest.mark.parametrize("program", PROGRAMS)
def test_lanes_of_processes_on_both_hosts_are_recorded(hosts: Hosts, results: Path, configs: str, program: str) -> None:
    words = perftest_words(hosts, *TAG_BW)
    if program == "mpirun":
        words = [*mpirun_words(hosts), "{x}", sys.executable, *PINGPONG]
    options = ("--configs", configs, "--launches", "2", "--require-transport", "tcp", *LIMIT)
    outcome = start(hosts, results, *options, "--", *words).finish()
    assert outcome.status == 0, outcome.errors
    for launch in outcome.campaign.launches:
        assert (launch.lanes is not None) == (launch.block == 0)
        if launch.lanes is not None:
            assert {lane for pair in launch.lanes.pairs for lane in pair.transports} == {"tcp/eth0"}
            logs = outcome.folder / f"logs/launch-{launch.index:03d}-ucx"
            assert {log.name.partition("-")[0] for log in logs.iterdir()} == set(NODES)


@pytest.mark.soak
@pytest.mark.parametrize("program", PROGRAMS)
def test_small_socket_buffers_are_found_to_be_slower(
    hosts: Hosts, results: Path, tmp_path: Path, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = perftest_words(hosts, *TAG_BW)
    if program == "mpirun":
        words = [*mpirun_words(hosts), "{x}", sys.executable, *PINGPONG]
    preset = "mpi4py.bench" if program == "mpirun" else program
    small = tmp_path / "small.cfg"
    small.write_text("UCX_TCP_SNDBUF=4k\nUCX_TCP_RCVBUF=4k\n")
    options = ("--configs", f"default.cfg,{small}", "--launches", "6", "--preset", preset, *LIMIT)
    outcome = start(hosts, results, *options, "--", *words).finish(600)
    assert outcome.status == 0, outcome.errors
    (bandwidth, *_) = compare_campaigns([outcome.campaign]).comparisons
    with capsys.disabled():
        print(f"\n{program}: {bandwidth.verdict}, {bandwidth.ratio:.3f} times as fast ({bandwidth.interval})")
    assert (bandwidth.metric, bandwidth.verdict) == ("bandwidth", "SLOWER")


@pytest.mark.parametrize(
    ("program", "ending"),
    [
        pytest.param(program, ending, marks=[] if (program, ending) == ("mpirun", None) else [pytest.mark.soak])
        for program in PROGRAMS
        for ending in (None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
    ],
)
def test_processes_on_other_hosts_end_with_the_launch(
    hosts: Hosts, results: Path, program: str, ending: signal.Signals | None
) -> None:
    words, running = perftest_words(hosts, "-t", "tag_lat", "-n", "1000000000"), "ucx_perftest -p"
    if program == "mpirun":
        running = "sleep 300"
        words = [*mpirun_words(hosts), "{x}", *running.split()]
    limit = "5m" if ending else "8s"
    run = start(hosts, results, "--config", "default.cfg", "--launches", "1", "--timeout", limit, "--", *words)
    deadline = time.monotonic() + 60.0
    while not all(any(running in shown for shown in host.processes().values()) for host in hosts.hosts[:2]):
        assert time.monotonic() < deadline
        assert run.process.poll() is None, run.finish().errors
        time.sleep(0.05)
    if ending is None:
        outcome = run.finish()
        (launch,) = outcome.campaign.launches
        assert [failure.code for failure in launch.failures] == ["command-timeout"]
    else:
        run.process.send_signal(ending)
        run.process.communicate(timeout=60.0)
        assert run.process.returncode == (-signal.SIGKILL if ending == signal.SIGKILL else 3)
    assert not hosts.left_over(patience=30.0)
    while left := processes_with(str(hosts.ssh_config)):
        assert time.monotonic() < deadline + 60.0, left
        time.sleep(0.05)

"""The local launcher with --interface: what binds where, what UCX is given, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from merge_bench.cli import cli
from merge_bench.cluster.base import ClusterSettings, ProcessCommand
from merge_bench.cluster.launchers.local import LocalLauncher
from merge_bench.errors import LaunchFailed, UsageError
from merge_bench.host import network
from merge_bench.merge.plan import Plan
from merge_bench.merge.workload import SyntheticSpec
from merge_bench.records.schema import LanesLine, LaunchLine
from tests.helpers.plans import plan_of, plan_of_two, prepared
from tests.helpers.runs import SMALL, run, start

ADDRESSES = {"lo": "127.0.0.1", "ib0": "10.0.0.7", "eth1": "fe80::1%eth1"}


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    monkeypatch.delenv("MERGE_BENCH_INTERFACE", raising=False)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with an InfiniBand adapter behind ib0."""
    monkeypatch.setattr(network, "addresses_by_interface", lambda: ADDRESSES)
    monkeypatch.setattr(network, "network_rdma_ports", lambda name, sys=None: ["mlx5_0:1"] if name == "ib0" else [])


def commands(
    interface: str | None, protocol: str = "tls", config: dict[str, str] | None = None
) -> list[ProcessCommand]:
    plan = Plan(
        SyntheticSpec(1000, 0.3, 0),
        2,
        iterations=1,
        warmup=0,
        launches=1,
        engine="native",
        exchange="ucx",
        protocol=protocol,
        verify="ends",
        timeout=15.0,
        seed=0,
    )
    return LocalLauncher().process_commands(plan, ClusterSettings(config or {}, Path("results"), interface=interface))


def after(command: ProcessCommand, option: str) -> str:
    return command.argv[command.argv.index(option) + 1]


@pytest.mark.usefixtures("machine")
def test_everything_binds_to_the_interface_and_ucx_gets_its_rdma_devices_too() -> None:
    for command in commands("ib0"):
        assert after(command, "--host") == "10.0.0.7"
        assert after(command, "--dashboard-address") == "10.0.0.7:0"
        assert command.environment["UCX_NET_DEVICES"] == "mlx5_0:1,ib0"
    for command in commands("ib0", protocol="ucx"):
        assert after(command, "--interface") == "ib0"
    for command in commands("ib0", config={"UCX_NET_DEVICES": "mlx5_1:1"}):
        assert command.environment["UCX_NET_DEVICES"] == "mlx5_1:1"


@pytest.mark.usefixtures("machine")
def test_without_an_interface_it_stays_loopback() -> None:
    for command in commands(None, protocol="tcp"):
        assert after(command, "--host") == "127.0.0.1"
        assert command.environment["UCX_NET_DEVICES"] == "lo"


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ({}, "tls"),
        ({"interface": "lo"}, "tls"),
        ({"interface": "ib0"}, "tls"),
        ({"interface": "ib0", "insecure": True}, "tcp"),
        ({"interface": "ib0", "insecure": True, "protocol": "ucx"}, "ucx"),
    ],
)
def test_dask_s_messages_are_encrypted_unless_something_else_is_asked_for(
    options: dict[str, object], protocol: str
) -> None:
    assert plan_of(workers=2, **options).protocol == protocol


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"interface": "ib7"}, "has no interface ib7 with an IPv4 address; interfaces that have one: ib0, lo"),
        ({"interface": "eth1"}, "has no interface eth1 with an IPv4 address; interfaces that have one: ib0, lo"),
        ({"interface": "ib0", "protocol": "tcp"}, "--protocol tcp is not encrypted.*--insecure"),
    ],
)
def test_what_cannot_be_is_refused_before_the_start(options: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        prepared(workers=2, **options)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(("text", "devices"), [("", "lo"), ("MERGE_BENCH_INTERFACE=ib0\n", "mlx5_0:1,ib0")])
def test_check_shows_what_the_launcher_will_give_ucx(tmp_path: Path, text: str, devices: str) -> None:
    (tmp_path / "ib.cfg").write_text(text)
    done = CliRunner().invoke(cli, ["check", str(tmp_path / "ib.cfg"), "--json"])
    shown = {each["name"]: each["value"] for each in json.loads(done.stdout)["variables"]}
    assert (shown["UCX_NET_DEVICES"], shown["UCX_TLS"]) == (devices, "^tcp")


@pytest.mark.parametrize(
    ("interface", "config", "warned"),
    [
        (None, {}, False),
        ("lo", {}, False),
        ("ib0", {}, True),
        ("ib0", {"UCX_TLS": "cma,tcp"}, True),
        ("ib0", {"UCX_TLS": "rc,self"}, False),
    ],
)
def test_shared_memory_that_ucx_prefers_to_the_interface_gives_a_warning(
    interface: str | None, config: dict[str, str], warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UCX_TLS", raising=False)
    found = LocalLauncher().host_warnings(ClusterSettings(config, Path("results"), interface=interface))
    assert [each.code for each in found] == ["shared-memory-first"] * warned


def test_a_running_cluster_takes_no_interface() -> None:
    asked: dict[str, Any] = {"scheduler_address": "tcp://127.0.0.1:1", "workers": 2}
    with pytest.raises(UsageError, match="cannot be used with a running cluster"):
        prepared(interface="lo", **asked)
    (found,) = prepared({"MERGE_BENCH_INTERFACE": "lo"}, **asked)
    assert found.settings.interface is None


@pytest.mark.usefixtures("machine")
def test_an_interface_that_went_away_is_a_launch_that_failed(tmp_path: Path) -> None:
    made = LocalLauncher()
    plan = plan_of_two()
    try:
        with pytest.raises(LaunchFailed, match="has no interface ib7"):
            made.start_processes(plan, ClusterSettings({}, Path("results"), interface="ib7"), tmp_path, "")
    finally:
        made.stop_processes()


@pytest.mark.cluster
def test_a_missing_interface_is_refused_in_one_sentence_that_names_those_there_are(tmp_path: Path) -> None:
    run(tmp_path, *SMALL, "--interface", "nosuch0").check_refused(
        "no interface nosuch0", *network.addresses_by_interface()
    )


@pytest.mark.cluster
def test_a_run_over_an_interface_of_this_machine(tmp_path: Path) -> None:
    """Every socket is at its address, and with shared memory left out the ranks connect over it."""
    outward = [
        (name, there)
        for name, there in network.addresses_by_interface().items()
        if not network.is_loopback_address(there)
    ]
    if not outward:
        pytest.skip("no interface here but loopback has an address")
    name, address = outward[0]
    config = tmp_path / "tcp.cfg"
    config.write_text("UCX_TLS=tcp,self\n")
    endless = ("--chunk", "2e4", "--iterations", "1_000_000", "--verify", "off")
    under_way = start(tmp_path, *endless, "--workers", "2", "--interface", name, "--config", config)
    try:
        pids = under_way.until_merging(1)
        assert set(pids) == {"scheduler", "worker-0", "worker-1"}
        for pid in pids.values():
            sockets = psutil.Process(pid).net_connections("inet")
            listening = [entry.laddr.ip for entry in sockets if entry.status == psutil.CONN_LISTEN]
            assert len(listening) >= 2  # Dask's own, and its HTTP server
            assert set(listening) == {address}
        (launch,) = [line for line in under_way.lines() if isinstance(line, LaunchLine)]
        assert str(launch.cluster.scheduler).startswith("tls://")
        assert {worker.environment["UCX_NET_DEVICES"].rpartition(",")[2] for worker in launch.workers} == {name}
        lanes = next(line for line in under_way.lines() if isinstance(line, LanesLine))
        assert {lane for pair in lanes.pairs for lane in pair.transports} == {f"tcp/{name}"}
    finally:
        under_way.end()

"""What a rank sets for itself before any library loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from merge_bench.probe.ranks.launch import rank_ucx_settings
from merge_bench.probe.ranks.rank import ucx_net_devices_variable
from tests.helpers.runs import ROOT
from tests.probe.host_networks import DescribedNetwork
from tests.probe.test_ucc import executable

NEAR = DescribedNetwork(
    addresses={"lo": "127.0.0.1/8", "eth0": "10.0.0.1/24", "ib0": "10.1.0.1/24"},
    routes={"near": "lo", "far": "ib0"},
    ports={"ib0": ["mlx5_0:1"]},
)
"""lo, eth0 and ib0 with an RDMA device; `near` is this host, `far` is reached over ib0."""


def devices(interface: str | None, peers: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """What UCX gets there; None: what the environment has."""
    return ucx_net_devices_variable(interface, peers, environ, NEAR).get("UCX_NET_DEVICES")


def test_one_host_stays_on_loopback() -> None:
    assert devices(None, [], {}) == "lo"
    assert devices(None, [], {"UCX_TLS": "sm,tcp"}) == "lo"


@pytest.mark.parametrize("tls", ["tcp", "^sm", "rc,self"])
def test_without_shared_memory_the_host_s_own_interfaces_join(tls: str) -> None:
    assert devices(None, [], {"UCX_TLS": tls}) == "mlx5_0:1,lo,eth0,ib0"


def test_across_hosts_it_is_the_interface_that_leads_to_the_others() -> None:
    assert devices(None, ["near", "far"], {}) == "mlx5_0:1,ib0"
    assert devices("eth0", ["near", "far"], {}) == "eth0"
    with pytest.raises(LookupError, match="this host has no route to near or lost"):
        devices(None, ["near", "lost"], {})


def test_what_the_environment_says_holds() -> None:
    assert devices(None, [], {"UCX_NET_DEVICES": "eth1"}) is None


@pytest.mark.parametrize(
    ("transports", "hosts", "settings"),
    [
        ("self tcp posix cma", 1, {"UCX_TLS": "^tcp", "UCX_MEM_EVENTS": "n"}),
        ("self tcp posix rc_mlx5", 1, {"UCX_TLS": "^tcp"}),
        ("", 1, {"UCX_TLS": "^tcp"}),  # there is no ucx_info
        ("self tcp posix cma", 2, {"UCX_TCP_PORT_RANGE": "27000-27999"}),
    ],
)
def test_on_one_host_ucx_opens_no_port_and_watches_no_memory_that_is_not_registered(
    transports: str, hosts: int, settings: dict[str, str], tmp_path: Path
) -> None:
    if transports:
        listed = "".join(f"# Transport: {name}\n# Device: d\n" for name in transports.split())
        printed = f"# Library version: 1.21.0\n{listed}UCX_TLS=all\n"
        executable(tmp_path / "ucx_info", f"#!/bin/sh\ncat <<'END'\n{printed}END\n")
    assert rank_ucx_settings({"MERGE_BENCH_UCX": "system", "PATH": str(tmp_path)}, host_count=hosts) == settings


SHOW = """
import json, os
from merge_bench.probe.ranks import rank
rank.prepare_rank_environment({"limit": 60, "peers": [], "ucx": {"UCX_TLS": "^tcp", "UCX_MEM_EVENTS": "n"}})
print(json.dumps({name: value for name, value in os.environ.items() if name.startswith("UCX_")}))
"""


def test_the_environment_of_a_rank_precedes_the_driver_s_settings() -> None:
    environment = {**os.environ, "UCX_MEM_EVENTS": "y", "UCX_NET_DEVICES": "eth7", "UCX_LOG_LEVEL": "debug"}
    environment.pop("UCX_TLS", None)
    words = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); exec(sys.argv[1])", SHOW]
    found = json.loads(subprocess.run(words, env=environment, capture_output=True, check=True, timeout=60).stdout)
    assert (found["UCX_TLS"], found["UCX_MEM_EVENTS"], found["UCX_NET_DEVICES"]) == ("^tcp", "y", "eth7")

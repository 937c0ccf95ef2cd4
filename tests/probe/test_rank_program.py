"""What a rank sets for itself before any library loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from merge_bench.cluster import dask_commands
from merge_bench.host import network
from merge_bench.probe.ranks.launch import ucx_settings_of_ranks
from merge_bench.probe.ranks.rank import net_devices
from tests.helpers.runs import ROOT


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """lo, eth0 and ib0 with an RDMA device; `near` is this host, `far` is reached over ib0."""
    monkeypatch.setattr(network, "ip_addresses", lambda: {"lo": "127.0.0.1", "eth0": "10.0.0.1", "ib0": "10.1.0.1"})
    monkeypatch.setattr(network, "interface_towards", lambda peer: {"near": "lo", "far": "ib0"}.get(peer))
    monkeypatch.setattr(network, "rdma_ports", lambda name: ["mlx5_0:1"] if name == "ib0" else [])


def test_one_host_stays_on_loopback() -> None:
    assert net_devices(None, [], {}) == {"UCX_NET_DEVICES": "lo"}
    assert net_devices(None, [], {"UCX_TLS": "sm,tcp"}) == {"UCX_NET_DEVICES": "lo"}


@pytest.mark.parametrize("tls", ["tcp", "^sm", "rc,self"])
def test_without_shared_memory_the_host_s_own_interfaces_join(tls: str) -> None:
    assert net_devices(None, [], {"UCX_TLS": tls}) == {"UCX_NET_DEVICES": "mlx5_0:1,lo,eth0,ib0"}


def test_across_hosts_it_is_the_interface_that_leads_to_the_others() -> None:
    assert net_devices(None, ["near", "far"], {}) == {"UCX_NET_DEVICES": "mlx5_0:1,ib0"}
    assert net_devices("eth0", ["near", "far"], {}) == {"UCX_NET_DEVICES": "eth0"}
    with pytest.raises(LookupError, match="this host has no route to near or lost"):
        net_devices(None, ["near", "lost"], {})


def test_what_the_environment_says_holds() -> None:
    assert net_devices(None, [], {"UCX_NET_DEVICES": "eth1"}) == {}


@pytest.mark.parametrize(
    ("transports", "hosts", "settings"),
    [
        ({"self", "tcp", "posix", "cma"}, 1, {"UCX_TLS": "^tcp", "UCX_MEM_EVENTS": "n"}),
        ({"self", "tcp", "posix", "rc_mlx5"}, 1, {"UCX_TLS": "^tcp"}),
        (None, 1, {"UCX_TLS": "^tcp"}),
        ({"self", "tcp", "posix", "cma"}, 2, {"UCX_TCP_PORT_RANGE": "27000-27999"}),
    ],
)
def test_on_one_host_ucx_opens_no_port_and_watches_no_memory_that_is_not_registered(
    transports: set[str] | None, hosts: int, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = transports and SimpleNamespace(transports=transports)
    monkeypatch.setattr(dask_commands, "find_installed", lambda *_: installed)
    assert ucx_settings_of_ranks({}, hosts=hosts) == settings


SHOW = """
import json, os
from merge_bench.probe.ranks import rank
rank.prepare_environment({"limit": 60, "peers": [], "ucx": {"UCX_TLS": "^tcp", "UCX_MEM_EVENTS": "n"}})
print(json.dumps({name: value for name, value in os.environ.items() if name.startswith("UCX_")}))
"""


def test_the_environment_of_a_rank_precedes_the_driver_s_settings() -> None:
    environment = {**os.environ, "UCX_MEM_EVENTS": "y", "UCX_NET_DEVICES": "eth7", "UCX_LOG_LEVEL": "debug"}
    environment.pop("UCX_TLS", None)
    words = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); exec(sys.argv[1])", SHOW]
    found = json.loads(subprocess.run(words, env=environment, capture_output=True, check=True, timeout=60).stdout)
    assert (found["UCX_TLS"], found["UCX_MEM_EVENTS"], found["UCX_NET_DEVICES"]) == ("^tcp", "y", "eth7")

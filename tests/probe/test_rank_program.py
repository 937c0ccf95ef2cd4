"""What a rank sets for itself before any library loads."""

from __future__ import annotations

import pytest

from merge_bench.host import network
from merge_bench.probe.ranks.rank import connection_settings, net_devices


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


def test_on_one_host_ucx_opens_no_port_unless_the_environment_names_tcp() -> None:
    assert connection_settings([], {}) == {"UCX_TLS": "^tcp"}
    assert connection_settings([], {"UCX_TLS": "tcp,self"}) == {}
    assert connection_settings(["near", "far"], {"UCX_TLS": "tcp"}) == {"UCX_TCP_PORT_RANGE": "27000-27999"}

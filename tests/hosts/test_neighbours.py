"""Hosts are given each other's link addresses: those that they would ask for go to one small table of the kernel."""

from __future__ import annotations

import pytest

from tests.hosts.make_hosts import Hosts


@pytest.mark.cluster
def test_a_host_has_permanent_addresses_of_all_others_and_the_switch(hosts: Hosts) -> None:
    lines = [line.split() for line in hosts.hosts[0].inside("ip", "-4", "neigh").splitlines()]
    assert {line[0] for line in lines} == {"10.213.0.2", "10.213.0.3", "10.213.0.254"}
    assert {line[-1] for line in lines} == {"PERMANENT"}

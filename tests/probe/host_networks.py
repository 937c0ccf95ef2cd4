"""The network of a host as a test describes it."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DescribedNetwork:
    """A `HostNetwork` of literals.

    `addresses`: by interface, each with the length of its network's prefix. `routes`: the interface towards each peer;
    `peers`: addresses of peers; `ports`: RDMA ports by interface.
    """

    addresses: Mapping[str, str]
    routes: Mapping[str, str]
    peers: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def addresses_by_interface(self) -> dict[str, str]:
        return {name: address.partition("/")[0] for name, address in self.addresses.items()}

    def ipv4_networks_by_interface(self) -> dict[str, list[ipaddress.IPv4Network]]:
        return {name: [ipaddress.IPv4Interface(address).network] for name, address in self.addresses.items()}

    def interface_towards(self, peer: str) -> str | None:
        return self.routes.get(peer)

    def resolve_address(self, peer: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        return ipaddress.ip_address(self.peers[peer])

    def network_rdma_ports(self, interface: str) -> list[str]:
        return list(self.ports.get(interface, ()))

"""RDMA devices that a run between hosts leaves out, as they do not belong to the interface that it was given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from merge_bench.cluster.base import Caution
from merge_bench.config import tls

CODE = "rdma-unused"


def unused_rdma(hosts: Mapping[str, Mapping[str, Any]], config: Mapping[str, str]) -> list[Caution]:
    """One caution for all hosts alike whose interface has no RDMA device though the host has some that are up.

    `hosts`: what each tells of itself (`node.Guard.describe`). `config`: the variables that workers get. There is
    nothing to say where these name the devices, or allow no RDMA, or where nothing goes from host to host.
    """
    if len(hosts) < 2 or "UCX_NET_DEVICES" in config or not tls.RDMA & tls.selected(config.get("UCX_TLS", "all")):
        return []
    alike: dict[tuple[str, str], list[str]] = {}
    for name, host in hosts.items():
        if host["rdma_ports"] and not host["rdma"]:
            devices = [f"{port} ({', '.join(owners) or 'no interface'})" for port, owners in host["rdma_ports"].items()]
            alike.setdefault((_left_out(host["interface"], devices), _remedy(host)), []).append(name)
    return [Caution(CODE, f"on {', '.join(names)} {what}", remedy) for (what, remedy), names in alike.items()]


def _left_out(interface: str, devices: list[str]) -> str:
    return f"UCX is given interface {interface}, which has no RDMA device, so that {', '.join(devices)} cannot be used"


def _remedy(host: Mapping[str, Any]) -> str:
    """An interface of these devices can be named where it has an address; else the devices themselves."""
    owners = [owner for names in host["rdma_ports"].values() for owner in names]
    usable = [owner for owner in owners if owner in host["addressed"]]
    if usable:
        return f"--interface {' or '.join(dict.fromkeys(usable))}"
    devices = ",".join([*host["rdma_ports"], host["interface"]])
    unnamed = f"give {' or '.join(dict.fromkeys(owners))} an address for --interface, or " if owners else ""
    return f"{unnamed}set UCX_NET_DEVICES={devices} in the config"

"""Checks that the hosts of a cluster, and its workers, are what a run needs: alike, reachable, with enough GPUs.

Each `check…` raises UsageError, which names hosts or ranks and what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from merge_bench.cluster import host_agent
from merge_bench.cluster.hosts import Placement
from merge_bench.config import allowed_transports
from merge_bench.config.installation import __version__, how_to_set_up
from merge_bench.errors import Caution, UsageError
from merge_bench.host import machine, network
from merge_bench.host.description import Network, Node, Project
from merge_bench.records.schema import Worker
from merge_bench.units import plural

CODE = "rdma-unused"


def parse_node(name: str, answer: Mapping[str, Any]) -> Node:
    """The description of a host from its agent's answer.

    Raises UsageError if another release of merge_bench wrote the answer.
    """
    try:
        return msgspec.convert(answer, Node)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{name} and this host have different releases of merge_bench ({error}); install the same packages on"
            f" every host: {how_to_set_up()}"
        ) from error


def check_alike(hosts: Mapping[str, Node]) -> None:
    """Refuse hosts whose Python, packages or sources differ from the driver's."""
    ours = machine.versions()
    project = Project(version=__version__, sources=host_agent.fingerprint(host_agent.ROOT / "merge_bench"))
    for name, host in hosts.items():
        theirs = host.versions
        differences = [
            f"{package} {theirs.get(package) or 'missing'} instead of {ours.get(package) or 'none'}"
            for package in sorted({*ours, *theirs})
            if ours.get(package) != theirs.get(package)
        ]
        if host.project != project:
            theirs_named, wanted = (f"{each.version} with sources {each.sources}" for each in (host.project, project))
            differences.append(f"merge_bench {theirs_named} instead of {wanted}")
        if differences:
            raise UsageError(
                f"{name} and this host have different software: {'; '.join(differences)}. Install the same packages"
                f" on every host: {how_to_set_up()}"
            )


def check_reachable(hosts: Mapping[str, Node], driver: str | None) -> None:
    """Refuse hosts other than the driver's that would listen on loopback; `driver`: its `network.network_stack`."""
    for name, host in hosts.items():
        own = driver is None or host.stack is None or host.stack == driver
        if not own and network.is_loopback(host.address):
            raise UsageError(
                f"{name} would listen only on {host.interface} ({host.address}), which other hosts cannot reach; set"
                " --interface to one that they can reach"
            )


def check_distinct(hosts: Mapping[str, Node]) -> None:
    """Refuse two names of a hosts file that lead to one host, as aliases of ssh and of name servers can."""
    names: dict[str, str] = {}
    for name, host in hosts.items():
        other = names.setdefault(host.stack or name, name)
        if other != name:
            raise UsageError(f"--hosts: {other} and {name} are names of one host; list it once, with slots=N")


def check_ucx(workers: Sequence[Worker]) -> None:
    """Refuse ranks that loaded different releases of UCX.

    `check_alike` compares packages only, and a system's UCX is not a package. Ranks that loaded no UCX do not count.
    """
    loaded: dict[str, list[str]] = {}
    for worker in workers:
        if worker.ucx.version is not None:
            loaded.setdefault(worker.ucx.version, []).append(f"rank {worker.rank} on {worker.host}")
    if len(loaded) > 1:
        releases = "; ".join(f"{version} by {', '.join(ranks)}" for version, ranks in sorted(loaded.items()))
        raise UsageError(
            f"the ranks loaded different releases of UCX: {releases}. Install the same release on every host, or use"
            " --ucx wheel"
        )


def check_environment(workers: Sequence[Worker], environment: Mapping[str, str]) -> None:
    """Refuse a running cluster whose workers do not have the config's variables of UCX and RAPIDS."""
    expected = {name: value for name, value in environment.items() if name.startswith(("UCX", "RAPIDS"))}
    for worker in workers:
        for name, value in expected.items():
            actual = worker.environment.get(name)
            if actual != value:
                has = f"has {name}={actual}" if actual is not None else f"has no {name}"
                raise UsageError(
                    f"the config sets {name}={value}, but rank {worker.rank} on {worker.host} {has}; restart the"
                    " running cluster with this config"
                )


def check_gpus(placements: Sequence[Placement], gpus: Mapping[str, int], workers_per_gpu: int, *, chosen: bool) -> None:
    """Refuse workers that do not fit the hosts' GPUs; `gpus`: how many each host has.

    `chosen`: whether the user gave the number of workers. Otherwise a host whose number of GPUs was not given got one
    worker, or as many as another host. That is refused if it has room for more.
    """
    for placement in placements:
        needed = -(-len(placement.workers) // workers_per_gpu)
        present = gpus[placement.host.name]
        if present < needed:
            raise UsageError(
                f"{placement.host.name} has {plural(present, 'GPU')}, but its {len(placement.workers)} workers"
                f" need {needed}; change --workers, --workers-per-gpu or the slots of this host"
            )
    unknown = [p for p in placements if p.host.slots is None and (p.host.gpus is None or p.host.assumed)]
    if not chosen and any(gpus[p.host.name] * workers_per_gpu > len(p.workers) for p in unknown):
        lines = ", ".join(f"{p.host.name} gpus={gpus[p.host.name]}" for p in unknown)
        raise UsageError(
            f"this run would leave GPUs unused; to use them, put these GPU counts into the --hosts file: {lines}; to"
            " leave them unused, set --workers"
        )


def rdma_warnings(hosts: Mapping[str, Network], config: Mapping[str, str]) -> list[Caution]:
    """Warnings about hosts that have RDMA devices, but none that belongs to the interface that UCX gets.

    `config`: the variables that workers get. There is no warning if these name devices or exclude RDMA, or if there is
    only one host. Hosts with the same devices share a warning.
    """
    if (
        len(hosts) < 2
        or "UCX_NET_DEVICES" in config
        or not allowed_transports.RDMA & allowed_transports.allowed(config.get("UCX_TLS", "all"))
    ):
        return []
    alike: dict[tuple[str, str], list[str]] = {}
    for name, host in hosts.items():
        if host.rdma_ports and not host.rdma:
            ports = (f"{port} ({', '.join(owners) or 'no interface'})" for port, owners in host.rdma_ports.items())
            what = f"{', '.join(ports)}, because it is limited to interface {host.interface}"
            alike.setdefault((f"{what}, which has no RDMA device", _rdma_remedy(host)), []).append(name)
    return [
        Caution(CODE, f"UCX on {', '.join(names)} cannot use {what}", remedy) for (what, remedy), names in alike.items()
    ]


def _rdma_remedy(host: Network) -> str:
    """How UCX can use these devices: by an interface of theirs that has an address, or else by their own names."""
    owners = dict.fromkeys(owner for names in host.rdma_ports.values() for owner in names)
    usable = [owner for owner in owners if owner in host.addressed]
    if usable:
        return f"use --interface {' or '.join(usable)}"
    devices = ",".join([*host.rdma_ports, host.interface])
    unnamed = f"assign an IP address to {' or '.join(owners)} and use it with --interface, or " if owners else ""
    return f"{unnamed}set UCX_NET_DEVICES={devices} in the config"

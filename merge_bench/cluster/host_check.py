"""Checks that the hosts of a cluster, and its workers, are what a run needs: alike, reachable, with enough GPUs.

Each `check…` raises UsageError, which names hosts or ranks and what is wrong with them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from merge_bench.cluster import host_agent
from merge_bench.cluster.hosts import HostPlacement
from merge_bench.config import allowed_transports
from merge_bench.config.installation import __version__, setup_command
from merge_bench.config.ucx_releases import is_ucx_folder
from merge_bench.config.variables import UCXX_OVERRIDES
from merge_bench.errors import UsageError, WarningMessage
from merge_bench.host import machine, network, pinning
from merge_bench.host.description import HostFacts, HostReport, InstalledMergeBench, NetworkFacts, RdmaPort
from merge_bench.host.pinning import WorkerPin
from merge_bench.records.schema import Worker
from merge_bench.units import count_with_noun

CODE, IDLE = "rdma-unused", "ports-idle"
RAILS = "UCX_MAX_RNDV_RAILS"
_TO_STORAGE = "if they lead to the other hosts, and not to storage, set UCX_NET_DEVICES in the config to use them"


def parse_host_description(name: str, answer: Mapping[str, Any]) -> HostReport:
    """Return the description of the host `name` from its agent's answer; raises UsageError if the releases differ."""
    try:
        return msgspec.convert(answer, HostReport)
    except msgspec.ValidationError as error:
        differing = f"{name} and this host have different releases of merge_bench ({error})"
        raise UsageError(f"{differing}; install the same packages on every host: {setup_command()}") from error


def check_same_software(hosts: Mapping[str, HostReport]) -> None:
    """Raise UsageError if a host's Python, packages or sources differ from the driver's."""
    ours = machine.installed_package_versions()
    project = InstalledMergeBench(
        version=__version__, sources=host_agent.source_checksum(host_agent.ROOT / "merge_bench")
    )
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
            differing = f"{name} and this host have different software: {'; '.join(differences)}"
            raise UsageError(f"{differing}. Install the same packages on every host: {setup_command()}")


def check_no_remote_loopback(hosts: Mapping[str, HostReport], driver_network_stack: str | None) -> None:
    """Raise UsageError if a host other than the driver's would listen on loopback only.

    `driver_network_stack`: the driver's `network.network_stack_id`.
    """
    for name, host in hosts.items():
        own = driver_network_stack is None or host.stack is None or host.stack == driver_network_stack
        if not own and network.is_loopback_address(host.address):
            only = f"{name} would listen only on {host.interface} ({host.address}), which other hosts cannot reach"
            raise UsageError(f"{only}; set --interface to one that they can reach")


def check_distinct_hosts(hosts: Mapping[str, HostReport]) -> None:
    """Raise UsageError if two names of the hosts file lead to the same host."""
    names: dict[str, str] = {}
    for name, host in hosts.items():
        other = names.setdefault(host.stack or name, name)
        if other != name:
            raise UsageError(f"--hosts: {other} and {name} are names of one host; list it once, with slots=N")


def check_same_ucx_release(workers: Sequence[Worker]) -> None:
    """Raise UsageError if workers loaded different releases of UCX, for example those of their systems."""
    loaded: dict[str, list[str]] = {}
    for worker in workers:
        if worker.ucx.version is not None:
            loaded.setdefault(worker.ucx.version, []).append(f"rank {worker.rank} on {worker.host}")
    if len(loaded) > 1:
        releases = "; ".join(f"{version} by {', '.join(ranks)}" for version, ranks in sorted(loaded.items()))
        remedy = "Install the same release on every host, or use --ucx wheel"
        raise UsageError(f"the ranks loaded different releases of UCX: {releases}. {remedy}")


def check_ucx_folder(workers: Sequence[Worker], ucx_origin: str | None) -> None:
    """Raise UsageError if a worker loaded another UCX than that of the chosen folder, which its host may not have."""
    if ucx_origin is None or not is_ucx_folder(ucx_origin):
        return
    folders = (ucx_origin, os.path.realpath(ucx_origin))
    for worker in workers:
        path = worker.ucx.path
        if path is not None and not any(Path(path).is_relative_to(folder) for folder in folders):
            loaded = f"rank {worker.rank} on {worker.host} loaded {path} instead of the UCX in {ucx_origin}"
            why = "every host needs this folder, and the program must find UCX by LD_LIBRARY_PATH"
            raise UsageError(f"{loaded}: {why}")


def check_worker_variables(workers: Sequence[Worker], environment: Mapping[str, str]) -> None:
    """Raise UsageError if workers of a running cluster lack the config's variables of UCX and RAPIDS."""
    expected = {name: value for name, value in environment.items() if name.startswith(("UCX", "RAPIDS"))}
    for worker in workers:
        for name, value in expected.items():
            actual = worker.environment.get(name)
            if actual != value:
                has = f"has {name}={actual}" if actual is not None else f"has no {name}"
                differing = f"the config sets {name}={value}, but rank {worker.rank} on {worker.host} {has}"
                raise UsageError(f"{differing}; restart the running cluster with this config")


def check_gpu_counts(
    placements: Sequence[HostPlacement],
    gpus_by_host: Mapping[str, int],
    workers_per_gpu: int,
    *,
    worker_count_given: bool,
) -> None:
    """Raise UsageError if a host has fewer GPUs than its workers need, or would leave GPUs unused by accident.

    `gpus_by_host`: the number of GPUs of each host. `worker_count_given`: whether the user gave the number of workers.
    If not, a host whose number of GPUs was not given either got one worker, or as many as another host; that is refused
    if the host has GPUs for more.
    """
    for placement in placements:
        needed = -(-len(placement.workers) // workers_per_gpu)
        present = gpus_by_host[placement.host.name]
        if present < needed:
            has = f"{placement.host.name} has {count_with_noun(present, 'GPU')}"
            need = f"its {len(placement.workers)} workers need {needed}"
            raise UsageError(f"{has}, but {need}; change --workers, --workers-per-gpu or the slots of this host")
    unknown = [p for p in placements if p.host.slots is None and (p.host.gpus is None or p.host.assumed)]
    if not worker_count_given and any(gpus_by_host[p.host.name] * workers_per_gpu > len(p.workers) for p in unknown):
        lines = ", ".join(f"{p.host.name} gpus={gpus_by_host[p.host.name]}" for p in unknown)
        use = f"to use them, put these GPU counts into the --hosts file: {lines}"
        raise UsageError(f"this run would leave GPUs unused; {use}; to leave them unused, set --workers")


def check_mig_instances(hosts: Mapping[str, HostFacts], pins_by_host: Mapping[str, Sequence[WorkerPin]]) -> None:
    """Raise UsageError if workers of a host use different parts (MIG) of GPUs, which CUDA IPC cannot connect."""
    for name, host in hosts.items():
        used = dict.fromkeys(pin.gpu for pin in pins_by_host.get(name, ()) if pin.gpu is not None)
        instances = dict(zip(host.gpu_names, host.gpu_instances, strict=False))
        refuse_unconnected_mig_gpus({gpu: instances.get(gpu) for gpu in used}, f"workers on {name}")


def refuse_unconnected_mig_gpus(gpu_instances: Mapping[str, str | None], users_text: str) -> None:
    """Raise UsageError if one of several GPUs is a part of a GPU (MIG), which CUDA IPC cannot connect to the others.

    `gpu_instances`: the GPUs that workers of a host use, with the GPU instance of each part, None for a whole GPU.
    `users_text`: the users of the GPUs, for the message.
    """
    parts = [name for name, instance in gpu_instances.items() if instance is not None]
    if parts and len(set(gpu_instances.values())) > 1:
        raise UsageError(
            f"{users_text} would use {' and '.join(gpu_instances)}, but UCX cannot move data between parts of GPUs"
            " (MIG): CUDA IPC does not connect GPU instances. Use whole GPUs, or one part for all workers of a host"
            " (--workers-per-gpu)"
        )


def unusable_rdma_port_warnings(
    hosts: Mapping[str, NetworkFacts], worker_variables: Mapping[str, str]
) -> list[WarningMessage]:
    """Return warnings about RDMA ports that UCX cannot use because its interface belongs to another network.

    `worker_variables`: the variables that workers get. There is no warning if these name devices or exclude RDMA, or if
    there is only one host. Ports of other networks are no loss if UCX has ports that are together as fast. Hosts with
    the same ports share a warning.
    """
    if not _launcher_chooses_rdma_ports(hosts, worker_variables):
        return []
    alike: dict[tuple[str, str], list[str]] = {}
    for name, host in hosts.items():
        left = [port for port in _usable_rdma_ports(host) if port.name not in host.rdma]
        if not left or (
            host.rdma and _gigabits_per_second(left) <= _gigabits_per_second(_rdma_ports_of_ucx_network(host))
        ):
            continue
        what = ", ".join(f"{port.name} ({', '.join(port.interfaces) or 'no interface'})" for port in left)
        why = f"because it is limited to interface {host.interface}"
        if host.rdma:
            usable = _total_speed_text(_usable_rdma_ports(host))
            cost = f": {_total_speed_text(_rdma_ports_of_ucx_network(host))} of {usable}"
            why += f", which has {', '.join(host.rdma)}{cost}"
        else:
            why += ", which has no RDMA device" + (
                f": {_total_speed_text(left)} are unused" if _gigabits_per_second(left) else ""
            )
        alike.setdefault((f"{what}, {why}", _advice_to_use_rdma_ports(host, left)), []).append(name)
    groups = alike.items()
    return [
        WarningMessage(CODE, f"UCX on {', '.join(names)} cannot use {what}", remedy) for (what, remedy), names in groups
    ]


def idle_rdma_port_warnings(
    hosts: Mapping[str, HostFacts], pins_by_host: Mapping[str, Sequence[WorkerPin]], worker_variables: Mapping[str, str]
) -> list[WarningMessage]:
    """Return warnings about RDMA ports that carry no data although UCX could use them, and the speed that this costs.

    `pins_by_host`: the cores, GPU and ports of the workers of each host.

    A port is idle if it is near to no worker, or if workers have more ports than a message may use
    (``UCX_MAX_RNDV_RAILS``). Hosts that are alike share a warning.
    """
    if not _launcher_chooses_rdma_ports(hosts, worker_variables):
        return []
    text = worker_variables.get(RAILS, UCXX_OVERRIDES[RAILS])
    rails = int(text) if text.isdecimal() else 1
    alike: dict[tuple[str, str], list[str]] = {}
    for name, host in hosts.items():
        ports = _rdma_ports_of_ucx_network(host)
        choices = {pin.devices for pin in pins_by_host.get(name, ()) if pin.devices}
        far = [port.name for port in ports if not any(port.name in choice for choice in choices)]
        used = min(len(ports) - len(far), sum(min(rails, len(choice)) for choice in choices))
        if not choices or used == len(ports):
            continue
        share = f"at most {used} of {len(ports)} RDMA ports ({_used_speed_text(ports, used)})"
        if far:
            what = f"{share}: no worker is near {', '.join(far)}"
            more = set(far) & _rdma_ports_near_any_worker(
                host, workers_use_gpus=any(pin.gpu is not None for pin in pins_by_host[name])
            )
            remedy = "start a worker for each GPU or NUMA node" if more else _TO_STORAGE
        else:
            most = max(map(len, choices))
            ports_used = count_with_noun(rails, "port")
            what = f"{share}: {RAILS}={rails} lets a message use {ports_used}, and a worker has {most}"
            remedy = f"set {RAILS}={most} in the config, or start more workers"
        alike.setdefault((what, remedy), []).append(name)
    groups = alike.items()
    return [
        WarningMessage(IDLE, f"workers on {', '.join(names)} use {what}", remedy) for (what, remedy), names in groups
    ]


def _rdma_ports_near_any_worker(host: HostFacts, *, workers_use_gpus: bool) -> set[str]:
    """Return the names of the RDMA ports near any GPU of a host, or without GPUs near any NUMA node with cores."""
    nodes = [network.HardwareLocation(int(node)) for node, cores in host.node_cores.items() if cores]
    places = [pinning.gpu_location(host, index) for index in range(len(host.gpu_nodes))] if workers_use_gpus else nodes
    return {port for place in places for port in pinning.nearest_rdma_ports_of_host(host, place)}


def _launcher_chooses_rdma_ports(hosts: Mapping[str, NetworkFacts], worker_variables: Mapping[str, str]) -> bool:
    """Return whether the launcher chooses the RDMA ports for data between hosts."""
    rdma = allowed_transports.RDMA & allowed_transports.find_allowed_transports(worker_variables.get("UCX_TLS", "all"))
    return len(hosts) > 1 and "UCX_NET_DEVICES" not in worker_variables and bool(rdma)


def _usable_rdma_ports(host: NetworkFacts) -> list[RdmaPort]:
    return [port for port in host.ports if network.ucx_can_use_port(port)]


def _rdma_ports_of_ucx_network(host: NetworkFacts) -> list[RdmaPort]:
    return [port for port in host.ports if port.name in host.rdma]


def _gigabits_per_second(ports: Sequence[RdmaPort]) -> float:
    return sum(port.gigabits or 0 for port in ports)


def _total_speed_text(ports: Sequence[RdmaPort]) -> str:
    return f"{_gigabits_per_second(ports):,g} Gb/s"


def _used_speed_text(ports: Sequence[RdmaPort], used_port_count: int) -> str:
    """Return the speed of `used_port_count` ports out of that of all `ports`; a percentage if a speed is unknown."""
    total = _gigabits_per_second(ports)
    if any(port.gigabits is None for port in ports):
        return f"{used_port_count / len(ports):.0%} of the speed"
    return f"{total * used_port_count / len(ports):,g} of {total:,g} Gb/s"


def _advice_to_use_rdma_ports(host: NetworkFacts, ports: Sequence[RdmaPort]) -> str:
    """Return advice for using these RDMA ports: by an interface that has an address, else by the ports' names."""
    owners = dict.fromkeys(owner for port in ports for owner in port.interfaces)
    usable = [owner for owner in owners if owner in host.addressed]
    if usable:
        return f"use --interface {' or '.join(usable)}"
    devices = ",".join([*(port.name for port in ports), host.interface])
    unnamed = f"assign an IP address to {' or '.join(owners)} and use it with --interface, or " if owners else ""
    return f"{unnamed}set UCX_NET_DEVICES={devices} in the config"

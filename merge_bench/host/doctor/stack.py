"""Checks of adapters, GPUs and their software."""

from __future__ import annotations

import re

from merge_bench.config import allowed_transports
from merge_bench.config.allowed_transports import UCX_PORTS
from merge_bench.config.installation import how_to_set_up
from merge_bench.host import files, network
from merge_bench.host.doctor.base import Check, Finding, Machine, bad, ok, warn
from merge_bench.units import format_bytes

LEAST_UCX = (1, 19)
LEAST_DRIVER = {"cu12": 535, "cu13": 580}
_STACK = re.compile(r"^(.*)-(cu1\d)$")


def ucx(machine: Machine) -> Finding:
    """Which UCX a worker loads."""
    if machine.ucx is None:
        return bad(machine.ucx_error or "none", "workers cannot exchange data", how_to_set_up())
    if _numbers(machine.ucx.version) < LEAST_UCX:
        return bad(
            str(machine.ucx), "UCXX needs UCX 1.19 or newer", "use --ucx wheel to load the UCX of the package libucx"
        )
    return ok(str(machine.ucx))


def infiniband(machine: Machine) -> Finding:
    """Whether UCX can use the adapters."""
    if not files.names(machine.root / "sys/class/infiniband"):
        return ok("no adapter")
    states = network.port_states(machine.root / "sys")
    found = ", ".join(f"{port} {state}" for port, state in states.items()) or "ports unknown"
    transports = machine.ucx.transports & allowed_transports.RDMA if machine.ucx else frozenset[str]()
    if not transports:
        problem = f"UCX {machine.ucx} has no RDMA transport" if machine.ucx else "no UCX can be loaded"
        remedy = "use --ucx system and a UCX with InfiniBand modules (HPC-X, MOFED); /dev/infiniband must be readable"
        return bad(f"{found}; {problem}", "data between hosts goes over TCP", remedy)
    if "ACTIVE" not in states.values():
        return bad(
            found, "no port is active, so RDMA does not work", "run ibstat, and check that a subnet manager runs"
        )
    return ok(f"{found}; {', '.join(sorted(transports))}")


def peer_memory(machine: Machine) -> Finding:
    """Whether an adapter can access GPU memory without a copy in host memory."""
    if not machine.gpus or not files.names(machine.root / "sys/class/infiniband"):
        return ok("not needed without both a GPU and an RDMA adapter")
    loaded = {line.split()[0] for line in (files.text(machine.root / "proc/modules") or "").splitlines() if line}
    for module in ("nvidia_peermem", "nv_peer_mem"):
        if module in loaded:
            return ok(f"{module} is loaded")
    if machine.ucx and "gdr_copy" in machine.ucx.transports:
        return ok("gdrcopy is available; large messages also need dma-buf or nvidia_peermem")
    spoils = "GPU data is copied through host memory unless dma-buf is supported"
    return warn("nvidia_peermem is not loaded", spoils, "run modprobe nvidia_peermem")


def gpu_users(machine: Machine) -> Finding:
    """Other processes that compute on the GPUs."""
    if not machine.gpus:
        return ok("no GPU")
    users = [(gpu, process) for gpu in machine.gpus for process in gpu.processes]
    if not users:
        return ok(f"none on {len(machine.gpus)} GPUs")
    found = ", ".join(
        f"process {process.pid} on GPU {gpu.index}"
        + (f" ({format_bytes(process.memory_bytes)})" if process.memory_bytes else "")
        for gpu, process in users[:4]
    )
    more = f" and {len(users) - 4} more" if len(users) > 4 else ""
    return warn(found + more, "these processes use memory and time of the GPU", "end these processes")


def gpu_driver(machine: Machine) -> Finding:
    """Whether the driver is new enough for the installed stack."""
    versions = {gpu.driver_version for gpu in machine.gpus if gpu.driver_version}
    if not versions:
        return ok("unknown" if machine.gpus else "no GPU")
    needed = max((least for stack, least in LEAST_DRIVER.items() if f"cudf-{stack}" in machine.packages), default=0)
    found = ", ".join(sorted(versions))
    if any(_numbers(version)[:1] < (needed,) for version in versions):
        remedy = f"install a newer driver, or packages for an older one: {how_to_set_up('cu12')}"
        return bad(found, f"the installed CUDA packages need driver {needed} or newer", remedy)
    return ok(found)


def ucx_ports(machine: Machine) -> Finding:
    """What UCX opens between hosts; a firewall cannot be seen from here."""
    if machine.ucx is None or "tcp" not in machine.ucx.transports:
        return ok("none")
    return ok(
        f"{UCX_PORTS} between hosts without RDMA: who can connect can write to workers' memory, so allow only the hosts"
    )


def packages(machine: Machine) -> Finding:
    """Whether the Python packages belong together."""
    have = {package: version for package, version in machine.packages.items() if version}
    remedy = f"set the environment up again: {how_to_set_up(anew=True)}"
    missing = [package for package in ("dask", "distributed") if package not in have]
    if missing:
        return bad(f"not installed: {', '.join(missing)}", "workers cannot be launched", remedy)
    wrong = []
    if have["dask"] != have["distributed"]:
        wrong.append(f"dask {have['dask']} with distributed {have['distributed']}")
    stacks = sorted({match[2] for package in have if (match := _STACK.match(package))})
    if len(stacks) > 1:
        wrong.append(f"packages for both {' and '.join(stacks)}")
    for stack in stacks:
        ours, comms = have.get(f"ucxx-{stack}"), have.get(f"distributed-ucxx-{stack}")
        if ours and comms and _numbers(ours)[:2] != _numbers(comms)[:2]:
            wrong.append(f"ucxx {ours} with distributed-ucxx {comms}")
    if wrong:
        return bad("; ".join(wrong), "these versions do not work together", remedy)
    if not stacks:
        return warn("ucxx is not installed", "only --exchange dask works", remedy)
    cuda = f" ({stacks[0]})" if machine.gpus else ""  # machines without a GPU use one of these, too
    return ok(f"dask {have['dask']}, ucxx {have.get(f'ucxx-{stacks[0]}', 'none')}{cuda}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


CHECKS: dict[str, Check] = {
    "UCX": ucx,
    "InfiniBand": infiniband,
    "GPU peer memory": peer_memory,
    "other GPU users": gpu_users,
    "GPU driver": gpu_driver,
    "UCX ports": ucx_ports,
    "Python packages": packages,
}

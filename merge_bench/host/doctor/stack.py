"""Adapters, GPUs and the software that drives them."""

from __future__ import annotations

import re

from merge_bench.config import tls
from merge_bench.config.installation import how_to_set_up
from merge_bench.host.doctor.base import BAD, OK, WARN, Check, Finding, Machine
from merge_bench.units import format_bytes

LEAST_UCX = (1, 19)
LEAST_DRIVER = {"cu12": 535, "cu13": 580}
_STACK = re.compile(r"^(.*)-(cu1\d)$")


def ucx(machine: Machine) -> Finding:
    """Which UCX a worker loads here."""
    if machine.ucx is None:
        return Finding("UCX", BAD, machine.ucx_error or "none", "no data plane", how_to_set_up())
    found = f"{machine.ucx.version} ({machine.ucx.origin})"
    if _numbers(machine.ucx.version) < LEAST_UCX:
        return Finding("UCX", BAD, found, "UCXX refuses it: it needs 1.19 or newer", "use the wheel's: --ucx wheel")
    return Finding("UCX", OK, found)


def infiniband(machine: Machine) -> Finding:
    """Whether adapters that are there can be used."""
    adapters = machine.names("sys/class/infiniband")
    if not adapters:
        return Finding("InfiniBand", OK, "no adapter")
    found = f"{', '.join(adapters)}: {', '.join(_ports(machine, adapters)) or 'ports unknown'}"
    transports = machine.ucx.transports & tls.RDMA if machine.ucx else frozenset[str]()
    if not transports:
        which = f"UCX {machine.ucx.version} ({machine.ucx.origin})" if machine.ucx else "no UCX"
        return Finding(
            "InfiniBand", BAD, f"{found}; {which} has no RDMA transport here", "data between hosts goes over TCP",
            "run with --ucx system and a UCX that has InfiniBand modules (HPC-X, MOFED), with /dev/infiniband readable",
        )  # fmt: skip
    if not any("ACTIVE" in port for port in _ports(machine, adapters)):
        return Finding("InfiniBand", BAD, found, "no port is up", "see ibstat; is a subnet manager running?")
    return Finding("InfiniBand", OK, f"{found}; {', '.join(sorted(transports))}")


def _ports(machine: Machine, adapters: list[str]) -> list[str]:
    found = []
    for adapter in adapters:
        for port in machine.names(f"sys/class/infiniband/{adapter}/ports"):
            state = machine.read(f"sys/class/infiniband/{adapter}/ports/{port}/state") or "?"
            found.append(f"port {port} {state.rpartition(':')[2].strip()}")
    return found


def peer_memory(machine: Machine) -> Finding:
    """Whether an adapter can reach GPU memory without a copy through the host."""
    name = "GPU peer memory"
    if not machine.gpus or not machine.names("sys/class/infiniband"):
        return Finding(name, OK, "not needed: that takes a GPU and an RDMA adapter")
    loaded = {line.split()[0] for line in (machine.read("proc/modules") or "").splitlines() if line}
    module = next((each for each in ("nvidia_peermem", "nv_peer_mem") if each in loaded), None)
    if module:
        return Finding(name, OK, f"{module} is loaded")
    if machine.ucx and "gdr_copy" in machine.ucx.transports:
        return Finding(name, OK, "gdrcopy; large messages need dma-buf or nvidia_peermem as well")
    return Finding(
        name, WARN, "nvidia_peermem is not loaded", "GPU memory goes through host memory unless dma-buf is supported",
        "modprobe nvidia_peermem",
    )  # fmt: skip


def gpu_users(machine: Machine) -> Finding:
    """Other processes that compute on the GPUs."""
    name = "other GPU users"
    if not machine.gpus:
        return Finding(name, OK, "no GPU")
    users = [(gpu, process) for gpu in machine.gpus for process in gpu.get("processes", ())]
    if not users:
        return Finding(name, OK, f"none on {len(machine.gpus)} GPUs")
    told = ", ".join(
        f"process {process['pid']} on GPU {gpu.get('index')}"
        + (f" ({format_bytes(process['memory_bytes'])})" if process.get("memory_bytes") else "")
        for gpu, process in users[:4]
    )
    more = f" and {len(users) - 4} more" if len(users) > 4 else ""
    return Finding(name, WARN, told + more, "they share memory and time of the GPU", "end them; see nvidia-smi")


def gpu_driver(machine: Machine) -> Finding:
    """Whether the driver is new enough for the stack that is installed."""
    name = "GPU driver"
    versions = {str(gpu["driver_version"]) for gpu in machine.gpus if gpu.get("driver_version")}
    if not versions:
        return Finding(name, OK, "no GPU" if not machine.gpus else "not told")
    stacks = {match[2] for package in machine.packages if (match := _STACK.match(package))} & set(LEAST_DRIVER)
    needed = max((LEAST_DRIVER[stack] for stack in stacks if "cudf-" + stack in machine.packages), default=0)
    found = ", ".join(sorted(versions))
    if any(_numbers(version)[:1] < (needed,) for version in versions):
        return Finding(
            name, BAD, found, f"the installed CUDA packages need {needed} or newer",
            f"{how_to_set_up('cu12')}, or a newer driver",
        )  # fmt: skip
    return Finding(name, OK, found)


def packages(machine: Machine) -> Finding:
    """Whether the Python packages belong together."""
    name = "Python packages"
    have = {package: version for package, version in machine.packages.items() if version}
    remedy = f"make the environment anew: {how_to_set_up(anew=True)}"
    missing = [package for package in ("dask", "distributed") if package not in have]
    if missing:
        return Finding(name, BAD, f"no {', '.join(missing)}", "nothing can be launched", remedy)
    wrong = []
    if have["dask"] != have["distributed"]:
        wrong.append(f"dask {have['dask']} with distributed {have['distributed']}")
    stacks = sorted({match[2] for package in have if (match := _STACK.match(package))})
    if len(stacks) > 1:
        wrong.append(f"packages of {' and '.join(stacks)} together")
    for stack in stacks:
        ours, comms = have.get(f"ucxx-{stack}"), have.get(f"distributed-ucxx-{stack}")
        if ours and comms and _numbers(ours)[:2] != _numbers(comms)[:2]:
            wrong.append(f"ucxx {ours} with distributed-ucxx {comms}")
    if wrong:
        return Finding(name, BAD, "; ".join(wrong), "they do not fit each other", remedy)
    if not stacks:
        return Finding(name, WARN, "no ucxx", "only --exchange dask can run", remedy)
    return Finding(name, OK, f"dask {have['dask']}, ucxx {have.get(f'ucxx-{stacks[0]}', 'none')} ({stacks[0]})")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


CHECKS: tuple[Check, ...] = (ucx, infiniband, peer_memory, gpu_users, gpu_driver, packages)

"""The machine and the process: versions, environment, hardware, cores, and byte counters of network devices.

Each worker reports these for the records.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil

from merge_bench.config.files import TOKENS, library_path
from merge_bench.host import files, gpu, network
from merge_bench.host.description import Hardware, Interface, ProcessFacts, Ucx
from merge_bench.host.memory import available_bytes, format_cores, parse_cores, quota_cores, usable_cores

PACKAGES = tuple(
    """
    merge-bench dask distributed dask-cuda ucxx-cu12 ucxx-cu13 distributed-ucxx-cu12 distributed-ucxx-cu13
    libucx-cu12 libucx-cu13 cudf-cu12 cudf-cu13 rmm-cu12 rmm-cu13 polars pandas pyarrow numpy numba duckdb
    """.split()  # noqa: SIM905
)
CPU_ID = (
    ("vendor_id", "cpu family", "model", "stepping"),
    ("CPU implementer", "CPU part", "CPU variant", "CPU revision"),  # ARM
)
RECORDED_PREFIXES = tuple(
    """
    UCX_ UCXPY_ UCXX_ RAPIDS_ MERGE_BENCH_ POLARS_ OMP_ NUMBA_ CUDA_VISIBLE CUDA_DEVICE_ORDER
    """.split()  # noqa: SIM905
)
PERFTESTS_PER_WORKER = 2
"""``ucx_perftest`` processes beside each worker while the link limit is checked: one sends, one receives."""
CORES_AT_START = frozenset(os.sched_getaffinity(0))
"""The cores of this process when this module was imported, which the preload of each worker does first."""
Counts: TypeAlias = dict[str, tuple[int, int]]
"""Bytes sent and received, by device: ``eth0``, ``mlx5_0:1``, ``nvlink 00000000:1B:00.0``."""
INFINIBAND_WORD = 4  # bytes: the unit of port_xmit_data and port_rcv_data
_RECEIVED, _SENT = 0, 8  # fields of a line of /proc/net/dev


def versions() -> dict[str, str]:
    """Versions of Python and of the stack's installed packages."""
    releases = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            releases[name] = importlib.metadata.version(name)
    return releases


def recorded_environment(extra_names: Collection[str] = ()) -> dict[str, str]:
    """The variables that affect a run, and those named in `extra_names`; other variables are not recorded."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if (name.startswith(RECORDED_PREFIXES) or name in extra_names) and name not in TOKENS
    }


def describe_process(extra_names: Collection[str] = (), *, ucx: Ucx | None = None) -> ProcessFacts:
    """This process and its machine.

    `extra_names`: names of other environment variables to record. `ucx`: the UCX that it has loaded; by default what
    UCXX reports.
    """
    return ProcessFacts(
        host=socket.gethostname(),
        pid=os.getpid(),
        environment=recorded_environment(extra_names),
        versions=dict(versions()),
        ucx=ucx_library() if ucx is None else ucx,
        hardware=hardware(),
    )


def hardware() -> Hardware:
    """The machine: processor, cores, memory, kernel, network interfaces, NUMA nodes, InfiniBand devices, GPUs."""
    processor, caches = files.read_fields(Path("/proc/cpuinfo")), cache_sizes()
    return Hardware(
        cpu_model=processor.get("model name") or platform.processor() or platform.machine(),
        cpu_id=cpu_id(processor),
        cores=usable_cores(),
        affinity=format_cores(os.sched_getaffinity(0)),
        cores_online=os.cpu_count(),
        cpu_quota=quota_cores(),
        cache_bytes=max(caches.values(), default=None),
        l2_bytes=caches.get(2),
        memory_bytes=memory_bytes(),
        available_bytes=available_bytes(),
        kernel=platform.release(),
        machine=platform.machine(),
        numa_nodes=len(network.numa_nodes()) or None,
        interfaces={
            name: Interface(up=stats.isup, megabits_per_second=stats.speed or None, mtu=stats.mtu)
            for name, stats in psutil.net_if_stats().items()
        },
        infiniband=files.list_names(Path("/sys/class/infiniband")),
        huge_pages=files.chosen_word(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        tcp_congestion_control=files.read_text(Path("/proc/sys/net/ipv4/tcp_congestion_control")),
        gpus=gpu.fixed_facts(),
    )


def cpu_id(processor: Mapping[str, str]) -> str | None:
    """Vendor, family, model and stepping as in ``GenuineIntel-6-85-7``, from the fields of ``/proc/cpuinfo``."""
    kinds = ([processor[name] for name in names if name in processor] for names in CPU_ID)
    return next(("-".join(found) for found in kinds if found), None)


def memory_bytes() -> int:
    return int(psutil.virtual_memory().total)


def ucx_library() -> Ucx:
    """The UCX that this process has loaded: version, file, and origin (``wheel`` or ``system``)."""
    path = library_path("libucp")
    if path is None:
        return Ucx()
    import ucxx

    version = ".".join(map(str, ucxx.get_ucx_version()))
    in_wheel = any(part.startswith("libucx") for part in path.parent.parts)
    return Ucx(version=version, path=str(path), origin="wheel" if in_wheel else "system")


def cache_sizes(cpu: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[int, int]:
    """Bytes of the first core's largest cache of each level (the kernel writes ``32768K``)."""
    sizes: dict[int, int] = {}
    for index in cpu.glob("index*"):
        level, size = ((files.read_text(index / name) or "").removesuffix("K") for name in ("level", "size"))
        if level.isdigit() and size.isdigit():
            sizes[int(level)] = max(sizes.get(int(level), 0), int(size) * 1024)
    return sizes


@dataclass(frozen=True)
class Shortage:
    """A host on which more `processes` run than there are `cores` for them.

    `cores`: how many, which a container's quota can make a fraction. `bound`: which, as ``0-3``, if the processes are
    bound to them and the host has enough for all; otherwise empty.
    """

    host: str
    processes: int
    cores: float
    bound: str = ""

    @property
    def named_cores(self) -> str:
        """The cores as messages name them: ``2 cores of node1``, or ``cores 0-1 of node1``."""
        cores = "core" if self.cores == 1 else "cores"
        return f"{cores} {self.bound} of {self.host}" if self.bound else f"{self.cores:g} {cores} of {self.host}"

    @property
    def workers_that_fit(self) -> int:
        """How many workers can have a core each; at least one."""
        return max(1, int(self.cores))


def core_shortage(workers: Iterable[tuple[str, Hardware]], per_worker: int = 1) -> Shortage | None:
    """The first host whose cores do not suffice for `per_worker` processes a worker; None if all do, or it is unknown.

    `workers`: host and recorded hardware of each. The processes run on the workers' own cores, so each set of cores
    must have enough of them for the workers that are bound to it.
    """
    hosts: dict[str, list[tuple[frozenset[int], float | None]]] = {}
    for host, hardware in workers:
        cores, quota = parse_cores(hardware.affinity or ""), hardware.cpu_quota
        usable = hardware.cores if quota is None and not cores else quota
        hosts.setdefault(host, []).append((cores, usable))
    for host, limits in hosts.items():
        every = frozenset[int]().union(*(cores for cores, _ in limits))
        quotas = [quota for _, quota in limits if quota is not None]
        usable = min([*quotas, *([len(every)] if every else [])], default=None)
        if usable is not None and max(usable, 1) < per_worker * len(limits):
            return Shortage(host, per_worker * len(limits), usable)
        for cores in dict.fromkeys(cores for cores, _ in limits if cores):
            here = per_worker * sum(own <= cores for own, _ in limits)
            if here > len(cores):
                return Shortage(host, here, len(cores), format_cores(cores))
    return None


def crowding(workers: Iterable[tuple[str, Hardware]]) -> str | None:
    """Why ucx_perftest cannot test both directions at once: ``4 polling processes on 2 cores of node1``; or None."""
    short = core_shortage(workers, PERFTESTS_PER_WORKER)
    return None if short is None else f"{short.processes} polling processes on {short.named_cores}"


def restore_launcher_cores() -> None:
    """Return to the launcher's cores: a plugin of dask-cuda binds a worker to all cores near its GPU."""
    now = os.sched_getaffinity(0)
    if now <= CORES_AT_START:
        return
    cores = (CORES_AT_START & now) or CORES_AT_START
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # the thread may have ended
            os.sched_setaffinity(int(thread), cores)


def read_counters(root: Path = Path("/")) -> Counts:
    """The byte counters of all network devices of this host; `root`: where its file systems are mounted."""
    return {**interface_counters(root), **infiniband_counters(root), **gpu.nvlink_bytes()}


def interface_counters(root: Path = Path("/")) -> Counts:
    """Counters of the network interfaces in this process's network namespace."""
    counts: Counts = {}
    for line in (files.read_text(root / "proc/self/net/dev") or "").splitlines():
        name, colon, numbers = line.rpartition(":")
        fields = numbers.split()
        if colon and len(fields) > _SENT and fields[_SENT].isdigit():
            counts[name.strip()] = (int(fields[_SENT]), int(fields[_RECEIVED]))
    return counts


def infiniband_counters(root: Path = Path("/")) -> Counts:
    """Counters of the ports of InfiniBand and RoCE adapters, with UCX's names (``mlx5_0:1``)."""
    counts: Counts = {}
    for folder in sorted((root / "sys/class/infiniband").glob("*/ports/*/counters")):
        sent, received = files.read_number(folder / "port_xmit_data"), files.read_number(folder / "port_rcv_data")
        if sent is not None and received is not None:
            counts[f"{folder.parts[-4]}:{folder.parts[-2]}"] = (sent * INFINIBAND_WORD, received * INFINIBAND_WORD)
    return counts


def counter_difference(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> Counts:
    """Bytes that each device counted between two readings: 0 if it was reset; without devices that came or went."""
    return {
        device: (max(sent - before[device][0], 0), max(received - before[device][1], 0))
        for device, (sent, received) in after.items()
        if device in before
    }

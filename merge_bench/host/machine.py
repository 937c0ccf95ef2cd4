"""The versions, environment and machine of this process, which each worker reports for the records."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

import psutil

from merge_bench.config.libraries import library_path
from merge_bench.config.tokens import TOKENS
from merge_bench.host import files, gpu, network
from merge_bench.host.description import Hardware, Interface, ProcessFacts, Ucx
from merge_bench.host.memory import available_bytes, quota_cores, show_cores, usable_cores

PACKAGES = (
    "merge-bench", "dask", "distributed", "dask-cuda", "ucxx-cu12", "ucxx-cu13", "distributed-ucxx-cu12",
    "distributed-ucxx-cu13", "libucx-cu12", "libucx-cu13", "cudf-cu12", "cudf-cu13", "rmm-cu12", "rmm-cu13",
    "polars", "pandas", "pyarrow", "numpy", "numba", "duckdb",
)  # fmt: skip
CPU_ID = (
    ("vendor_id", "cpu family", "model", "stepping"),
    ("CPU implementer", "CPU part", "CPU variant", "CPU revision"),  # ARM
)
RECORDED_PREFIXES = (
    "UCX_", "UCXPY_", "UCXX_", "RAPIDS_", "MERGE_BENCH_", "POLARS_", "OMP_", "NUMBA_", "CUDA_VISIBLE",
    "CUDA_DEVICE_ORDER",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Versions of Python and of the stack's installed packages."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def environment(also: Collection[str] = ()) -> dict[str, str]:
    """The variables that affect a run, and those named in `also`; other variables are not recorded."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if (name.startswith(RECORDED_PREFIXES) or name in also) and name not in TOKENS
    }


def describe(also: Collection[str] = (), *, ucx: Ucx | None = None) -> ProcessFacts:
    """This process and its machine.

    `also`: names of other environment variables to record. `ucx`: if it is known already; by default UCXX reports it.
    """
    return ProcessFacts(
        host=socket.gethostname(), pid=os.getpid(), environment=environment(also), versions=dict(versions()),
        ucx=ucx_library() if ucx is None else ucx, hardware=hardware(),
    )  # fmt: skip


def hardware() -> Hardware:
    """The machine: processor, cores, memory, kernel, network interfaces, NUMA nodes, InfiniBand devices, GPUs."""
    processor, caches = files.fields(Path("/proc/cpuinfo")), cache_sizes()
    return Hardware(
        cpu_model=processor.get("model name") or platform.processor() or platform.machine(),
        cpu_id=cpu_id(processor),
        cores=usable_cores(),
        affinity=show_cores(os.sched_getaffinity(0)),
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
        infiniband=files.names(Path("/sys/class/infiniband")),
        huge_pages=files.chosen(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        tcp_congestion_control=files.text(Path("/proc/sys/net/ipv4/tcp_congestion_control")),
        gpus=gpu.fixed_facts(),
    )


def cpu_id(processor: Mapping[str, str]) -> str | None:
    """Vendor, family, model and stepping as in ``GenuineIntel-6-85-7``, from the fields of ``/proc/cpuinfo``."""
    kinds = ([processor[name] for name in names if name in processor] for names in CPU_ID)
    return next(("-".join(found) for found in kinds if found), None)


def memory_bytes() -> int:
    """Memory of this machine."""
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
    found: dict[int, int] = {}
    for index in cpu.glob("index*"):
        level, size = ((files.text(index / name) or "").removesuffix("K") for name in ("level", "size"))
        if level.isdigit() and size.isdigit():
            found[int(level)] = max(found.get(int(level), 0), int(size) * 1024)
    return found

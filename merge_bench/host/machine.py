"""What this process runs on and with: versions, environment, machine. Gathered inside each worker, for the records."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import socket
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import psutil

from merge_bench.host import gpu
from merge_bench.host.libraries import library_path
from merge_bench.host.memory import available_bytes, quota_cores, show_cores, usable_cores

PACKAGES = (
    "merge-bench", "dask", "distributed", "dask-cuda", "ucxx-cu12", "ucxx-cu13", "distributed-ucxx-cu12",
    "distributed-ucxx-cu13", "libucx-cu12", "libucx-cu13", "cudf-cu12", "cudf-cu13", "rmm-cu12", "rmm-cu13",
    "polars", "pandas", "pyarrow", "numpy", "numba", "duckdb",
)  # fmt: skip
RECORDED_PREFIXES = (
    "UCX_", "UCXPY_", "UCXX_", "RAPIDS_", "MERGE_BENCH_", "POLARS_", "OMP_", "NUMBA_", "CUDA_VISIBLE",
    "CUDA_DEVICE_ORDER",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Version of each package of the stack that is installed, and of Python."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def environment(also: Collection[str] = ()) -> dict[str, str]:
    """The part of the environment that decides how a run behaves, and names in `also`; never the whole of it."""
    return {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(RECORDED_PREFIXES) or name in also
    }


def hardware() -> dict[str, Any]:
    """The machine: processor, cores, memory, kernel, network interfaces, NUMA nodes, InfiniBand devices, GPUs."""
    memory = psutil.virtual_memory()
    return {
        "cpu_model": _cpu_model(),
        "cores": usable_cores(),
        "affinity": show_cores(os.sched_getaffinity(0)),
        "cores_online": os.cpu_count(),
        "cpu_quota": quota_cores(_text),
        "cache_bytes": _cache_bytes(),
        "memory_bytes": int(memory.total),
        "available_bytes": available_bytes(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "interfaces": _interfaces(),
        "infiniband": _names("/sys/class/infiniband"),
        "huge_pages": _bracketed("/sys/kernel/mm/transparent_hugepage/enabled"),
        "tcp_congestion_control": _bracketed("/proc/sys/net/ipv4/tcp_congestion_control"),
        "gpus": gpu.fixed_facts(),
    }


def identity() -> dict[str, Any]:
    """Host name and process id."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "executable": sys.executable}


def ucx_library() -> dict[str, Any]:
    """The UCX that this process has loaded: version, file, and whether it came with a wheel or from the system."""
    path = library_path("libucp")
    if path is None:
        return {"version": None, "path": None, "origin": None}
    import ucxx

    version = ".".join(str(part) for part in ucxx.get_ucx_version())
    return {"version": version, "path": str(path), "origin": "wheel" if _of_a_wheel(path) else "system"}


def _of_a_wheel(path: Path) -> bool:
    """Whether a library lies in the package libucx, wherever packages are installed here."""
    return any(part.startswith("libucx") for part in path.parent.parts)


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _cache_bytes(cpu: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """The largest cache that the first core reaches (``32768K``)."""
    sizes = []
    for file in cpu.glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(file.read_text().strip().removesuffix("K")) * 1024)
    return max(sizes, default=None)


def _interfaces() -> dict[str, dict[str, Any]]:
    return {
        name: {"up": stats.isup, "megabits_per_second": stats.speed or None, "mtu": stats.mtu}
        for name, stats in psutil.net_if_stats().items()
    }


def _names(folder: str) -> list[str]:
    try:
        return sorted(entry.name for entry in Path(folder).iterdir())
    except OSError:
        return []


def _text(path: str) -> str | None:
    try:
        return Path("/", path).read_text()
    except OSError:
        return None


def _bracketed(path: str) -> str | None:
    """The chosen one of a list like ``always [madvise] never``, or all there is without brackets."""
    try:
        text = Path(path).read_text()
    except OSError:
        return None
    return text[text.find("[") + 1 : text.find("]")] if "[" in text else text.strip()

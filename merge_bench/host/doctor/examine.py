"""All checks on this host, and what hosts of one cluster must have in common."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from merge_bench.config.ucx_info import locate, read_installed
from merge_bench.errors import UsageError
from merge_bench.host import gpu
from merge_bench.host import machine as facts
from merge_bench.host.doctor import memory, stack, system
from merge_bench.host.doctor.base import BAD, OK, WARN, Finding, Machine, Ucx
from merge_bench.host.memory import available_bytes, usable_cores

CHECKS = (*memory.CHECKS, *system.CHECKS, *stack.CHECKS)
# A difference in these makes workers misunderstand each other; in any other, it makes their times hard to compare.
_VITAL = ("dask", "distributed", "merge-bench", "UCX", "ucxx")


@dataclass(frozen=True)
class Examination:
    """One host: its name, what was found, and the versions of what it runs."""

    host: str
    findings: tuple[Finding, ...]
    versions: Mapping[str, str | None]


def here() -> Machine:
    """This host, as a worker that is started here would find it."""
    loaded, error = _ucx()
    return Machine(
        root=Path("/"),
        cores=usable_cores(),
        load=os.getloadavg()[0],
        available_bytes=available_bytes(),
        total_bytes=int(psutil.virtual_memory().total),
        limits={"memlock": _limit(resource.RLIMIT_MEMLOCK), "nofile": _limit(resource.RLIMIT_NOFILE)},
        shared_memory=_shared_memory(Path("/dev/shm")),
        gpus=gpu.gpu_facts(),
        ucx=loaded,
        ucx_error=error,
        packages=facts.versions(),
    )


def examine(machine: Machine, host: str) -> Examination:
    """Every check on `machine`."""
    found = tuple(replace(check(machine), host=host) for check in CHECKS)
    versions: dict[str, str | None] = dict(machine.packages)
    if machine.ucx is not None:
        versions["UCX"] = f"{machine.ucx.version} ({machine.ucx.origin})"
    kernel = machine.read("proc/sys/kernel/osrelease")
    return Examination(host, found, {**versions, "kernel": kernel} if kernel else versions)


def examine_here() -> Examination:
    """Every check on this host; also what workers are asked to do."""
    return examine(here(), socket.gethostname())


def agreement(hosts: Iterable[Examination]) -> list[Finding]:
    """What differs between hosts of one cluster; [] for one host."""
    examined = list(hosts)
    if len(examined) < 2:
        return []
    first, found = examined[0], []
    for other in examined[1:]:
        names = sorted({*first.versions, *other.versions})
        differing = [name for name in names if first.versions.get(name) != other.versions.get(name)]
        if not differing:
            continue
        vital = any(name.startswith(_VITAL) for name in differing)
        pairs = ((name, other.versions.get(name), first.versions.get(name)) for name in differing)
        found.append(
            Finding(
                "same software",
                BAD if vital else WARN,
                "; ".join(f"{name} {ours} here, {theirs} on {first.host}" for name, ours, theirs in pairs),
                "workers may misunderstand each other" if vital else "hosts do not compare",
                "install all hosts from one .venv",
                other.host,
            )
        )
    return found or [Finding("same software", OK, f"the same on {len(examined)} hosts")]


def _ucx() -> tuple[Ucx | None, str]:
    try:
        import ucxx  # noqa: F401  (loads the UCX that a worker would load, and refuses one that does not fit)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    library = facts.ucx_library()
    try:
        transports = frozenset(read_installed(locate("auto")).transports)
    except UsageError:
        transports = frozenset()
    return Ucx(str(library["version"]), str(library["origin"]), transports), ""


def _limit(which: int) -> int | None:
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _shared_memory(path: Path) -> tuple[int, int] | None:
    try:
        usage = os.statvfs(path)
    except OSError:
        return None
    return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

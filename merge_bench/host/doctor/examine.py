"""Runs all checks on this host, and compares the software of a cluster's hosts."""

from __future__ import annotations

import os
import resource
import socket
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from merge_bench.config.options import BY_KEY
from merge_bench.config.ucx_info import find_installed
from merge_bench.host import files, gpu, other_load
from merge_bench.host.doctor.checks import BAD, CHECKS, OK, WARN, Disk, Finding, Machine, Ucx
from merge_bench.host.machine import memory_bytes, ucx_library, versions
from merge_bench.host.memory import available_bytes, segment_problem, usable_cores

SHARED_MEMORY = Path("/dev/shm")
# If these differ, workers may not work together; if others differ, times are hard to compare.
SAME = "same software"
_VITAL = ("dask", "distributed", "merge-bench", "UCX", "ucxx")


@dataclass(frozen=True)
class Examination:
    """One host: its name, the findings, and the versions of its software."""

    host: str
    findings: tuple[Finding, ...]
    versions: Mapping[str, str | None]


def describe_this_host() -> Machine:
    """This host, as a worker started here would see it."""
    loaded, error = _ucx()
    return Machine(
        root=Path("/"),
        cores=usable_cores(),
        load=other_load.look(),
        available_bytes=available_bytes(),
        total_bytes=memory_bytes(),
        limits={"memlock": _limit(resource.RLIMIT_MEMLOCK), "nofile": _limit(resource.RLIMIT_NOFILE)},
        shared_memory=_shared_memory(SHARED_MEMORY),
        segment_problem=segment_problem(SHARED_MEMORY),
        disks=_disks(),
        gpus=gpu.gpu_facts(),
        ucx=loaded,
        ucx_error=error,
        packages=versions(),
    )


def examine(machine: Machine, host: str) -> Examination:
    findings = tuple(replace(check(machine), check=name, host=host) for name, check in CHECKS.items())
    others = {"UCX": machine.ucx and str(machine.ucx), "kernel": files.text(machine.root / "proc/sys/kernel/osrelease")}
    return Examination(host, findings, {**machine.packages, **{name: text for name, text in others.items() if text}})


def examine_here() -> Examination:
    """Every check on this host; workers run this too."""
    return examine(describe_this_host(), socket.gethostname())


def agreement(hosts: Iterable[Examination]) -> list[Finding]:
    """How the hosts of one cluster differ; [] for one host."""
    examined = list(hosts)
    if len(examined) < 2:
        return []
    first, *others = examined
    findings = []
    for other in others:
        names = sorted({*first.versions, *other.versions})
        pairs = {name: (other.versions.get(name), first.versions.get(name)) for name in names}
        differing = {name: (ours, its) for name, (ours, its) in pairs.items() if ours != its}
        if differing:
            vital = any(name.startswith(_VITAL) for name in differing)
            text = "; ".join(
                f"{name} {ours or 'none'} on {other.host}, {its or 'none'} on {first.host}"
                for name, (ours, its) in differing.items()
            )
            spoils = "workers may not work together" if vital else "measured times of these hosts cannot be compared"
            remedy = "use the same .venv on all hosts"
            findings.append(Finding(SAME, BAD if vital else WARN, text, spoils, remedy, other.host))
    return findings or [Finding(SAME, OK, f"{len(examined)} hosts have the same software")]


def _ucx() -> tuple[Ucx | None, str]:
    try:
        import ucxx  # noqa: F401  (loads the UCX that a worker would load, and refuses one that does not fit)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    library = ucx_library()
    installed = find_installed()
    return Ucx(str(library.version), str(library.origin), frozenset(installed.transports if installed else ())), ""


def _limit(which: int) -> int | None:
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _disks() -> tuple[Disk, Disk]:
    """The results folder, as `run` without options takes it, and the folder for temporary files."""
    option = BY_KEY["results"]
    results = Path(os.environ.get(option.variable) or str(option.default)).absolute()
    temporary = Path(tempfile.gettempdir())
    return (
        Disk("records", results, free_bytes(results), "--results DIR"),
        Disk("temporary files", temporary, free_bytes(temporary), "TMPDIR"),
    )


def free_bytes(folder: Path) -> int | None:
    """Bytes that this user can write to `folder`, or to the first folder above it that exists; None if unknown."""
    for existing in (folder, *folder.parents):
        try:
            usage = os.statvfs(existing)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return usage.f_bavail * usage.f_frsize
    return None


def _shared_memory(path: Path) -> tuple[int, int] | None:
    try:
        usage = os.statvfs(path)
    except OSError:
        return None
    return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

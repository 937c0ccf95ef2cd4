"""Checks of memory: shared, locked, available, swapped, and its page sizes."""

from __future__ import annotations

from merge_bench.host import files
from merge_bench.host.doctor.base import Check, Finding, Machine, bad, ok, warn
from merge_bench.host.memory import SEGMENT_BYTES
from merge_bench.units import format_bytes

MIB, GIB = 1 << 20, 1 << 30
# UCX's posix transport took 33 MiB of /dev/shm for two workers (measured, UCX 1.21); a container's default is 64 MiB.
LEAST_SHM, ENOUGH_SHM = 40 * MIB, GIB
LEAST_SEGMENT, ENOUGH_SYSV = 64 * MIB, GIB
LEAST_MEMORY, ENOUGH_MEMORY = GIB, 4 * GIB
RESERVED_SHARE, SWAPPED_SHARE = 0.1, 0.01  # of the memory
PAGE = 4096


def shared_memory(machine: Machine) -> Finding:
    """Whether UCX's posix transport can create segments in /dev/shm, and the free space there."""
    if machine.shared_memory is None:
        return bad("does not exist", "UCX has no posix shared memory", "mount a tmpfs at /dev/shm")
    size, free = machine.shared_memory
    found = f"{format_bytes(free)} free of {format_bytes(size)}"
    remedy = "run mount -o remount,size=50% /dev/shm; for a container, use --shm-size=8g or --ipc=host"
    if free >= SEGMENT_BYTES and machine.segment_problem:
        return bad(
            f"{found}; a segment cannot be created: {machine.segment_problem}",
            "workers fail when they open UCX",
            "make it writable (mount -o remount,rw,mode=1777 /dev/shm), or set UCX_TLS=^posix",
        )
    if free < LEAST_SHM:
        return bad(found, "where UCX uses posix instead of sysv, workers cannot connect, or crash with SIGBUS", remedy)
    if free < ENOUGH_SHM:
        return warn(found, "each worker needs about 17 MiB, so many workers do not fit", remedy)
    return ok(found)


def sysv_limits(machine: Machine) -> Finding:
    """The kernel's limits of System V shared memory, which UCX prefers to /dev/shm."""
    limits = (files.number(machine.root / "proc/sys/kernel" / name) for name in ("shmmax", "shmall", "shmmni"))
    segment, pages, segments = limits
    if segment is None or pages is None:
        return warn("limits unknown", "UCX uses /dev/shm if it has no sysv transport")
    total = pages * PAGE
    found = f"largest segment {_size(segment)}, total size {_size(total)}, at most {segments or '?'} segments"
    remedy = "run sysctl -w kernel.shmmax=68719476736 kernel.shmall=16777216"
    if min(segment, total) < LEAST_SEGMENT:
        return bad(found, "UCX cannot create its segments, so it does not use the sysv transport", remedy)
    if total < ENOUGH_SYSV:
        return warn(found, "many workers do not fit into these limits", remedy)
    return ok(found)


def _size(count: int) -> str:
    return "unlimited" if count >= 1 << 60 else format_bytes(count)


def locked_memory(machine: Machine) -> Finding:
    """How much memory a process may lock: RDMA locks its buffers."""
    limit = machine.limits.get("memlock")
    if limit is None:
        return ok("unlimited")
    found = f"up to {format_bytes(limit)}"
    adapters = files.names(machine.root / "sys/class/infiniband")
    if not adapters:
        return ok(f"{found}; enough without an RDMA adapter")
    return bad(
        found,
        f"UCX cannot register its RDMA buffers with {', '.join(adapters)}",
        "run ulimit -l unlimited; to make it permanent, set '* - memlock unlimited' in /etc/security/limits.d and in"
        " the batch system",
    )


def available(machine: Machine) -> Finding:
    """Memory that a run can allocate, under a container's limit."""
    found = f"{format_bytes(machine.available_bytes)} of {format_bytes(machine.total_bytes)}"
    if machine.available_bytes >= ENOUGH_MEMORY:
        return ok(found)
    result = bad if machine.available_bytes < LEAST_MEMORY else warn
    return result(found, "only small chunks fit", "end processes that use memory, or raise the container's limit")


def transparent_huge_pages(machine: Machine) -> Finding:
    """Whether large buffers can get large pages."""
    path = machine.root / "sys/kernel/mm/transparent_hugepage/enabled"
    chosen = files.chosen(path) or "not supported by this kernel"
    if chosen != "never":
        return ok(chosen)
    remedy = "run echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
    return warn(chosen, "first and random accesses to memory are slower", remedy)


def reserved_huge_pages(machine: Machine) -> Finding:
    """Memory reserved for huge pages, which a run cannot use."""
    numbers = files.kib_fields(machine.root / "proc/meminfo")
    reserved = numbers.get("HugePages_Free", 0) * numbers.get("Hugepagesize", 0)
    found = format_bytes(reserved) if reserved else "none"
    if reserved > RESERVED_SHARE * machine.total_bytes:
        return warn(found, "a run cannot use memory reserved for huge pages", "run sysctl -w vm.nr_hugepages=0")
    return ok(found)


def swap(machine: Machine) -> Finding:
    """Whether memory was swapped out."""
    numbers = files.kib_fields(machine.root / "proc/meminfo")
    used = numbers.get("SwapTotal", 0) - numbers.get("SwapFree", 0)
    found = f"{format_bytes(used)} in use" if used else "not in use"
    if used > SWAPPED_SHARE * machine.total_bytes:
        return warn(found, "reading swapped pages from disk slows iterations", "run swapoff -a before the measurement")
    return ok(found)


CHECKS: dict[str, Check] = {
    "/dev/shm": shared_memory,
    "SysV shared memory": sysv_limits,
    "locked memory": locked_memory,
    "available memory": available,
    "transparent huge pages": transparent_huge_pages,
    "reserved huge pages": reserved_huge_pages,
    "swap": swap,
}

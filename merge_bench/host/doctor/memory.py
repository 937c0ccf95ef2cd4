"""Memory: shared between processes, locked, available, and in what pages."""

from __future__ import annotations

from merge_bench.host.doctor.base import BAD, OK, WARN, Check, Finding, Machine
from merge_bench.units import format_bytes

MIB, GIB = 1 << 20, 1 << 30
# UCX's posix transport took 33 MiB of /dev/shm for two workers (measured, UCX 1.21); a container's default is 64 MiB.
LEAST_SHM, ENOUGH_SHM = 40 * MIB, GIB
LEAST_SEGMENT, ENOUGH_SYSV = 64 * MIB, GIB
LEAST_MEMORY, ENOUGH_MEMORY = GIB, 4 * GIB
RESERVED_SHARE = 0.1  # of the memory
PAGE = 4096


def shared_memory(machine: Machine) -> Finding:
    """Room in /dev/shm, where UCX's posix transport lives."""
    name = "/dev/shm"
    remedy = "mount -o remount,size=50% /dev/shm; in a container --shm-size=8g or --ipc=host"
    if machine.shared_memory is None:
        return Finding(name, BAD, "there is none", "UCX has no posix shared memory", "mount a tmpfs there")
    size, free = machine.shared_memory
    found = f"{format_bytes(free)} free of {format_bytes(size)}"
    if free < LEAST_SHM:
        return Finding(name, BAD, found, "workers fail to connect over shared memory, or end with SIGBUS", remedy)
    if free < ENOUGH_SHM:
        return Finding(name, WARN, found, "each worker takes about 17 MiB: many workers will not fit", remedy)
    return Finding(name, OK, found)


def sysv_limits(machine: Machine) -> Finding:
    """The kernel's limits of System V shared memory, which UCX prefers to /dev/shm."""
    name = "SysV shared memory"
    segment, pages = machine.number("proc/sys/kernel/shmmax"), machine.number("proc/sys/kernel/shmall")
    segments = machine.number("proc/sys/kernel/shmmni")
    if segment is None or pages is None:
        return Finding(name, WARN, "the kernel does not tell its limits", "sysv may be missing: see /dev/shm")
    found = f"segments up to {_limit(segment)}, {_limit(pages * PAGE)} in all, {segments or '?'} segments"
    remedy = "sysctl -w kernel.shmmax=68719476736 kernel.shmall=16777216"
    if segment < LEAST_SEGMENT or pages * PAGE < LEAST_SEGMENT:
        return Finding(name, BAD, found, "UCX cannot make its segments and drops sysv", remedy)
    if pages * PAGE < ENOUGH_SYSV:
        return Finding(name, WARN, found, "many workers will not fit", remedy)
    return Finding(name, OK, found)


def locked_memory(machine: Machine) -> Finding:
    """How much memory a process may lock: RDMA locks whatever it sends from."""
    name = "locked memory"
    limit = machine.limits.get("memlock")
    found = "unlimited" if limit is None else f"up to {format_bytes(limit)}"
    rdma = machine.names("sys/class/infiniband")
    if limit is None or not rdma:
        return Finding(name, OK, found if limit is None else f"{found}; only RDMA needs it, and there is no adapter")
    return Finding(
        name,
        BAD,
        found,
        f"RDMA over {', '.join(rdma)} cannot register its buffers",
        "ulimit -l unlimited; for good: '* - memlock unlimited' in /etc/security/limits.d, and in the batch system",
    )


def available(machine: Machine) -> Finding:
    """Memory that a run could take, a container's limit included."""
    name = "available memory"
    found = f"{format_bytes(machine.available_bytes)} of {format_bytes(machine.total_bytes)}"
    state = OK if machine.available_bytes >= ENOUGH_MEMORY else WARN
    if machine.available_bytes < LEAST_MEMORY:
        state = BAD
    if state == OK:
        return Finding(name, OK, found)
    return Finding(name, state, found, "only small chunks fit", "end what holds memory, or raise the container's limit")


def transparent_huge_pages(machine: Machine) -> Finding:
    """Whether large buffers may get large pages."""
    name = "transparent huge pages"
    text = machine.read("sys/kernel/mm/transparent_hugepage/enabled")
    if text is None:
        return Finding(name, OK, "the kernel has none")
    chosen = text[text.find("[") + 1 : text.find("]")] if "[" in text else text
    if chosen == "never":
        return Finding(
            name,
            WARN,
            chosen,
            "first touch of memory, and scattered access to it, take longer",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    return Finding(name, OK, chosen)


def reserved_huge_pages(machine: Machine) -> Finding:
    """Memory set aside for huge pages, which nothing here can use."""
    name = "reserved huge pages"
    numbers = _meminfo(machine)
    size = numbers.get("Hugepagesize", 0) * 1024
    reserved, total = numbers.get("HugePages_Free", 0) * size, numbers.get("MemTotal", 0) * 1024
    found = format_bytes(reserved) if reserved else "none"
    if total and reserved > RESERVED_SHARE * total:
        return Finding(name, WARN, found, "so much less memory for a run", "sysctl -w vm.nr_hugepages=0")
    return Finding(name, OK, found)


def swap(machine: Machine) -> Finding:
    """Whether anything was swapped out."""
    numbers = _meminfo(machine)
    used = (numbers.get("SwapTotal", 0) - numbers.get("SwapFree", 0)) * 1024
    if used > 0.01 * machine.total_bytes:
        return Finding(
            "swap",
            WARN,
            f"{format_bytes(used)} in use",
            "memory was short: pages that come back from disk show up as slow iterations",
            "swapoff -a for the time of the measurement",
        )
    return Finding("swap", OK, f"{format_bytes(used)} in use" if used else "not in use")


def _limit(count: int) -> str:
    return "any size" if count >= 1 << 60 else format_bytes(count)


def _meminfo(machine: Machine) -> dict[str, int]:
    found = {}
    for line in (machine.read("proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        if rest.split() and rest.split()[0].isdigit():
            found[name] = int(rest.split()[0])
    return found


CHECKS: tuple[Check, ...] = (
    shared_memory, sysv_limits, locked_memory, available, transparent_huge_pages, reserved_huge_pages, swap,
)  # fmt: skip

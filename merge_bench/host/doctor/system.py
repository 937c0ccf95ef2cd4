"""Checks of kernel, processor and disks: memory access between processes, limits, clocks, other load, free space."""

from __future__ import annotations

from collections import Counter

from merge_bench.host import files, network
from merge_bench.host.doctor.base import Check, Finding, Machine, bad, ok, warn
from merge_bench.host.memory import quota_cores
from merge_bench.host.other_load import OVERRUN
from merge_bench.units import format_bytes

_CAP_SYS_PTRACE = 19
LEAST_DISK, ENOUGH_DISK = 16 << 20, 1 << 30
LEAST_FILES, ENOUGH_FILES = 256, 4096
SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies"})
PACING = "bbr"  # and its later versions
_FALLBACK = "UCX does not use cma, so data between workers on one host is copied twice, through shared memory"


def ptrace_scope(machine: Machine) -> Finding:
    """Whether a worker may read another's memory (cma), by UCX's rule: scope 2 needs a capability, 3 forbids it."""
    scope = files.number(machine.root / "proc/sys/kernel/yama/ptrace_scope")
    if scope is None or scope <= 1:  # with 1, UCX allows its peers by prctl
        return ok("not restricted" if scope is None else str(scope))
    capabilities = files.fields(machine.root / "proc/self/status").get("CapEff", "0")
    if scope == 2 and int(capabilities, 16) >> _CAP_SYS_PTRACE & 1:
        return ok("2, and this process has CAP_SYS_PTRACE")
    remedy = "run sysctl -w kernel.yama.ptrace_scope=1" if scope == 2 else "boot with kernel.yama.ptrace_scope=1"
    return warn(str(scope), _FALLBACK, f"{remedy}; for a container, use --cap-add=SYS_PTRACE")


def cross_memory_attach(machine: Machine) -> Finding:
    """Whether cma works for the loaded UCX."""
    if machine.ucx is None or not machine.ucx.transports:
        return warn("unknown: ucx_info cannot be run")
    if "cma" in machine.ucx.transports:
        return ok("available")
    return warn(
        "not available",
        _FALLBACK,
        "see the check ptrace scope; for a container, allow process_vm_readv in its seccomp profile",
    )


def open_files(machine: Machine) -> Finding:
    """How many files and sockets a process may open."""
    limit = machine.limits.get("nofile")
    if limit is None:
        return ok("unlimited")
    if limit >= ENOUGH_FILES:
        return ok(f"up to {limit:,}")
    result = bad if limit < LEAST_FILES else warn
    return result(
        f"up to {limit:,}",
        "each connection needs several open files, so many workers cannot connect",
        "run ulimit -n 65536",
    )


def disk_space(machine: Machine) -> Finding:
    """Free space where a run writes its records and its temporary files."""
    found = ", ".join(
        f"{'unknown' if each.free is None else format_bytes(each.free)} free in {each.folder} ({each.what})"
        for each in machine.disks
    )
    little = [each for each in machine.disks if each.free is not None and each.free < ENOUGH_DISK]
    if not little:
        return ok(found or "unknown")
    remedy = "delete old files there, or choose another folder: " + ", ".join(each.named_by for each in little)
    result = bad if any((each.free or 0) < LEAST_DISK for each in little) else warn
    return result(found, "a run ends when the disk is full, with only what it measured until then", remedy)


def governor(machine: Machine) -> Finding:
    """Whether the cores always run at full speed."""
    cpus = machine.root / "sys/devices/system/cpu"
    governors = (files.text(each / "cpufreq/scaling_governor") for each in sorted(cpus.glob("cpu[0-9]*")))
    chosen = Counter(filter(None, governors))
    if not chosen:
        return ok("unknown (a virtual machine, or a fixed frequency)")
    found = ", ".join(f"{count} × {text}" for text, count in chosen.most_common())
    if set(chosen) == {"performance"}:
        return ok(found)
    spoils = "short iterations run before the cores reach full speed, so times vary"
    return warn(found, spoils, "run cpupower frequency-set -g performance")


def clock_source(machine: Machine) -> Finding:
    """The kernel's time source, which every measurement reads."""
    source = files.text(machine.root / "sys/devices/system/clocksource/clocksource0/current_clocksource") or "unknown"
    if source not in SLOW_CLOCKS:
        return ok(source)
    remedy = "boot with clocksource=tsc if the hardware allows it"
    return warn(source, "reading the time takes a microsecond instead of 20 ns", remedy)


def numa_balancing(machine: Machine) -> Finding:
    """Whether the kernel moves pages between nodes during a measurement."""
    nodes = len(network.numa_nodes(machine.root / "sys"))
    if nodes <= 1:
        return ok("one NUMA node")
    if not files.number(machine.root / "proc/sys/kernel/numa_balancing"):
        return ok("off")
    spoils = "the kernel moves pages during iterations, so times vary"
    return warn(f"on, with {nodes} NUMA nodes", spoils, "run sysctl -w kernel.numa_balancing=0")


def congestion_control(machine: Machine) -> Finding:
    """TCP's algorithm: one that paces slows down a sender that always has data to send."""
    chosen = files.text(machine.root / "proc/sys/net/ipv4/tcp_congestion_control") or "unknown"
    if not chosen.startswith(PACING):
        return ok(chosen)
    return warn(
        chosen,
        "TCP is limited to rates measured earlier, so concurrent messages are slower than single ones, above all on lo",
        "run sysctl -w net.ipv4.tcp_congestion_control=cubic before the workers start",
    )


def load(machine: Machine) -> Finding:
    """Whether other processes use the cores."""
    found = str(machine.load)
    remedy = "end these processes, use another machine, or run with --wait-for-quiet 5m"
    if machine.load.share >= OVERRUN:
        return bad(found, "every measured time includes waiting for a core", remedy)
    return ok(found) if machine.load.quiet else warn(found, "measured times are longer and vary more", remedy)


def cpu_quota(machine: Machine) -> Finding:
    """Whether a container may use all the cores that it sees."""
    cores = quota_cores(machine.root)
    if cores is None:
        return ok("none")
    found = f"{cores:g} of {machine.cores} cores"
    if cores >= machine.cores:
        return ok(found)
    remedy = "replace the quota: give the container the same number of whole cores with --cpuset-cpus"
    return warn(
        found, "the kernel stops the container when it has used up its quota for a period, so times vary", remedy
    )


CHECKS: dict[str, Check] = {
    "ptrace scope": ptrace_scope,
    "cma": cross_memory_attach,
    "open files": open_files,
    "disk space": disk_space,
    "CPU governor": governor,
    "clock source": clock_source,
    "NUMA balancing": numa_balancing,
    "TCP congestion control": congestion_control,
    "other load": load,
    "CPU quota": cpu_quota,
}

"""Kernel and processor: who may read whom, limits, clocks, and who else is running."""

from __future__ import annotations

from collections import Counter

from merge_bench.host.doctor.base import BAD, OK, WARN, Check, Finding, Machine
from merge_bench.host.memory import quota_cores

_CAP_SYS_PTRACE = 19
LEAST_FILES, ENOUGH_FILES = 256, 4096
SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies"})
PACING = "bbr"  # and its later versions
BUSY, OVERRUN = 0.25, 1.0  # of the cores
_FALLBACK = "UCX drops cma: on one host data is copied twice, through shared memory"


def ptrace_scope(machine: Machine) -> Finding:
    """Whether one worker may read another's memory (cma), as UCX decides it: scope 2 needs a capability, 3 forbids."""
    name = "ptrace scope"
    scope = machine.number("proc/sys/kernel/yama/ptrace_scope")
    if scope is None or scope <= 1:  # with 1, UCX allows its peers by prctl
        return Finding(name, OK, "not restricted" if scope is None else str(scope))
    if scope == 2 and _has_capability(machine, _CAP_SYS_PTRACE):
        return Finding(name, OK, "2, and this process has CAP_SYS_PTRACE")
    remedy = "sysctl -w kernel.yama.ptrace_scope=1" if scope == 2 else "kernel.yama.ptrace_scope=1 from boot on"
    return Finding(name, WARN, str(scope), _FALLBACK, f"{remedy}; in a container --cap-add=SYS_PTRACE")


def _has_capability(machine: Machine, number: int) -> bool:
    for line in (machine.read("proc/self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def cross_memory_attach(machine: Machine) -> Finding:
    """Whether the loaded UCX found cma to work."""
    name = "cma"
    if machine.ucx is None or not machine.ucx.transports:
        return Finding(name, WARN, "not known: no UCX could be asked")
    if "cma" in machine.ucx.transports:
        return Finding(name, OK, "available")
    return Finding(
        name, WARN, "not available", _FALLBACK, "see ptrace scope; in a container allow process_vm_readv in seccomp"
    )


def open_files(machine: Machine) -> Finding:
    """How many files and sockets a process may have open."""
    name = "open files"
    limit = machine.limits.get("nofile")
    found = "unlimited" if limit is None else f"up to {limit:,}"
    if limit is None or limit >= ENOUGH_FILES:
        return Finding(name, OK, found)
    state = BAD if limit < LEAST_FILES else WARN
    return Finding(name, state, found, "every connection takes some: many workers will not connect", "ulimit -n 65536")


def governor(machine: Machine) -> Finding:
    """Whether the cores run at full speed from the start."""
    name = "CPU governor"
    chosen: Counter[str] = Counter()
    for cpu in machine.names("sys/devices/system/cpu"):
        text = machine.read(f"sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor") if cpu[3:].isdigit() else None
        if text:
            chosen[text] += 1
    if not chosen:
        return Finding(name, OK, "not told here (a virtual machine, or fixed)")
    found = ", ".join(f"{count} × {text}" for text, count in chosen.most_common())
    if set(chosen) == {"performance"}:
        return Finding(name, OK, found)
    return Finding(
        name, WARN, found, "short iterations run before the clock has risen, so they scatter",
        "cpupower frequency-set -g performance",
    )  # fmt: skip


def clock_source(machine: Machine) -> Finding:
    """What the kernel reads the time from: every measurement does."""
    name = "clock source"
    text = machine.read("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if text in SLOW_CLOCKS:
        return Finding(
            name, WARN, str(text), "reading the clock takes a microsecond instead of 20 ns",
            "boot with clocksource=tsc where the hardware allows it",
        )  # fmt: skip
    return Finding(name, OK, text or "not told")


def numa_balancing(machine: Machine) -> Finding:
    """Whether the kernel moves pages between nodes while they are measured."""
    name = "NUMA balancing"
    nodes = [node for node in machine.names("sys/devices/system/node") if node[4:].isdigit() and node[:4] == "node"]
    if machine.number("proc/sys/kernel/numa_balancing") and len(nodes) > 1:
        return Finding(
            name, WARN, f"on, with {len(nodes)} nodes", "pages move during iterations, so they scatter",
            "sysctl -w kernel.numa_balancing=0",
        )  # fmt: skip
    return Finding(name, OK, "off" if len(nodes) > 1 else "one node")


def congestion_control(machine: Machine) -> Finding:
    """How TCP decides what to send: an algorithm that paces holds back a sender that always has something to send."""
    name = "TCP congestion control"
    chosen = machine.read("proc/sys/net/ipv4/tcp_congestion_control")
    if chosen is None or not chosen.startswith(PACING):
        return Finding(name, OK, chosen or "not told")
    return Finding(
        name, WARN, chosen,
        "only over tcp: it paces by what it measured, so long queues go slower than one message after the other, above "
        "all over lo",
        "sysctl -w net.ipv4.tcp_congestion_control=cubic, before the workers start",
    )  # fmt: skip


def load(machine: Machine) -> Finding:
    """Who else uses the cores."""
    name = "other load"
    found = f"load {machine.load:.2f} on {machine.cores} cores"
    share = machine.load / max(machine.cores, 1)
    if share < BUSY:
        return Finding(name, OK, found)
    state = BAD if share >= OVERRUN else WARN
    spoils = "every time holds waiting for a core" if state == BAD else "times scatter and grow"
    return Finding(name, state, found, spoils, "end what else runs, or take a machine of its own; see top")


def cpu_quota(machine: Machine) -> Finding:
    """Whether a container may use the cores that it sees."""
    name = "CPU quota"
    cores = quota_cores(machine.read)
    if cores is None:
        return Finding(name, OK, "none")
    found = f"{cores:g} of {machine.cores} cores"
    if cores >= machine.cores:
        return Finding(name, OK, found)
    return Finding(
        name, WARN, found, "the kernel stops the container for the rest of a period: times jump",
        "give it whole cores instead (--cpuset-cpus), as many as the quota",
    )  # fmt: skip


CHECKS: tuple[Check, ...] = (
    ptrace_scope, cross_memory_attach, open_files, governor, clock_source, numa_balancing, congestion_control, load,
    cpu_quota,
)  # fmt: skip

"""Checks for conditions of a host that would spoil a run: memory, kernel, processor, disks, adapters, GPUs, software.

Each check takes a `HostCheckFacts` to look at, and returns a `Finding`. Hosts of a cluster are also compared with each
other.
"""

from __future__ import annotations

import functools
import os
import re
import resource
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import msgspec

from merge_bench.config import allowed_transports
from merge_bench.config.allowed_transports import UCX_PORTS
from merge_bench.config.installation import setup_command
from merge_bench.config.options import BY_KEY
from merge_bench.config.ucx_choice import CUDA_REMEDY
from merge_bench.config.ucx_info import find_installed_ucx
from merge_bench.host import gpu, kernel_files, network, other_load
from merge_bench.host import machine as this_machine
from merge_bench.host.description import Finding, GpuWithProcesses
from merge_bench.host.other_load import OVERRUN, OtherProcessLoad
from merge_bench.units import format_bytes

OK, WARN, BAD = "ok", "warn", "bad"
STATES = (OK, WARN, BAD)
"""From harmless to harmful: with `BAD` a run fails, or its results mean nothing."""
MIB, GIB = 1 << 20, 1 << 30
# UCX's posix transport took 33 MiB of /dev/shm for two workers (measured, UCX 1.21); a container's default is 64 MiB.
LEAST_SHM, ENOUGH_SHM = 40 * MIB, GIB
LEAST_SEGMENT, ENOUGH_SYSV = 64 * MIB, GIB
LEAST_MEMORY, ENOUGH_MEMORY = GIB, 4 * GIB
RESERVED_SHARE, SWAPPED_SHARE = 0.1, 0.01  # of the memory
PAGE = 4096
_CAP_SYS_PTRACE = 19
LEAST_DISK, ENOUGH_DISK = 16 << 20, 1 << 30
LEAST_FILES, ENOUGH_FILES = 256, 4096
SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies", "pit", "refined-jiffies"})
PACING = "bbr"  # and its later versions
_FALLBACK = "UCX does not use cma, so data between workers on one host is copied twice, through shared memory"
LEAST_UCX = (1, 19)
LEAST_DRIVER = {"cu12": 535, "cu13": 580}
_STACK = re.compile(r"^(.*)-(cu1\d)$")
SHARED_MEMORY = Path("/dev/shm")
# If these differ, workers may not work together; if others differ, times are hard to compare.
SAME = "same software"
_VITAL = ("dask", "distributed", "merge-bench", "UCX", "ucxx")


@dataclass(frozen=True)
class WorkerUcx:
    """The UCX that workers on a host load.

    `origin`: ``wheel`` or ``system``; `transports`: those available on this host.
    """

    version: str
    origin: str
    transports: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.version} ({self.origin})"


@dataclass(frozen=True)
class OutputFolder:
    """A folder that a run writes to, and its free space.

    `what`: what the run writes there; `free`: bytes, None if unknown; `named_by`: the option or variable that chooses
    another folder.
    """

    what: str
    folder: Path
    free: int | None
    named_by: str


@dataclass(frozen=True)
class HostCheckFacts:
    """The facts about one host that the checks of `doctor` judge.

    `root`: where its file systems are mounted. `cores`: those that a process may use. `load`: what other processes use
    of them. `limits`: soft limits of a process by name, None for unlimited. `shared_memory`: size and free bytes of
    /dev/shm, None if it does not exist; `segment_problem`: why no segment can be created there, empty if one can.
    `disks`: folders that a run writes to. `ucx`: None if none can be loaded; `ucx_error`: why. `packages`: versions by
    name.
    """

    root: Path = Path("/")
    cores: int = 1
    load: OtherProcessLoad = field(default_factory=OtherProcessLoad)
    available_bytes: int = 0
    total_bytes: int = 0
    limits: Mapping[str, int | None] = field(default_factory=dict)
    shared_memory: tuple[int, int] | None = None
    segment_problem: str = ""
    disks: Sequence[OutputFolder] = ()
    gpus: Sequence[GpuWithProcesses] = ()
    ucx: WorkerUcx | None = None
    ucx_error: str = ""
    packages: Mapping[str, str | None] = field(default_factory=dict)


Check: TypeAlias = Callable[[HostCheckFacts], Finding]

# A check makes its finding with one of these: `warn(fact, spoils, remedy)`. `examine` adds its name and the host's.
ok, warn, bad = (functools.partial(Finding, "", state) for state in STATES)


def make_finding(is_problem: bool, fact: str, effect: str, remedy: str) -> Finding:
    """Make a finding: a warning with `effect` and `remedy` if `is_problem`, else a finding that the host is ok."""
    return warn(fact, effect, remedy) if is_problem else ok(fact)


def worst_finding_state(findings: Iterable[Finding]) -> str:
    """Return the most harmful state of the findings: ``ok``, ``warn`` or ``bad``."""
    return max((finding.state for finding in findings), key=STATES.index, default=OK)


def check_shared_memory(machine: HostCheckFacts) -> Finding:
    """Check whether UCX's posix transport can create segments in /dev/shm, and the free space there."""
    if machine.shared_memory is None:
        return bad("does not exist", "UCX has no posix shared memory", "mount a tmpfs at /dev/shm")
    size, free = machine.shared_memory
    fact = f"{format_bytes(free)} free of {format_bytes(size)}"
    remedy = "run mount -o remount,size=50% /dev/shm; for a container, use --shm-size=8g or --ipc=host"
    if free >= this_machine.SEGMENT_BYTES and machine.segment_problem:
        return bad(
            f"{fact}; a segment cannot be created: {machine.segment_problem}",
            "workers fail when they open UCX",
            "make it writable (mount -o remount,rw,mode=1777 /dev/shm), or set UCX_TLS=^posix",
        )
    if free < LEAST_SHM:
        return bad(fact, "where UCX uses posix instead of sysv, workers cannot connect, or crash with SIGBUS", remedy)
    if free < ENOUGH_SHM:
        return warn(fact, "each worker needs about 17 MiB, so many workers do not fit", remedy)
    return ok(fact)


def check_sysv_limits(machine: HostCheckFacts) -> Finding:
    """Check whether the kernel's limits of System V shared memory, which UCX prefers to /dev/shm, are large enough."""
    limits = (
        kernel_files.read_number(machine.root / "proc/sys/kernel" / name) for name in ("shmmax", "shmall", "shmmni")
    )
    segment, pages, segments = limits
    if segment is None or pages is None:
        return warn("limits unknown", "UCX uses /dev/shm if it has no sysv transport")
    total = pages * PAGE
    sizes = f"largest segment {_format_shared_memory_limit(segment)}, total size {_format_shared_memory_limit(total)}"
    fact = f"{sizes}, at most {segments or '?'} segments"
    remedy = "run sysctl -w kernel.shmmax=68719476736 kernel.shmall=16777216"
    if min(segment, total) < LEAST_SEGMENT:
        return bad(fact, "UCX cannot create its segments, so it does not use the sysv transport", remedy)
    if total < ENOUGH_SYSV:
        return warn(fact, "many workers do not fit into these limits", remedy)
    return ok(fact)


def _format_shared_memory_limit(limit_bytes: int) -> str:
    return "unlimited" if limit_bytes >= 1 << 60 else format_bytes(limit_bytes)


def check_locked_memory(machine: HostCheckFacts) -> Finding:
    """Check whether a worker may lock enough memory for RDMA."""
    limit = machine.limits.get("memlock")
    if limit is None:
        return ok("unlimited")
    fact = f"up to {format_bytes(limit)}"
    names = kernel_files.list_file_names(machine.root / "sys/class/infiniband")
    if not names:
        return ok(f"{fact}; enough without an RDMA adapter")
    remedy = (
        "run ulimit -l unlimited; to make it permanent, set '* - memlock unlimited' in /etc/security/limits.d and in"
        " the batch system"
    )
    return bad(fact, f"UCX cannot register its RDMA buffers with {', '.join(names)}", remedy)


def check_available_memory(machine: HostCheckFacts) -> Finding:
    """Check whether processes can still allocate enough memory."""
    fact = f"{format_bytes(machine.available_bytes)} of {format_bytes(machine.total_bytes)}"
    if machine.available_bytes >= ENOUGH_MEMORY:
        return ok(fact)
    result = bad if machine.available_bytes < LEAST_MEMORY else warn
    return result(fact, "only small chunks fit", "end processes that use memory, or raise the container's limit")


def check_transparent_huge_pages(machine: HostCheckFacts) -> Finding:
    """Check whether the kernel may use huge pages for a process's memory."""
    path = machine.root / "sys/kernel/mm/transparent_hugepage/enabled"
    chosen = kernel_files.read_bracketed_word(path) or "not supported by this kernel"
    remedy = "run echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
    return make_finding(chosen == "never", chosen, "first and random accesses to memory are slower", remedy)


def check_reserved_huge_pages(machine: HostCheckFacts) -> Finding:
    """Check whether much memory is reserved for huge pages, which a run cannot use."""
    numbers = kernel_files.read_named_byte_counts(machine.root / "proc/meminfo")
    reserved = numbers.get("HugePages_Free", 0) * numbers.get("Hugepagesize", 0)
    fact = format_bytes(reserved) if reserved else "none"
    much = reserved > RESERVED_SHARE * machine.total_bytes
    return make_finding(
        much, fact, "a run cannot use memory reserved for huge pages", "run sysctl -w vm.nr_hugepages=0"
    )


def check_swap(machine: HostCheckFacts) -> Finding:
    """Check whether pages of memory are swapped to disk."""
    numbers = kernel_files.read_named_byte_counts(machine.root / "proc/meminfo")
    used = numbers.get("SwapTotal", 0) - numbers.get("SwapFree", 0)
    fact = f"{format_bytes(used)} in use" if used else "not in use"
    spoils, remedy = "reading swapped pages from disk slows iterations", "run swapoff -a before the measurement"
    return make_finding(used > SWAPPED_SHARE * machine.total_bytes, fact, spoils, remedy)


def check_ptrace_scope(machine: HostCheckFacts) -> Finding:
    """Check whether the kernel lets a worker read another worker's memory (UCX's cma): ptrace_scope 0 or 1 does.

    UCX's own rule: scope 2 needs a capability, scope 3 forbids it.
    """
    scope = kernel_files.read_number(machine.root / "proc/sys/kernel/yama/ptrace_scope")
    if scope is None or scope <= 1:  # with 1, UCX allows its peers by prctl
        return ok("not restricted" if scope is None else str(scope))
    capabilities = kernel_files.read_named_values(machine.root / "proc/self/status").get("CapEff", "0")
    if scope == 2 and int(capabilities, 16) >> _CAP_SYS_PTRACE & 1:
        return ok("2, and this process has CAP_SYS_PTRACE")
    remedy = "run sysctl -w kernel.yama.ptrace_scope=1" if scope == 2 else "boot with kernel.yama.ptrace_scope=1"
    return warn(str(scope), _FALLBACK, f"{remedy}; for a container, use --cap-add=SYS_PTRACE")


def check_cross_memory_attach(machine: HostCheckFacts) -> Finding:
    """Check whether UCX can read the memory of another worker on this host (cma)."""
    if machine.ucx is None or not machine.ucx.transports:
        return warn("unknown: ucx_info cannot be run")
    remedy = "see the check ptrace scope; for a container, allow process_vm_readv in its seccomp profile"
    return ok("available") if "cma" in machine.ucx.transports else warn("not available", _FALLBACK, remedy)


def check_open_files(machine: HostCheckFacts) -> Finding:
    """Check whether a process may have enough files and connections open."""
    limit = machine.limits.get("nofile")
    if limit is None:
        return ok("unlimited")
    if limit >= ENOUGH_FILES:
        return ok(f"up to {limit:,}")
    spoils = "each connection needs several open files, so many workers cannot connect"
    return (bad if limit < LEAST_FILES else warn)(f"up to {limit:,}", spoils, "run ulimit -n 65536")


def check_disk_space(machine: HostCheckFacts) -> Finding:
    """Check the free space of the folders for a run's records and for its temporary files."""
    fact = ", ".join(
        f"{'unknown' if each.free is None else format_bytes(each.free)} free in {each.folder} ({each.what})"
        for each in machine.disks
    )
    little = [each for each in machine.disks if each.free is not None and each.free < ENOUGH_DISK]
    if not little:
        return ok(fact or "unknown")
    remedy = "delete old files there, or choose another folder: " + ", ".join(each.named_by for each in little)
    result = bad if any((each.free or 0) < LEAST_DISK for each in little) else warn
    return result(fact, "a run ends when the disk is full, with only what it measured until then", remedy)


def check_cpu_governor(machine: HostCheckFacts) -> Finding:
    """Check whether the CPU frequency governor lets the cores run at full speed from the start."""
    cpus = machine.root / "sys/devices/system/cpu"
    governors = (kernel_files.read_text(each / "cpufreq/scaling_governor") for each in sorted(cpus.glob("cpu[0-9]*")))
    chosen = Counter(filter(None, governors))
    if not chosen:
        return ok("unknown (a virtual machine, or a fixed frequency)")
    fact = ", ".join(f"{count} × {text}" for text, count in chosen.most_common())
    spoils = "short iterations run before the cores reach full speed, so times vary"
    return make_finding(set(chosen) != {"performance"}, fact, spoils, "run cpupower frequency-set -g performance")


def check_clock_source(machine: HostCheckFacts) -> Finding:
    """Check whether the kernel's clock can be read quickly."""
    folder = machine.root / "sys/devices/system/clocksource/clocksource0"
    source = kernel_files.read_text(folder / "current_clocksource") or "unknown"
    remedy = "boot with clocksource=tsc if the hardware allows it"
    return make_finding(source in SLOW_CLOCKS, source, "reading the time takes a microsecond instead of 20 ns", remedy)


def check_numa_balancing(machine: HostCheckFacts) -> Finding:
    """Check whether the kernel's automatic NUMA balancing moves memory between nodes during a run."""
    nodes = len(network.numa_node_numbers(machine.root / "sys"))
    if nodes <= 1:
        return ok("one NUMA node")
    moves = kernel_files.read_number(machine.root / "proc/sys/kernel/numa_balancing")
    spoils = "the kernel moves pages during iterations, so times vary"
    fact = f"on, with {nodes} NUMA nodes"
    return warn(fact, spoils, "run sysctl -w kernel.numa_balancing=0") if moves else ok("off")


def check_congestion_control(machine: HostCheckFacts) -> Finding:
    """Check whether TCP's congestion control paces packets (BBR), which slows down a sender that always has data."""
    chosen = kernel_files.read_text(machine.root / "proc/sys/net/ipv4/tcp_congestion_control") or "unknown"
    spoils = (
        "TCP is limited to rates measured earlier, so concurrent messages are slower than single ones, above all on lo"
    )
    remedy = "run sysctl -w net.ipv4.tcp_congestion_control=cubic before the workers start"
    return make_finding(chosen.startswith(PACING), chosen, spoils, remedy)


def check_other_load(machine: HostCheckFacts) -> Finding:
    """Check how busy other processes keep the cores."""
    fact = str(machine.load)
    remedy = "end these processes, use another machine, or run with --wait-for-quiet 5m"
    if machine.load.busy_share >= OVERRUN:
        return bad(fact, "every measured time includes waiting for a core", remedy)
    return make_finding(not machine.load.is_quiet, fact, "measured times are longer and vary more", remedy)


def check_cpu_quota(machine: HostCheckFacts) -> Finding:
    """Check whether a container's CPU quota allows less time than its cores could give."""
    cores = this_machine.cpu_quota_cores(machine.root)
    if cores is None:
        return ok("none")
    spoils = "the kernel stops the container when it has used up its quota for a period, so times vary"
    remedy = "replace the quota: give the container the same number of whole cores with --cpuset-cpus"
    return make_finding(cores < machine.cores, f"{cores:g} of {machine.cores} cores", spoils, remedy)


def check_loaded_ucx(machine: HostCheckFacts) -> Finding:
    """Check whether the UCX that workers load is new enough, and can send GPU memory."""
    if machine.ucx is None:
        return bad(machine.ucx_error or "none", "workers cannot exchange data", setup_command())
    if _version_numbers(machine.ucx.version) < LEAST_UCX:
        remedy = "use --ucx wheel to load the UCX of the package libucx"
        return bad(str(machine.ucx), "UCXX needs UCX 1.19 or newer", remedy)
    if machine.gpus and machine.ucx.transports and "cuda_copy" not in machine.ucx.transports:
        return bad(str(machine.ucx), "it cannot send GPU memory, so engine cudf is refused", CUDA_REMEDY)
    return ok(str(machine.ucx))


def check_infiniband(machine: HostCheckFacts) -> Finding:
    """Check whether UCX can use the RDMA adapters, and a port is active."""
    if not kernel_files.list_file_names(machine.root / "sys/class/infiniband"):
        return ok("no adapter")
    states = network.rdma_port_states(machine.root / "sys")
    fact = ", ".join(f"{port} {state}" for port, state in states.items()) or "ports unknown"
    transports = machine.ucx.transports & allowed_transports.RDMA if machine.ucx else frozenset[str]()
    if not transports:
        problem = f"UCX {machine.ucx} has no RDMA transport" if machine.ucx else "no UCX can be loaded"
        remedy = "use --ucx system and a UCX with InfiniBand modules (HPC-X, MOFED); /dev/infiniband must be readable"
        return bad(f"{fact}; {problem}", "data between hosts goes over TCP", remedy)
    if "ACTIVE" not in states.values():
        return bad(fact, "no port is active, so RDMA does not work", "run ibstat, and check that a subnet manager runs")
    return ok(f"{fact}; {', '.join(sorted(transports))}")


def check_gpu_peer_memory(machine: HostCheckFacts) -> Finding:
    """Check whether an adapter can access GPU memory without a copy in host memory."""
    if not machine.gpus or not kernel_files.list_file_names(machine.root / "sys/class/infiniband"):
        return ok("not needed without both a GPU and an RDMA adapter")
    loaded = {
        line.split()[0] for line in (kernel_files.read_text(machine.root / "proc/modules") or "").splitlines() if line
    }
    for module in ("nvidia_peermem", "nv_peer_mem"):
        if module in loaded:
            return ok(f"{module} is loaded")
    if machine.ucx and "gdr_copy" in machine.ucx.transports:
        return ok("gdrcopy is available; large messages also need dma-buf or nvidia_peermem")
    spoils = "GPU data is copied through host memory unless dma-buf is supported"
    return warn("nvidia_peermem is not loaded", spoils, "run modprobe nvidia_peermem")


def check_gpu_adapters(machine: HostCheckFacts) -> Finding:
    """Check how near each GPU is to an RDMA adapter."""
    sys = machine.root / "sys"
    ports = [port for port in network.active_rdma_ports(sys) if network.ucx_can_use_port(port)]
    if not machine.gpus or not ports:
        return ok("not needed without both a GPU and an RDMA adapter")
    nodes = network.read_numa_distances(sys)
    alike: dict[tuple[int, str], list[str]] = {}
    for device in machine.gpus:
        place = network.location_of_device(network.pci_device_folder(device.pci_bus_id or "", sys))
        near = network.nearest_rdma_port_names(place, ports, nodes)
        far = min(network.rdma_port_distance(place, port, nodes)[0] for port in ports)
        alike.setdefault((far, ", ".join(near)), []).append(str(device.index))
    fact = "; ".join(f"GPU {', '.join(gpus)}: {near} ({network.DISTANCES[far]})" for (far, near), gpus in alike.items())
    spoils = "data of a GPU without an adapter on its NUMA node crosses the link between processors"
    remedy = "use the GPUs beside an adapter (CUDA_VISIBLE_DEVICES), and check that no port is down"
    return make_finding(any(far == network.OTHER_NODE for far, _ in alike), fact, spoils, remedy)


def check_other_gpu_users(machine: HostCheckFacts) -> Finding:
    """Check whether other processes use the GPUs."""
    if not machine.gpus:
        return ok("no GPU")
    users = [(gpu, process) for gpu in machine.gpus for process in gpu.processes]
    if not users:
        return ok(f"none on {len(machine.gpus)} GPUs")
    sizes = (f" ({format_bytes(process.memory_bytes)})" if process.memory_bytes else "" for _, process in users)
    texts = [f"process {used.pid} on GPU {gpu.index}{size}" for (gpu, used), size in zip(users, sizes, strict=True)]
    more = f" and {len(users) - 4} more" if len(users) > 4 else ""
    return warn(", ".join(texts[:4]) + more, "these processes use memory and time of the GPU", "end these processes")


def check_gpu_driver(machine: HostCheckFacts) -> Finding:
    """Check whether the GPU driver is new enough for the installed CUDA packages."""
    versions = {gpu.driver_version for gpu in machine.gpus if gpu.driver_version}
    if not versions:
        return ok("unknown" if machine.gpus else "no GPU")
    needed = max((least for stack, least in LEAST_DRIVER.items() if f"cudf-{stack}" in machine.packages), default=0)
    fact = ", ".join(sorted(versions))
    if any(_version_numbers(version)[:1] < (needed,) for version in versions):
        remedy = f"install a newer driver, or packages for an older one: {setup_command('cu12')}"
        return bad(fact, f"the installed CUDA packages need driver {needed} or newer", remedy)
    return ok(fact)


def check_ucx_ports(machine: HostCheckFacts) -> Finding:
    """Report the TCP ports that UCX opens between hosts; a firewall cannot be seen from here."""
    ports = f"{UCX_PORTS} between hosts without RDMA"
    has_tcp = machine.ucx is not None and "tcp" in machine.ucx.transports
    return ok(f"{ports}: who can connect can write to workers' memory, so allow only the hosts" if has_tcp else "none")


def check_python_packages(machine: HostCheckFacts) -> Finding:
    """Check whether the installed packages are complete and fit together."""
    have = {package: version for package, version in machine.packages.items() if version}
    remedy = f"set the environment up again: {setup_command(replace_present=True)}"
    missing = [package for package in ("dask", "distributed") if package not in have]
    if missing:
        return bad(f"not installed: {', '.join(missing)}", "workers cannot be launched", remedy)
    wrong = []
    if have["dask"] != have["distributed"]:
        wrong.append(f"dask {have['dask']} with distributed {have['distributed']}")
    stacks = sorted({match[2] for package in have if (match := _STACK.match(package))})
    if len(stacks) > 1:
        wrong.append(f"packages for both {' and '.join(stacks)}")
    for stack in stacks:
        ours, comms = have.get(f"ucxx-{stack}"), have.get(f"distributed-ucxx-{stack}")
        if ours and comms and _version_numbers(ours)[:2] != _version_numbers(comms)[:2]:
            wrong.append(f"ucxx {ours} with distributed-ucxx {comms}")
    if wrong:
        return bad("; ".join(wrong), "these versions do not work together", remedy)
    if not stacks:
        return warn("ucxx is not installed", "only --exchange dask works", remedy)
    cuda = f" ({stacks[0]})" if machine.gpus else ""  # machines without a GPU use one of these, too
    return ok(f"dask {have['dask']}, ucxx {have.get(f'ucxx-{stacks[0]}', 'none')}{cuda}")


def _version_numbers(version: str) -> tuple[int, ...]:
    """The first three numbers of a version, to compare it with others."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


CHECKS: dict[str, Check] = {
    "/dev/shm": check_shared_memory,
    "SysV shared memory": check_sysv_limits,
    "locked memory": check_locked_memory,
    "available memory": check_available_memory,
    "transparent huge pages": check_transparent_huge_pages,
    "reserved huge pages": check_reserved_huge_pages,
    "swap": check_swap,
    "ptrace scope": check_ptrace_scope,
    "cma": check_cross_memory_attach,
    "open files": check_open_files,
    "disk space": check_disk_space,
    "CPU governor": check_cpu_governor,
    "clock source": check_clock_source,
    "NUMA balancing": check_numa_balancing,
    "TCP congestion control": check_congestion_control,
    "other load": check_other_load,
    "CPU quota": check_cpu_quota,
    "UCX": check_loaded_ucx,
    "InfiniBand": check_infiniband,
    "GPU peer memory": check_gpu_peer_memory,
    "GPU adapters": check_gpu_adapters,
    "other GPU users": check_other_gpu_users,
    "GPU driver": check_gpu_driver,
    "UCX ports": check_ucx_ports,
    "Python packages": check_python_packages,
}


@dataclass(frozen=True)
class HostExamination:
    """The result of all checks of one host: its name, the findings, and the versions of its software."""

    host: str
    findings: tuple[Finding, ...]
    versions: Mapping[str, str | None]


def collect_host_facts() -> HostCheckFacts:
    """Collect the facts about this host that the checks of `doctor` judge, as a worker started here would find them."""
    finish_load_measurement = other_load.begin_load_measurement()  # it lasts while the others are collected
    loaded, error = _find_worker_ucx()
    return HostCheckFacts(
        root=Path("/"),
        cores=this_machine.usable_core_count(),
        available_bytes=this_machine.available_memory_bytes(),
        total_bytes=this_machine.total_memory_bytes(),
        limits={
            "memlock": _soft_process_limit(resource.RLIMIT_MEMLOCK),
            "nofile": _soft_process_limit(resource.RLIMIT_NOFILE),
        },
        shared_memory=_disk_size_and_free_bytes(SHARED_MEMORY),
        segment_problem=this_machine.shared_memory_segment_problem(SHARED_MEMORY),
        disks=_find_output_folders(),
        gpus=gpu.describe_gpus(),
        ucx=loaded,
        ucx_error=error,
        packages=this_machine.installed_package_versions(),
        load=finish_load_measurement(),
    )


def examine_host(machine: HostCheckFacts, host_name: str) -> HostExamination:
    """Run every check on a host, and return its findings and the versions of its software."""
    findings = tuple(
        msgspec.structs.replace(check(machine), check=name, host=host_name) for name, check in CHECKS.items()
    )
    kernel = kernel_files.read_text(machine.root / "proc/sys/kernel/osrelease")
    others = {"UCX": machine.ucx and str(machine.ucx), "kernel": kernel}
    return HostExamination(
        host_name, findings, {**machine.packages, **{name: text for name, text in others.items() if text}}
    )


def examine_this_host() -> HostExamination:
    """Check this host, and return the findings and software versions; workers of a running cluster call this, too."""
    return examine_host(collect_host_facts(), socket.gethostname())


def compare_host_software(examinations: Iterable[HostExamination]) -> list[Finding]:
    """Return findings about software versions that differ between the hosts of one cluster; [] for one host."""
    examined = list(examinations)
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


def _find_worker_ucx() -> tuple[WorkerUcx | None, str]:
    """Return the UCX that a worker here would load, or None and the reason why none can be loaded."""
    try:
        import ucxx  # noqa: F401  (loads the UCX that a worker would load, and refuses one that does not fit)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
    library = this_machine.describe_loaded_ucx()
    installed = find_installed_ucx()
    return WorkerUcx(
        str(library.version), str(library.origin), frozenset(installed.transports if installed else ())
    ), ""


def _soft_process_limit(resource_number: int) -> int | None:
    """The soft limit of this process for a resource, as ``RLIMIT_NOFILE``; None for unlimited."""
    soft = resource.getrlimit(resource_number)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _find_output_folders() -> tuple[OutputFolder, OutputFolder]:
    """Return the results folder of a `run` without options, and the folder for temporary files."""
    option, temporary = BY_KEY["results"], Path(tempfile.gettempdir())
    results = Path(os.environ.get(option.environment_variable) or str(option.default)).absolute()
    return (
        OutputFolder("records", results, free_disk_bytes(results), "--results DIR"),
        OutputFolder("temporary files", temporary, free_disk_bytes(temporary), "TMPDIR"),
    )


def free_disk_bytes(folder: Path) -> int | None:
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


def _disk_size_and_free_bytes(mount_point: Path) -> tuple[int, int] | None:
    """Size and free bytes of the file system at `mount_point`; None if it does not exist."""
    try:
        usage = os.statvfs(mount_point)
    except OSError:
        return None
    return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

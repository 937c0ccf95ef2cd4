"""The machine and the process: versions, environment, hardware, memory, cores, and counters of bytes and energy.

Each worker reports these for the records. The energy of processors is RAPL's, which the kernel shows below
``/sys/class/powercap`` for Intel and AMD alike. Since 2020 only root can read these counters, and virtual machines
rarely have them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import platform
import socket
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from merge_bench.config.files import MAPS, TOKENS, loaded_library_path
from merge_bench.config.ucx_releases import release_of_library
from merge_bench.host import gpu, kernel_files, network
from merge_bench.host.description import Hardware, NetworkInterface, ProcessFacts, UcxDescription
from merge_bench.host.gpu import GpuCounterReading
from merge_bench.host.kernel_files import format_core_list, parse_core_list
from merge_bench.units import count_with_noun, format_bytes

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
ByteCounts: TypeAlias = dict[str, tuple[int, int]]
"""Bytes sent and received, by device: ``eth0``, ``mlx5_0:1``, ``nvlink 00000000:1B:00.0``."""
INFINIBAND_WORD = 4  # bytes: the unit of port_xmit_data and port_rcv_data
_RECEIVED, _SENT = 0, 8  # fields of a line of /proc/net/dev
SEGMENT_BYTES = 1 << 15  # of the first segment that UCX's posix transport creates
# Of its later ones: a worker that finds less than about 16 MiB free is killed by SIGSEGV, and uses 4.13 MiB itself
# (UCX 1.21: 18 MiB are too little for two workers, 24 MiB enough; 34 MiB for four).
FIRST_WORKER_BYTES, MORE_WORKER_BYTES = 17 << 20, 4_333_568
MOST_WATTS = 700
"""More than one package uses: the time in which its counter goes round once is at least its range ÷ this."""


def installed_package_versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that a run uses, by name."""
    from importlib import metadata

    releases = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            releases[name] = metadata.version(name)
    return releases


def recorded_environment_variables(extra_variable_names: Collection[str] = ()) -> dict[str, str]:
    """This process's environment variables that are recorded: those that affect a run, and `extra_variable_names`."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if (name.startswith(RECORDED_PREFIXES) or name in extra_variable_names) and name not in TOKENS
    }


def describe_process(extra_variable_names: Collection[str] = (), *, ucx: UcxDescription | None = None) -> ProcessFacts:
    """Describe this process and its host for the records.

    `extra_variable_names`: further environment variables to record; `ucx`: the UCX that the process loaded, if not
    UCXX's.
    """
    return ProcessFacts(
        host=socket.gethostname(),
        pid=os.getpid(),
        environment=recorded_environment_variables(extra_variable_names),
        versions=dict(installed_package_versions()),
        ucx=ucx or describe_loaded_ucx(),
        hardware=describe_hardware(),
    )


def describe_hardware() -> Hardware:
    """The processors, memory, kernel settings, interfaces and GPUs that this process may use."""
    import psutil

    processor, caches = kernel_files.read_named_values(Path("/proc/cpuinfo")), cache_bytes_by_level()
    return Hardware(
        cpu_model=processor.get("model name") or platform.processor() or platform.machine(),
        cpu_id=format_cpu_id(processor),
        cores=usable_core_count(),
        affinity=format_core_list(os.sched_getaffinity(0)),
        cores_online=os.cpu_count(),
        cpu_quota=cpu_quota_cores(),
        cache_bytes=max(caches.values(), default=None),
        l2_bytes=caches.get(2),
        memory_bytes=total_memory_bytes(),
        available_bytes=available_memory_bytes(),
        kernel=platform.release(),
        machine=platform.machine(),
        numa_nodes=len(network.numa_node_numbers()) or None,
        interfaces={
            name: NetworkInterface(up=stats.isup, megabits_per_second=stats.speed or None, mtu=stats.mtu)
            for name, stats in psutil.net_if_stats().items()
        },
        infiniband=kernel_files.list_file_names(Path("/sys/class/infiniband")),
        huge_pages=kernel_files.read_bracketed_word(Path("/sys/kernel/mm/transparent_hugepage/enabled")),
        tcp_congestion_control=kernel_files.read_text(Path("/proc/sys/net/ipv4/tcp_congestion_control")),
        gpus=gpu.describe_constant_gpu_facts(),
    )


def format_cpu_id(cpu_fields: Mapping[str, str]) -> str | None:
    """Vendor, family, model and stepping as in ``GenuineIntel-6-85-7``, from the fields of ``/proc/cpuinfo``."""
    kinds = ([cpu_fields[name] for name in names if name in cpu_fields] for names in CPU_ID)
    return next(("-".join(found) for found in kinds if found), None)


def total_memory_bytes() -> int:
    """Bytes of this machine's memory."""
    import psutil

    return int(psutil.virtual_memory().total)


def describe_loaded_ucx(maps_file: Path = MAPS) -> UcxDescription:
    """The UCX that this process has loaded: version, file, and origin (``wheel`` or ``system``)."""
    path = loaded_library_path("libucp", maps_file)
    if path is None:
        return UcxDescription()
    import ucxx

    version = ".".join(map(str, ucxx.get_ucx_version()))
    in_wheel = any(part.startswith("libucx") for part in path.parent.parts)
    release = release_of_library(path)
    sha256 = None if release is None else release.sha256
    return UcxDescription(version=version, path=str(path), origin="wheel" if in_wheel else "system", sha256=sha256)


def cache_bytes_by_level(cache_folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[int, int]:
    """Bytes of the first core's largest cache of each level (the kernel writes ``32768K``)."""
    sizes: dict[int, int] = {}
    for index in cache_folder.glob("index*"):
        level, size = ((kernel_files.read_text(index / name) or "").removesuffix("K") for name in ("level", "size"))
        if level.isdigit() and size.isdigit():
            sizes[int(level)] = max(sizes.get(int(level), 0), int(size) * 1024)
    return sizes


def shared_memory_segment_problem(folder: Path) -> str:
    """Why no small segment of shared memory can be created and mapped in `folder`; empty if one can."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="merge-bench-") as file:
            os.posix_fallocate(file.fileno(), 0, SEGMENT_BYTES)
            with mmap.mmap(file.fileno(), SEGMENT_BYTES) as segment:
                segment[-1] = 1
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def shared_memory_problem(folder: Path, worker_count: int) -> str:
    """Why UCX's posix transport cannot put `worker_count` workers' segments into `folder`, and a remedy; or empty."""
    try:
        usage = os.statvfs(folder)
    except OSError as error:
        return f"UCX cannot create shared memory in {folder} ({error.strerror}); set UCX_TLS=^posix"
    free, needed = usage.f_bavail * usage.f_frsize, FIRST_WORKER_BYTES + (worker_count - 1) * MORE_WORKER_BYTES
    if usage.f_blocks > 0 and free < needed:
        return (
            f"{folder} has {format_bytes(free)} free, and UCX's posix transport needs {format_bytes(needed)} there for"
            f" {count_with_noun(worker_count, 'worker')}, which crash without; enlarge it (mount -o remount,size=1G"
            f" {folder}; for a container, --shm-size=1g), or set UCX_TLS=^posix"
        )
    problem = shared_memory_segment_problem(folder)
    return problem and (
        f"UCX cannot create shared memory in {folder} ({problem}); make that folder writable (mount -o"
        f" remount,rw,mode=1777 {folder}), or set UCX_TLS=^posix"
    )


class PeakMemoryMeter:
    """Measures the peak resident memory of this process in bytes; pauses while results are verified.

    The kernel keeps the peak (`VmHWM`); writing to `clear_refs` resets it. If that is not allowed, `peak_bytes` counts
    from the start of the process. `start_bytes`: resident memory when the meter was made.
    """

    def __init__(self) -> None:
        self.start_bytes = _process_status_bytes("VmRSS")
        self._peak = 0
        self._paused = False
        self.restart_measurement()

    def restart_measurement(self) -> None:
        """Reset the kernel's peak of resident memory, and measure from now on."""
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return
        self._paused = False

    def pause_measurement(self) -> None:
        """Keep the peak so far, and ignore the memory used until `restart_measurement`."""
        self._peak = self.peak_bytes
        self._paused = True

    @property
    def peak_bytes(self) -> int:
        """Peak resident memory in bytes, without the time while the measurement was paused."""
        return self._peak if self._paused else max(self._peak, _process_status_bytes("VmHWM"))


def _process_status_bytes(field: str) -> int:
    """Bytes of a field of this process's status, such as ``VmRSS``; 0 if it is missing."""
    return kernel_files.read_named_byte_counts(Path("/proc/self/status")).get(field, 0)


def available_memory_bytes() -> int:
    """Bytes that processes can still allocate: those of the machine, or fewer under a container's limit."""
    import psutil

    available = int(psutil.virtual_memory().available)
    for folder in _cgroup_folders():
        for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            allowed, used = kernel_files.read_number(folder / limit), kernel_files.read_number(folder / usage)
            if allowed is not None and used is not None:
                available = min(available, allowed - used)
    return max(available, 0)


def _cgroup_folders() -> list[Path]:
    """The folders of this process's control groups, of both versions, with their parents."""
    root = Path("/sys/fs/cgroup")
    folders = [root, root / "memory"]
    for line in (kernel_files.read_text(Path("/proc/self/cgroup")) or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            base = (root if number == "0" else root / "memory") / path.lstrip("/")
            folders += [folder for folder in (base, *base.parents) if root in folder.parents]
    return folders


def usable_core_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def cpu_quota_cores(root_folder: Path = Path("/")) -> float | None:
    """CPU time that a container may use, in cores; None without a limit.

    `root_folder`: where the file systems are mounted.
    """
    cgroup = root_folder / "sys/fs/cgroup"
    words = (kernel_files.read_text(cgroup / "cpu.max") or "").split() or [
        kernel_files.read_text(cgroup / f"cpu/cpu.cfs_{part}_us") or "" for part in ("quota", "period")
    ]
    if len(words) != 2 or not all(word.isdigit() for word in words) or not int(words[1]):
        return None
    return int(words[0]) / int(words[1])


@dataclass(frozen=True)
class CoreShortage:
    """A host on which more `processes` run than there are `cores` for them.

    `cores`: their number, which a container's quota can make a fraction. `bound`: the numbers of the cores, as ``0-3``,
    if the processes are bound to them and the host has enough for all; otherwise empty.
    """

    host: str
    processes: int
    cores: float
    bound: str = ""

    @property
    def cores_text(self) -> str:
        """The cores in words, for messages: ``2 cores of node1``, or ``cores 0-1 of node1``."""
        cores = "core" if self.cores == 1 else "cores"
        return f"{cores} {self.bound} of {self.host}" if self.bound else f"{self.cores:g} {cores} of {self.host}"

    @property
    def max_worker_count(self) -> int:
        """The largest number of workers that can have a core each; at least 1."""
        return max(1, int(self.cores))


def find_core_shortage(workers: Iterable[tuple[str, Hardware]], processes_per_worker: int = 1) -> CoreShortage | None:
    """The first host with fewer cores than its workers' processes; None if all hosts have enough, or that is unknown.

    `workers`: host and recorded hardware of each. The processes run on the workers' own cores, so each set of cores
    must have enough of them for the workers that are bound to it.
    """
    hosts: dict[str, list[tuple[frozenset[int], float | None]]] = {}
    for host, hardware in workers:
        cores, quota = parse_core_list(hardware.affinity or ""), hardware.cpu_quota
        usable = hardware.cores if quota is None and not cores else quota
        hosts.setdefault(host, []).append((cores, usable))
    for host, limits in hosts.items():
        every = frozenset[int]().union(*(cores for cores, _ in limits))
        quotas = [quota for _, quota in limits if quota is not None]
        usable = min([*quotas, *([len(every)] if every else [])], default=None)
        if usable is not None and max(usable, 1) < processes_per_worker * len(limits):
            return CoreShortage(host, processes_per_worker * len(limits), usable)
        for cores in dict.fromkeys(cores for cores, _ in limits if cores):
            here = processes_per_worker * sum(own <= cores for own, _ in limits)
            if here > len(cores):
                return CoreShortage(host, here, len(cores), format_core_list(cores))
    return None


def perftest_core_problem(workers: Iterable[tuple[str, Hardware]]) -> str | None:
    """Why ucx_perftest cannot test both directions at once: ``4 polling processes on 2 cores of node1``; or None."""
    short = find_core_shortage(workers, PERFTESTS_PER_WORKER)
    return None if short is None else f"{short.processes} polling processes on {short.cores_text}"


def restore_launcher_core_binding() -> None:
    """Bind this process to its launcher's cores again, if a plugin of dask-cuda bound it to all cores near its GPU."""
    now = os.sched_getaffinity(0)
    if now <= CORES_AT_START:
        return
    cores = (CORES_AT_START & now) or CORES_AT_START
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # the thread may have ended
            os.sched_setaffinity(int(thread), cores)


def read_device_byte_counters(root_folder: Path = Path("/")) -> ByteCounts:
    """Bytes sent and received by every network device and NVLink of this host, by device.

    `root_folder`: where its file systems are mounted.
    """
    return {
        **read_interface_byte_counters(root_folder),
        **read_infiniband_byte_counters(root_folder),
        **gpu.read_nvlink_byte_counters(),
    }


def read_interface_byte_counters(root_folder: Path = Path("/")) -> ByteCounts:
    """Bytes sent and received by each interface in this process's network namespace."""
    counts: ByteCounts = {}
    for line in (kernel_files.read_text(root_folder / "proc/self/net/dev") or "").splitlines():
        name, colon, numbers = line.rpartition(":")
        fields = numbers.split()
        if colon and len(fields) > _SENT and fields[_SENT].isdigit():
            counts[name.strip()] = (int(fields[_SENT]), int(fields[_RECEIVED]))
    return counts


def read_infiniband_byte_counters(root_folder: Path = Path("/")) -> ByteCounts:
    """Bytes sent and received by each port of InfiniBand and RoCE adapters, with UCX's names (``mlx5_0:1``)."""
    counts: ByteCounts = {}
    for folder in sorted((root_folder / "sys/class/infiniband").glob("*/ports/*/counters")):
        sent, received = (
            kernel_files.read_number(folder / "port_xmit_data"),
            kernel_files.read_number(folder / "port_rcv_data"),
        )
        if sent is not None and received is not None:
            counts[f"{folder.parts[-4]}:{folder.parts[-2]}"] = (sent * INFINIBAND_WORD, received * INFINIBAND_WORD)
    return counts


def byte_counter_difference(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> ByteCounts:
    """Bytes sent and received by each device between two readings: 0 after a reset; only devices in both readings."""
    return {
        device: (max(sent - before[device][0], 0), max(received - before[device][1], 0))
        for device, (sent, received) in after.items()
        if device in before
    }


@dataclass(frozen=True)
class ProcessorEnergyCounter:
    """The energy counter of a processor package, which goes from 0 to `range_microjoules`, and begins again."""

    microjoules: int | None
    range_microjoules: int | None


@dataclass(frozen=True)
class EnergyCounterReading:
    """Energy counters of a host's processor packages, by name, and of a worker's GPU, at one moment.

    `at`: seconds on the host's monotonic clock.
    """

    at: float
    packages: Mapping[str, ProcessorEnergyCounter]
    gpu: GpuCounterReading | None


def read_energy_counters(*, with_gpu: bool, root_folder: Path = Path("/")) -> EnergyCounterReading:
    """Read the energy counters of this host's processors and, `with_gpu`, of this process's GPU.

    `root_folder`: where the file systems are mounted.
    """
    own = gpu.read_own_gpu_counters() if with_gpu else None
    return EnergyCounterReading(time.monotonic(), read_processor_energy_counters(root_folder), own)


def read_processor_energy_counters(root_folder: Path = Path("/")) -> dict[str, ProcessorEnergyCounter]:
    """The energy counter of each processor package, by the package's name.

    Linux has further counters: of parts of a package (cores, memory), and of the whole machine. These are left out.
    """
    zones = sorted((root_folder / "sys/class/powercap").glob("intel-rapl:*"))
    names = {zone: kernel_files.read_text(zone / "name") or "" for zone in zones}
    return {
        name: ProcessorEnergyCounter(
            kernel_files.read_number(zone / "energy_uj"), kernel_files.read_number(zone / "max_energy_range_uj")
        )
        for zone, name in names.items()
        if name.startswith("package")
    }


def processor_joules(before: EnergyCounterReading, after: EnergyCounterReading) -> tuple[float | None, str | None]:
    """The joules that a host's processors used between two readings, or None and the reason why they are unknown."""
    if not before.packages or before.packages.keys() != after.packages.keys():
        return None, "this machine shows no energy counters of its processors (RAPL)"
    total = 0
    for name, first in before.packages.items():
        last, size = after.packages[name].microjoules, first.range_microjoules
        if first.microjoules is None or last is None:
            return None, "only root can read the energy counters of the processors (RAPL)"
        if size is not None and (after.at - before.at) * MOST_WATTS * 1_000_000 > size:
            return None, "the energy counters of the processors (RAPL) may have gone round more than once"
        if last < first.microjoules:
            if size is None:
                return None, "an energy counter of the processors (RAPL) went back"
            last += size + 1
        total += last - first.microjoules
    return total / 1_000_000, None


def gpu_joules(before: GpuCounterReading, after: GpuCounterReading) -> float | None:
    """The joules that a GPU used between two readings; None where it does not count them.

    A counter that stands still or goes back, as after a reset, counts as none: every GPU uses some energy.
    """
    if before.millijoules is None or after.millijoules is None or after.millijoules <= before.millijoules:
        return None
    return (after.millijoules - before.millijoules) / 1000


def gpu_throttled_seconds(before: GpuCounterReading, after: GpuCounterReading) -> dict[str, float]:
    """The seconds in which a GPU was throttled between two readings, by cause; without causes that are not counted.

    A counter that goes back, or advances by more than the time that passed, is left out.
    """
    elapsed = after.at - before.at
    seconds = {
        cause: (after.throttled[cause] - count) / 1e9
        for cause, count in before.throttled.items()
        if cause in after.throttled
    }
    return {cause: min(each, elapsed) for cause, each in seconds.items() if 0 <= each <= 1.1 * elapsed + 0.1}

"""The energy of a merge, and GPUs that were throttled, from the readings before and after the timed iterations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from merge_bench.analysis.aggregate import Number, greatest_or_none, median_or_none
from merge_bench.analysis.documents import Energy, EnergyParts, GpuEnergy, HostEnergy
from merge_bench.errors import Caution
from merge_bench.host.gpu import POWER_CAP, THROTTLING
from merge_bench.records.campaign import Launch
from merge_bench.records.schema import GpuPower, HostPower

GPU_SECONDS, CPU_SECONDS = 1.0, 0.1
"""Energy is known from these times on: drivers of GPUs bring their counters up to date every 20 to 100 ms only, the
kernel those of processors every millisecond."""
COVERED = 0.8
"""The least share of the time between the readings that merges must take, for its energy to count as theirs."""
THROTTLED = 0.01
"""A GPU that is throttled for this share of the time gets a warning."""
GPU_THROTTLED = "gpu-throttled"


def merge_energy(launches: Sequence[Launch]) -> Energy | None:
    """The energy of one merge, median over launches; None if no launch recorded readings of energy counters."""
    read = [launch for launch in launches if launch.power is not None]
    if not read:
        return None
    of_gpus, of_hosts = (
        [gpu_joules_per_merge(launch) for launch in read],
        [cpu_joules_per_merge(launch) for launch in read],
    )
    uses_gpus = any(launch.power.gpus is not None for launch in read if launch.power)
    gpus, hosts = median_or_none(of_gpus), median_or_none(of_hosts)
    both = [gpu + host for gpu, host in zip(of_gpus, of_hosts, strict=True) if gpu is not None and host is not None]
    counts: EnergyParts | None = "GPUs and processors" if both else None
    total = median_or_none(both)
    if total is None and gpus is not None:
        total, counts = gpus, "GPUs"
    elif total is None and hosts is not None and not uses_gpus:
        total, counts = hosts, "processors"
    return Energy(
        joules_per_merge=total,
        counts=counts,
        gpu_joules_per_merge=gpus,
        cpu_joules_per_merge=hosts,
        unknown=list(dict.fromkeys(reason for launch in read for reason in _unknown_energy_reasons(launch))),
        gpus=_gpu_energy_rows(read),
        hosts=_host_energy_rows(read),
    )


def throttling_warnings(launches: Sequence[Launch]) -> Iterator[Caution]:
    """A warning for each GPU that was throttled during the timed iterations, and for each cause."""
    several = len({worker.host for launch in launches if launch.line for worker in launch.line.workers}) > 1
    for gpu in _gpu_energy_rows([launch for launch in launches if launch.power is not None]):
        name = f"GPU {gpu.index}" + (f" of {gpu.host}" if several else "")
        for cause, share in (gpu.throttled_share or {}).items():
            if share >= THROTTLED:
                message = f"{name} was throttled ({cause}) for {share:.0%} of the timed iterations"
                yield Caution(GPU_THROTTLED, f"{message}, so merges took longer", _throttling_remedy(cause))
        for cause in gpu.reasons or ():
            if cause in THROTTLING and cause not in (gpu.throttled_share or {}):
                message = f"{name} was throttled ({cause}) as the timed iterations began or ended"
                yield Caution(GPU_THROTTLED, f"{message}, so merges may have taken longer", _throttling_remedy(cause))


def _throttling_remedy(cause: str) -> str:
    if cause == POWER_CAP:
        return "compare only with runs under the same power limit; nvidia-smi -q -d POWER shows it"
    if cause in ("power brake", "hardware slowdown"):
        return "check the power supply and the cooling of this machine; nvidia-smi -q -d PERFORMANCE shows the cause"
    return "check the cooling of this GPU, and run again when it is cooler; nvidia-smi -q -d TEMPERATURE shows it"


def gpu_joules_per_merge(launch: Launch) -> float | None:
    """Joules of one merge on all GPUs of the workers; None if those of any GPU are unknown."""
    if launch.power is None or not launch.power.gpus or _ranks_without_gpu(launch):
        return None
    return _sum_if_all_known(_joules_per_merge(launch, gpu, GPU_SECONDS) for gpu in launch.power.gpus)


def cpu_joules_per_merge(launch: Launch) -> float | None:
    """Joules of one merge on the processors of all hosts; None if those of any host are unknown."""
    if launch.power is None or not launch.power.hosts:
        return None
    return _sum_if_all_known(_joules_per_merge(launch, host, CPU_SECONDS) for host in launch.power.hosts)


def _sum_if_all_known(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _joules_per_merge(launch: Launch, power: GpuPower | HostPower, least_seconds: float) -> float | None:
    """Joules of one merge on a GPU or on the processors of a host; None if unknown."""
    if power.joules is None or _why_energy_not_counted(launch, power.seconds, least_seconds) is not None:
        return None
    return power.joules / len(launch.timed_iterations)


def _why_energy_not_counted(launch: Launch, seconds: float, least_seconds: float) -> str | None:
    """Why the energy between two readings `seconds` apart is not the energy of the merges; None if it is."""
    merging = sum(iteration.wall_seconds for iteration in launch.timed_iterations)
    if not launch.timed_iterations or merging < least_seconds:
        return f"the timed iterations took {merging:.2g} s, less than the {least_seconds:g} s that the counters need"
    if merging < COVERED * seconds:
        return f"merges took only {merging / seconds:.0%} of the time between the two readings of the counters"
    return None


def _ranks_without_gpu(launch: Launch) -> list[int]:
    """The ranks whose GPU could not be read."""
    gpus = (launch.power.gpus if launch.power else None) or ()
    ranks = {rank for gpu in gpus for rank in gpu.ranks}
    return [worker.rank for worker in launch.line.workers if worker.rank not in ranks] if launch.line else []


def _unknown_energy_reasons(launch: Launch) -> Iterator[str]:
    """Sentences about which energy of a launch is unknown, and why."""
    if launch.power is None:
        return
    if launch.power.gpus is not None:
        for rank in _ranks_without_gpu(launch)[:1]:
            yield f"GPUs: NVML does not show the whole GPU of rank {rank}"
        for gpu in launch.power.gpus:
            name = f"GPU {gpu.index} of {gpu.host}"
            why = _why_energy_not_counted(launch, gpu.seconds, GPU_SECONDS)
            if gpu.joules is None:
                yield f"{name}: its driver counts no energy"
            elif why is not None:
                yield f"GPUs: {why}"
    for host in launch.power.hosts:
        why = host.unknown or _why_energy_not_counted(launch, host.seconds, CPU_SECONDS)
        if why is not None:
            yield f"Processors: {why}"


def _gpu_energy_rows(launches: Sequence[Launch]) -> list[GpuEnergy]:
    """The energy, power, clocks and throttling of each GPU over all launches, by host and index."""
    readings_of: dict[tuple[str, int], list[tuple[Launch, GpuPower]]] = {}
    for launch in launches:
        for gpu in (launch.power.gpus if launch.power else None) or ():
            readings_of.setdefault((gpu.host, gpu.index), []).append((launch, gpu))
    return [_gpu_energy_row(readings_of[key]) for key in sorted(readings_of)]


def _gpu_energy_row(readings: Sequence[tuple[Launch, GpuPower]]) -> GpuEnergy:
    gpus = [gpu for _, gpu in readings]
    states = [state for gpu in gpus for state in (gpu.before, gpu.after)]
    awake = [state for state in states if "idle" not in (state.reasons or ())] or states  # idle clocks are low
    reasons = [state.reasons for state in states if state.reasons is not None]
    causes = dict.fromkeys(cause for gpu in gpus for cause in gpu.throttled_seconds)
    return GpuEnergy(
        host=gpus[0].host,
        index=gpus[0].index,
        name=gpus[0].name,
        ranks=sorted({rank for gpu in gpus for rank in gpu.ranks}),
        joules_per_merge=median_or_none(_joules_per_merge(launch, gpu, GPU_SECONDS) for launch, gpu in readings),
        watts=median_or_none(_mean_watts(launch, gpu, GPU_SECONDS) for launch, gpu in readings),
        limit_watts=_least_or_none(gpu.limit_watts for gpu in gpus),
        sm_mhz=_least_or_none(state.sm_mhz for state in awake),
        max_sm_mhz=_least_or_none(gpu.max_sm_mhz for gpu in gpus),
        memory_mhz=_least_or_none(state.memory_mhz for state in awake),
        max_memory_mhz=_least_or_none(gpu.max_memory_mhz for gpu in gpus),
        celsius=greatest_or_none(state.celsius for state in states),
        reasons=list(dict.fromkeys(reason for each in reasons for reason in each)) if reasons else None,
        throttled_share={cause: _throttled_share(gpus, cause) for cause in causes} or None,
    )


def _throttled_share(gpus: Sequence[GpuPower], cause: str) -> float:
    """The share of the time in which a GPU was throttled by `cause`, over the launches that counted it."""
    counted = [gpu for gpu in gpus if cause in gpu.throttled_seconds]
    seconds = sum(gpu.seconds for gpu in counted)
    return min(sum(gpu.throttled_seconds[cause] for gpu in counted) / seconds, 1.0) if seconds else 0.0


def _host_energy_rows(launches: Sequence[Launch]) -> list[HostEnergy]:
    """The energy and power of the processors of each host that has counters, over all launches."""
    readings_of: dict[str, list[tuple[Launch, HostPower]]] = {}
    for launch in launches:
        for host in launch.power.hosts if launch.power else ():
            if host.packages:
                readings_of.setdefault(host.host, []).append((launch, host))
    return [
        HostEnergy(
            host=name,
            packages=readings[0][1].packages,
            joules_per_merge=median_or_none(_joules_per_merge(launch, host, CPU_SECONDS) for launch, host in readings),
            watts=median_or_none(_mean_watts(launch, host, CPU_SECONDS) for launch, host in readings),
        )
        for name, readings in sorted(readings_of.items())
    ]


def _mean_watts(launch: Launch, power: GpuPower | HostPower, least_seconds: float) -> float | None:
    """Mean power in watts between two readings; None if the energy of a merge is unknown."""
    joules = power.joules if _joules_per_merge(launch, power, least_seconds) is not None else None
    return None if joules is None else joules / power.seconds


def _least_or_none(values: Iterable[Number | None]) -> Number | None:
    return min((value for value in values if value is not None), default=None)

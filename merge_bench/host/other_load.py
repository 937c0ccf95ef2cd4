"""How busy other processes keep this host's cores, measured for a moment."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

MEASURING_SECONDS = 0.5
"""How long a look takes: the kernel counts in steps of 10 ms, so a core's share is known to 2 %."""
BUSY, OVERRUN = 0.25, 0.9
"""Shares of the cores from which times vary, and from which every time includes waiting for a core."""
_SHOWN = 3
_LEAST = 0.05  # of a core: a process that uses less is not named
_MODULE_OPTION = re.compile("-[a-zA-Z]*m")  # of Python, with other letters before it: -m, -Pm


@dataclass(frozen=True)
class BusyProcess:
    """Another process, and how many cores it kept busy on average."""

    pid: int
    name: str
    cores: float


@dataclass(frozen=True)
class OtherProcessLoad:
    """How many cores other processes kept busy, of the `cores` that this process may use, and the busiest of them."""

    busy: float = 0.0
    cores: int = 1
    processes: tuple[BusyProcess, ...] = ()

    @property
    def busy_share(self) -> float:
        """The share of the cores that other processes kept busy, from 0 to 1."""
        return self.busy / max(self.cores, 1)

    @property
    def is_quiet(self) -> bool:
        """Whether other processes use so little of the cores that measured times hardly vary."""
        return self.busy_share < BUSY

    def __str__(self) -> str:
        """The load in words: ``1.9 of 2 cores busy (pid 71 yes, pid 93 mypy)``."""
        named = ", ".join(f"pid {each.pid} {each.name}" for each in self.processes[:_SHOWN])
        unseen = "processes that ended at once, or are not visible from here" if not self.is_quiet else ""
        return f"{self.busy:.1f} of {self.cores} cores busy" + (f" ({named or unseen})" if named or unseen else "")


FinishMeasurement: TypeAlias = Callable[[], OtherProcessLoad]


@dataclass(frozen=True)
class CpuSecondsReading:
    """Seconds of processor time that cores and processes have used until now.

    `busy`: seconds that the cores have worked since the machine started. `own`: those of this process and its
    descendants. `by_process`: those of each visible process, by its id and name.
    """

    busy: float
    own: float
    by_process: Mapping[tuple[int, str], float]


def read_cpu_seconds(cores: Collection[int], excluded_descendants: Collection[int] = ()) -> CpuSecondsReading:
    """Read the kernel's counters of the processor time of these cores and of all processes.

    `excluded_descendants`: ids of descendants whose time does not count as this process's own. The time of a descendant
    that has ended counts for the process that waited for it.
    """
    return CpuSecondsReading(
        _busy_core_seconds(cores), _own_cpu_seconds(excluded_descendants), _cpu_seconds_by_process()
    )


def begin_load_measurement(
    seconds: float = MEASURING_SECONDS,
    *,
    read_counters: Callable[[Collection[int], Collection[int]], CpuSecondsReading] = read_cpu_seconds,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> FinishMeasurement:
    """Begin to measure how many of this process's cores other processes use; returns the function that ends it.

    The returned function waits until `seconds` have passed since the beginning, and returns the result. The time of
    this process and of the processes that it starts meanwhile does not count. A process of another container counts,
    because the kernel's counters of the cores include it, but cannot be named.
    """
    import psutil

    cores, own = sorted(os.sched_getaffinity(0)), os.getpid()
    earlier = frozenset(each.pid for each in psutil.Process().children(recursive=True))
    began, before = clock(), read_counters(cores, earlier)

    def finish_measurement() -> OtherProcessLoad:
        sleep(max(0.0, began + seconds - clock()))
        elapsed = max(clock() - began, 1e-3)
        after = read_counters(cores, earlier)
        busy = min(max((after.busy - before.busy - (after.own - before.own)) / elapsed, 0.0), float(len(cores)))
        processes = [
            BusyProcess(pid, name, (used - before.by_process[pid, name]) / elapsed)
            for (pid, name), used in after.by_process.items()
            if pid != own and (pid, name) in before.by_process
        ]
        busiest = sorted((each for each in processes if each.cores >= _LEAST), key=lambda each: -each.cores)
        return OtherProcessLoad(
            busy, len(cores), tuple(replace(each, name=_displayed_process_name(each)) for each in busiest[:_SHOWN])
        )

    return finish_measurement


def _displayed_process_name(process: BusyProcess) -> str:
    """The name of a process to show: ``another merge_bench`` for a process of one, else the kernel's name for it."""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        if starts_merge_bench(psutil.Process(process.pid).cmdline()):
            return f"another merge_bench ({process.name})"
    return process.name


def starts_merge_bench(command_line: Sequence[str]) -> bool:
    """Whether a command line starts a process of this program: its module, its script, or Dask with its preload.

    Another program with ``merge_bench`` among its arguments, such as ``python mypy merge_bench``, is none.
    """
    program, *arguments = command_line or ("",)
    if re.fullmatch(r"(python|pypy)[\d.]*t?", os.path.basename(program)):
        preloads = (module for option, module in itertools.pairwise(arguments) if option == "--preload")
        if any(module.startswith("merge_bench.") for module in preloads):
            return True
        while arguments and arguments[0].startswith("-"):
            option = arguments.pop(0)
            if _MODULE_OPTION.fullmatch(option):
                return bool(arguments) and arguments[0].split(".")[0] == "merge_bench"
            del arguments[: option in ("-X", "-W")]
        program = arguments[0] if arguments else ""
    return os.path.basename(program.removesuffix("/__main__.py")) in ("merge-bench", "merge_bench")


def measure_other_load(seconds: float = MEASURING_SECONDS) -> OtherProcessLoad:
    """Measure for `seconds` how many of this process's cores other processes use."""
    return begin_load_measurement(seconds)()


def _busy_core_seconds(cores: Collection[int]) -> float:
    """Seconds that these cores have worked since the start of the machine."""
    import psutil

    times = psutil.cpu_times(percpu=True)
    counted = [times[core] for core in cores if core < len(times)]
    return sum(sum(core) - core.idle - core.iowait - _guest_and_steal_seconds(core) for core in counted)


def _own_cpu_seconds(excluded_descendants: Collection[int]) -> float:
    """Seconds that this process and its descendants, without those in `excluded_descendants`, have worked."""
    import psutil

    ended, seconds = os.times(), 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid not in excluded_descendants:
                times = process.cpu_times()
                seconds += times.user + times.system + times.children_user + times.children_system
    return time.process_time() + ended.children_user + ended.children_system + seconds


def _guest_and_steal_seconds(cpu_times: object) -> float:
    """A core's seconds of steal time, which is no work of this machine, and of guest time, which is counted twice."""
    return sum(float(getattr(cpu_times, name, 0.0)) for name in ("guest", "guest_nice", "steal"))


def _cpu_seconds_by_process() -> dict[tuple[int, str], float]:
    """Seconds that each visible process has worked, by its id and name."""
    import psutil

    seconds = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError), process.oneshot():
            times = process.cpu_times()
            seconds[process.pid, process.name()] = times.user + times.system
    return seconds

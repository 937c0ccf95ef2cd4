"""Energy that this host's processors and a worker's GPU have used so far, read from counters of the hardware.

Processors: RAPL, which the kernel shows below ``/sys/class/powercap`` for Intel and AMD alike. Since 2020 only root can
read these counters, and virtual machines rarely have them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from merge_bench.host import files, gpu
from merge_bench.host.gpu import GpuReading

MOST_WATTS = 700
"""More than one package uses: the time in which its counter goes round once is at least its range ÷ this."""


@dataclass(frozen=True)
class Package:
    """The counter of one processor package. It goes from 0 to `range_microjoules`, and begins again."""

    microjoules: int | None
    range_microjoules: int | None


@dataclass(frozen=True)
class PowerReading:
    """The counters of a host's packages by name, and a worker's GPU; `at`: seconds on the host's monotonic clock."""

    at: float
    packages: Mapping[str, Package]
    gpu: GpuReading | None


def read_power(*, with_gpu: bool, root: Path = Path("/")) -> PowerReading:
    """Read the counters; `with_gpu`: also those of this process's GPU; `root`: where the file systems are mounted."""
    own = gpu.read_own_gpu() if with_gpu else None
    return PowerReading(time.monotonic(), read_packages(root), own)


def read_packages(root: Path = Path("/")) -> dict[str, Package]:
    """The counters of all packages; without the zones inside a package, and without that of the whole machine."""
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
    names = {zone: files.read_text(zone / "name") or "" for zone in zones}
    return {
        name: Package(files.read_number(zone / "energy_uj"), files.read_number(zone / "max_energy_range_uj"))
        for zone, name in names.items()
        if name.startswith("package")
    }


def package_joules(before: PowerReading, after: PowerReading) -> tuple[float | None, str | None]:
    """The joules that all packages of a host used between two readings, or None and the reason why they are unknown."""
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


def gpu_joules(before: GpuReading, after: GpuReading) -> float | None:
    """The joules that a GPU used between two readings; None where it does not count them.

    A counter that stands still or goes back, as after a reset, counts as none: every GPU uses some energy.
    """
    if before.millijoules is None or after.millijoules is None or after.millijoules <= before.millijoules:
        return None
    return (after.millijoules - before.millijoules) / 1000


def throttled_seconds(before: GpuReading, after: GpuReading) -> dict[str, float]:
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

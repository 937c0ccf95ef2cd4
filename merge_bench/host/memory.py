"""Memory and cores: what this process uses, and what the machine and its container allow."""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import psutil

from merge_bench.host import files
from merge_bench.units import format_bytes, plural

SEGMENT_BYTES = 1 << 15  # of the first segment that UCX's posix transport creates
# Of its later ones: a worker that finds less than about 16 MiB free is killed by SIGSEGV, and uses 4.13 MiB itself
# (UCX 1.21: 18 MiB are too little for two workers, 24 MiB enough; 34 MiB for four).
FIRST_WORKER_BYTES, MORE_WORKER_BYTES = 17 << 20, 4_333_568


def segment_problem(folder: Path) -> str:
    """Why no small segment of shared memory can be created and mapped in `folder`; empty if one can."""
    try:
        with tempfile.TemporaryFile(dir=folder, prefix="merge-bench-") as file:
            os.posix_fallocate(file.fileno(), 0, SEGMENT_BYTES)
            with mmap.mmap(file.fileno(), SEGMENT_BYTES) as segment:
                segment[-1] = 1
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


def shared_memory_problem(folder: Path, workers: int) -> str:
    """Why UCX's posix transport cannot put the segments of so many workers into `folder`, and what to do; or empty."""
    try:
        usage = os.statvfs(folder)
    except OSError as error:
        return f"UCX cannot create shared memory in {folder} ({error.strerror}); set UCX_TLS=^posix"
    free, needed = usage.f_bavail * usage.f_frsize, FIRST_WORKER_BYTES + (workers - 1) * MORE_WORKER_BYTES
    if usage.f_blocks > 0 and free < needed:
        return (
            f"{folder} has {format_bytes(free)} free, and UCX's posix transport needs {format_bytes(needed)} there for"
            f" {plural(workers, 'worker')}, which crash without; enlarge it (mount -o remount,size=1G"
            f" {folder}; for a container, --shm-size=1g), or set UCX_TLS=^posix"
        )
    problem = segment_problem(folder)
    return problem and (
        f"UCX cannot create shared memory in {folder} ({problem}); make that folder writable (mount -o"
        f" remount,rw,mode=1777 {folder}), or set UCX_TLS=^posix"
    )


class PeakMeter:
    """Peak resident memory of the process in bytes, without the memory that verification used.

    The kernel keeps the peak (`VmHWM`); writing to `clear_refs` resets it. If that is not allowed, `peak` counts from
    the start of the process. `at_start`: resident memory when the meter was made.
    """

    def __init__(self) -> None:
        self.at_start = _status_bytes("VmRSS")
        self._peak = 0
        self._paused = False
        self.restart()

    def restart(self) -> None:
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return
        self._paused = False

    def pause(self) -> None:
        """Keep the peak so far and ignore what follows, until `restart`."""
        self._peak = self.peak
        self._paused = True

    @property
    def peak(self) -> int:
        return self._peak if self._paused else max(self._peak, _status_bytes("VmHWM"))


def _status_bytes(name: str) -> int:
    return files.read_sizes(Path("/proc/self/status")).get(name, 0)


def available_bytes() -> int:
    """Bytes that processes can still allocate: those of the machine, or fewer under a container's limit."""
    available = int(psutil.virtual_memory().available)
    for folder in _cgroup_folders():
        for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            allowed, used = files.read_number(folder / limit), files.read_number(folder / usage)
            if allowed is not None and used is not None:
                available = min(available, allowed - used)
    return max(available, 0)


def _cgroup_folders() -> list[Path]:
    """The folders of this process's control groups, of both versions, with their parents."""
    root = Path("/sys/fs/cgroup")
    folders = [root, root / "memory"]
    for line in (files.read_text(Path("/proc/self/cgroup")) or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            base = (root if number == "0" else root / "memory") / path.lstrip("/")
            folders += [folder for folder in (base, *base.parents) if root in folder.parents]
    return folders


def usable_cores() -> int:
    return len(os.sched_getaffinity(0))


def quota_cores(root: Path = Path("/")) -> float | None:
    """CPU time that a container may use, in cores; None without a limit. `root`: where the file systems are mounted."""
    cgroup = root / "sys/fs/cgroup"
    words = (files.read_text(cgroup / "cpu.max") or "").split() or [
        files.read_text(cgroup / f"cpu/cpu.cfs_{part}_us") or "" for part in ("quota", "period")
    ]
    if len(words) != 2 or not all(word.isdigit() for word in words) or not int(words[1]):
        return None
    return int(words[0]) / int(words[1])


def parse_cores(text: str) -> frozenset[int]:
    """Read the kernel's notation of cores: ``0-3,8`` → {0, 1, 2, 3, 8}."""
    cores: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


def format_cores(cores: Iterable[int]) -> str:
    """Write the kernel's notation of cores: {0, 1, 2, 3, 8} → ``0-3,8``."""
    # In a run of neighbours, number and position differ by the same amount.
    groups = itertools.groupby(enumerate(sorted(cores)), key=lambda pair: pair[1] - pair[0])
    runs = [[core for _, core in run] for _, run in groups]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)

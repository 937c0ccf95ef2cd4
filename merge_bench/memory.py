"""Memory of a worker: reused buffers, and what the process and its machine hold."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import psutil

from merge_bench.columns import Bytes

ALIGN = 64  # bytes: a cache line, and what Arrow recommends


class Arena:
    """One growing buffer, reused from iteration to iteration because first touch is dear.

    `take(n)` gives n bytes that stay valid until the next `reset`. When an iteration needed more than there was, the
    next `reset` makes one buffer of that size and touches every page of it.
    """

    def __init__(self) -> None:
        self._buffer = np.zeros(0, np.uint8)
        self._used = 0
        self._wanted = 0

    def reserve(self, size: int) -> None:
        """Have `size` bytes ready and touched. What was taken before is no longer valid."""
        if size > self._buffer.size:
            self._buffer = np.zeros(0, np.uint8)
            self._buffer = _touched(size)
        self._used = 0

    def reset(self) -> None:
        """Start over: all bytes can be taken again."""
        self.reserve(self._wanted)
        self._wanted = 0

    def take(self, size: int) -> Bytes:
        """`size` bytes, aligned to 64; contents undefined."""
        padded = -(-size // ALIGN) * ALIGN
        self._wanted += padded
        if self._used + padded > self._buffer.size:
            return _touched(padded)[:size]
        view = self._buffer[self._used : self._used + size]
        self._used += padded
        return view


def _touched(size: int) -> Bytes:
    raw = np.empty(size + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    view = raw[start : start + size]
    view[::4096] = 0
    return view


class PeakMeter:
    """The process's resident high-water mark in bytes, with what verification used left out.

    The kernel keeps the mark (`VmHWM`) and forgets it when asked through `clear_refs`; where it does not allow that,
    the mark of the whole life is reported.
    """

    def __init__(self) -> None:
        self.at_start = resident_bytes()
        self._peak = 0
        self._paused = False
        self.restart()

    def restart(self) -> None:
        """Forget the mark, so that it counts from now on."""
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return
        self._paused = False

    def pause(self) -> None:
        """Keep the mark so far and leave out what follows, until `restart`."""
        self._peak = self.peak
        self._paused = True

    @property
    def peak(self) -> int:
        """Bytes at the highest point so far."""
        return self._peak if self._paused else max(self._peak, _status_bytes("VmHWM"))


def resident_bytes() -> int:
    """Bytes of the process that are in memory now."""
    return _status_bytes("VmRSS")


def _status_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def available_bytes() -> int:
    """Bytes that processes here can still take: the machine's, or less where a container's limit says so."""
    available = int(psutil.virtual_memory().available)
    for limit, usage in _cgroup_files():
        try:
            text = limit.read_text().strip()
            if text != "max":
                available = min(available, int(text) - int(usage.read_text()))
        except (OSError, ValueError):
            continue
    return max(available, 0)


def _cgroup_files() -> list[tuple[Path, Path]]:
    root = Path("/sys/fs/cgroup")
    found = [(root / "memory.max", root / "memory.current")]
    found.append((root / "memory" / "memory.limit_in_bytes", root / "memory" / "memory.usage_in_bytes"))
    try:
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            base = root / path.lstrip("/") if number == "0" else root / "memory" / path.lstrip("/")
            if number == "0" or "memory" in controllers.split(","):
                for folder in (base, *base.parents):
                    if folder == root or root not in folder.parents:
                        break
                    found.append((folder / "memory.max", folder / "memory.current"))
                    found.append((folder / "memory.limit_in_bytes", folder / "memory.usage_in_bytes"))
    except (OSError, ValueError):
        pass
    return found


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0))


def parse_cores(text: str) -> frozenset[int]:
    """The kernel's way to list cores: ``0-3,8`` → {0, 1, 2, 3, 8}."""
    found: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def show_cores(cores: Iterable[int]) -> str:
    """The other way: {0, 1, 2, 3, 8} → ``0-3,8``."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)

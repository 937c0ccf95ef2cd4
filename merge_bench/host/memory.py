"""Memory and cores: what this process uses, and what the machine and its container allow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil


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


def quota_cores(read: Callable[[str], str | None]) -> float | None:
    """Cores' worth of time that a container may use; None without a limit.

    `read` gives the text of a file, named from the root without its slash, or None.
    """
    text = read("sys/fs/cgroup/cpu.max")
    words = text.split() if text else [
        (read(f"sys/fs/cgroup/cpu/cpu.cfs_{part}_us") or "").strip() for part in ("quota", "period")
    ]  # fmt: skip
    if len(words) != 2 or not all(word.isdigit() for word in words) or not int(words[1]):
        return None
    return int(words[0]) / int(words[1])


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

"""What a run may leave behind: processes, scratch folders, files in /dev/shm, SysV segments.

A run is known by its own temporary folder: every process of it, however it was started, has `TMPDIR=<folder>` in its
environment, and every scratch folder lies in it. So runs of others on the same machine are never mixed up with ours.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
OF_MPI = "vader_segment"  # Open MPI 4 leaves them where a rank is killed, as tests beside this one do


def processes(temp: Path) -> dict[int, str]:
    """Process ids and command lines of all that live under this temporary folder."""
    marker = f"TMPDIR={temp}".encode()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if marker in (entry / "environ").read_bytes().split(b"\0"):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if command:  # a zombie has none
                    found[int(entry.name)] = command
    return found


def shared_memory_files() -> set[str]:
    """Names in /dev/shm."""
    return {entry.name for entry in SHARED_MEMORY.iterdir()} if SHARED_MEMORY.is_dir() else set()


def system_v_segments() -> dict[int, int]:
    """SysV shared memory: segment id → the process that made it."""
    try:
        lines = Path("/proc/sysvipc/shm").read_text().splitlines()
    except OSError:
        return {}
    if not lines:
        return {}
    names = lines[0].split()
    rows = [dict(zip(names, line.split(), strict=False)) for line in lines[1:]]
    return {int(row["shmid"]): int(row["cpid"]) for row in rows}


def _in_use(names: set[str]) -> set[str]:
    """Those of these files in /dev/shm that a living process has mapped or open.

    By number: a named semaphore is mapped under the name that it had before it was linked to its own. And by device:
    the /dev/shm of other test processes have the same numbers.
    """
    numbers = {}
    for name in names:
        with contextlib.suppress(OSError):
            status = (SHARED_MEMORY / name).stat()
            numbers[status.st_dev, status.st_ino] = name
    used = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for line in (entry / "maps").read_text().splitlines():
                if "/dev/shm/" in line:
                    device, number = line.split(maxsplit=5)[3:5]
                    used.add(numbers.get((os.makedev(*(int(part, 16) for part in device.split(":"))), int(number))))
        with contextlib.suppress(OSError):
            for link in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(link).startswith("/dev/shm/"):
                        status = link.stat()
                        used.add(numbers.get((status.st_dev, status.st_ino)))
    return names & used


@dataclass
class Before:
    """The machine before a run, to compare with afterwards."""

    temp: Path
    files: set[str] = field(default_factory=shared_memory_files)
    segments: dict[int, int] = field(default_factory=system_v_segments)

    def left(self, pids: set[int]) -> list[str]:
        """What is there now that the run, whose processes had these ids, has left."""
        found = [f"process {pid}: {command}" for pid, command in processes(self.temp).items()]
        found += [f"folder {entry}" for entry in self.temp.glob("merge-bench*")]
        found += [f"folder {entry}" for entry in self.temp.glob("dask-*")]
        for segment, maker in system_v_segments().items():
            if segment not in self.segments and maker in pids:
                found.append(f"SysV segment {segment} of process {maker}")
        fresh = {name for name in shared_memory_files() - self.files if not name.startswith(OF_MPI)}
        found += [f"/dev/shm/{name}" for name in sorted(fresh - _in_use(fresh))]
        return found

    def left_after(self, pids: set[int], seconds: float) -> list[str]:
        """The same, once nothing is left, or when the time is up."""
        deadline = time.monotonic() + seconds
        while found := self.left(pids):
            if time.monotonic() > deadline:
                return found
            time.sleep(0.1)
        return []

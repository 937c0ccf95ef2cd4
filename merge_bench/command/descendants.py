"""The descendants of this process: finds all of them, also those that left its session, and ends them.

A subreaper becomes the parent of descendants whose own parent ended. So what a command started can be found, whatever
sessions and groups it is in. This module imports only what Python has: the warden of each launch imports it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator
from typing import NamedTuple

_POLL_SECONDS = 0.002


class ProcessState(NamedTuple):
    """A process of this machine, its parent, and whether it has ended but was not reaped."""

    pid: int
    parent: int
    zombie: bool


def list_processes() -> Iterator[ProcessState]:
    """List the processes of this machine that are visible."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program, in brackets, may contain blanks and brackets.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                yield ProcessState(int(name), int(parent), state in (b"Z", b"X"))


def find_child_pids() -> frozenset[int]:
    """The ids of the children of this process."""
    own = os.getpid()
    return frozenset(each.pid for each in list_processes() if each.parent == own)


def find_descendants(spared_children: Collection[int] = ()) -> list[ProcessState]:
    """Find the descendants of this process, parents first, without `spared_children` and their descendants."""
    by_parent: dict[int, list[ProcessState]] = {}
    for process in list_processes():
        by_parent.setdefault(process.parent, []).append(process)
    descendants = [process for process in by_parent.get(os.getpid(), ()) if process.pid not in spared_children]
    for process in descendants:  # the list grows while it is walked
        descendants += by_parent.get(process.pid, ())
    return descendants


def end_descendants(spared_children: Collection[int] = (), seconds: float = 30.0) -> list[int]:
    """Kill the descendants of this process, a subreaper, until none is left, and reap them.

    `spared_children`: the ids of children that stay, with their descendants. Returns the ids of those that did not end
    within `seconds`, such as processes of another user, or in a call of the kernel that does not return.
    """
    deadline, own = time.monotonic() + seconds, os.getpid()
    while left := find_descendants(spared_children):
        for process in left:
            if process.zombie and process.parent == own:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
            elif not process.zombie:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process.pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return [process.pid for process in left]
        time.sleep(_POLL_SECONDS)
    return []

"""What mpirun says at its end, as a sentence: Open MPI's (PRRTE since 5, ORTE before) and MPICH's."""

from __future__ import annotations

import re
from collections.abc import Mapping

from merge_bench.errors import LaunchFailed

NO_UCX = "no-ucx"
"""Code of a failure: the ranks could not send over UCX."""
DIED, UNREACHABLE, NOT_STARTED = "worker-died", "host-unreachable", "program-not-started"
OWN_MPIRUN = "if it was built with another MPI than this mpirun's, name its own mpirun with --mpirun"
_ALARM = 14

_KILLED = re.compile(r"process rank (\d+) with PID (\d+) on node (\S+) exited on signal (\d+)")
_ENDED = re.compile(r"PID (\d+) RUNNING AT (\S+)[ =]+(?:EXIT CODE|KILLED BY SIGNAL): (\d+)")  # MPICH
_STATUS = re.compile(r"Process name: \[\S+?,(\d+)\] Exit code: (\d+)")  # [[9881,1],1] before 5, [prterun-vm-7@1,1]
_LOADER = re.compile(r"^(\S+): ((?:symbol lookup error|error while loading shared libraries): .*)$", re.MULTILINE)
_EXECUTABLE = re.compile(r"Executable: (\S+) Node: (\S+)")
_DAEMON = ("daemon failed to report back", "lost communication with", "unable to reliably start one or more daemons")
_HOST_OF_DAEMON = re.compile(r"Remote host: (\S+)|Remote daemon: \S+ on node (\S+)")
_SSH = re.compile(  # of ssh or the shell behind it, not of mpirun, whose lines begin with [host:pid]
    r"^(?!\[)(?:ssh: .*|.*Host key verification failed.*|.*Permission denied.*|.*Connection .*"
    r"|.*(?:orted|prted)\S* (?:command )?not found.*)$",
    re.MULTILINE,
)
_HOST_OF_SSH = re.compile(  # Open MPI before 5 does not name the host
    r"^Host key for (\S+) has changed|host key is known for (\S+) and|connect to host (\S+) port"
    r"|Could not resolve hostname ([^\s:]+)|^(?:\S+@)?([^\s:@]+): Permission denied",
    re.MULTILINE,
)
_WITHOUT_UCX = ("in the pml framework", "PML ucx cannot be selected", "ucp_ep_create(")
_FRAME = re.compile(r"^-{20,}$")


def explain(text: str, status: int, silence: float, pids: Mapping[int, int] | None = None) -> LaunchFailed:
    """A sentence for an mpirun that ended with `status` after it had said `text`.

    `silence`: seconds without progress after which a rank ends itself. `pids`: processes of the ranks, as they told;
    Open MPI 4 says 0 of those that it started itself.
    """
    flat = " ".join(text.split())
    for find in (_of_loader, _of_signal, _of_mpich, _of_executable, _of_daemon, _of_ucx, _of_status):
        found = find(text, flat, silence, pids or {})
        if found is not None:
            return found
    said = _first_line(text)
    ended = f"mpirun ended with status {status}" if status else "the ranks ended before they were done"
    return LaunchFailed(ended + (f": {said}" if said else ""))


def _of_loader(text: str, flat: str, silence: float, pids: Mapping[int, int]) -> LaunchFailed | None:
    found = _LOADER.search(text)
    if found is None:
        return None
    return LaunchFailed(f"{found[1]} does not start ({found[2]}); {OWN_MPIRUN}", code=NOT_STARTED)


def _of_signal(text: str, flat: str, silence: float, pids: Mapping[int, int]) -> LaunchFailed | None:
    found = _KILLED.search(flat)
    if found is None:
        return None
    rank, host, number = int(found[1]), found[3], int(found[4])
    pid = int(found[2]) or pids.get(rank)
    how = f"made no progress for {silence:g} s" if number == _ALARM else f"was killed by signal {number}"
    who = f"rank {rank}" + (f" (process {pid})" if pid else "")
    return LaunchFailed(f"{who} on {host} {how}", host=host, rank=rank, code=DIED)


def _of_mpich(text: str, flat: str, silence: float, pids: Mapping[int, int]) -> LaunchFailed | None:
    found = _ENDED.search(flat)
    if found is None:
        return None
    return LaunchFailed(f"process {found[1]} on {found[2]} ended with {found[3]}", host=found[2], code=DIED)


def _of_executable(text: str, flat: str, silence: float, pids: Mapping[int, int]) -> LaunchFailed | None:
    found = _EXECUTABLE.search(flat)
    if found is None:
        return None
    return LaunchFailed(
        f"{found[1]} cannot be executed on {found[2]}: every host needs it at the same path", host=found[2],
        code=NOT_STARTED,
    )  # fmt: skip


def _of_daemon(text: str, flat: str, silence: float, pids: Mapping[int, int]) -> LaunchFailed | None:
    if not any(words in flat for words in _DAEMON):
        return None
    found = _HOST_OF_DAEMON.search(flat) or _HOST_OF_SSH.search(text)
    host = next((name for name in found.groups() if name), None) if found else None
    complaint = _SSH.search(text)
    said = f": {complaint[0].strip()}" if complaint else ""
    return LaunchFailed(f"{host or 'a host'} cannot be reached by mpirun{said}", host=host, code=UNREACHABLE)


def _of_ucx(text: str, flat: str, silence: float, pids: Mapping[int, int]) -> LaunchFailed | None:
    if not any(words in flat for words in _WITHOUT_UCX):
        return None
    found = re.search(r"Host: (\S+)", flat)
    host = found[1] if found else None
    return LaunchFailed(
        f"MPI's ranks{f' on {host}' if host else ''} did not get UCX (pml ucx): it has no transport between them, or"
        " does not load",
        host=host, code=NO_UCX,
    )  # fmt: skip


def _of_status(text: str, flat: str, silence: float, pids: Mapping[int, int]) -> LaunchFailed | None:
    found = _STATUS.search(flat)
    if found is None:
        return None
    said = _first_line(text)
    return LaunchFailed(
        f"rank {found[1]} ended with status {found[2]}" + (f": {said}" if said else ""), rank=int(found[1]), code=DIED
    )


def _first_line(text: str) -> str:
    """The first line that has words and stands outside of mpirun's frames; else the first inside."""
    inside: list[str] = []
    framed = False
    for line in (each.strip() for each in text.splitlines()):
        if _FRAME.match(line):
            framed = not framed
        elif re.search(r"\w", line):
            if not framed:
                return line
            inside.append(line)
    return inside[0] if inside else ""

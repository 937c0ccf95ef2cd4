"""Turns the last output of mpirun into one error: of Open MPI (PRRTE since 5, ORTE before) and of MPICH."""

from __future__ import annotations

import re
from collections.abc import Mapping

from merge_bench.errors import LaunchFailed

NO_UCX = "no-ucx"
"""Code of a failure: the ranks could not send over UCX."""
DIED, UNREACHABLE, NOT_STARTED = "worker-died", "host-unreachable", "program-not-started"
OWN_MPIRUN = "if the program was built with another MPI, set --mpirun to the mpirun of that MPI"
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
    """The error for an mpirun that printed `text` and ended with `status`.

    `silence`: seconds without progress after which a rank ends itself. `pids`: process ids that the ranks reported;
    Open MPI 4 prints 0 for ranks on its own host.
    """
    known = _known(text, " ".join(text.split()), silence, pids or {})
    if known is not None:
        return known
    ended = f"mpirun ended with status {status}" if status else "the ranks ended before the measurement was complete"
    return LaunchFailed(ended + _first_line(text))


def _known(text: str, flat: str, silence: float, pids: Mapping[int, int]) -> LaunchFailed | None:
    """The error that known lines of mpirun stand for, the most telling first; `flat`: `text` in one line."""
    if found := _LOADER.search(text):
        return LaunchFailed(f"{found[1]} does not start ({found[2]}); {OWN_MPIRUN}", code=NOT_STARTED)
    if found := _KILLED.search(flat):
        rank, host, number = int(found[1]), found[3], int(found[4])
        pid = int(found[2]) or pids.get(rank)
        how = f"made no progress for {silence:g} s" if number == _ALARM else f"was killed by signal {number}"
        who = f"rank {rank}" + (f" (process {pid})" if pid else "")
        return LaunchFailed(f"{who} on {host} {how}", host=host, rank=rank, code=DIED)
    if found := _ENDED.search(flat):
        return LaunchFailed(
            f"process {found[1]} on {found[2]} ended with status {found[3]} (an exit code or a signal number)",
            host=found[2],
            code=DIED,
        )
    if found := _EXECUTABLE.search(flat):
        message = f"{found[1]} cannot be executed on {found[2]}; install it at the same path on every host"
        return LaunchFailed(message, host=found[2], code=NOT_STARTED)
    if any(words in flat for words in _DAEMON):
        found = _HOST_OF_DAEMON.search(flat) or _HOST_OF_SSH.search(text)
        named = next((name for name in found.groups() if name), None) if found else None
        complaint = _SSH.search(text)
        message = f"mpirun cannot reach {named or 'a host'}" + (f": {complaint[0].strip()}" if complaint else "")
        return LaunchFailed(message, host=named, code=UNREACHABLE)
    if any(words in flat for words in _WITHOUT_UCX):
        found = re.search(r"Host: (\S+)", flat)
        message = (
            f"MPI ranks{f' on {found[1]}' if found else ''} cannot use UCX (pml ucx): UCX does not load, or has no"
            " transport between the ranks"
        )
        return LaunchFailed(message, host=found[1] if found else None, code=NO_UCX)
    if found := _STATUS.search(flat):
        message = f"rank {found[1]} ended with status {found[2]}{_first_line(text)}"
        return LaunchFailed(message, rank=int(found[1]), code=DIED)
    return None


def _first_line(text: str) -> str:
    """The first line with words outside of mpirun's frames, else inside, after a colon; "" if there is none."""
    inside: list[str] = []
    framed = False
    for line in (each.strip() for each in text.splitlines()):
        if _FRAME.match(line):
            framed = not framed
        elif re.search(r"\w", line):
            if not framed:
                return f": {line}"
            inside.append(line)
    return f": {inside[0]}" if inside else ""

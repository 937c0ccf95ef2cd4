"""Which of several processes that ended failed first.

One process that ends can end others: without error handling UCX aborts a worker whose peer is gone, and workers exit
when their scheduler is gone. The news of the others may arrive earlier. So evidence decides, not the order of news.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from merge_bench.cluster.base import Exited, how_ended

# What UCX prints before it aborts, when the kernel refuses a read from the memory of a process that is gone.
_LOST_PEER = re.compile(r"process_vm_\w+\(pid=(\d+).*No such process")
# What Dask's nanny logs about a worker process that it started.
_NANNY = re.compile(r"Worker process (\d+) (?:was killed by signal (\d+)|exited with status (\d+))")


@dataclass(frozen=True)
class Member:
    """One worker of a launch."""

    rank: int
    address: str
    name: str
    host: str
    pid: int

    @property
    def shown(self) -> str:
        """Its name in messages."""
        process = f", process {self.pid}" if self.pid else ""
        return f"rank {self.rank} (worker {self.name}{process} on {self.host})"


@dataclass(frozen=True)
class Loss:
    """A process that is gone or silent.

    `status`: its exit status or the negative number of the signal that killed it, None if unknown. `how`: what
    happened to it, to follow its name in a sentence. `member`: None for the scheduler.
    """

    shown: str
    host: str
    how: str
    status: int | None
    log_tail: str
    member: Member | None = None

    @property
    def certain(self) -> bool:
        """Whether the loss of another process cannot be its cause: it was killed by a signal other than SIGABRT."""
        return self.status is not None and self.status < 0 and self.status != -signal.SIGABRT


def losses(
    exited: Iterable[Exited], left: Iterable[Member], members: Sequence[Member], tail: Callable[[str], str]
) -> list[Loss]:
    """Every process that is gone, once each.

    Parameters
    ----------
    exited
        Processes of the launcher that have ended.
    left
        Workers that the scheduler no longer knows.
    members
        All workers of the launch.
    tail
        Gives the last lines of a worker's log by the worker's name; empty if there are none.
    """
    by_name = {member.name: member for member in members}
    found: dict[str, Loss] = {}
    for ended in exited:
        member = by_name.get(ended.role)
        shown = member.shown if member else f"{ended.role} (process {ended.pid} on {ended.host})"
        host = member.host if member else ended.host  # its peers on the host have this name of the host, too
        found[ended.role] = Loss(shown, host, f"{ended.how} during the run", ended.status, ended.log_tail, member)
    for member in left:
        if member.name not in found:
            log = tail(member.name)
            status = _status_by_nanny(member.pid, log)
            how = "left the cluster" if status is None else f"{how_ended(status)} during the run"
            found[member.name] = Loss(member.shown, member.host, how, status, log, member)
    reported = _reported(found.values())
    for member in members:
        if member.name not in found and (member.host, member.pid) in reported:
            how = "has ended: other workers can no longer read its memory"
            found[member.name] = Loss(member.shown, member.host, how, None, "", member)
    return list(found.values())


def first_cause(lost: Sequence[Loss]) -> tuple[Loss, bool]:
    """The process that most likely ended first, and whether that is certain.

    Processes killed by a signal other than SIGABRT come first, then those that another process could not read from,
    then those that ended in an unknown way or with a status, and aborted ones last. Only the first two kinds can be
    certain.
    """
    reported = _reported(lost)

    def order(loss: Loss) -> int:
        if loss.certain:
            return 0
        if loss.member is not None and (loss.host, loss.member.pid) in reported:
            return 1
        return 3 if loss.status == -signal.SIGABRT or _LOST_PEER.search(loss.log_tail) else 2

    first = min(lost, key=order)
    return first, order(first) == 0 or (order(first) == 1 and first.status is not None)


def _reported(lost: Iterable[Loss]) -> set[tuple[str, int]]:
    """Host and process id of each process that another process of its host could not read from."""
    return {(loss.host, int(pid)) for loss in lost for pid in _LOST_PEER.findall(loss.log_tail)}


def _status_by_nanny(pid: int, log: str) -> int | None:
    for number, killed, ended in _NANNY.findall(log):
        if int(number) == pid:
            return -int(killed) if killed else int(ended)
    return None

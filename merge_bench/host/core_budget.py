"""Whether a host has a core for each worker, or for each polling process; with fewer cores they take turns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from merge_bench.host.description import Hardware
from merge_bench.host.memory import parse_cores, show_cores

A_WORKER = 2
"""``ucx_perftest`` processes beside each worker while the link limit is checked: one sends, one receives."""


@dataclass(frozen=True)
class Shortage:
    """A host on which more `processes` run than there are `cores` for them.

    `cores`: how many, which a container's quota can make a fraction. `bound`: which, as ``0-3``, if the processes are
    bound to them and the host has enough for all; otherwise empty.
    """

    host: str
    processes: int
    cores: float
    bound: str = ""

    @property
    def named(self) -> str:
        """``2 cores of node1``, or ``cores 0-1 of node1``."""
        cores = "core" if self.cores == 1 else "cores"
        return f"{cores} {self.bound} of {self.host}" if self.bound else f"{self.cores:g} {cores} of {self.host}"

    @property
    def fits(self) -> int:
        """How many workers have a core each; at least one."""
        return max(1, int(self.cores))


def shortage(workers: Iterable[tuple[str, Hardware]], each: int = 1) -> Shortage | None:
    """The first host whose cores do not suffice for `each` processes per worker; None if all do, or it is not known.

    `workers`: host and recorded hardware of each. The processes run on the workers' own cores, so each set of cores
    must have enough of them for the workers that are bound to it.
    """
    hosts: dict[str, list[tuple[frozenset[int], float | None]]] = {}
    for host, hardware in workers:
        cores, quota = parse_cores(hardware.affinity or ""), hardware.cpu_quota
        usable = hardware.cores if quota is None and not cores else quota
        hosts.setdefault(host, []).append((cores, usable))
    for host, found in hosts.items():
        every = frozenset[int]().union(*(cores for cores, _ in found))
        quotas = [quota for _, quota in found if quota is not None]
        usable = min([*quotas, *([len(every)] if every else [])], default=None)
        if usable is not None and max(usable, 1) < each * len(found):
            return Shortage(host, each * len(found), usable)
        for cores in dict.fromkeys(cores for cores, _ in found if cores):
            here = each * sum(own <= cores for own, _ in found)
            if here > len(cores):
                return Shortage(host, here, len(cores), show_cores(cores))
    return None


def crowded(workers: Iterable[tuple[str, Hardware]]) -> str | None:
    """Why ucx_perftest cannot test both directions at once: ``4 polling processes on 2 cores of node1``; or None."""
    found = shortage(workers, A_WORKER)
    return None if found is None else f"{found.processes} polling processes on {found.named}"

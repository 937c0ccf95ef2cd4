"""Whether a host has a core for each worker, or for each polling process; with fewer cores they take turns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from merge_bench.host.description import Hardware
from merge_bench.host.memory import parse_cores

A_WORKER = 2
"""``ucx_perftest`` processes beside each worker while the link limit is checked: one sends, one receives."""


@dataclass(frozen=True)
class Shortage:
    """A host on which more `processes` run than it has `cores` for them."""

    host: str
    processes: int
    cores: int

    @property
    def named(self) -> str:
        """``2 cores of node1``."""
        return f"{self.cores} core{'s' * (self.cores != 1)} of {self.host}"


def shortage(workers: Iterable[tuple[str, Hardware]], each: int = 1) -> Shortage | None:
    """The first host whose cores do not suffice for `each` processes per worker; None if all do, or it is not known.

    `workers`: host and recorded hardware of each. The processes run on the workers' own cores, so each set of cores
    must have enough of them for the workers that are bound to it.
    """
    hosts: dict[str, list[tuple[frozenset[int], int | None]]] = {}
    for host, hardware in workers:
        cores, quota = parse_cores(hardware.affinity or ""), hardware.cpu_quota
        usable = hardware.cores if quota is None and not cores else quota
        hosts.setdefault(host, []).append((cores, None if usable is None else int(usable)))
    for host, found in hosts.items():
        sets = dict.fromkeys([frozenset[int]().union(*(cores for cores, _ in found)), *(cores for cores, _ in found)])
        for cores in filter(None, sets):
            here = each * sum(own <= cores for own, _ in found)
            if here > len(cores):
                return Shortage(host, here, len(cores))
        quotas = [quota for _, quota in found if quota is not None]
        if quotas and each * len(found) > min(quotas):
            return Shortage(host, each * len(found), min(quotas))
    return None


def crowded(workers: Iterable[tuple[str, Hardware]]) -> str | None:
    """Why ucx_perftest cannot test both directions at once: ``4 polling processes on 2 cores of node1``; or None."""
    found = shortage(workers, A_WORKER)
    return None if found is None else f"{found.processes} polling processes on {found.named}"

"""Whether a host has a core for each polling process; with fewer cores, measured rates mean nothing."""

from __future__ import annotations

from collections.abc import Iterable

from merge_bench.host.description import Hardware
from merge_bench.host.memory import parse_cores

A_WORKER = 2
"""``ucx_perftest`` processes beside each worker while the link limit is checked: one sends, one receives."""


def crowded(workers: Iterable[tuple[str, Hardware]]) -> str | None:
    """Why both directions cannot be tested at once, like ``4 polling processes on 2 cores of node1``; None if they can.

    `workers`: host and recorded hardware of each. The test programs run on the workers' own cores, so each set of cores
    must have enough of them for the workers that are bound to it.
    """
    hosts: dict[str, list[tuple[frozenset[int], int | None]]] = {}
    for host, hardware in workers:
        cores, quota = parse_cores(hardware.affinity or ""), hardware.cpu_quota
        usable = hardware.cores if quota is None and not cores else quota
        hosts.setdefault(host, []).append((cores, None if usable is None else int(usable)))
    for host, found in hosts.items():
        sets = dict.fromkeys([frozenset[int]().union(*(cores for cores, _ in found)), *(cores for cores, _ in found)])
        for each in filter(None, sets):
            here = A_WORKER * sum(cores <= each for cores, _ in found)
            if here > len(each):
                return _describe(here, len(each), host)
        quotas = [quota for _, quota in found if quota is not None]
        if quotas and A_WORKER * len(found) > min(quotas):
            return _describe(A_WORKER * len(found), min(quotas), host)
    return None


def _describe(processes: int, cores: int, host: str) -> str:
    return f"{processes} polling processes on {cores} core{'s' * (cores != 1)} of {host}"

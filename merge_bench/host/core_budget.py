"""Whether a host has a core for each process that polls: without one they take turns, and their rates mean nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from merge_bench.host.memory import parse_cores

A_WORKER = 2
"""``ucx_perftest`` processes beside each worker while the link limit is checked: one sends, one receives."""


def crowded(workers: Iterable[tuple[str, Mapping[str, Any]]]) -> str | None:
    """Why opposite tests cannot run at once: as ``4 polling processes on 2 cores of node1``; None where they can.

    `workers`: host and recorded hardware of each. Their programs run on the workers' own cores, so that every set of
    cores has to suffice for the workers that have no others.
    """
    hosts: dict[str, list[tuple[frozenset[int], int | None]]] = {}
    for host, hardware in workers:
        cores, quota = parse_cores(str(hardware.get("affinity") or "")), hardware.get("cpu_quota")
        usable = hardware.get("cores") if quota is None and not cores else quota
        hosts.setdefault(host, []).append((cores, None if usable is None else int(usable)))
    for host, found in hosts.items():
        sets = dict.fromkeys([frozenset[int]().union(*(cores for cores, _ in found)), *(cores for cores, _ in found)])
        for each in filter(None, sets):
            here = A_WORKER * sum(cores <= each for cores, _ in found)
            if here > len(each):
                return _said(here, len(each), host)
        quotas = [quota for _, quota in found if quota is not None]
        if quotas and A_WORKER * len(found) > min(quotas):
            return _said(A_WORKER * len(found), min(quotas), host)
    return None


def _said(processes: int, cores: int, host: str) -> str:
    return f"{processes} polling processes on {cores} core{'s' * (cores != 1)} of {host}"

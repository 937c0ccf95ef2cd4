"""How many workers each host gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from merge_bench.errors import UsageError


@dataclass(frozen=True)
class HostSpec:
    """One host as a hosts file or a batch system names it.

    `slots`, `gpus`: how many workers it takes and how many GPUs it has; None if not given. `assumed`: whether `gpus`
    was not given and is the number of another host. `most`: the largest number of workers that it may get.
    """

    name: str
    slots: int | None = None
    gpus: int | None = None
    assumed: bool = False
    most: int | None = None


class Placement(NamedTuple):
    """A host and the numbers of its workers."""

    host: HostSpec
    workers: tuple[int, ...]


def count_workers(hosts: Sequence[HostSpec], workers_per_gpu: int = 1) -> int:
    """The default number of workers on these hosts: one per slot, else one per GPU, else one per host."""
    return sum(_capacity(host, workers_per_gpu) for host in hosts)


def place(hosts: Sequence[HostSpec], workers: int, workers_per_gpu: int = 1) -> tuple[Placement, ...]:
    """Distribute workers over hosts: each host gets its default number if these add up to `workers`, else equal shares.

    A host without a worker is left out.

    Raises
    ------
    UsageError
        If a host would get more than its largest number.
    """
    shares = [_capacity(host, workers_per_gpu) for host in hosts]
    if hosts and sum(shares) != workers:
        each, more = divmod(workers, len(hosts))
        shares = [each + (number < more) for number in range(len(hosts))]
    placed, first = [], 0
    for host, share in zip(hosts, shares, strict=True):
        if host.most is not None and share > host.most:
            raise UsageError(
                f"{host.name} would get {share} workers, but its max_slots is {host.most}; lower --workers"
            )
        if share:
            placed.append(Placement(host, tuple(range(first, first + share))))
        first += share
    return tuple(placed)


def _capacity(host: HostSpec, workers_per_gpu: int) -> int:
    if host.slots is not None:
        return host.slots
    return host.gpus * workers_per_gpu if host.gpus else 1

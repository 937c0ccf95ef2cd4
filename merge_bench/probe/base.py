"""What a network measurement is: how it is described, which places it needs, and how one launch of it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from merge_bench.config.tls import WITHIN_A_PROCESS, selected
from merge_bench.errors import UsageError
from merge_bench.launch.hosts import HostSpec
from merge_bench.launching import Job
from merge_bench.record.schema import ProbeLine, Worker
from merge_bench.record.writer import CampaignWriter
from merge_bench.report.live import Progress
from merge_bench.setup import Prepared

ONE_HOST, TWO_HOSTS, EVERY_PAIR = "one-host", "two-hosts", "every-pair"
Emit = Callable[[ProbeLine], None]
"""Writes a row down, at once."""


class Probe(Protocol):
    """One kind of network measurement."""

    name: str
    engine: str
    """``cudf`` makes the workers those of GPUs; ``polars`` else."""

    def describe(self) -> dict[str, Any]:
        """What is asked for, as plain data: the plan in the records."""

    def prepare(self, prepared: Prepared) -> Prepared:
        """The same hosts and settings, with the workers that this measurement needs.

        Raises
        ------
        UsageError
            If the hosts do not suffice, or a tool is missing.
        """

    def launch(self, job: Job, writer: CampaignWriter, progress: Progress, index: int) -> int:
        """Make one launch, write its lines, take down what was started; gives the exit status."""


def places(prepared: Prepared, placements: tuple[str, ...]) -> Prepared:
    """As many workers as `placements` need, host by host: two on the first host, and one or two on the second.

    Raises
    ------
    UsageError
        If two hosts are needed and only one is known.
    """
    hosts = prepared.settings.hosts
    if EVERY_PAIR in placements:
        if prepared.plan.workers < 2:
            raise UsageError("--placement every-pair needs at least two workers: --workers 2")
        return prepared
    if TWO_HOSTS in placements:
        if len(hosts) < 2:
            raise UsageError(
                "--placement two-hosts needs two hosts: name them with --hosts, or start it in a batch job"
            )
        first = replace(hosts[0], slots=2 if ONE_HOST in placements else 1)
        return _with(prepared, (first, replace(hosts[1], slots=1)))
    return _with(prepared, tuple(replace(host, slots=2) for host in hosts[:1]))


def _with(prepared: Prepared, hosts: tuple[HostSpec, ...]) -> Prepared:
    workers = sum(host.slots or 1 for host in hosts) if hosts else 2
    return replace(
        prepared, plan=replace(prepared.plan, workers=workers), settings=replace(prepared.settings, hosts=hosts)
    )


def pairs(placements: tuple[str, ...], hosts: list[str]) -> list[tuple[int, int, str]]:
    """From rank, to rank, and placement of each pair to measure; `hosts`: the host of each rank."""

    def placed(a: int, b: int) -> str:
        return ONE_HOST if hosts[a] == hosts[b] else TWO_HOSTS

    ranks = range(len(hosts))
    if EVERY_PAIR in placements:
        return [(a, b, placed(a, b)) for a in ranks for b in ranks if a < b]
    found = []
    for placement in placements:
        pair = next(((a, b) for a in ranks for b in ranks if a < b and placed(a, b) == placement), None)
        if pair is None:
            raise UsageError(f"no two workers are placed as --placement {placement} asks")
        found.append((*pair, placement))
    return found


def placement(workers: Sequence[Worker]) -> str:
    """``one-host``, ``two-hosts``, or ``4-hosts``."""
    hosts = len({worker.host for worker in workers})
    return {1: ONE_HOST, 2: TWO_HOSTS}.get(hosts, f"{hosts}-hosts")


def as_requested(requested: str | None, lanes: Sequence[str]) -> bool | None:
    """Whether every lane (``tcp/eth0``) that UCX selected is of a transport that `UCX_TLS` = `requested` allows.

    None where nothing was asked for, or nothing is known of what was selected.
    """
    if not lanes or requested is None:
        return None
    return {lane.partition("/")[0] for lane in lanes} <= selected(requested) | WITHIN_A_PROCESS

"""Where the ends of a measurement are placed, and on which transports they were to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from merge_bench.config.tls import REQUESTED, WITHIN_A_PROCESS, selected
from merge_bench.errors import UsageError
from merge_bench.records.placements import EVERY_PAIR, ONE_HOST, TWO_HOSTS

if TYPE_CHECKING:
    from merge_bench.campaign.prepare import Prepared
    from merge_bench.cluster.hosts import HostSpec
    from merge_bench.records.schema import Worker

PLACEMENTS = (ONE_HOST, TWO_HOSTS, EVERY_PAIR)


def placements_of(text: str | None) -> tuple[str, ...] | None:
    """The placements of ``--placement``; None where nothing was said."""
    if text is None:
        return None
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    wrong = [word for word in words if word not in PLACEMENTS]
    if wrong or not words:
        raise UsageError(f"--placement {text}: write {', '.join(PLACEMENTS)}, or two of them with a comma")
    return words


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


def transports_asked(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings about transports in a rank's environment."""
    return {name: environment[name] for name in REQUESTED if name in environment}

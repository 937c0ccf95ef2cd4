"""Placements: on which hosts both ends of a measurement are; and whether UCX used the requested transports."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from merge_bench.config.allowed_transports import WITHIN_A_PROCESS, allowed
from merge_bench.errors import Caution, UsageError
from merge_bench.probe.shared.sizes import parse_names
from merge_bench.records import EVERY_PAIR, ONE_HOST, TWO_HOSTS

if TYPE_CHECKING:
    from merge_bench.campaign.make_plan import PlannedRun
    from merge_bench.records.schema import Worker

CROWDED = Caution(
    "more-ranks-than-cores",
    "a host has more ranks than cores, so the measured times include waiting for a core",
    "lower --workers",
)
PLACEMENTS = (ONE_HOST, TWO_HOSTS, EVERY_PAIR)


def parse_placements(text: str | None) -> tuple[str, ...] | None:
    """The placements that the value of ``--placement`` lists; None if it was not given."""
    return None if text is None else parse_names("--placement", text, PLACEMENTS)


def plan_placements(prepared: PlannedRun, requested: tuple[str, ...] | None, *, both: bool = False) -> PlannedRun:
    """The run with as many workers as the placements need: two or one on the first host, one on the second.

    `requested`: None for two-hosts where there are two hosts, else one-host; with `both`, one-host in any case.
    Raises UsageError if there are too few hosts or workers.
    """
    placements, hosts = _requested_or_default(prepared, requested, both), prepared.settings.hosts
    if EVERY_PAIR in placements:
        if prepared.plan.workers < 2:
            raise UsageError("--placement every-pair needs at least two workers; use --workers 2 or more")
        return prepared
    slots = [2 if ONE_HOST in placements else 1]
    if TWO_HOSTS in placements:
        if len(hosts) < 2:
            raise UsageError(
                "--placement two-hosts needs two hosts; name them with --hosts, or run in a batch job with two hosts"
            )
        slots.append(1)
    if hosts:
        hosts = tuple(replace(host, slots=count) for host, count in zip(hosts, slots, strict=False))
    plan = replace(prepared.plan, workers=sum(slots))
    return replace(prepared, plan=plan, settings=replace(prepared.settings, hosts=hosts))


def rank_pairs(
    prepared: PlannedRun, requested: tuple[str, ...] | None, hosts: list[str], *, both: bool = False
) -> list[tuple[tuple[int, int], str]]:
    """Each pair of ranks to measure, with its placement.

    `hosts`: the host of each rank; other parameters as of `plan_placements`. Raises UsageError without such a pair.
    """
    placements = _requested_or_default(prepared, requested, both)
    every = [
        (pair, ONE_HOST if hosts[pair[0]] == hosts[pair[1]] else TWO_HOSTS)
        for pair in itertools.combinations(range(len(hosts)), 2)
    ]
    if EVERY_PAIR in placements:
        return every
    chosen = [next((each for each in every if each[1] == placement), None) for placement in placements]
    if None in chosen:
        missing = placements[chosen.index(None)]
        where = "on one host" if missing == ONE_HOST else "on different hosts"
        raise UsageError(
            f"--placement {missing} needs two workers {where}, but the cluster has no such pair; choose another"
            " --placement"
        )
    return [each for each in chosen if each is not None]


def pair_count(prepared: PlannedRun, requested: tuple[str, ...] | None, *, both: bool = False) -> int:
    """How many pairs of ranks are measured; parameters as of `plan_placements`."""
    placements, workers = _requested_or_default(prepared, requested, both), prepared.plan.workers
    return workers * (workers - 1) // 2 if EVERY_PAIR in placements else len(placements)


def _requested_or_default(prepared: PlannedRun, requested: tuple[str, ...] | None, both: bool) -> tuple[str, ...]:
    if requested is not None:
        return requested
    if len(prepared.settings.hosts) < 2:
        return (ONE_HOST,)
    return (ONE_HOST, TWO_HOSTS) if both else (TWO_HOSTS,)


def placement_of_workers(workers: Sequence[Worker]) -> str:
    """On how many hosts the workers are: ``one-host``, ``two-hosts``, or ``4-hosts``."""
    hosts = len({worker.host for worker in workers})
    return {1: ONE_HOST, 2: TWO_HOSTS}.get(hosts, f"{hosts}-hosts")


def are_lanes_as_requested(requested: str | None, lanes: Sequence[str]) -> bool | None:
    """Whether every lane that UCX selected (``tcp/eth0``) is of a transport that ``UCX_TLS`` = `requested` allows.

    None if ``UCX_TLS`` is not set, or no lane is known.
    """
    if not lanes or requested is None:
        return None
    return {lane.partition("/")[0] for lane in lanes} <= allowed(requested) | WITHIN_A_PROCESS

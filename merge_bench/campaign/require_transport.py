"""`--require-transport`: every pair of workers uses one of the transports named, or the run ends with status 5.

A transport that UCX on this machine does not have is refused before anything is started. The pairs are checked as soon
as they are connected, before anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from merge_bench.config import allowed_transports
from merge_bench.config.ucx_info import NAME_LISTS, Installed, find_installed, usable_transports
from merge_bench.errors import GateNotMet, UsageError
from merge_bench.host.memory import shared_memory_problem
from merge_bench.records.schema import LanePair

OPTION = "--require-transport"


def check_names(required: Sequence[str]) -> None:
    """Refuse names that no release of UCX has.

    Raises
    ------
    UsageError
        With the nearest names.
    """
    for word, hint in allowed_transports.unknown_words(",".join(required)).items():
        raise UsageError(f"{OPTION} {word}: no release of UCX has such a transport{hint}")


def check_machine(required: Sequence[str], environment: Mapping[str, str], workers: int = 2) -> None:
    """Refuse to start on this machine what its UCX cannot do; `environment`: what the workers will be started with.

    Raises
    ------
    UsageError
        If the lists of transports and devices leave none between two processes (UCX itself would only say "no such
        device"), or there is too little shared memory for the workers.
    GateNotMet
        If there is no transport of `required`.
    """
    installed = find_installed(environment.get("MERGE_BENCH_UCX", "auto"), environment)
    allowed = allowed_transports.allowed(environment.get("UCX_TLS", "all"))
    usable = allowed
    if installed is not None and installed.transports:  # else the workers will report theirs
        usable &= usable_transports(installed, environment)
    if "posix" in (usable if _between_processes(usable) else allowed):  # UCX leaves it out where nothing is free
        problem = shared_memory_problem(Path(environment.get("UCX_POSIX_DIR") or "/dev/shm"), workers)
        if problem:
            raise UsageError(problem)
    if installed is None or not installed.transports:
        return
    _check_lists(installed, environment, usable)
    if not required or allowed_transports.resolve_aliases(required) & set(installed.transports):
        return
    raise GateNotMet(
        f"{OPTION} {','.join(required)} cannot be met: UCX {installed.version} ({installed.info.origin}) on this"
        f" host offers only {', '.join(sorted(installed.transports))}"
    )


def _between_processes(transports: frozenset[str]) -> bool:
    return bool(transports - allowed_transports.WITHIN_A_PROCESS - allowed_transports.ONLY_BESIDE_ANOTHER)


def _check_lists(installed: Installed, environment: Mapping[str, str], usable: frozenset[str]) -> None:
    if _between_processes(usable):
        return
    lists = " with ".join(f"{name}={environment[name]}" for name in NAME_LISTS if name in environment)
    offered = (
        f"{name} on {', '.join(devices)}" if name == "tcp" else name
        for name, devices in sorted(installed.transports.items())
        if name not in allowed_transports.WITHIN_A_PROCESS
    )
    raise UsageError(
        f"{lists or 'UCX'} leaves no transport for two workers to communicate; add one that UCX"
        f" {installed.version} ({installed.info.origin}) offers on this host: {'; '.join(offered)}"
    )


def check_pairs(required: Sequence[str], pairs: Sequence[LanePair]) -> None:
    """Refuse to go on where a pair uses none of `required`.

    Raises
    ------
    GateNotMet
        Naming the first such pair and what it uses.
    """
    if not required:
        return
    wanted = allowed_transports.resolve_aliases(required)
    failing = [pair for pair in pairs if not wanted & {lane.partition("/")[0] for lane in pair.transports}]
    if failing:
        first = failing[0]
        uses = ", ".join(first.transports) or "no transport that UCX reports"
        others = f" ({len(failing)} of {len(pairs)} pairs fail)" if len(pairs) > 1 else ""
        raise GateNotMet(
            f"{OPTION} {','.join(required)} is not met: the connection from rank {first.from_rank} to rank"
            f" {first.to_rank} ({first.placement or 'placement unknown'}) uses {uses}{others}"
        )

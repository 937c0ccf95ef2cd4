"""`--require-transport`: every pair of workers uses one of the transports named, or the run ends with status 5.

A transport that UCX on this machine does not have is refused before anything is started. The pairs are checked as soon
as they are connected, before anything is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from merge_bench.config import allowed_transports
from merge_bench.config.ucx_info import find_installed
from merge_bench.errors import GateNotMet, UsageError
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


def check_machine(required: Sequence[str], environment: Mapping[str, str]) -> None:
    """Refuse to start on this machine what its UCX cannot do; `environment`: what the workers will be started with.

    Raises
    ------
    UsageError
        If `UCX_TLS` leaves no transport between two processes: UCX itself would only say "no such device".
    GateNotMet
        If there is no transport of `required`.
    """
    installed = find_installed(environment.get("MERGE_BENCH_UCX", "auto"), environment)
    if installed is None or not installed.transports:  # the workers will report theirs
        return
    there = ", ".join(sorted(installed.transports))
    asked = environment.get("UCX_TLS", "all")
    usable = set(installed.transports) - allowed_transports.WITHIN_A_PROCESS
    if not allowed_transports.allowed(asked) & usable:
        raise UsageError(
            f"UCX_TLS={asked} leaves no transport for two workers to communicate; add one that UCX"
            f" {installed.version} ({installed.info.origin}) offers on this host: {', '.join(sorted(usable))}"
        )
    if not required or allowed_transports.resolve_aliases(required) & set(installed.transports):
        return
    raise GateNotMet(
        f"{OPTION} {','.join(required)} cannot be met: UCX {installed.version} ({installed.info.origin}) on this"
        f" host offers only {there}"
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

"""Launches that began while other processes kept the host's cores busy."""

from __future__ import annotations

from collections.abc import Sequence

from merge_bench.host.other_load import BUSY as BUSY_SHARE
from merge_bench.records.campaign import Campaign, Launch
from merge_bench.records.schema import HostLoad, WarningLine
from merge_bench.units import plural_noun

BUSY_HOST = "busy-host"
BUSY = "other processes keep {}, so times are longer and vary more"
REMEDY = "run again on a quiet host, or with --wait-for-quiet 5m"


def busy_warnings(campaign: Campaign) -> list[WarningLine]:
    """The recorded warnings that other processes kept a campaign's host busy, and one about its later launches."""
    recorded = [*campaign.warnings, *(line for launch in campaign.launches for line in launch.warnings)]
    return [*(line for line in recorded if line.code == BUSY_HOST), *busy_launch_warnings(campaign.launches)]


def busy_launch_warnings(launches: Sequence[Launch]) -> list[WarningLine]:
    """At most one warning, which names the launches after launch 0 that began on a busy host."""
    loads = _loads_by_launch(launches)
    busy = {index: loads[index] for index in busy_launch_indexes(launches) if index}
    if not busy:
        return []
    worst = max(busy.values(), key=lambda load: load.busy)
    processes = f" ({', '.join(worst.processes)})" if worst.processes else ""
    listed = ", ".join(str(index) for index in list(busy)[:MOST_NAMED]) + ", …" * (len(busy) > MOST_NAMED)
    numbers = f"{plural_noun(len(busy), 'launch')} {listed}"
    when = f"as {len(busy)} of {len(loads)} launches started ({numbers})" if len(loads) > 1 else "as it started"
    message = (
        f"other processes kept up to {worst.busy:.1f} of {worst.cores} cores busy{processes} {when},"
        " so their times are longer and vary more"
    )
    return [WarningLine(code=BUSY_HOST, message=message, remedy=REMEDY)]


def busy_launch_indexes(launches: Sequence[Launch]) -> list[int]:
    """The indexes of the launches that began on a busy host."""
    return [index for index, load in _loads_by_launch(launches).items() if load.busy >= BUSY_SHARE * load.cores]


def busiest_load(launches: Sequence[Launch]) -> HostLoad | None:
    """The load of the launch that began on the busiest host; None if no host was busy."""
    loads = _loads_by_launch(launches)
    return max((loads[index] for index in busy_launch_indexes(launches)), key=lambda load: load.busy, default=None)


def _loads_by_launch(launches: Sequence[Launch]) -> dict[int, HostLoad]:
    """The load of other processes as each launch began, by the launch's index."""
    return {launch.index: launch.line.other_load for launch in launches if launch.line and launch.line.other_load}


MOST_NAMED = 6
"""The most launches that a warning names."""

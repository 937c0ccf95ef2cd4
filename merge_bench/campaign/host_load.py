"""Looks before every launch at what other processes use of this host; before the first, waits until it is quiet."""

from __future__ import annotations

import time
from collections.abc import Callable

from merge_bench.analysis.host_load import BUSY, BUSY_HOST, REMEDY
from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.launchers import launchers
from merge_bench.errors import Caution, say, warn
from merge_bench.host import other_load
from merge_bench.host.other_load import Look, OtherLoad
from merge_bench.records.schema import HostLoad, WarningLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import format_duration

IN_A_ROW = 3
"""Quiet looks, one after the other, after which the wait ends: a single one may fall into a pause."""


def check_host(
    settings: ClusterSettings,
    writer: CampaignWriter,
    *,
    wait: float | None = None,
    first: Look | None = None,
    look: Look | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Print and record a warning if other processes keep this host's cores busy.

    With `wait`, first wait for at most so many seconds until they do not. A cluster that does not run on this host is
    not looked at. `first`: a first look that has begun already. `look`, `clock`: for tests.

    Raises
    ------
    Interrupted
        If a signal comes while it waits, and the caller handles signals.
    """
    look = look or other_load.measure
    if not launchers()[settings.launcher].starts_here:
        return
    load = (first or look)()
    if not load.quiet and wait is not None:
        load = _wait(load, wait, look, clock)
    if load.quiet:
        return
    caution = Caution(BUSY_HOST, BUSY.format(load), REMEDY)
    warn(caution)
    writer.write(WarningLine.of(caution))


def _wait(load: OtherLoad, wait: float, look: Look, clock: Callable[[], float]) -> OtherLoad:
    """Look again and again until the host is quiet, or `wait` seconds have passed; gives the last look."""
    began, quiet = clock(), 0
    say(f"waiting for at most {format_duration(wait)} until this host is quiet: other processes keep {load}")
    while quiet < IN_A_ROW and clock() - began < wait:
        load = look()
        quiet = quiet + 1 if load.quiet else 0
    how = "this host is quiet" if quiet == IN_A_ROW else "stopped waiting for a quiet host"
    say(f"{how} after {format_duration(clock() - began)}")
    return load


def begin_look(settings: ClusterSettings) -> Callable[[], HostLoad | None]:
    """Begin a look at this host beside the start of a launch; what is returned ends it, for the launch's records."""
    if not launchers()[settings.launcher].starts_here:
        return lambda: None
    end = other_load.begin_measuring()

    def ended() -> HostLoad:
        load = end()
        return HostLoad(busy=load.busy, cores=load.cores, processes=[f"pid {e.pid} {e.name}" for e in load.processes])

    return ended

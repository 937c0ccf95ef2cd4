"""Measures before launches how busy other processes keep this host; can wait until the host is quiet."""

from __future__ import annotations

import time
from collections.abc import Callable

from merge_bench.analysis.diagnostics import BUSY, BUSY_HOST, REMEDY
from merge_bench.cluster.base import ClusterSettings
from merge_bench.cluster.launchers import launchers
from merge_bench.errors import Caution, say, warn
from merge_bench.host import other_load
from merge_bench.host.other_load import Look, OtherLoad
from merge_bench.records.schema import HostLoad, WarningLine
from merge_bench.records.writer import CampaignWriter
from merge_bench.units import format_duration

IN_A_ROW = 3
"""The number of quiet measurements in a row that end the wait: a single one may fall into a pause."""


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

    With `wait`, first wait for at most this many seconds until the host is quiet. Does nothing if the cluster does not
    run on this host. `first`: ends a measurement that has begun already. `look`, `clock`: replaced in tests.

    Raises
    ------
    Interrupted
        If a signal comes during the wait, and the calling program handles signals.
    """
    look = look or other_load.measure
    if not launchers()[settings.launcher].starts_here:
        return
    load = (first or look)()
    if not load.quiet and wait is not None:
        load = _wait_for_quiet(load, wait, look, clock)
    if load.quiet:
        return
    caution = Caution(BUSY_HOST, BUSY.format(load), REMEDY)
    warn(caution)
    writer.write(WarningLine.of(caution))


def _wait_for_quiet(load: OtherLoad, wait: float, look: Look, clock: Callable[[], float]) -> OtherLoad:
    """Measure until the host is quiet, or `wait` seconds have passed; returns the last measurement."""
    began, quiet = clock(), 0
    say(f"waiting for at most {format_duration(wait)} until this host is quiet: other processes keep {load}")
    while quiet < IN_A_ROW and clock() - began < wait:
        load = look()
        quiet = quiet + 1 if load.quiet else 0
    how = "this host is quiet" if quiet == IN_A_ROW else "stopped waiting for a quiet host"
    say(f"{how} after {format_duration(clock() - began)}")
    return load


def begin_look(settings: ClusterSettings) -> Callable[[], HostLoad | None]:
    """Begin to measure this host's load; returns a function that ends this and returns the load for the records."""
    if not launchers()[settings.launcher].starts_here:
        return lambda: None
    end = other_load.begin_measuring()

    def ended() -> HostLoad:
        load = end()
        return HostLoad(busy=load.busy, cores=load.cores, processes=[f"pid {e.pid} {e.name}" for e in load.processes])

    return ended

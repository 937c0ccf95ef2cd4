"""What the rows of network measurements are about, as their probes declare it."""

from __future__ import annotations

from merge_bench.probe import probes
from merge_bench.probe.shared.measures import (
    BUS,
    COLLECTIVE,
    LATENCY_TEST,
    ONE_WAY,
    PING_PONG,
    RATE,
    RATE_TEST,
    THROUGHPUT,
    Measure,
    by_name,
)
from merge_bench.records.placements import ONE_HOST, TWO_HOSTS
from merge_bench.records.probe_rows import Row

_PLACEMENTS = {ONE_HOST: "one host", TWO_HOSTS: "two hosts"}


def kind_of(row: Row) -> str:
    """Which kind of test a row is of: what is told of it, and how."""
    probe = probes().get(row.probe)
    return probe.test_kind(row.test) if probe is not None else by_name(row.test)


def measure_of(row: Row) -> Measure:
    """The quantity that a row's test is about."""
    probe = probes().get(row.probe)
    latency = probe.latency if probe is not None else ONE_WAY
    return {LATENCY_TEST: latency, RATE_TEST: RATE, PING_PONG: THROUGHPUT, COLLECTIVE: BUS}[kind_of(row)]


def placed(placement: str) -> str:
    """A placement as people read it: ``one-host`` → ``one host``."""
    return _PLACEMENTS.get(placement, placement)

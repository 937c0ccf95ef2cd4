"""What the tests of the network measurements measure, and in which units people read it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from merge_bench.probe.base import ONE_HOST, TWO_HOSTS
from merge_bench.probe.rows import Range, Row

_BANDWIDTH_WORDS = frozenset(("bw", "bibw", "bandwidth"))
_LATENCY_WORDS = frozenset(("lat", "latency"))
_PLACEMENTS = {ONE_HOST: "one host", TWO_HOSTS: "two hosts"}


@dataclass(frozen=True)
class Measure:
    """A quantity of a row: how it is called, its unit for people, and the SI value of one unit."""

    title: str
    unit: str
    one: float
    field: str
    less_is_better: bool = False

    def of(self, row: Row | None) -> Range | None:
        """The row's value in this unit; None where it was not measured."""
        found: Range | None = getattr(row, self.field) if row is not None else None
        if found is None:
            return None
        return Range(found.median / self.one, found.low / self.one, found.high / self.one)


ONE_WAY = Measure("Latency, one way", "µs", 1e-6, "seconds", less_is_better=True)
TIME = Measure("Mean time of an operation", "µs", 1e-6, "seconds", less_is_better=True)
RATE = Measure("Bandwidth", "MB/s", 1e6, "bandwidth")
THROUGHPUT = Measure("Throughput", "MB/s", 1e6, "bandwidth")
BUS = Measure("Bus bandwidth", "GB/s", 1e9, "bandwidth")

LATENCY_TEST, RATE_TEST, PING_PONG, COLLECTIVE = "latency", "bandwidth", "ping-pong", "collective"


def kind_of(row: Row) -> str:
    """Which kind of test a row is of: what is told of it, and how."""
    words = _words(row.test)
    if row.probe == "reduce-scatter":
        return COLLECTIVE
    if words & _BANDWIDTH_WORDS:
        return RATE_TEST
    return PING_PONG if row.probe == "mpi" and not words & _LATENCY_WORDS else LATENCY_TEST


def measure_of(row: Row) -> Measure:
    """The quantity that a row's test is about."""
    kind = kind_of(row)
    if kind == LATENCY_TEST:
        return TIME if row.probe == "rma" else ONE_WAY
    return {RATE_TEST: RATE, PING_PONG: THROUGHPUT, COLLECTIVE: BUS}[kind]


def placed(placement: str) -> str:
    """A placement as people read it: ``one-host`` → ``one host``."""
    return _PLACEMENTS.get(placement, placement)


def family(test: str) -> str:
    """What latency and bandwidth tests of the same kind have in common: ``tag_lat``, ``tag_bw`` → ``tag``."""
    words = [
        word for word in re.split(r"([^A-Za-z0-9]+)", test) if word.lower() not in _BANDWIDTH_WORDS | _LATENCY_WORDS
    ]
    return "".join(words).strip("_- .") or test


def _words(test: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", test.lower()))

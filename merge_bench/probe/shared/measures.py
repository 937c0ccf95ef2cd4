"""What the tests of network measurements measure, with units for people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from merge_bench.probe import probes
from merge_bench.records.placements import ONE_HOST, TWO_HOSTS

if TYPE_CHECKING:
    from merge_bench.records.probe_rows import Range, Row

_BANDWIDTH_WORDS = frozenset(("bw", "bibw", "bandwidth"))
_LATENCY_WORDS = frozenset(("lat", "latency"))


@dataclass(frozen=True)
class Measure:
    """A quantity of a row: its title, its unit for people, the SI value of one unit, and the row's field."""

    title: str
    unit: str
    one: float
    field: str
    less_is_better: bool = False

    def of(self, row: Row | None) -> Range | None:
        """The row's value in this unit; None if it was not measured."""
        from merge_bench.records.probe_rows import Range

        found: Range | None = getattr(row, self.field) if row is not None else None
        if found is None:
            return None
        return Range(found.median / self.one, found.low / self.one, found.high / self.one)


ONE_WAY = Measure("Latency, one way", "µs", 1e-6, "seconds", less_is_better=True)
TIME = Measure("Mean time of an operation", "µs", 1e-6, "seconds", less_is_better=True)
RATE = Measure("Bandwidth", "MB/s", 1e6, "bandwidth")
THROUGHPUT = Measure("Throughput", "MB/s", 1e6, "bandwidth")
BUS = Measure("Bus bandwidth", "GB/s", 1e9, "bandwidth")

WORKER_RATE = Measure("Bandwidth of a rank", "GB/s", 1e9, "bandwidth")
SLOWEST = Measure("Time of the slowest rank", "µs", 1e-6, "seconds", less_is_better=True)

LATENCY_TEST, RATE_TEST, PING_PONG, COLLECTIVE = "latency", "bandwidth", "ping-pong", "collective"
ALL_TO_ALL = "all-to-all"
"""Kinds of tests."""


def by_name(test: str, otherwise: str) -> str:
    """The kind of a test by its name: ``tag_bw`` is a bandwidth test; `otherwise` if the name does not say."""
    words = set(re.split(r"[^a-z0-9]+", test.lower()))
    if words & _BANDWIDTH_WORDS:
        return RATE_TEST
    return LATENCY_TEST if words & _LATENCY_WORDS else otherwise


def family(test: str) -> str:
    """The common name of a latency and a bandwidth test: ``tag_lat``, ``tag_bw`` → ``tag``."""
    words = [
        word for word in re.split(r"([^A-Za-z0-9]+)", test) if word.lower() not in _BANDWIDTH_WORDS | _LATENCY_WORDS
    ]
    return "".join(words).strip("_- .") or test


_PLACEMENTS = {ONE_HOST: "one host", TWO_HOSTS: "two hosts"}


def kind_of(row: Row) -> str:
    """The kind of a row's test."""
    probe = probes().get(row.probe)
    return by_name(row.test, otherwise=probe.other_tests if probe is not None else LATENCY_TEST)


def measure_of(row: Row) -> Measure:
    """The quantity that a row's test measures."""
    probe = probes().get(row.probe)
    latency = probe.latency if probe is not None else ONE_WAY
    measures = {RATE_TEST: RATE, PING_PONG: THROUGHPUT, COLLECTIVE: BUS, ALL_TO_ALL: WORKER_RATE}
    return measures.get(kind_of(row), latency)


def placed(placement: str) -> str:
    """A placement in words: ``one-host`` → ``one host``."""
    return _PLACEMENTS.get(placement, placement)

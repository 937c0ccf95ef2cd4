"""What the tests of network measurements measure, and in which units people read it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merge_bench.records.probe_rows import Range, Row

_BANDWIDTH_WORDS = frozenset(("bw", "bibw", "bandwidth"))
_LATENCY_WORDS = frozenset(("lat", "latency"))


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

LATENCY_TEST, RATE_TEST, PING_PONG, COLLECTIVE = "latency", "bandwidth", "ping-pong", "collective"
"""Kinds of tests."""


def by_name(test: str, otherwise: str = LATENCY_TEST) -> str:
    """Which kind of test a name is of: ``tag_bw`` is one of bandwidth; `otherwise` where it does not say."""
    words = set(re.split(r"[^a-z0-9]+", test.lower()))
    if words & _BANDWIDTH_WORDS:
        return RATE_TEST
    return LATENCY_TEST if words & _LATENCY_WORDS else otherwise


def family(test: str) -> str:
    """What latency and bandwidth tests of the same kind have in common: ``tag_lat``, ``tag_bw`` → ``tag``."""
    words = [
        word for word in re.split(r"([^A-Za-z0-9]+)", test) if word.lower() not in _BANDWIDTH_WORDS | _LATENCY_WORDS
    ]
    return "".join(words).strip("_- .") or test

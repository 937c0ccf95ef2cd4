"""Latency, overhead and rate of the links within and between hosts, from network measurements (`probe p2p`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from merge_bench.analysis.statistics import median
from merge_bench.records.placements import ONE_HOST, TWO_HOSTS
from merge_bench.records.schema import ProbeLine

LINKS: Mapping[str, str] = {ONE_HOST: "local", TWO_HOSTS: "nic"}
LATENCY, BANDWIDTH = "tag_lat", "tag_bw"
SMALL = 1024
"""Bytes: latency and overhead are taken from messages up to this size."""


def links_of(lines: Sequence[ProbeLine]) -> dict[str, float]:
    """The parameters of each kind of link, from tag messages: the latency of the smallest message, one way; the seconds
    between two of the smallest messages under way together; and the rate of the largest ones, one way.
    """
    found: dict[str, float] = {}
    for placement, link in LINKS.items():
        own = [line for line in lines if line.placement == placement]
        latency = _smallest([(line.size, line.seconds) for line in own if line.test == LATENCY])
        pace = _smallest([(line.size, line.messages_per_second) for line in own if line.test == BANDWIDTH])
        rates = [(line.size, line.bandwidth_bytes_per_second) for line in own if line.test == BANDWIDTH]
        if latency is not None:
            found[f"{link}_latency"] = latency
        if pace:
            found[f"{link}_overhead"] = 1 / pace
        if rates:
            largest = max(size for size, _ in rates)
            known = [rate for size, rate in rates if size == largest and rate]
            found |= {f"{link}_rate": median(known)} if known else {}
    return found


def _smallest(rows: Sequence[tuple[int, float | None]]) -> float | None:
    """The median of the smallest size; None where that is not small."""
    sizes = [size for size, value in rows if value is not None]
    if not sizes or min(sizes) > SMALL:
        return None
    return median([value for size, value in rows if size == min(sizes) and value is not None])

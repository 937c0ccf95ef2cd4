"""The parameters of the model: what each is, what it is worth, how sure that is, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MEASURED, GIVEN, ASSUMED = "measured", "given", "assumed"

Values = Mapping[str, float]
"""The parameters' values by name, as the model takes them; one that is not known is missing."""


@dataclass(frozen=True)
class About:
    """What a parameter is: its unit, and a few words. `default`: what it is where nothing tells; None: not known."""

    unit: str
    what: str
    default: float | None = None


KNOWN: Mapping[str, About] = {
    "partition_rate": About("rows/s", "rows of both frames that a worker partitions"),
    "partition_fixed": About("s", "of a partition, whatever the rows", 0.0),
    "partition_spread": About("", "of the logarithm of a worker's partition time", 0.0),
    "join_rate": About("rows/s", "rows of both frames that a worker joins"),
    "join_fixed": About("s", "of a join, whatever the rows", 0.0),
    "join_spread": About("", "of the logarithm of a worker's join time", 0.0),
    "local_rate": About("B/s", "that a worker receives from the others of its host"),
    "local_latency": About("s", "of a frame's first message on one host", 0.0),
    "local_overhead": About("s", "a message on one host", 0.0),
    "nic_rate": About("B/s", "between a host and the others, each way, shared by its workers"),
    "nic_latency": About("s", "of a frame's first message between hosts", 0.0),
    "nic_overhead": About("s", "a message between hosts", 0.0),
    "meeting": About("s", "to tell all others what will come, and to make room for it", 0.0),
    "overlap": About("", "share of the shorter of exchange and computing that is hidden behind the other", 0.0),
}


@dataclass(frozen=True)
class Parameter:
    """One parameter. `low`, `high`: its 95 % interval, None where it was not measured.

    `source`: ``measured``, ``given`` or ``assumed``; `origin`: by which result, on the command line, or why.
    """

    name: str
    value: float
    source: str
    origin: str
    low: float | None = None
    high: float | None = None

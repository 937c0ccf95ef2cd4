"""The parameters of the model: what each is, its unit and its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

MEASURED, GIVEN, ASSUMED = "measured", "given", "assumed"
"""Where the value of a parameter is from."""

Values = Mapping[str, float]
"""The parameters' values by name, as the model takes them; one that is not known is missing."""


@dataclass(frozen=True)
class Definition:
    """What a parameter is: its unit, and a few words. `default`: its value if nothing was measured; None: not known."""

    unit: str
    what: str
    default: float | None = None


KNOWN: Mapping[str, Definition] = {
    "partition_rate": Definition("rows/s", "rows of both frames that a worker partitions"),
    "partition_fixed": Definition("s", "of a partition, whatever the rows", 0.0),
    "partition_spread": Definition("", "of the logarithm of a worker's partition time", 0.0),
    "join_rate": Definition("rows/s", "rows of both frames that a worker joins"),
    "join_fixed": Definition("s", "of a join, whatever the rows", 0.0),
    "join_spread": Definition("", "of the logarithm of a worker's join time", 0.0),
    "local_rate": Definition("B/s", "that a worker receives from the others of its host"),
    "local_latency": Definition("s", "of a frame's first message on one host", 0.0),
    "local_overhead": Definition("s", "a message on one host", 0.0),
    "nic_rate": Definition("B/s", "between a host and the others, each way, shared by its workers"),
    "nic_latency": Definition("s", "of a frame's first message between hosts", 0.0),
    "nic_overhead": Definition("s", "a message between hosts", 0.0),
    "meeting": Definition("s", "to tell all others what will come, and to make room for it", 0.0),
    "overlap": Definition("", "share of the shorter of exchange and computing that is hidden behind the other", 0.0),
}


class Given(NamedTuple):
    """A value from the command line, and the words that gave it."""

    value: float
    origin: str

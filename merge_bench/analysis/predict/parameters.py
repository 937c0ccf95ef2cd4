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
    "partition_rate": Definition("rows/s", "rows of both frames that one worker partitions per second"),
    "partition_fixed": Definition("s", "fixed time of a partition, independent of the rows", 0.0),
    "partition_spread": Definition("", "spread of the logarithm of the workers' partition times", 0.0),
    "join_rate": Definition("rows/s", "rows of both frames that one worker joins per second"),
    "join_fixed": Definition("s", "fixed time of a join, independent of the rows", 0.0),
    "join_spread": Definition("", "spread of the logarithm of the workers' join times", 0.0),
    "local_rate": Definition("B/s", "rate at which a worker receives from the other workers of its host"),
    "local_latency": Definition("s", "latency of the first message of a frame within a host", 0.0),
    "local_overhead": Definition("s", "time per message within a host", 0.0),
    "nic_rate": Definition("B/s", "rate between a host and the other hosts, each way, shared by its workers"),
    "nic_latency": Definition("s", "latency of the first message of a frame between hosts", 0.0),
    "nic_overhead": Definition("s", "time per message between hosts", 0.0),
    "meeting": Definition("s", "time to announce message sizes to all workers and to allocate buffers", 0.0),
    "overlap": Definition("", "share of the shorter of exchange and computing that is hidden behind the other", 0.0),
}


class Given(NamedTuple):
    """A value from the command line, and the words that gave it."""

    value: float
    origin: str

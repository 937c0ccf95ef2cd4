"""What a campaign of network measurements comes to: one row a series and size, over its launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import ProbeLine

FROM_FILE = "file "
"""Begins the `source` of rows that a file of somebody's own gave."""


@dataclass(frozen=True)
class Range:
    """A median over launches, with the least and the greatest of them."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """One size of one series.

    `config`: the config's name, or what a published series is called; `test`, `method`, `placement`, `memory` as in
    `ProbeLine`. `seconds` is what the test defines (latency tests: one way; else the mean time of an operation),
    `bandwidth` in bytes per second. `source`: where published numbers, or those of a file, come from; None for measured
    ones. `note`: what is wrong with a published number.
    """

    probe: str
    test: str
    method: str
    config: str
    placement: str
    size: int
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    memory: str = "host"
    count: int | None = None
    launches: int = 1
    seconds: Range | None = None
    seconds_ranks: tuple[float | None, float | None] = (None, None)
    bandwidth: Range | None = None
    bandwidth_ranks: tuple[float | None, float | None] = (None, None)
    messages_per_second: float | None = None
    wrong: int | None = None
    requested: tuple[tuple[str, str], ...] = ()
    selected: tuple[str, ...] = ()
    protocol: str | None = None
    as_requested: bool | None = None
    source: str | None = None
    note: str | None = None

    @property
    def series(self) -> tuple[str, str, str, tuple[int, ...], str]:
        """What rows of one line in a plot have in common: config, test, placement, ranks, memory."""
        return self.config, self.test, self.placement, self.ranks, self.memory

    @property
    def from_file(self) -> bool:
        """Whether somebody's own file gave it: neither measured here nor published."""
        return self.source is not None and self.source.startswith(FROM_FILE)

    def to_json(self) -> dict[str, Any]:
        """The row in ``probe --json``; SI seconds and bytes."""
        return {
            "probe": self.probe, "test": self.test, "method": self.method, "config": self.config,
            "placement": self.placement, "ranks": list(self.ranks), "hosts": list(self.hosts), "memory": self.memory,
            "size": self.size, "count": self.count, "launches": self.launches, "seconds": _middle(self.seconds),
            "seconds_range": _ends(self.seconds), "seconds_over_ranks": list(self.seconds_ranks),
            "bandwidth_bytes_per_second": _middle(self.bandwidth), "bandwidth_range": _ends(self.bandwidth),
            "bandwidth_over_ranks": list(self.bandwidth_ranks), "messages_per_second": self.messages_per_second,
            "wrong": self.wrong, "requested_transports": dict(self.requested),
            "selected_transports": list(self.selected), "protocol": self.protocol, "as_requested": self.as_requested,
            "source": self.source, "note": self.note,
        }  # fmt: skip


def rows_of(campaign: Campaign) -> list[Row]:
    """The rows of a campaign, by series in the order in which they were first measured, then by size."""
    groups: dict[tuple[Any, ...], list[ProbeLine]] = {}
    for launch in campaign.standing:
        config = launch.line.config if launch.line is not None else ""
        for line in launch.probes:
            key = (config, line.test, line.placement, tuple(line.ranks), line.memory)
            groups.setdefault(key, []).append(line)
    found = []
    for key, lines in groups.items():
        sizes = dict.fromkeys(sorted({(line.size, line.count or 0) for line in lines}))
        found += [
            _row(key[0], [line for line in lines if (line.size, line.count or 0) == each]) for each in sizes
        ]  # fmt: skip
    return found


def _row(config: str, lines: Sequence[ProbeLine]) -> Row:
    last = lines[-1]
    doubts = [line.as_requested for line in lines]
    return Row(
        probe=last.probe, test=last.test, method=last.method, config=config, placement=last.placement, size=last.size,
        ranks=tuple(last.ranks), hosts=tuple(last.hosts), memory=last.memory, count=last.count, launches=len(lines),
        seconds=_range([line.seconds for line in lines]),
        seconds_ranks=(_least(lines, "seconds_min", min), _least(lines, "seconds_max", max)),
        bandwidth=_range([line.bandwidth_bytes_per_second for line in lines]),
        bandwidth_ranks=(_least(lines, "bandwidth_min", min), _least(lines, "bandwidth_max", max)),
        messages_per_second=_middle(_range([line.messages_per_second for line in lines])),
        wrong=None if all(line.wrong is None for line in lines) else sum(line.wrong or 0 for line in lines),
        requested=tuple(sorted(last.requested.items())), selected=_union(lines),
        protocol=" / ".join(dict.fromkeys(line.protocol for line in lines if line.protocol)) or None,
        as_requested=False if False in doubts else None if None in doubts else True,
    )  # fmt: skip


def _range(values: Sequence[float | None]) -> Range | None:
    known = [value for value in values if value is not None]
    return Range(median(known), min(known), max(known)) if known else None


def _least(lines: Sequence[ProbeLine], name: str, pick: Callable[[Sequence[float]], float]) -> float | None:
    known = [value for line in lines if (value := getattr(line, name)) is not None]
    return pick(known) if known else None


def _union(lines: Sequence[ProbeLine]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lane for line in lines for lane in line.selected))


def _middle(value: Range | None) -> float | None:
    return None if value is None else value.median


def _ends(value: Range | None) -> list[float] | None:
    return None if value is None else [value.low, value.high]

"""What a campaign of network measurements comes to: one row a series and size, over its launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

import msgspec

from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import ProbeLine

FROM_FILE = "file "
"""Begins the `source` of rows that a file of somebody's own gave."""


Extremes: TypeAlias = tuple[float | None, float | None]


@dataclass(frozen=True)
class Range:
    """A median over launches, with the least and the greatest of them."""

    median: float
    low: float
    high: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One size of one series, as ``probe --json`` prints it.

    `config`: the config's name, or what a published series is called; `test`, `method`, `placement`, `memory` as in
    `ProbeLine`. `seconds` is what the test defines (latency tests: one way; else the mean time of an operation),
    `bandwidth` in bytes per second; of both the median over launches, the least and the greatest of them (`*_range`),
    and the extremes over ranks (`*_ranks`). `source`: where published numbers, or those of a file, come from; None for
    measured ones. `note`: what is wrong with a published number.
    """

    probe: str
    test: str
    method: str
    config: str
    placement: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    memory: str = "host"
    size: int
    count: int | None = None
    launches: int = 1
    seconds_median: float | None = msgspec.field(name="seconds", default=None)
    seconds_range: tuple[float, float] | None = None
    seconds_ranks: Extremes = msgspec.field(name="seconds_over_ranks", default=(None, None))
    bandwidth_median: float | None = msgspec.field(name="bandwidth_bytes_per_second", default=None)
    bandwidth_range: tuple[float, float] | None = None
    bandwidth_ranks: Extremes = msgspec.field(name="bandwidth_over_ranks", default=(None, None))
    messages_per_second: float | None = None
    wrong: int | None = None
    requested: dict[str, str] = msgspec.field(name="requested_transports", default_factory=dict)
    selected: tuple[str, ...] = msgspec.field(name="selected_transports", default=())
    protocol: str | None = None
    as_requested: bool | None = None
    source: str | None = None
    note: str | None = None

    @property
    def seconds(self) -> Range | None:
        """Over launches; None where no time was measured."""
        return _spread(self.seconds_median, self.seconds_range)

    @property
    def bandwidth(self) -> Range | None:
        """Over launches; None where no rate was measured."""
        return _spread(self.bandwidth_median, self.bandwidth_range)

    @property
    def series(self) -> tuple[str, str, str, tuple[int, ...], str]:
        """What rows of one line in a plot have in common: config, test, placement, ranks, memory."""
        return self.config, self.test, self.placement, self.ranks, self.memory

    @property
    def from_file(self) -> bool:
        """Whether somebody's own file gave it: neither measured here nor published."""
        return self.source is not None and self.source.startswith(FROM_FILE)


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
    seconds, seconds_range = over([line.seconds for line in lines])
    bandwidth, bandwidth_range = over([line.bandwidth_bytes_per_second for line in lines])
    doubts = [line.as_requested for line in lines]
    return Row(
        probe=last.probe, test=last.test, method=last.method, config=config, placement=last.placement, size=last.size,
        ranks=tuple(last.ranks), hosts=tuple(last.hosts), memory=last.memory, count=last.count, launches=len(lines),
        seconds_median=seconds, seconds_range=seconds_range,
        seconds_ranks=(_least(lines, "seconds_min", min), _least(lines, "seconds_max", max)),
        bandwidth_median=bandwidth, bandwidth_range=bandwidth_range,
        bandwidth_ranks=(_least(lines, "bandwidth_min", min), _least(lines, "bandwidth_max", max)),
        messages_per_second=over([line.messages_per_second for line in lines])[0],
        wrong=None if all(line.wrong is None for line in lines) else sum(line.wrong or 0 for line in lines),
        requested=dict(sorted(last.requested.items())), selected=_union(lines),
        protocol=" / ".join(dict.fromkeys(line.protocol for line in lines if line.protocol)) or None,
        as_requested=False if False in doubts else None if None in doubts else True,
    )  # fmt: skip


def over(values: Sequence[float | None]) -> tuple[float | None, tuple[float, float] | None]:
    """Median and range of the values that are known."""
    known = [value for value in values if value is not None]
    return (median(known), (min(known), max(known))) if known else (None, None)


def _spread(middle: float | None, ends: tuple[float, float] | None) -> Range | None:
    return None if middle is None else Range(middle, *(ends or (middle, middle)))


def _least(lines: Sequence[ProbeLine], name: str, pick: Callable[[Sequence[float]], float]) -> float | None:
    known = [value for line in lines if (value := getattr(line, name)) is not None]
    return pick(known) if known else None


def _union(lines: Sequence[ProbeLine]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lane for line in lines for lane in line.selected))

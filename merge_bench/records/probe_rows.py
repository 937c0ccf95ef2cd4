"""The rows of a campaign of network measurements: one for each series and size, over its launches."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self, TypeAlias

import msgspec

from merge_bench.config.ucx_releases import PERFTEST_OVERSTATES, perftest_overstates_bandwidth
from merge_bench.records.campaign import Campaign
from merge_bench.records.schema import ProbeLine

FROM_FILE = "file "
"""The start of the `source` of rows that a user's file contains."""
Extremes: TypeAlias = tuple[float | None, float | None]
_PERFTEST = re.compile(r"ucx_perftest of UCX (\d+\.\d+[\d.]*)")
_UNCHANGED = ("probe", "test", "method", "placement", "size", "memory", "count")
"""Fields that all lines of a row have in common."""


@dataclass(frozen=True)
class MedianAndRange:
    """The median of a quantity over launches, with its smallest and largest value."""

    median: float
    low: float
    high: float

    @classmethod
    def from_values(cls, median_value: float | None, extremes: tuple[float, float] | None) -> Self | None:
        """Combine a median with the smallest and largest value, by default the median; None without a median."""
        return None if median_value is None else cls(median_value, *(extremes or (median_value, median_value)))


class ProbeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One message size of one series of a network measurement, as ``probe --json`` prints it.

    `config`: the name of the config, or of a published series; `test`, `method`, `placement`, `memory`: as in
    `ProbeLine`. `seconds`: as the test defines them (latency tests: one way; else the mean time of an operation);
    `bandwidth`: bytes per second; of both, the median over launches, the smallest and the largest value (`*_range`),
    and the extremes over ranks (`*_ranks`). `seconds_mean`, `bus_bandwidth`, `link_limit`: as in `ProbeLine`, medians
    over launches; `link_share`: of the limit, what the busiest rank reached. `source`: of published numbers, or of
    those in a file; None for measured ones. `note`: what is wrong with a published number, or one of an old tool.
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
    seconds_mean: float | None = None
    bus_bandwidth: float | None = msgspec.field(name="bus_bandwidth_bytes_per_second", default=None)
    link_limit: float | None = msgspec.field(name="link_limit_bytes_per_second", default=None)
    link_limit_from: str | None = None
    link_share: float | None = None
    messages_per_second: float | None = None
    wrong: int | None = None
    requested: dict[str, str] = msgspec.field(name="requested_transports", default_factory=dict)
    selected: tuple[str, ...] = msgspec.field(name="selected_transports", default=())
    protocol: str | None = None
    as_requested: bool | None = None
    source: str | None = None
    note: str | None = None

    @property
    def seconds(self) -> MedianAndRange | None:
        """Median, least and greatest time of an operation over launches; None if no time was measured."""
        return MedianAndRange.from_values(self.seconds_median, self.seconds_range)

    @property
    def bandwidth(self) -> MedianAndRange | None:
        """Bytes per second over launches; None if no rate was measured."""
        return MedianAndRange.from_values(self.bandwidth_median, self.bandwidth_range)

    @property
    def series_key(self) -> tuple[str, str, str, tuple[int, ...], str]:
        """Config, test, placement, ranks and memory, which are the same for all points of a line in a plot."""
        return self.config, self.test, self.placement, self.ranks, self.memory

    @property
    def is_from_user_file(self) -> bool:
        """Whether the row comes from a user's file: neither measured nor published."""
        return self.source is not None and self.source.startswith(FROM_FILE)


def make_probe_rows(campaign: Campaign) -> list[ProbeRow]:
    """Make the rows of a campaign's network measurements: by series, as they were first measured, then by size."""
    groups: dict[tuple[Any, ...], list[ProbeLine]] = {}
    for launch in campaign.launches_not_replaced:
        config = launch.line.config if launch.line is not None else ""
        for line in launch.probes:
            key = (config, line.test, line.placement, tuple(line.ranks), line.memory)
            groups.setdefault(key, []).append(line)
    return [
        _make_probe_row(key[0], list(alike))
        for key, lines in groups.items()
        for _, alike in itertools.groupby(sorted(lines, key=_probe_size_and_count), _probe_size_and_count)
    ]


def _probe_size_and_count(line: ProbeLine) -> tuple[int, int]:
    """The message size of a measurement, and its number of messages, 0 if that is unknown."""
    return line.size, line.count or 0


def _make_probe_row(config: str, lines: Sequence[ProbeLine]) -> ProbeRow:
    """Make one row of the records of all launches that measured the same test and size."""
    last = lines[-1]
    seconds, seconds_range = _median_and_range_of_field(lines, "seconds")
    bandwidth, bandwidth_range = _median_and_range_of_field(lines, "bandwidth_bytes_per_second")
    doubts = [line.as_requested for line in lines]
    return ProbeRow(
        **{name: getattr(last, name) for name in _UNCHANGED},
        config=config,
        ranks=tuple(last.ranks),
        hosts=tuple(last.hosts),
        launches=len(lines),
        seconds_median=seconds,
        seconds_range=seconds_range,
        seconds_ranks=(_extreme_of_field(lines, "seconds_min", min), _extreme_of_field(lines, "seconds_max", max)),
        bandwidth_median=bandwidth,
        bandwidth_range=bandwidth_range,
        bandwidth_ranks=(
            _extreme_of_field(lines, "bandwidth_min", min),
            _extreme_of_field(lines, "bandwidth_max", max),
        ),
        seconds_mean=_median_and_range_of_field(lines, "seconds_mean")[0],
        bus_bandwidth=_median_and_range_of_field(lines, "bus_bandwidth_bytes_per_second")[0],
        link_limit=_median_and_range_of_field(lines, "limit_bytes_per_second")[0],
        link_limit_from=last.limit_from,
        link_share=median_and_range([_link_limit_share(line) for line in lines])[0],
        messages_per_second=_median_and_range_of_field(lines, "messages_per_second")[0],
        wrong=None if all(line.wrong is None for line in lines) else sum(line.wrong or 0 for line in lines),
        requested=dict(sorted(last.requested.items())),
        selected=tuple(dict.fromkeys(lane for line in lines for lane in line.selected)),
        protocol=" / ".join(dict.fromkeys(line.protocol for line in lines if line.protocol)) or None,
        as_requested=False if False in doubts else None if None in doubts else True,
        note=next(filter(None, map(_overstated_bandwidth_note, lines)), None),
    )


def _overstated_bandwidth_note(line: ProbeLine) -> str | None:
    """A sentence that an old ``ucx_perftest`` overstates the bandwidth of this record; None for other measurements."""
    release = _PERFTEST.match(line.method)
    if release is None or not line.test.endswith(("_bw", "bandwidth")):
        return None
    return PERFTEST_OVERSTATES if perftest_overstates_bandwidth(release[1]) else None


def _median_and_range_of_field(
    lines: Sequence[ProbeLine], name: str
) -> tuple[float | None, tuple[float, float] | None]:
    """The median of a field over the records of several launches, and its smallest and largest value."""
    return median_and_range([getattr(line, name) for line in lines])


def _link_limit_share(line: ProbeLine) -> float | None:
    """The share of the link limit that the busiest rank reached: its bytes ÷ seconds ÷ limit; None without a limit."""
    if not line.limit_bytes_per_second or not line.seconds or line.busiest_bytes is None:
        return None
    return line.busiest_bytes / line.seconds / line.limit_bytes_per_second


def median_and_range(values: Sequence[float | None]) -> tuple[float | None, tuple[float, float] | None]:
    """The median of the known values, and their smallest and largest one; None if none is known."""
    measured = [value for value in values if value is not None]
    return (median(measured), (min(measured), max(measured))) if measured else (None, None)


def _extreme_of_field(
    lines: Sequence[ProbeLine], name: str, min_or_max: Callable[[Sequence[float]], float]
) -> float | None:
    """The smallest or largest value of a field over the records of several launches; None if no value is known."""
    measured = [value for line in lines if (value := getattr(line, name)) is not None]
    return min_or_max(measured) if measured else None

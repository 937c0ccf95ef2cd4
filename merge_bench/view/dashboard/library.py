"""Campaigns that were chosen, in memory: read once, gone on with while they grow, and never more than a limit."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from merge_bench.analysis import aggregate
from merge_bench.analysis.verification_state import State, state_of
from merge_bench.records.campaign import Campaign
from merge_bench.records.follow import LIMIT_BYTES, Follower
from merge_bench.units import GIB
from merge_bench.view.dashboard.index import Entry

MOST_KEPT = 2 * LIMIT_BYTES
SMALL_BYTES = 4 << 20
"""Campaigns of this size are read for the table without being chosen."""

_BATCH_BYTES = 16 << 20


@dataclass(frozen=True)
class Loaded:
    """A campaign that was read, as far as `problem`, a sentence, does not say otherwise."""

    entry: Entry
    campaign: Campaign | None
    problem: str | None


@dataclass(frozen=True)
class Figures:
    """What the table shows of a campaign: its best run's medians in GiB/s, and whether all its runs are verified."""

    throughput: float | None = None
    bandwidth: float | None = None
    verified: str = ""


class Library:
    """Reads campaigns, and forgets those that were not asked for longest; safe to ask from several threads."""

    def __init__(self, *, most: int = MOST_KEPT, limit: int = LIMIT_BYTES) -> None:
        self._most, self._limit = most, limit
        self._kept: OrderedDict[Path, Follower] = OrderedDict()
        self._figures: dict[Path, tuple[tuple[int, float], Figures]] = {}
        self._lock = threading.Lock()

    def load(self, entries: Sequence[Entry]) -> list[Loaded]:
        """The campaigns of `entries`, which are not read again unless they grew."""
        with self._lock:
            return [self._load(entry) for entry in entries]

    def figures(self, entry: Entry) -> Figures | None:
        """What is known of `entry` already; None: `look` has not come to it, or it is too large."""
        known = self._figures.get(entry.folder)
        return known[1] if known is not None and known[0] == (entry.size, entry.modified) else None

    def look(self, entries: Sequence[Entry]) -> bool:
        """Read some small, finished campaigns of `entries` that are not known; returns whether any were read."""
        left = _BATCH_BYTES
        for entry in entries:
            if entry.head is None or entry.written or entry.size > SMALL_BYTES or self.figures(entry) is not None:
                continue
            follower = Follower(entry.folder, lean=True)
            _read(follower)
            found = figures_of(follower.campaign) if follower.campaign is not None else Figures()
            self._figures[entry.folder] = (entry.size, entry.modified), found
            left -= entry.size
            if left <= 0:
                break
        return left < _BATCH_BYTES

    def _load(self, entry: Entry) -> Loaded:
        follower = self._kept.pop(entry.folder, None) or Follower(entry.folder, lean=True, limit=self._limit)
        _read(follower)
        self._kept[entry.folder] = follower
        while len(self._kept) > 1 and sum(one.offset for one in self._kept.values()) > self._most:
            self._kept.popitem(last=False)
        campaign = follower.campaign
        if campaign is not None:
            self._figures[entry.folder] = (entry.size, entry.modified), figures_of(campaign)
        problem = follower.problem or ("" if campaign else "its first line has no end yet")
        return Loaded(entry, campaign, f"{entry.folder.name}: {problem}" if problem else None)


def figures_of(campaign: Campaign) -> Figures:
    """What the table shows of `campaign`."""
    through: list[float] = []
    band: list[float] = []
    states: set[State] = set()
    for run in campaign.runs:
        counted = aggregate.counted(run)
        if counted:
            states.add(state_of(run, counted))
            through += [value] if (value := aggregate.of_run(counted, aggregate.throughput)) else []
            band += [value] if (value := aggregate.of_run(counted, aggregate.bandwidth)) else []
    return Figures(
        max(through) / GIB if through else None,
        max(band) / GIB if band else None,
        "" if not states else "yes" if states == {State.VERIFIED} else "WRONG" if State.WRONG in states else "no",
    )


def _read(follower: Follower) -> None:
    follower.read()
    while follower.behind:
        follower.read()

"""The document of ``history --json``; `docs/reference/records.md` describes every key."""

from __future__ import annotations

from typing import Literal

import msgspec

from merge_bench.analysis.documents import Failure


class HistoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a series; `value` is the median of its launches, `level` that of the results of its level."""

    path: str
    started: float
    value: float
    level: float
    launches: list[float]
    verified: bool


class ShiftDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A property that differs across a shift; null: not there. `result`: the first result that has the new value."""

    kind: str
    name: str
    before: str | None
    after: str | None
    result: int


class AcceptedLevel(msgspec.Struct, frozen=True, kw_only=True):
    """Who accepted a level that is worse, why, and when."""

    by: str
    reason: str
    time: float


class LevelShift(msgspec.Struct, frozen=True, kw_only=True):
    """The level changed: `result`, `found_with` count the results from 0, `change` is -0.05 for 5 % less.

    `before` and `after` are the levels as they were known with the result `found_with`.
    """

    result: int
    path: str
    found_with: int
    change: float
    better: bool
    evidence: float
    differences: list[ShiftDifference]
    before: float | None = None
    after: float | None = None
    level: int | None = None
    returns: bool = False
    ended: int | None = None
    ramp: tuple[int, int] | None = None
    accepted: AcceptedLevel | None = None

    @property
    def differs(self) -> list[str]:
        """What differs between the result before the shift and its first one, as ``UCX version 1.20.0 → 1.21.0``."""
        here = (each for each in self.differences if each.result == self.result)
        return [f"{each.kind} {each.name} {each.before or '-'} → {each.after or '-'}" for each in here]


class SeriesFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the series by `change` since the result `since` that is no shift: ``drifts`` or ``noise-changed``."""

    kind: str
    since: int
    path: str
    change: float


class HistorySeries(msgspec.Struct, frozen=True, kw_only=True):
    """The results of one config with one problem, the oldest first, and the shifts between them.

    ``level`` is the median of the results of the present level, ``noise`` the robust standard deviation about it, as a
    share of it. ``reference`` is the level that ``--against history`` compares with, ``reference_results`` its results.
    """

    series: dict[str, str | int | float]
    level: float
    since: int
    noise: float
    noise_floor: float | None
    judged: bool
    wrong_results: int
    results: list[HistoryResult]
    shifts: list[LevelShift]
    findings: list[SeriesFinding] = []
    reference: float | None = None
    reference_results: list[int] = []


class HistoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every series that was asked for, those with the newest results first."""

    document_version: Literal[1] = 1
    folders: list[str]
    metric: str
    unit: str
    threshold: float
    series: list[HistorySeries]
    notes: list[str]
    error: Failure | None = None

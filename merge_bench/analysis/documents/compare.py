"""The document of ``compare --json``; `docs/reference/records.md` describes every key."""

from __future__ import annotations

from typing import Literal

import msgspec

from merge_bench.analysis.documents.error import Failure


class ComparedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign; `letter` stands for it in labels, null for the only one."""

    letter: str | None
    path: str


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """A confidence interval and its level: 0.95 for one candidate, more where Holm's steps ask for it."""

    low: float
    high: float
    level: float


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of one side, over all its complete launches, in the unit of the comparison."""

    median: float | None
    ci95: tuple[float, float] | None
    launches: int
    failed_launches: int


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ratio of a block; unpaired, of a launch of the candidate to the baseline's median."""

    block: int | None = None
    launch: int | None = None
    ratio: float

    @property
    def label(self) -> str:
        """The point's name, as ``block 3`` or ``launch 3``."""
        return f"launch {self.launch}" if self.block is None else f"block {self.block}"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate against its baseline in one metric; a `ratio` above 1: the candidate is better."""

    pair: int
    baseline: str
    candidate: str
    baseline_result: str
    candidate_result: str
    plan: dict[str, int | str | None]
    metric: str
    unit: str
    verdict: str
    reason: str | None
    ratio: float | None
    interval: Interval | None
    confidence: float | None
    launches: int
    more_launches: int | None
    p: float | None
    p_holm: float | None
    threshold: float
    noise_floor: float | None
    level_of: int | None
    aa: bool
    paired: bool | None
    verified: bool
    baseline_value: Value
    candidate_value: Value | None
    points: list[Point]
    caveats: list[str]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in which the two runs of a pair differ; null: that run does not have it."""

    pair: int
    baseline: str
    candidate: str
    kind: str
    name: str
    baseline_value: str | None
    candidate_value: str | None


class CompareDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Every candidate in every metric.

    In version 1 the interval of a ratio was `ci95`, without its level.
    """

    document_version: Literal[2] = 2
    results: list[ComparedResult]
    threshold: float
    alpha: float
    comparisons: list[Comparison]
    differences: list[Difference]
    notes: list[str]
    verified: bool
    error: Failure | None = None

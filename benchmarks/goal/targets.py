"""The goals, and whether measured values meet them: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.peer.ratios import Spread
from merge_bench.analysis.aggregate import EXCEEDED
from merge_bench.errors import RunFailed
from merge_bench.host import kernel_files


@dataclass(frozen=True)
class Target:
    """One goal. `least` and `most`: bounds of the value, None for none. `how`: what is measured, in a sentence.

    `or_limited_by`: what may limit the merge instead, as its `bottleneck` names it: where it does, the goal is met.
    `most_counted`: a greater value does not count, because what it is measured against was disturbed.
    """

    name: str
    what: str
    how: str
    least: float | None = None
    most: float | None = None
    unit: str = ""
    or_limited_by: str | None = None
    most_counted: float | None = None

    @property
    def shown(self) -> str:
        """The bounds as text."""
        instead = f", or limited by the {self.or_limited_by}" if self.or_limited_by else ""
        if self.least is not None and self.most is not None:
            return f"{self.least:g} to {self.most:g}{self.unit}{instead}"
        bound = f"≥ {self.least:g}" if self.least is not None else f"≤ {self.most:g}"
        return f"{bound}{self.unit}{instead}"

    def holds(self, value: float) -> bool:
        """Whether `value` lies within the bounds."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def judge(self, spread: Spread | None) -> tuple[bool | None, bool]:
        """Whether the median lies within the bounds, None without a spread; and whether both its ends agree."""
        if spread is None:
            return None, False
        met = self.holds(spread.median)
        return met, self.holds(spread.low) == met == self.holds(spread.high)


@dataclass
class Result:
    """A goal and what was measured so far, one value a block.

    `failures`: a sentence each, each once. `details`: what was found beside each value, in the same order.
    """

    target: Target
    values: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    details: list[Mapping[str, Any]] = field(default_factory=list)

    def fail(self, reason: str) -> None:
        """Add a failure."""
        self.failures = list(dict.fromkeys([*self.failures, reason]))

    @property
    def spread(self) -> Spread | None:
        """Of the values that count, None if there are none."""
        return Spread.of(self.counted_values) if self.counted_values else None

    @property
    def counted_values(self) -> list[float]:
        """The values without those above `Target.most_counted`."""
        most = self.target.most_counted
        return [value for value in self.values if most is None or value <= most]

    @property
    def instead(self) -> bool:
        """Whether every block out of bounds was limited by what the target allows as a limit: then the goal is met."""
        missed = [number for number, value in enumerate(self.values) if not self.target.holds(value)]
        limits = {self.details[number].get("bottleneck") if self.details else None for number in missed}
        return self.target.or_limited_by is not None and limits == {self.target.or_limited_by}

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None if nothing was measured."""
        return self.instead or self.target.judge(self.spread)[0]

    @property
    def sure(self) -> bool:
        """Whether that holds for the whole spread."""
        return self.instead or self.target.judge(self.spread)[1]

    def to_json(self) -> dict[str, Any]:
        """One goal as plain data."""
        about, spread = asdict(self.target), self.spread
        return {
            "goal": about.pop("name"),
            **about,
            "value": spread and spread.median,
            **{name: getattr(spread, name, None) for name in ("low", "high", "coverage")},
            "values": self.values,
            "met": self.met,
            "sure": self.sure,
            "failures": self.failures,
            "details": self.details,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """What `to_json` wrote."""
        about = {name: data[name] for name in ("what", "how", "least", "most", "unit")}
        most = data.get("most_counted", EXCEEDED if data["goal"] in LINK_SHARES else None)
        target = Target(data["goal"], **about, or_limited_by=data.get("or_limited_by"), most_counted=most)
        return cls(target, data["values"], data["failures"], data.get("details", []))


def spread_of_sizes(seconds_per_row: Mapping[int, float], from_rows: int) -> float:
    """How far the time per row is from being constant: greatest ÷ least over the sizes from `from_rows` on.

    Raises
    ------
    RunFailed
        If there are fewer than two such sizes.
    """
    known = [seconds for rows, seconds in seconds_per_row.items() if rows >= from_rows]
    if len(known) < 2:
        raise RunFailed(f"only {len(known)} sizes of at least {from_rows:,} rows fit into the memory of this machine")
    return max(known) / min(known)


SHARED_MEMORY = Target(
    "link-shared-memory",
    "data plane ÷ link limit, shared memory",
    "25e6 rows × 2 workers, messages of 32 MiB",
    0.9,
    most_counted=EXCEEDED,
)
TCP = Target(
    "link-tcp",
    "data plane ÷ link limit, shaped TCP link",
    "two hosts, 2 Gbit/s, messages of 4 MiB",
    0.9,
    most_counted=EXCEEDED,
)
LINK_SHARES = frozenset((SHARED_MEMORY.name, TCP.name))
"""Goals that are shares of a link limit: files written before `most_counted` have values that do not count."""
CHECK_SHARED_MEMORY = Target(
    "perftest-shared-memory",
    "link limit ÷ `ucx_perftest`, shared memory",
    "opposite tests at once, same launch",
    0.9,
    1.1,
)
CHECK_TCP = Target(
    "perftest-tcp", "link limit ÷ `ucx_perftest`, shaped TCP link", "opposite tests at once, same launch", 0.9, 1.1
)
MEMORY = Target("memory", "peak worker memory ÷ its input", "25e6 rows × 2 workers, above what imports take", None, 2.5)
POLARS = Target("polars", "times as fast as Polars streaming", "25e6 rows × 2 workers, interleaved", 5.0)
ON_EPYC = "EPYC" in (kernel_files.read_named_values(Path("/proc/cpuinfo")).get("model name") or "")
DUCKDB = Target("duckdb", "times as fast as DuckDB", "25e6 rows × 2 workers, interleaved", 3.0 if ON_EPYC else 2.2)
DASK = Target("dask", "times as fast as Dask's merge", "25e6 rows × 2 workers, its faster shuffle over tcp", 10.0)
LINEAR = Target("linear", "time per row, greatest ÷ least", "sizes from 4e6 rows per chunk on, 2 workers", None, 1.15)
OVERLAP = Target(
    "slow-link", "wall ÷ (bytes ÷ link limit), slow link", "two hosts, 2 Gbit/s, 5e6 rows × 2 workers", None, 1.1
)
FAST_LINK = Target(
    "fast-link",
    "wall ÷ (bytes ÷ link limit), fast link",
    "two hosts of one core, 8 Gbit/s, 4e6 rows × 2 workers",
    None,
    1.1,
    or_limited_by="cores",
)
LAUNCH = Target("launch", "launch to first timed iteration", "1e6 rows × 2 workers, one warm-up", None, 3.0, " s")
HELP = Target("help", "`--help`", "median of 5", None, 0.3, " s")
STRING_POLARS = Target("strings-polars", "times as fast as Polars streaming, string key", "25e6 rows × 2 workers", 1.5)
STRING_DUCKDB = Target("strings-duckdb", "times as fast as DuckDB, string key", "25e6 rows × 2 workers", 1.5)
COLUMNS_POLARS = Target("columns-polars", "times as fast as Polars streaming, two keys", "25e6 rows × 2 workers", 1.5)
COLUMNS_DUCKDB = Target("columns-duckdb", "times as fast as DuckDB, two keys", "25e6 rows × 2 workers", 1.5)

"""From launches to ratios: pure functions. The unit is the launch; a ratio is made within a block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from merge_bench.analysis.statistics import median, median_interval


@dataclass(frozen=True)
class Sample:
    """One launch of one contender: `walls` are the timed iterations' seconds, empty if the launch failed."""

    contender: str
    block: int
    walls: tuple[float, ...]
    peak_bytes: int | None = None

    @property
    def wall(self) -> float | None:
        """The launch's value: the median of its iterations."""
        return median(self.walls) if self.walls else None


@dataclass(frozen=True)
class Spread:
    """The median over blocks, and how far blocks spread.

    `low` and `high`: the rank-based interval of `coverage`, or, where blocks are too few for one, the least and the
    greatest value, and then `coverage` is None.
    """

    median: float
    low: float
    high: float
    coverage: float | None
    blocks: int

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """The spread of one value or more, at 95 %."""
        interval = median_interval(values)
        if interval is None:
            return Spread(median(values), min(values), max(values), None, len(values))
        return Spread(median(values), interval.low, interval.high, interval.coverage, len(values))

    def __str__(self) -> str:
        """``1.31–1.42 (97 %)``, or ``1.31–1.42 (min–max of 3)`` where blocks are too few."""
        what = f"min–max of {self.blocks}" if self.coverage is None else f"{100 * self.coverage:.0f} %"
        return f"{self.low:.2f}–{self.high:.2f} ({what})"


@dataclass(frozen=True)
class Standing:
    """One line of the table. `wall`: median over launches, None if none succeeded. `peak_bytes`: the largest.

    `ratio`: how many times as fast as this peer merge_bench is.
    """

    contender: str
    launches: int
    failed: int
    wall: float | None
    peak_bytes: int | None
    ratio: Spread | None


def standings(samples: Iterable[Sample], order: Sequence[str], reference: str) -> list[Standing]:
    """One line for each contender in `order`; its ratio is that of its wall to the reference's in the same block."""
    by_name: dict[str, list[Sample]] = {name: [] for name in order}
    for sample in samples:
        by_name[sample.contender].append(sample)
    ours = {sample.block: sample.wall for sample in by_name[reference] if sample.wall is not None}
    found = []
    for name, launches in by_name.items():
        walls = {launch.block: launch.wall for launch in launches if launch.wall is not None}
        ratios = [wall / ours[block] for block, wall in walls.items() if block in ours and name != reference]
        found.append(
            Standing(
                contender=name,
                launches=len(launches),
                failed=len(launches) - len(walls),
                wall=median(list(walls.values())) if walls else None,
                peak_bytes=max(
                    (launch.peak_bytes for launch in launches if launch.peak_bytes is not None), default=None
                ),
                ratio=Spread.of(ratios) if ratios else None,
            )
        )
    return found


def fastest(lines: Iterable[Standing], family: Mapping[str, str]) -> set[str]:
    """The contender of each family that counts: the one with the least median wall."""
    best: dict[str, tuple[float, str]] = {}
    for line in lines:
        if line.wall is not None:
            name = family[line.contender]
            best[name] = min(best.get(name, (line.wall, line.contender)), (line.wall, line.contender))
    return {contender for _, contender in best.values()}

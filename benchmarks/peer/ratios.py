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
class Ratio:
    """How many times as fast as a peer merge_bench is: median over blocks of the peer's wall ÷ ours.

    `low` and `high` are the rank-based interval of `coverage`, or, where blocks are too few for one, the least and the
    greatest of the blocks' ratios, and then `coverage` is None.
    """

    median: float
    low: float
    high: float
    coverage: float | None
    blocks: int


@dataclass(frozen=True)
class Standing:
    """One line of the table. `wall`: median over launches, None if none succeeded. `peak_bytes`: the largest."""

    contender: str
    launches: int
    failed: int
    wall: float | None
    peak_bytes: int | None
    ratio: Ratio | None


def ratio_of(pairs: Mapping[int, tuple[float, float]], confidence: float = 0.95) -> Ratio | None:
    """The ratio over blocks; `pairs`: block → (the peer's wall, ours). None without blocks."""
    ratios = [peer / ours for peer, ours in pairs.values()]
    if not ratios:
        return None
    interval = median_interval(ratios, confidence)
    if interval is None:
        return Ratio(median(ratios), min(ratios), max(ratios), None, len(ratios))
    return Ratio(median(ratios), interval.low, interval.high, interval.coverage, len(ratios))


def standings(samples: Iterable[Sample], order: Sequence[str], reference: str) -> list[Standing]:
    """One line for each contender in `order`, against `reference`."""
    by_name: dict[str, list[Sample]] = {name: [] for name in order}
    for sample in samples:
        by_name[sample.contender].append(sample)
    ours = {sample.block: sample.wall for sample in by_name[reference]}
    found = []
    for name, launches in by_name.items():
        walls = [launch.wall for launch in launches if launch.wall is not None]
        pairs = {}
        for launch in launches:
            wall, own = launch.wall, ours.get(launch.block)
            if wall is not None and own is not None:
                pairs[launch.block] = (wall, own)
        peaks = [launch.peak_bytes for launch in launches if launch.peak_bytes is not None]
        found.append(
            Standing(
                name,
                len(launches),
                len(launches) - len(walls),
                median(walls) if walls else None,
                max(peaks, default=None),
                None if name == reference else ratio_of(pairs),
            )
        )
    return found


def fastest(lines: Sequence[Standing], family: Mapping[str, str]) -> set[str]:
    """The contender of each family that counts: the one with the least median wall, as against us as it can be."""
    best: dict[str, Standing] = {}
    for line in lines:
        if line.wall is None:
            continue
        name = family[line.contender]
        held = best.get(name)
        if held is None or held.wall is None or line.wall < held.wall:
            best[name] = line
    return {line.contender for line in best.values()}

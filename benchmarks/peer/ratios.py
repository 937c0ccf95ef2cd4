"""From launches to ratios and their table: pure functions. The unit is the launch; a ratio is made within a block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from merge_bench.analysis.statistics import median, median_interval
from merge_bench.units import GIB

HEADINGS = (
    "peer",
    "version",
    "launches",
    "wall s",
    "throughput GiB/s",
    "ours / peer",
    "interval",
    "peak GiB",
    "result",
)
TEXT = (0, 1, 6, 8)


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
        found = median_interval(values)
        if found is None:
            return Spread(median(values), min(values), max(values), None, len(values))
        return Spread(median(values), found.low, found.high, found.coverage, len(values))

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
                peak_bytes=max(filter(None, (launch.peak_bytes for launch in launches)), default=None),
                ratio=Spread.of(ratios) if ratios else None,
            )
        )
    return found


def fastest(lines: Iterable[Standing], family: Mapping[str, str]) -> set[str]:
    """The contender of each family that counts: the one with the least median wall."""
    best: dict[str, str] = {}
    for _, contender in sorted((line.wall, line.contender) for line in lines if line.wall is not None):
        best.setdefault(family[contender], contender)
    return set(best.values())


def cells(
    lines: Sequence[Standing], versions: Mapping[str, str], results: Mapping[str, str], counted: set[str], data: int
) -> list[tuple[str, ...]]:
    """The table's rows. `counted`: the fastest of each family, marked; `data`: bytes processed by an iteration."""
    return [
        (
            f"{line.contender} *" if line.contender in counted else line.contender,
            versions.get(line.contender, "-"),
            f"{line.launches - line.failed} of {line.launches}" if line.failed else str(line.launches),
            "-" if line.wall is None else f"{line.wall:.4g}",
            "-" if line.wall is None else f"{data / line.wall / GIB:.3f}",
            "-" if line.ratio is None else f"{line.ratio.median:.2f}",
            "-" if line.ratio is None else str(line.ratio),
            "-" if line.peak_bytes is None else f"{line.peak_bytes / GIB:.2f}",
            results.get(line.contender, "-"),
        )
        for line in lines
    ]

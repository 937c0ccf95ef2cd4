"""One value per launch for every metric, matched block by block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.analysis import aggregate
from merge_bench.analysis.statistics import effect as effects
from merge_bench.analysis.statistics import median
from merge_bench.analysis.statistics.effect import Effect
from merge_bench.records.campaign import Launch, Run


@dataclass(frozen=True)
class Metric:
    """What is compared.

    Attributes
    ----------
    name : str
    unit : str
        Of the records: ``B/s`` or ``s``.
    higher_is_better : bool
    value : callable
        Of one iteration; the launch's value is the median over its timed iterations.
    """

    name: str
    unit: str
    higher_is_better: bool
    value: aggregate.Value

    def of_launch(self, launch: Launch) -> float | None:
        """The launch's one value; ``None``: not measured."""
        return aggregate.of_launch(launch, self.value)


METRICS = (
    Metric("throughput", "B/s", True, aggregate.throughput),
    Metric("bandwidth", "B/s", True, aggregate.bandwidth),
    Metric("wall", "s", False, aggregate.wall),
    *(Metric(name, "s", False, aggregate.phase(name)) for name in aggregate.PHASES),
)
"""For one problem throughput and wall are equivalent; people look for either."""


@dataclass(frozen=True)
class Sample:
    """The value of one launch."""

    launch: int
    block: int
    value: float


@dataclass(frozen=True)
class Side:
    """One metric of one run: the launches that have it, and how many should have had it and do not.

    `floor`: its noise floor, where that is known without an A/A comparison beside it; `level_of`: how many results of
    a level it stands for, None: one run; `nights`: how many results showed how far nights lie apart, None: unknown.
    """

    samples: tuple[Sample, ...]
    missing: int = 0
    floor: float | None = None
    level_of: int | None = None
    nights: int | None = None

    @property
    def values(self) -> list[float]:
        """One a launch."""
        return [sample.value for sample in self.samples]


def side(run: Run, metric: Metric) -> Side:
    """The complete launches of `run`; a value of 0 has no ratio and counts as missing."""
    samples: list[Sample] = []
    launches = [launch for launch in run.launches if launch.complete]
    for launch in launches:
        value = metric.of_launch(launch)
        if value is not None and value > 0.0 and launch.line is not None:
            samples.append(Sample(launch.index, launch.line.block, value))
    return Side(tuple(samples), len(launches) - len(samples))


def match(
    baseline: Side, candidate: Side, metric: Metric, *, one_campaign: bool
) -> tuple[Effect | None, tuple[int, ...]]:
    """The effect, larger than 0 where the candidate is better, and the block (unpaired: the launch) of each of its
    points; ``None`` and nothing where a side has nothing.

    Paired, if both come from one campaign and most of their launches share a block; several launches of one config in a
    block are one value, their median.
    """
    if not baseline.samples or not candidate.samples:
        return None, ()
    sign = 1.0 if metric.higher_is_better else -1.0
    old, new = _by_block(baseline.samples), _by_block(candidate.samples)
    common = sorted(old.keys() & new.keys()) if one_campaign else []
    if 2 * len(common) > min(len(baseline.samples), len(candidate.samples)):
        return effects.paired([sign * (new[block] - old[block]) for block in common]), tuple(common)
    effect = effects.unpaired(
        [sign * math.log(value) for value in baseline.values], [sign * math.log(value) for value in candidate.values]
    )
    return effect, tuple(sample.launch for sample in candidate.samples)


def _by_block(samples: Sequence[Sample]) -> Mapping[int, float]:
    """The logarithm of each block's value."""
    found: dict[int, list[float]] = {}
    for sample in samples:
        found.setdefault(sample.block, []).append(math.log(sample.value))
    return {block: median(values) for block, values in found.items()}

"""One value per launch for every metric, matched block by block, and the verdict that statistics or a failure give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from merge_bench.analysis import aggregate
from merge_bench.analysis.compare.select import Pair, planned_pairs
from merge_bench.analysis.statistics import effect as effects
from merge_bench.analysis.statistics import median
from merge_bench.analysis.statistics.effect import Effect
from merge_bench.analysis.statistics.verdict import ALPHA, Judgement, Verdict, judge, least_launches, noise_floor
from merge_bench.records.campaign import Campaign, Launch, Run


@dataclass(frozen=True)
class Metric:
    """A quantity in which runs are compared, in the `unit` of the records, ``B/s`` or ``s``.

    `value` gives the number of one iteration; the launch's value is the median over its timed iterations.
    """

    name: str
    unit: str
    higher_is_better: bool
    value: aggregate.Value

    def of_launch(self, launch: Launch) -> float | None:
        """The launch's value of this metric; ``None``: not measured."""
        return aggregate.launch_median(launch, self.value)


METRICS = (
    Metric("throughput", "B/s", True, aggregate.throughput),
    Metric("bandwidth", "B/s", True, aggregate.bandwidth),
    Metric("wall", "s", False, aggregate.wall_seconds),
    *(Metric(name, "s", False, aggregate.phase_seconds(name)) for name in aggregate.PHASES),
)
"""For one problem throughput and wall are equivalent; people look for either."""
METRIC = "throughput"
"""The metric that gates and accepted levels compare."""


@dataclass(frozen=True)
class Sample:
    """The value of one launch."""

    launch: int
    block: int
    value: float


@dataclass(frozen=True)
class Side:
    """The values of one metric that stand for the baseline or the candidate; `missing`: complete launches without one.

    `floor`: the noise floor, where it is known without an A/A comparison; `level_of`: how many results of a level
    these are, None: one run; `nights`: how many results showed the noise between nights, None: unknown.
    """

    samples: tuple[Sample, ...]
    missing: int = 0
    floor: float | None = None
    level_of: int | None = None
    nights: int | None = None

    @property
    def values(self) -> list[float]:
        """The value of each launch."""
        return [sample.value for sample in self.samples]


def side_of_run(run: Run, metric: Metric) -> Side:
    """The values of one metric in the complete launches of `run`; a value of 0 has no ratio and counts as missing."""
    samples: list[Sample] = []
    launches = [launch for launch in run.launches if launch.complete]
    for launch in launches:
        value = metric.of_launch(launch)
        if value is not None and value > 0.0 and launch.line is not None:
            samples.append(Sample(launch.index, launch.line.block, value))
    return Side(tuple(samples), len(launches) - len(samples))


def match_launches(
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
    old, new = _logarithms_by_block(baseline.samples), _logarithms_by_block(candidate.samples)
    common = sorted(old.keys() & new.keys()) if one_campaign else []
    if 2 * len(common) > min(len(baseline.samples), len(candidate.samples)):
        return effects.paired_effect([sign * (new[block] - old[block]) for block in common]), tuple(common)
    effect = effects.unpaired_effect(
        [sign * math.log(value) for value in baseline.values], [sign * math.log(value) for value in candidate.values]
    )
    return effect, tuple(sample.launch for sample in candidate.samples)


def _logarithms_by_block(samples: Sequence[Sample]) -> Mapping[int, float]:
    """By block, the median of the logarithms of its launches' values."""
    logarithms: dict[int, list[float]] = {}
    for sample in samples:
        logarithms.setdefault(sample.block, []).append(math.log(sample.value))
    return {block: median(values) for block, values in logarithms.items()}


@dataclass(frozen=True, eq=False)
class Row:
    """A baseline and a candidate in one metric.

    `effect`: None if there are no numbers; `labels`: the block (unpaired: the launch) of each of its points. Once it is
    judged: `judgement`, the statistical result; `floor`, the noise floor that A/A comparisons show, for an A/A
    comparison its own; `calibration`, whether this is an A/A comparison beside others.
    """

    pair: Pair
    metric: Metric
    baseline: Side
    candidate: Side
    effect: Effect | None
    labels: tuple[int, ...]
    judgement: Judgement | None = None
    floor: float | None = None
    calibration: bool = False

    @property
    def why_absent(self) -> str | None:
        """Why this metric cannot be compared, though nothing failed; None if it can."""
        for source, samples in ((self.pair.baseline, self.baseline), (self.pair.candidate, self.candidate)):
            explained = source is self.pair.candidate and (source.failed or source.wrong)
            if not samples.samples and not explained:
                return f"{self.metric.name} is not compared: {source.label} has no value of it"
        return None

    @property
    def outcome(self) -> tuple[Verdict, str | None]:
        """The verdict and its reason: a candidate with failed launches or a wrong result cannot win."""
        candidate, judgement = self.pair.candidate, self.judgement
        if candidate.wrong:
            return Verdict.WRONG, "the merge result was wrong"
        if judgement is None or (candidate.failed and judgement.verdict is not Verdict.SLOWER):
            return Verdict.FAILED, f"{candidate.failed} of {len(candidate.run.launches)} launches failed"
        return judgement.verdict, judgement.reason.value if judgement.reason else None


def least_blocks(campaign: Campaign) -> int:
    """The fewest blocks with which a planned campaign can show any difference between its configs; 0 without any."""
    pairs = planned_pairs(campaign)
    family = [pair for pair in pairs if not pair.same_config] or pairs  # as in `judge_metric`
    return least_launches(alpha=ALPHA / len(family)) if family else 0


def judge_metric(
    pairs: Sequence[Pair], metric: Metric, *, threshold: float, earlier: Side | None = None
) -> tuple[list[Row], list[str]]:
    """The judged rows of all pairs in one metric, in their order, and why some have none.

    All candidates are one family, whichever problem they were measured on. A/A comparisons do not belong to it: they
    give the noise floor of their baseline's other candidates. Where there is nothing but A/A, it is judged like any.
    `earlier` stands for every baseline, with its own noise floor.
    """
    rows = [_make_row(pair, metric, earlier) for pair in pairs]
    notes = [row.why_absent for row in rows if row.why_absent]
    rows = [row for row in rows if not row.why_absent]
    calibrations = [row for row in rows if row.pair.same_config]
    if len(calibrations) == len(rows):
        return _judge_rows(rows, (), threshold), notes
    judged = _judge_rows([row for row in rows if row not in calibrations], calibrations, threshold)
    judged += [replace(row, calibration=True) for row in _judge_rows(calibrations, (), threshold)]
    return sorted(judged, key=lambda row: pairs.index(row.pair)), notes


def _make_row(pair: Pair, metric: Metric, earlier: Side | None) -> Row:
    old, new = earlier or side_of_run(pair.baseline.run, metric), side_of_run(pair.candidate.run, metric)
    matched = (None, ()) if pair.candidate.wrong else match_launches(old, new, metric, one_campaign=pair.one_campaign)
    return Row(pair, metric, old, new, *matched)


def _judge_rows(rows: Sequence[Row], calibrations: Sequence[Row], threshold: float) -> list[Row]:
    """Judge `rows` as one family; `calibrations`: the A/A rows that give the noise floors."""
    floors = {row: _highest_noise_floor(row, calibrations) for row in rows}
    effects = {row: row.effect for row in rows if row.effect is not None}
    # A candidate without numbers was to be compared too, so it counts in the family.
    judged = judge(
        list(effects.values()), threshold=threshold, floors=[floors[row] for row in effects], family=max(1, len(rows))
    )
    judgements = dict(zip(effects, judged, strict=True))
    floors |= {row: _highest_noise_floor(row, (row,)) for row in rows if row.pair.same_config}
    return [replace(row, judgement=judgements.get(row), floor=floors[row]) for row in rows]


def _highest_noise_floor(row: Row, calibrations: Sequence[Row]) -> float | None:
    """The highest noise floor that A/A comparisons of this row's baseline show; else the baseline's own."""
    alike = [each.effect for each in calibrations if each.pair.baseline is row.pair.baseline]
    return max((noise_floor(effect) for effect in alike if effect is not None), default=row.baseline.floor)

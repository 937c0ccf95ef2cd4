"""Results → the document that ``compare --json`` prints; the report for people is made of it.

Of every metric there is one value per launch, matched block by block; statistics or a failure give the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from merge_bench.analysis import aggregate, comparable_runs, documents
from merge_bench.analysis.comparable_runs import (
    CONFIG,
    SIZE,
    UCX_SETTING,
    ComparedRun,
    RunPair,
    planned_run_pairs,
    result_letter,
    select_run_pairs,
)
from merge_bench.analysis.diagnostics import busy_host_warnings
from merge_bench.analysis.statistics import Effect, median, median_interval, paired_effect, unpaired_effect
from merge_bench.analysis.statistics.verdict import (
    ALPHA,
    Judgement,
    Verdict,
    judge_effects,
    least_launches,
    noise_floor,
)
from merge_bench.records.campaign import Campaign, Launch, Run
from merge_bench.records.recorded_plan import WALL, CommandMetric

_DOUBTS = {
    Verdict.FASTER: "the difference may come from the host",
    Verdict.SLOWER: "the difference may come from the host",
    Verdict.EQUIVALENT: "a difference may be hidden",
    Verdict.INCONCLUSIVE: "launches vary more",
}
"""By verdict, the doubt that a busy host casts on it."""
ONE_NIGHT = (
    "this verdict is of these launches only: two results cannot show how far nights lie apart while nothing changes; "
    "--against history counts that"
)


@dataclass(frozen=True)
class Metric:
    """A quantity in which runs are compared, in the `unit` of the records: ``B/s``, ``s``, or as a command's plan says.

    `unit`: empty where it is unknown. `value` gives the number of one iteration; the launch's value is the median over
    its timed iterations.
    """

    name: str
    unit: str
    higher_is_better: bool
    value: aggregate.IterationFigure

    @property
    def better(self) -> Literal["more", "less"]:
        """Whether more or less of it is better."""
        return "more" if self.higher_is_better else "less"

    @property
    def definition(self) -> tuple[str, str, bool]:
        """Name, unit and direction: what two commands must agree in for their values to be comparable."""
        return self.name, self.unit, self.higher_is_better

    def launch_value(self, launch: Launch) -> float | None:
        """The value of this metric in one launch; None: not measured."""
        return aggregate.launch_median(launch, self.value)


METRICS = (
    Metric("throughput", "B/s", True, aggregate.throughput),
    Metric("bandwidth", "B/s", True, aggregate.bandwidth),
    Metric("wall", "s", False, aggregate.wall_seconds),
    *(Metric(name, "s", False, aggregate.phase_seconds(name)) for name in aggregate.PHASES),
)
"""The metrics of merges. For one problem throughput and wall are equivalent; people look for either."""
METRIC = METRICS[0].name
"""The metric of merges that gates and accepted levels compare; of a command it is the first one: `main_metric`."""


def metrics_of_command(recorded: Sequence[CommandMetric]) -> tuple[Metric, ...]:
    """The metrics of a command as its plan has them, the main one first. The wall-clock is always one of them."""
    wall = next(metric for metric in METRICS if metric.name == WALL)
    metrics = [
        wall
        if each.name == WALL
        else Metric(each.name, each.unit or "", each.better == "more", aggregate.command_value(each.name))
        for each in recorded
    ]
    return tuple(metrics if wall in metrics else [*metrics, wall])


def metrics_of(runs: Iterable[Run]) -> tuple[Metric, ...]:
    """The metrics in which runs are compared, the main one first: those of merges, or those that all commands have."""
    commands = [run.plan.command for run in runs]
    metrics_by_command = [metrics_of_command(command.metrics) for command in commands if command is not None]
    if not metrics_by_command:
        return METRICS
    shared = set.intersection(*({each.definition for each in metrics} for metrics in metrics_by_command))
    return tuple(metric for metric in metrics_by_command[0] if metric.definition in shared)


def main_metric(run: Run) -> Metric:
    """The metric of a run that gates, levels and short lists use: throughput, or the first metric of its command."""
    return metrics_of([run])[0]


@dataclass(frozen=True)
class LaunchSample:
    """The value of one metric in one launch."""

    launch: int
    block: int
    value: float


@dataclass(frozen=True)
class ComparisonSide:
    """The launches' values of one metric for one side of a comparison, the baseline or the candidate.

    `missing`: the number of complete launches without a value; `floor`: the noise floor, where it is known without an
    A/A comparison; `level_of`: how many results of a level these are, None: one run; `nights`: how many results showed
    the noise between nights, None: unknown.
    """

    samples: tuple[LaunchSample, ...]
    missing: int = 0
    floor: float | None = None
    level_of: int | None = None
    nights: int | None = None

    @property
    def values(self) -> list[float]:
        """The value of the metric in each launch."""
        return [sample.value for sample in self.samples]


def side_of_run(run: Run, metric: Metric) -> ComparisonSide:
    """The values of one metric in the complete launches of `run`; a value of 0 has no ratio and counts as missing."""
    samples: list[LaunchSample] = []
    launches = [launch for launch in run.launches if launch.complete]
    for launch in launches:
        value = metric.launch_value(launch)
        if value is not None and value > 0.0 and launch.line is not None:
            samples.append(LaunchSample(launch.index, launch.line.block, value))
    return ComparisonSide(tuple(samples), len(launches) - len(samples))


def effect_of_launches(
    baseline: ComparisonSide, candidate: ComparisonSide, metric: Metric, *, one_campaign: bool
) -> tuple[Effect | None, tuple[int, ...]]:
    """The effect of a candidate against its baseline, and the block (unpaired: the launch) of each point of the effect.

    The effect is larger than 0 where the candidate is better, and ``None`` where a side has no values. Paired, if both
    come from one campaign and most of their launches share a block; several launches of one config in a block are one
    value, their median.
    """
    if not baseline.samples or not candidate.samples:
        return None, ()
    sign = 1.0 if metric.higher_is_better else -1.0
    old, new = _logarithms_by_block(baseline.samples), _logarithms_by_block(candidate.samples)
    common = sorted(old.keys() & new.keys()) if one_campaign else []
    if 2 * len(common) > min(len(baseline.samples), len(candidate.samples)):
        return paired_effect([sign * (new[block] - old[block]) for block in common]), tuple(common)
    effect = unpaired_effect(
        [sign * math.log(value) for value in baseline.values], [sign * math.log(value) for value in candidate.values]
    )
    return effect, tuple(sample.launch for sample in candidate.samples)


def _logarithms_by_block(samples: Sequence[LaunchSample]) -> Mapping[int, float]:
    """The median of the logarithms of the launches' values, by block."""
    logarithms: dict[int, list[float]] = {}
    for sample in samples:
        logarithms.setdefault(sample.block, []).append(math.log(sample.value))
    return {block: median(values) for block, values in logarithms.items()}


@dataclass(frozen=True, eq=False)
class ComparisonRow:
    """The comparison of a candidate with its baseline in one metric.

    `effect`: None if there are no numbers; `labels`: the block (unpaired: the launch) of each of its points. Once it is
    judged: `judgement`, the statistical result; `floor`, the noise floor that A/A comparisons show, for an A/A
    comparison its own; `calibration`, whether this is an A/A comparison beside others.
    """

    pair: RunPair
    metric: Metric
    baseline: ComparisonSide
    candidate: ComparisonSide
    effect: Effect | None
    labels: tuple[int, ...]
    judgement: Judgement | None = None
    floor: float | None = None
    calibration: bool = False

    @property
    def why_not_compared(self) -> str | None:
        """Why this metric cannot be compared, though nothing failed; None if it can."""
        for source, samples in ((self.pair.baseline, self.baseline), (self.pair.candidate, self.candidate)):
            explained = source is self.pair.candidate and (source.failed_launches or source.has_wrong_result)
            if not samples.samples and not explained:
                above = " above 0" if source.of_command else ""  # others have no ratio
                return f"{self.metric.name} is not compared: {source.label} has no value of it{above}"
        return None

    @property
    def verdict_with_reason(self) -> tuple[Verdict, str | None]:
        """The verdict and its reason: a candidate with failed launches or a wrong result cannot win."""
        candidate, judgement = self.pair.candidate, self.judgement
        if candidate.has_wrong_result:
            return Verdict.WRONG, f"the {candidate.result_name} was wrong"
        if judgement is None or (candidate.failed_launches and judgement.verdict is not Verdict.SLOWER):
            return Verdict.FAILED, f"{candidate.failed_launches} of {len(candidate.run.launches)} launches failed"
        return judgement.verdict, judgement.reason.value if judgement.reason else None


def least_blocks(campaign: Campaign) -> int:
    """The fewest blocks with which a planned campaign can show any difference between its configs; 0 without any."""
    pairs = planned_run_pairs(campaign)
    family = [pair for pair in pairs if not pair.is_aa_comparison] or pairs  # as in `judge_metric`
    return least_launches(alpha=ALPHA / len(family)) if family else 0


def judge_metric(
    pairs: Sequence[RunPair], metric: Metric, *, threshold: float, earlier: ComparisonSide | None = None
) -> tuple[list[ComparisonRow], list[str]]:
    """Judge every pair in one metric; returns the rows in the order of the pairs, and why some pairs have none.

    All candidates are one family, whichever problem they were measured on. A/A comparisons do not belong to it: they
    give the noise floor of their baseline's other candidates. Where there is nothing but A/A, it is judged like any.
    `earlier` stands for every baseline, with its own noise floor.
    """
    rows = [_make_row(pair, metric, earlier) for pair in pairs]
    notes = [row.why_not_compared for row in rows if row.why_not_compared]
    rows = [row for row in rows if not row.why_not_compared]
    calibrations = [row for row in rows if row.pair.is_aa_comparison]
    if len(calibrations) == len(rows):
        return _judge_rows(rows, (), threshold), notes
    judged = _judge_rows([row for row in rows if row not in calibrations], calibrations, threshold)
    judged += [replace(row, calibration=True) for row in _judge_rows(calibrations, (), threshold)]
    return sorted(judged, key=lambda row: pairs.index(row.pair)), notes


def _make_row(pair: RunPair, metric: Metric, earlier: ComparisonSide | None) -> ComparisonRow:
    old, new = earlier or side_of_run(pair.baseline.run, metric), side_of_run(pair.candidate.run, metric)
    matched = (
        (None, ())
        if pair.candidate.has_wrong_result
        else effect_of_launches(old, new, metric, one_campaign=pair.in_one_campaign)
    )
    return ComparisonRow(pair, metric, old, new, *matched)


def _judge_rows(
    rows: Sequence[ComparisonRow], calibrations: Sequence[ComparisonRow], threshold: float
) -> list[ComparisonRow]:
    """Judge `rows` as one family; `calibrations`: the A/A rows that give the noise floors."""
    floors = {row: _highest_noise_floor(row, calibrations) for row in rows}
    effects = {row: row.effect for row in rows if row.effect is not None}
    # A candidate without numbers was to be compared too, so it counts in the family.
    judged = judge_effects(
        list(effects.values()), threshold=threshold, floors=[floors[row] for row in effects], family=max(1, len(rows))
    )
    judgements = dict(zip(effects, judged, strict=True))
    floors |= {row: _highest_noise_floor(row, (row,)) for row in rows if row.pair.is_aa_comparison}
    return [replace(row, judgement=judgements.get(row), floor=floors[row]) for row in rows]


def _highest_noise_floor(row: ComparisonRow, calibrations: Sequence[ComparisonRow]) -> float | None:
    """The highest noise floor that A/A comparisons of this row's baseline show; without any, the baseline's own."""
    alike = [each.effect for each in calibrations if each.pair.baseline is row.pair.baseline]
    return max((noise_floor(effect) for effect in alike if effect is not None), default=row.baseline.floor)


def compare_campaigns(
    campaigns: Sequence[Campaign],
    *,
    threshold: float = 0.02,
    anyway: bool = False,
    level: Mapping[str, ComparisonSide] | None = None,
) -> documents.CompareDocument:
    """Compare every run of the campaigns with its baseline in every metric; returns the document of `compare`.

    `campaigns`: one, whose first config is the baseline; or several, of which the first holds it. `threshold`: the
    least ratio that matters, minus 1: 0.02 for 2 %. `anyway`: compare what is not comparable too. `level`: by metric,
    the launches that stand for the first campaign: those of its level in the history, or its own with the noise from
    night to night.

    Raises UsageError if there is nothing to compare, or it is not comparable; WrongResult if the result was wrong in a
    baseline.
    """
    selection = select_run_pairs(campaigns, anyway=anyway)
    busy: dict[Path, str] = {}
    notes: list[str] = []
    for index, campaign in enumerate(campaigns):
        name = result_letter(index, len(campaigns))
        for warning in busy_host_warnings(campaign):  # its times are longer and vary more
            busy[campaign.folder] = name or "this result"
            notes.append(f"{name or campaign.head.campaign_id}: measured on a busy host: {warning.message}")
    notes += selection.notes
    rows: list[ComparisonRow] = []
    for metric in metrics_of(source.run for pair in selection.pairs for source in (pair.baseline, pair.candidate)):
        judged, absent = judge_metric(
            selection.pairs, metric, threshold=threshold, earlier=(level or {}).get(metric.name)
        )
        rows += judged
        notes += absent
    by_pair = {pair: [row for row in rows if row.pair is pair] for pair in selection.pairs}
    for pair, own in by_pair.items():
        notes += _run_pair_notes(pair, own)
    varying = _varying_problem_names(selection.pairs)
    return documents.CompareDocument(
        results=[
            documents.ComparedResult(letter=result_letter(index, len(campaigns)), path=str(campaign.folder))
            for index, campaign in enumerate(campaigns)
        ],
        threshold=threshold,
        alpha=ALPHA,
        comparisons=[
            _make_comparison(index, row, varying, threshold, busy)
            for index, own in enumerate(by_pair.values())
            for row in own
        ],
        differences=[
            documents.Difference(pair=index, baseline=pair.baseline.label, candidate=pair.candidate.label, **vars(each))
            for index, pair in enumerate(selection.pairs)
            for each in comparable_runs.property_differences(pair.baseline.properties, pair.candidate.properties)
        ],
        notes=list(dict.fromkeys(notes)),
        verified=all(source.verified for pair in selection.pairs for source in (pair.baseline, pair.candidate)),
    )


def empty_compare_document(reason: str, threshold: float) -> documents.CompareDocument:
    """The document of `compare` without comparisons, whose only note gives the `reason`."""
    return documents.CompareDocument(
        results=[],
        threshold=threshold,
        alpha=ALPHA,
        comparisons=[],
        differences=[],
        notes=[f"nothing was compared: {reason}"],
        verified=True,
    )


def _varying_problem_names(pairs: Sequence[RunPair]) -> list[str]:
    """The names of the problem's properties in which the pairs differ, other than rows per chunk and workers."""
    problems = [comparable_runs.run_problem(pair.candidate.run) for pair in pairs]
    names = dict.fromkeys(name for problem in problems for name in problem)
    return [name for name in names if len({problem.get(name) for problem in problems}) > 1 and name not in SIZE]


def _verdict_caveats(row: ComparisonRow, verdict: Verdict, busy: Mapping[Path, str]) -> list[str]:
    """Sentences about other causes of a verdict than the configs; `busy`: names of results from busy hosts."""
    pair = row.pair
    folders = dict.fromkeys(source.campaign.folder for source in (pair.baseline, pair.candidate))
    names = [busy[folder] for folder in folders if folder in busy]
    caveats = []
    if not pair.in_one_campaign and verdict in (Verdict.FASTER, Verdict.SLOWER) and not row.baseline.nights:
        caveats.append(ONE_NIGHT)
    if (failed := pair.baseline.failed_launches) and pair.baseline.of_command and verdict is Verdict.SLOWER:
        launches = len(pair.baseline.run.launches)
        caveats.append(f"{pair.baseline.label} is no better choice, because {failed} of {launches} launches failed")
    if names and verdict in _DOUBTS:
        were = f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'}"
        caveats.append(f"{were} measured while other processes kept the host's cores busy, so {_DOUBTS[verdict]}")
    return caveats


def _make_comparison(
    number: int, row: ComparisonRow, varying: Sequence[str], threshold: float, busy: Mapping[Path, str]
) -> documents.Comparison:
    pair, judgement, effect, (verdict, reason) = row.pair, row.judgement, row.effect, row.verdict_with_reason
    name = "block" if effect and effect.paired else "launch"
    return documents.Comparison(
        pair=number,
        baseline=pair.baseline.label,
        candidate=pair.candidate.label,
        baseline_result=str(pair.baseline.campaign.folder),
        candidate_result=str(pair.candidate.campaign.folder),
        plan={name: getattr(pair.candidate.run.plan, name) for name in SIZE}
        | {name: comparable_runs.run_problem(pair.candidate.run).get(name) for name in varying},
        metric=row.metric.name,
        unit=row.metric.unit,
        verdict=verdict.value,
        reason=reason,
        ratio=math.exp(effect.estimate) if effect else None,
        interval=_ratio_interval(judgement),
        confidence=1.0 - judgement.alpha if judgement else None,
        launches=effect.smaller_sample_launches if effect else 0,
        more_launches=judgement.more_launches if judgement and not row.baseline.nights else None,
        p=effect.p_value if effect else None,
        p_holm=judgement.p_holm if judgement else None,
        threshold=threshold,
        noise_floor=row.floor,
        level_of=row.baseline.level_of,
        aa=row.calibration,
        paired=effect.paired if effect else None,
        verified=pair.baseline.verified and pair.candidate.verified,
        baseline_value=_make_side_value(pair.baseline, row.baseline),
        candidate_value=None if pair.candidate.has_wrong_result else _make_side_value(pair.candidate, row.candidate),
        points=[  # the ratio of each block; if unpaired, of each launch of the candidate to the baseline's median
            documents.Point(**{name: label}, ratio=math.exp(point))
            for label, point in zip(row.labels, effect.points if effect else (), strict=True)
        ],
        caveats=_verdict_caveats(row, verdict, busy),
    )


def _ratio_interval(judgement: Judgement | None) -> documents.Interval | None:
    if judgement is None or judgement.interval is None:
        return None
    low, high = judgement.interval
    return documents.Interval(low=math.exp(low), high=math.exp(high), level=1.0 - judgement.alpha)


def _make_side_value(source: ComparedRun, side: ComparisonSide) -> documents.Value:
    """The median of one side over its complete launches, with its confidence interval."""
    interval = median_interval(side.values)
    return documents.Value(
        median=median(side.values) if side.values else None,
        ci95=(interval.low, interval.high) if interval else None,
        launches=len(side.values),
        failed_launches=source.failed_launches,
    )


def _run_pair_notes(pair: RunPair, rows: Sequence[ComparisonRow]) -> Iterator[str]:
    """Sentences about what limits the meaning of one pair's ratios."""
    both = (pair.baseline, pair.candidate)
    for side in both:
        if side.has_complete_launch and not side.verified:
            yield f"{side.label} is not verified; its {side.result_name} may be wrong"
    if pair.baseline.failed_launches:
        launches = len(pair.baseline.run.launches)
        yield f"{pair.baseline.label}: {pair.baseline.failed_launches} of {launches} launches failed"
    for row in rows:
        yield from _launch_notes(row)
    for differs in comparable_runs.property_differences(pair.baseline.properties, pair.candidate.properties):
        name = differs.name
        used_values = {source.properties.get(UCX_SETTING, {}).get(name) for source in both}
        if differs.kind == CONFIG and len(used_values) == 1 and None not in used_values:
            yield f"the configs set different values of {name}, but both runs used {name}={used_values.pop()}"


def _launch_notes(row: ComparisonRow) -> Iterator[str]:
    """Sentences about launches without a value, not interleaved, or left out of the ratio."""
    effect = row.effect
    if effect is None:
        return
    old, new = row.pair.baseline.label, row.pair.candidate.label
    for name, side in ((old, row.baseline), (new, row.candidate)):
        if side.missing:
            launches = side.missing + len(side.samples)
            absent = "missing, or not above 0," if row.pair.candidate.of_command else "missing"
            yield f"{name}: {row.metric.name} is {absent} in {side.missing} of {launches} launches"
    if not effect.paired:
        yield (
            f"{new} against {old}: the launches were not interleaved; the ratio includes all other changes between them"
        )
    elif alone := {s.block for s in row.baseline.samples} ^ {s.block for s in row.candidate.samples}:
        blocks = ", ".join(map(str, sorted(alone)))
        yield f"{new} against {old}: the ratio ignores blocks with a launch of only one of them: {blocks}"

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
from merge_bench.analysis.statistics import EffectEstimate, median, median_interval, paired_effect, unpaired_effect
from merge_bench.analysis.statistics.verdict import (
    ALPHA,
    Judgement,
    Verdict,
    judge_effects,
    least_launches_for_significance,
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
    value: aggregate.IterationMetric

    @property
    def better(self) -> Literal["more", "less"]:
        """Whether more or less of the metric is better."""
        return "more" if self.higher_is_better else "less"

    @property
    def name_unit_direction(self) -> tuple[str, str, bool]:
        """The name, the unit, and whether higher is better: two metrics that agree in these have comparable values."""
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


def metrics_of_command(recorded_metrics: Sequence[CommandMetric]) -> tuple[Metric, ...]:
    """The metrics of a command in the order of its recorded plan, the main one first; one of them is the wall-clock."""
    wall = next(metric for metric in METRICS if metric.name == WALL)
    metrics = [
        wall
        if each.name == WALL
        else Metric(each.name, each.unit or "", each.better == "more", aggregate.command_metric(each.name))
        for each in recorded_metrics
    ]
    return tuple(metrics if wall in metrics else [*metrics, wall])


def common_metrics(runs: Iterable[Run]) -> tuple[Metric, ...]:
    """The metrics that all `runs` have in common, the main one first: those of merges, or of all their commands."""
    commands = [run.plan.command for run in runs]
    metrics_by_command = [metrics_of_command(command.metrics) for command in commands if command is not None]
    if not metrics_by_command:
        return METRICS
    shared = set.intersection(*({each.name_unit_direction for each in metrics} for metrics in metrics_by_command))
    return tuple(metric for metric in metrics_by_command[0] if metric.name_unit_direction in shared)


def main_metric(run: Run) -> Metric:
    """The metric of a run used by gates, levels and short lists: throughput, or the first metric of its command."""
    return common_metrics([run])[0]


@dataclass(frozen=True)
class LaunchSample:
    """The value of one metric in one launch, with the numbers of the launch and of its block."""

    launch: int
    block: int
    value: float


@dataclass(frozen=True)
class ComparisonSide:
    """The launches' values of one metric for one side of a comparison, the baseline or the candidate.

    `missing`: the number of complete launches without a value; `floor`: the noise floor, where it is known without an
    A/A comparison; `level_of`: how many results of a level the values are from, None for those of one run; `nights`:
    how many results showed the noise from night to night, None if unknown.
    """

    samples: tuple[LaunchSample, ...]
    missing: int = 0
    floor: float | None = None
    level_of: int | None = None
    nights: int | None = None

    @property
    def launch_values(self) -> list[float]:
        """The value of the metric in each launch that has one."""
        return [sample.value for sample in self.samples]


def comparison_side(run: Run, metric: Metric) -> ComparisonSide:
    """The values of one metric in the complete launches of `run`; a value of 0 has no ratio and counts as missing."""
    samples: list[LaunchSample] = []
    launches = [launch for launch in run.launches if launch.complete]
    for launch in launches:
        value = metric.launch_value(launch)
        if value is not None and value > 0.0 and launch.line is not None:
            samples.append(LaunchSample(launch.index, launch.line.block, value))
    return ComparisonSide(tuple(samples), len(launches) - len(samples))


def estimate_candidate_effect(
    baseline: ComparisonSide, candidate: ComparisonSide, metric: Metric, *, one_campaign: bool
) -> tuple[EffectEstimate | None, tuple[int, ...]]:
    """Estimate the effect of a candidate against its baseline; returns it with the block (or launch) of each point.

    The effect is above 0 where the candidate is better, and ``None`` where a side has no values. It is paired if both
    sides come from one campaign and most of their launches share a block; several launches of one config in a block
    count as one value, their median. Points of an unpaired effect are launches.
    """
    if not baseline.samples or not candidate.samples:
        return None, ()
    sign = 1.0 if metric.higher_is_better else -1.0
    old, new = _median_logarithms_by_block(baseline.samples), _median_logarithms_by_block(candidate.samples)
    common = sorted(old.keys() & new.keys()) if one_campaign else []
    if 2 * len(common) > min(len(baseline.samples), len(candidate.samples)):
        return paired_effect([sign * (new[block] - old[block]) for block in common]), tuple(common)
    effect = unpaired_effect(
        [sign * math.log(value) for value in baseline.launch_values],
        [sign * math.log(value) for value in candidate.launch_values],
    )
    return effect, tuple(sample.launch for sample in candidate.samples)


def _median_logarithms_by_block(samples: Sequence[LaunchSample]) -> Mapping[int, float]:
    """The median of the logarithms of the launches' values, by block."""
    logarithms: dict[int, list[float]] = {}
    for sample in samples:
        logarithms.setdefault(sample.block, []).append(math.log(sample.value))
    return {block: median(values) for block, values in logarithms.items()}


@dataclass(frozen=True, eq=False)
class ComparisonRow:
    """The comparison of a candidate with its baseline in one metric.

    `effect`: None if a side has no values; `labels`: the block (unpaired: the launch) of each point of the effect.
    Judging sets the rest. `judgement`: the statistical result; `floor`: the noise floor that A/A comparisons show, of
    an A/A comparison its own; `calibration`: whether the row is an A/A comparison beside other comparisons.
    """

    pair: RunPair
    metric: Metric
    baseline: ComparisonSide
    candidate: ComparisonSide
    effect: EffectEstimate | None
    labels: tuple[int, ...]
    judgement: Judgement | None = None
    floor: float | None = None
    calibration: bool = False

    @property
    def why_not_compared(self) -> str | None:
        """Why this metric cannot be compared, though nothing failed; None if it can."""
        for source, samples in ((self.pair.baseline, self.baseline), (self.pair.candidate, self.candidate)):
            explained = source is self.pair.candidate and (source.failed_launch_count or source.has_wrong_result)
            if not samples.samples and not explained:
                above = " above 0" if source.measures_command else ""  # others have no ratio
                return f"{self.metric.name} is not compared: {source.label} has no value of it{above}"
        return None

    @property
    def verdict_with_reason(self) -> tuple[Verdict, str | None]:
        """The verdict and its reason, if any; a candidate with failed launches or a wrong result cannot win."""
        candidate, judgement = self.pair.candidate, self.judgement
        if candidate.has_wrong_result:
            return Verdict.WRONG, f"the {candidate.result_noun} was wrong"
        if judgement is None or (candidate.failed_launch_count and judgement.verdict is not Verdict.SLOWER):
            return Verdict.FAILED, f"{candidate.failed_launch_count} of {len(candidate.run.launches)} launches failed"
        return judgement.verdict, judgement.reason.value if judgement.reason else None


def least_blocks_for_verdict(campaign: Campaign) -> int:
    """The fewest blocks with which a planned campaign can reach a verdict on its configs; 0 if nothing is compared."""
    pairs = planned_run_pairs(campaign)
    family = [pair for pair in pairs if not pair.is_aa_comparison] or pairs  # as in `judge_run_pairs`
    return least_launches_for_significance(alpha=ALPHA / len(family)) if family else 0


def judge_run_pairs(
    pairs: Sequence[RunPair], metric: Metric, *, threshold: float, earlier_baseline: ComparisonSide | None = None
) -> tuple[list[ComparisonRow], list[str]]:
    """Judge every pair of runs in one metric; returns a row for each pair, and why some pairs have none.

    All candidates are one family, whichever problem they were measured on. A/A comparisons do not belong to it: they
    give the noise floor of their baseline's other candidates. Without other comparisons, A/A comparisons are judged
    like any. `earlier_baseline`: values with a noise floor of their own that replace those of every baseline.
    """
    rows = [_make_comparison_row(pair, metric, earlier_baseline) for pair in pairs]
    notes = [row.why_not_compared for row in rows if row.why_not_compared]
    rows = [row for row in rows if not row.why_not_compared]
    aa_rows = [row for row in rows if row.pair.is_aa_comparison]
    if len(aa_rows) == len(rows):
        return _judge_comparison_rows(rows, (), threshold), notes
    judged = _judge_comparison_rows([row for row in rows if row not in aa_rows], aa_rows, threshold)
    judged += [replace(row, calibration=True) for row in _judge_comparison_rows(aa_rows, (), threshold)]
    return sorted(judged, key=lambda row: pairs.index(row.pair)), notes


def _make_comparison_row(pair: RunPair, metric: Metric, earlier_baseline: ComparisonSide | None) -> ComparisonRow:
    old, new = (
        earlier_baseline or comparison_side(pair.baseline.run, metric),
        comparison_side(pair.candidate.run, metric),
    )
    matched = (
        (None, ())
        if pair.candidate.has_wrong_result
        else estimate_candidate_effect(old, new, metric, one_campaign=pair.is_within_one_campaign)
    )
    return ComparisonRow(pair, metric, old, new, *matched)


def _judge_comparison_rows(
    rows: Sequence[ComparisonRow], aa_rows: Sequence[ComparisonRow], threshold: float
) -> list[ComparisonRow]:
    """Judge `rows` as one family of comparisons; `aa_rows`: the A/A comparisons that give the noise floors."""
    floors = {row: _highest_noise_floor(row, aa_rows) for row in rows}
    effects = {row: row.effect for row in rows if row.effect is not None}
    # A candidate without numbers was to be compared too, so it counts in the family.
    judged = judge_effects(
        list(effects.values()),
        threshold=threshold,
        noise_floors=[floors[row] for row in effects],
        family_size=max(1, len(rows)),
    )
    judgements = dict(zip(effects, judged, strict=True))
    floors |= {row: _highest_noise_floor(row, (row,)) for row in rows if row.pair.is_aa_comparison}
    return [replace(row, judgement=judgements.get(row), floor=floors[row]) for row in rows]


def _highest_noise_floor(row: ComparisonRow, aa_rows: Sequence[ComparisonRow]) -> float | None:
    """The highest noise floor that `aa_rows` show for the baseline of `row`; without any, the baseline's own."""
    alike = [each.effect for each in aa_rows if each.pair.baseline is row.pair.baseline]
    return max((noise_floor(effect) for effect in alike if effect is not None), default=row.baseline.floor)


def compare_campaigns(
    campaigns: Sequence[Campaign],
    *,
    threshold: float = 0.02,
    allow_incomparable: bool = False,
    baseline_by_metric: Mapping[str, ComparisonSide] | None = None,
) -> documents.CompareDocument:
    """Compare every run of the campaigns with its baseline in every metric; returns the document of `compare`.

    `campaigns`: one, whose first config is the baseline; or several, of which the first contains the baselines.
    `threshold`: the least ratio that matters, minus 1: 0.02 for 2 %. `allow_incomparable`: compare runs that are not
    comparable, too. `baseline_by_metric`: values that replace those of the first campaign: of the launches of a level
    in the history, or its own with the noise from night to night.

    Raises UsageError if there is nothing to compare, or it is not comparable; WrongResult if the result was wrong in a
    baseline.
    """
    selection = select_run_pairs(campaigns, allow_incomparable=allow_incomparable)
    busy_results: dict[Path, str] = {}
    notes: list[str] = []
    for index, campaign in enumerate(campaigns):
        name = result_letter(index, len(campaigns))
        for warning in busy_host_warnings(campaign):  # its times are longer and vary more
            busy_results[campaign.folder] = name or "this result"
            notes.append(f"{name or campaign.head.campaign_id}: measured on a busy host: {warning.message}")
    notes += selection.notes
    rows: list[ComparisonRow] = []
    for metric in common_metrics(source.run for pair in selection.pairs for source in (pair.baseline, pair.candidate)):
        judged, absent = judge_run_pairs(
            selection.pairs, metric, threshold=threshold, earlier_baseline=(baseline_by_metric or {}).get(metric.name)
        )
        rows += judged
        notes += absent
    by_pair = {pair: [row for row in rows if row.pair is pair] for pair in selection.pairs}
    for pair, own in by_pair.items():
        notes += _run_pair_notes(pair, own)
    varying_names = _varying_problem_names(selection.pairs)
    return documents.CompareDocument(
        results=[
            documents.ComparedResult(letter=result_letter(index, len(campaigns)), path=str(campaign.folder))
            for index, campaign in enumerate(campaigns)
        ],
        threshold=threshold,
        alpha=ALPHA,
        comparisons=[
            _make_comparison(index, row, varying_names, threshold, busy_results)
            for index, own in enumerate(by_pair.values())
            for row in own
        ],
        differences=[
            documents.PropertyDifference(
                pair=index, baseline=pair.baseline.label, candidate=pair.candidate.label, **vars(each)
            )
            for index, pair in enumerate(selection.pairs)
            for each in comparable_runs.property_differences(pair.baseline.properties, pair.candidate.properties)
        ],
        notes=list(dict.fromkeys(notes)),
        verified=all(source.is_verified for pair in selection.pairs for source in (pair.baseline, pair.candidate)),
    )


def empty_compare_document(reason: str, threshold: float) -> documents.CompareDocument:
    """Make a document of `compare` without comparisons, whose only note gives the `reason`."""
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
    """The names of the problem's properties that differ between pairs, other than rows per chunk and workers."""
    problems = [comparable_runs.problem_definition_texts(pair.candidate.run) for pair in pairs]
    names = dict.fromkeys(name for problem in problems for name in problem)
    return [name for name in names if len({problem.get(name) for problem in problems}) > 1 and name not in SIZE]


def _verdict_caveats(row: ComparisonRow, verdict: Verdict, busy_results: Mapping[Path, str]) -> list[str]:
    """Sentences about other causes of a verdict than the configs; `busy_results`: names of results of busy hosts."""
    pair = row.pair
    folders = dict.fromkeys(source.campaign.folder for source in (pair.baseline, pair.candidate))
    names = [busy_results[folder] for folder in folders if folder in busy_results]
    caveats = []
    if not pair.is_within_one_campaign and verdict in (Verdict.FASTER, Verdict.SLOWER) and not row.baseline.nights:
        caveats.append(ONE_NIGHT)
    if (failed := pair.baseline.failed_launch_count) and pair.baseline.measures_command and verdict is Verdict.SLOWER:
        launches = len(pair.baseline.run.launches)
        caveats.append(f"{pair.baseline.label} is no better choice, because {failed} of {launches} launches failed")
    if names and verdict in _DOUBTS:
        were = f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'}"
        caveats.append(f"{were} measured while other processes kept the host's cores busy, so {_DOUBTS[verdict]}")
    return caveats


def _make_comparison(
    pair_number: int,
    row: ComparisonRow,
    varying_names: Sequence[str],
    threshold: float,
    busy_results: Mapping[Path, str],
) -> documents.Comparison:
    pair, judgement, effect, (verdict, reason) = row.pair, row.judgement, row.effect, row.verdict_with_reason
    name = "block" if effect and effect.paired else "launch"
    return documents.Comparison(
        pair=pair_number,
        baseline=pair.baseline.label,
        candidate=pair.candidate.label,
        baseline_result=str(pair.baseline.campaign.folder),
        candidate_result=str(pair.candidate.campaign.folder),
        plan={name: getattr(pair.candidate.run.plan, name) for name in SIZE}
        | {name: comparable_runs.problem_definition_texts(pair.candidate.run).get(name) for name in varying_names},
        metric=row.metric.name,
        unit=row.metric.unit,
        verdict=verdict.value,
        reason=reason,
        ratio=math.exp(effect.estimate) if effect else None,
        interval=_ratio_interval(judgement),
        confidence=1.0 - judgement.alpha if judgement else None,
        launches=effect.smaller_sample_size if effect else 0,
        more_launches=judgement.more_launches if judgement and not row.baseline.nights else None,
        p=effect.p_value if effect else None,
        p_holm=judgement.p_holm if judgement else None,
        threshold=threshold,
        noise_floor=row.floor,
        level_of=row.baseline.level_of,
        aa=row.calibration,
        paired=effect.paired if effect else None,
        verified=pair.baseline.is_verified and pair.candidate.is_verified,
        baseline_value=_make_median_value(pair.baseline, row.baseline),
        candidate_value=None if pair.candidate.has_wrong_result else _make_median_value(pair.candidate, row.candidate),
        points=[  # the ratio of each block; if unpaired, of each launch of the candidate to the baseline's median
            documents.RatioPoint(**{name: label}, ratio=math.exp(point))
            for label, point in zip(row.labels, effect.points if effect else (), strict=True)
        ],
        caveats=_verdict_caveats(row, verdict, busy_results),
    )


def _ratio_interval(judgement: Judgement | None) -> documents.RatioInterval | None:
    if judgement is None or judgement.interval is None:
        return None
    low, high = judgement.interval
    return documents.RatioInterval(low=math.exp(low), high=math.exp(high), level=1.0 - judgement.alpha)


def _make_median_value(compared_run: ComparedRun, side: ComparisonSide) -> documents.MedianValue:
    """The median of one side over its complete launches, with its confidence interval."""
    interval = median_interval(side.launch_values)
    return documents.MedianValue(
        median=median(side.launch_values) if side.launch_values else None,
        ci95=(interval.low, interval.high) if interval else None,
        launches=len(side.launch_values),
        failed_launches=compared_run.failed_launch_count,
    )


def _run_pair_notes(pair: RunPair, rows: Sequence[ComparisonRow]) -> Iterator[str]:
    """Sentences about a pair's missing verification, failed launches and settings, which make its ratios doubtful."""
    both = (pair.baseline, pair.candidate)
    for side in both:
        if side.has_complete_launch and not side.is_verified:
            yield f"{side.label} is not verified; its {side.result_noun} may be wrong"
    if pair.baseline.failed_launch_count:
        launches = len(pair.baseline.run.launches)
        yield f"{pair.baseline.label}: {pair.baseline.failed_launch_count} of {launches} launches failed"
    for row in rows:
        yield from _launch_notes(row)
    for differs in comparable_runs.property_differences(pair.baseline.properties, pair.candidate.properties):
        name = differs.name
        used_values = {source.properties.get(UCX_SETTING, {}).get(name) for source in both}
        if differs.kind == CONFIG and len(used_values) == 1 and None not in used_values:
            yield f"the configs set different values of {name}, but both runs used {name}={used_values.pop()}"


def _launch_notes(row: ComparisonRow) -> Iterator[str]:
    """Sentences about a row's launches that have no value, were not interleaved, or are left out of the ratio."""
    effect = row.effect
    if effect is None:
        return
    old, new = row.pair.baseline.label, row.pair.candidate.label
    for name, side in ((old, row.baseline), (new, row.candidate)):
        if side.missing:
            launches = side.missing + len(side.samples)
            absent = "missing, or not above 0," if row.pair.candidate.measures_command else "missing"
            yield f"{name}: {row.metric.name} is {absent} in {side.missing} of {launches} launches"
    if not effect.paired:
        yield (
            f"{new} against {old}: the launches were not interleaved; the ratio includes all other changes between them"
        )
    elif alone := {s.block for s in row.baseline.samples} ^ {s.block for s in row.candidate.samples}:
        blocks = ", ".join(map(str, sorted(alone)))
        yield f"{new} against {old}: the ratio ignores blocks with a launch of only one of them: {blocks}"

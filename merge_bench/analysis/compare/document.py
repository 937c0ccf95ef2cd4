"""Results → the document that ``compare --json`` prints; the report for people is made of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from merge_bench.analysis import aggregate
from merge_bench.analysis.compare import facts
from merge_bench.analysis.compare.judging import Judged, judge_metric
from merge_bench.analysis.compare.samples import METRICS, Side
from merge_bench.analysis.compare.select import Pair, Source, letter, select
from merge_bench.analysis.documents.compare import (
    CompareDocument,
    ComparedResult,
    Comparison,
    Difference,
    Interval,
    Point,
    Value,
)
from merge_bench.analysis.statistics import median, median_interval
from merge_bench.analysis.statistics.verdict import ALPHA, Judgement
from merge_bench.analysis.verification_state import State, state_of
from merge_bench.records.campaign import Campaign

PLAN = ("rows_per_chunk", "workers")


def compare(campaigns: Sequence[Campaign], *, threshold: float = 0.02, anyway: bool = False) -> CompareDocument:
    """Compare every run with its baseline, in every metric.

    Parameters
    ----------
    campaigns
        One, whose first config is the baseline; or several, of which the first holds it.
    threshold
        The least ratio that matters, minus 1: 0.02 for 2 %.
    anyway
        Compare what is not comparable too.

    Raises
    ------
    UsageError
        If there is nothing to compare, or it is not comparable.
    WrongResult
        If the merge's result was wrong in a baseline.
    """
    selection = select(campaigns, anyway=anyway)
    notes = list(selection.notes)
    judged: list[Judged] = []
    for metric in METRICS:
        found, absent = judge_metric(selection.pairs, metric, threshold=threshold)
        judged += found
        notes += absent
    for pair in selection.pairs:
        notes += _notes(pair, [each for each in judged if each.row.pair is pair])
    varying = _varying(selection.pairs)
    return CompareDocument(
        results=[
            ComparedResult(letter=letter(index, len(campaigns)), path=str(campaign.folder))
            for index, campaign in enumerate(campaigns)
        ],
        threshold=threshold,
        alpha=ALPHA,
        comparisons=[
            _comparison(index, each, varying, threshold)
            for index, pair in enumerate(selection.pairs)
            for each in judged
            if each.row.pair is pair
        ],
        differences=[each for index, pair in enumerate(selection.pairs) for each in _differences(index, pair)],
        notes=list(dict.fromkeys(notes)),
        verified=all(_verified(source) for pair in selection.pairs for source in (pair.baseline, pair.candidate)),
    )


def _varying(pairs: Sequence[Pair]) -> list[str]:
    """What tells the problems of the pairs apart, beside the rows and the workers."""
    problems = [facts.problem(pair.candidate.run.plan) for pair in pairs]
    names = dict.fromkeys(name for problem in problems for name in problem)
    return [name for name in names if len({problem.get(name) for problem in problems}) > 1 and name not in PLAN]


def _comparison(number: int, judged: Judged, varying: Sequence[str], threshold: float) -> Comparison:
    row, judgement, effect = judged.row, judged.judgement, judged.row.effect
    pair = row.pair
    return Comparison(
        pair=number,
        baseline=pair.baseline.label,
        candidate=pair.candidate.label,
        baseline_result=str(pair.baseline.campaign.folder),
        candidate_result=str(pair.candidate.campaign.folder),
        plan={name: getattr(pair.candidate.run.plan, name) for name in PLAN}
        | {name: facts.problem(pair.candidate.run.plan).get(name) for name in varying},
        metric=row.metric.name,
        unit=row.metric.unit,
        verdict=judged.verdict.value,
        reason=judged.reason,
        ratio=math.exp(effect.estimate) if effect else None,
        interval=_interval(judgement),
        confidence=1.0 - judgement.alpha if judgement else None,
        launches=effect.least if effect else 0,
        more_launches=judgement.more if judgement else None,
        p=effect.p if effect else None,
        p_holm=judgement.p_holm if judgement else None,
        threshold=threshold,
        noise_floor=judged.floor,
        aa=judged.calibration,
        paired=effect.paired if effect else None,
        verified=_verified(pair.baseline) and _verified(pair.candidate),
        baseline_value=_value(pair.baseline, row.baseline),
        candidate_value=None if row.wrong else _value(pair.candidate, row.candidate),
        points=_points(judged),
    )


def _interval(judgement: Judgement | None) -> Interval | None:
    if judgement is None or judgement.interval is None:
        return None
    low, high = judgement.interval
    return Interval(low=math.exp(low), high=math.exp(high), level=1.0 - judgement.alpha)


def _value(source: Source, side: Side) -> Value:
    """The number itself, as every report of the run gives it: over all complete launches, paired or not."""
    interval = median_interval(side.values)
    return Value(
        median=median(side.values) if side.values else None,
        ci95=(interval.low, interval.high) if interval else None,
        launches=len(side.values),
        failed_launches=sum(launch.failed for launch in source.run.launches),
    )


def _points(judged: Judged) -> list[Point]:
    """The ratio of each block; unpaired, of each of the candidate's launches to the baseline's median."""
    matched = judged.row.matched
    if matched is None or judged.row.effect is None:
        return []
    name = "block" if matched.effect.paired else "launch"
    return [
        Point(**{name: label}, ratio=math.exp(point))
        for label, point in zip(matched.labels, matched.effect.points, strict=True)
    ]


def _differences(number: int, pair: Pair) -> list[Difference]:
    return [
        Difference(
            pair=number,
            baseline=pair.baseline.label,
            candidate=pair.candidate.label,
            kind=each.kind,
            name=each.name,
            baseline_value=each.baseline,
            candidate_value=each.candidate,
        )
        for each in facts.differences(pair.baseline.facts, pair.candidate.facts)
    ]


def _verified(source: Source) -> bool:
    launches = aggregate.counted(source.run)
    return state_of(source.run, launches) is State.VERIFIED


def _notes(pair: Pair, judged: Sequence[Judged]) -> list[str]:
    """What a reader of the ratios should know of how they came about."""
    both = (pair.baseline, pair.candidate)
    found = [
        f"{each.label} is not verified, and no number of it is"
        for each in both
        if each.measured and not _verified(each)
    ]
    failed = sum(launch.failed for launch in pair.baseline.run.launches)
    if failed:
        found.append(f"{pair.baseline.label}: {failed} of {len(pair.baseline.run.launches)} launches failed")
    for each in judged:
        found += _of_samples(each)
    for differs in facts.differences(pair.baseline.facts, pair.candidate.facts):
        name = differs.name
        has = {source.facts.get(facts.UCX_SETTING, {}).get(name) for source in both}
        if differs.kind == facts.CONFIG and len(has) == 1 and None not in has:
            found.append(f"{name} differs in the configs, and yet both ran with {name}={has.pop()}")
    return found


def _of_samples(judged: Judged) -> list[str]:
    row, effect = judged.row, judged.row.effect
    if effect is None:
        return []
    old, new = row.pair.baseline.label, row.pair.candidate.label
    found = [
        f"{name}: {row.metric.name} is missing in {side.missing} of {side.missing + len(side.samples)} launches"
        for name, side in ((old, row.baseline), (new, row.candidate))
        if side.missing
    ]
    if not effect.paired:
        found.append(
            f"{new} against {old}: their launches were not interleaved, so whatever changed between them beside the"
            " config is part of the ratio"
        )
    elif alone := {s.block for s in row.baseline.samples} ^ {s.block for s in row.candidate.samples}:
        blocks = ", ".join(map(str, sorted(alone)))
        found.append(f"{new} against {old}: blocks in which only one of them has a launch are in no ratio: {blocks}")
    return found

"""Results → the document that ``compare --json`` prints; the report for people is made of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from merge_bench.analysis import documents
from merge_bench.analysis.compare import properties
from merge_bench.analysis.compare.judging import METRICS, Row, Side, judge_metric
from merge_bench.analysis.compare.select import Pair, Source, letter_of, select_pairs
from merge_bench.analysis.diagnostics import busy_warnings
from merge_bench.analysis.statistics import median, median_interval
from merge_bench.analysis.statistics.verdict import ALPHA, Judgement, Verdict
from merge_bench.records.campaign import Campaign

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


def compare(
    campaigns: Sequence[Campaign],
    *,
    threshold: float = 0.02,
    anyway: bool = False,
    level: Mapping[str, Side] | None = None,
) -> documents.CompareDocument:
    """Compare every run with its baseline, in every metric.

    `campaigns`: one, whose first config is the baseline; or several, of which the first holds it. `threshold`: the
    least ratio that matters, minus 1: 0.02 for 2 %. `anyway`: compare what is not comparable too. `level`: by metric,
    the launches that stand for the first campaign: those of its level in the history, or its own with the noise from
    night to night.

    Raises UsageError if there is nothing to compare, or it is not comparable; WrongResult if the merge's result was
    wrong in a baseline.
    """
    selection = select_pairs(campaigns, anyway=anyway)
    busy = {
        campaign.folder: letter_of(index, len(campaigns)) or "this result"
        for index, campaign in enumerate(campaigns)
        if busy_warnings(campaign)
    }
    notes = [*_busy_host_notes(campaigns), *selection.notes]
    rows: list[Row] = []
    for metric in METRICS:
        judged, absent = judge_metric(
            selection.pairs, metric, threshold=threshold, earlier=(level or {}).get(metric.name)
        )
        rows += judged
        notes += absent
    by_pair = {pair: [row for row in rows if row.pair is pair] for pair in selection.pairs}
    for pair, own in by_pair.items():
        notes += _pair_notes(pair, own)
    varying = _varying_problem_values(selection.pairs)
    return documents.CompareDocument(
        results=[
            documents.ComparedResult(letter=letter_of(index, len(campaigns)), path=str(campaign.folder))
            for index, campaign in enumerate(campaigns)
        ],
        threshold=threshold,
        alpha=ALPHA,
        comparisons=[
            _comparison(index, row, varying, threshold, busy)
            for index, own in enumerate(by_pair.values())
            for row in own
        ],
        differences=[
            documents.Difference(pair=index, baseline=pair.baseline.label, candidate=pair.candidate.label, **vars(each))
            for index, pair in enumerate(selection.pairs)
            for each in properties.differences(pair.baseline.properties, pair.candidate.properties)
        ],
        notes=list(dict.fromkeys(notes)),
        verified=all(source.verified for pair in selection.pairs for source in (pair.baseline, pair.candidate)),
    )


def nothing_compared(why: str, threshold: float) -> documents.CompareDocument:
    """A document without comparisons, whose only note says why."""
    return documents.CompareDocument(
        results=[],
        threshold=threshold,
        alpha=ALPHA,
        comparisons=[],
        differences=[],
        notes=[f"nothing was compared: {why}"],
        verified=True,
    )


def _busy_host_notes(campaigns: Sequence[Campaign]) -> Iterator[str]:
    """A sentence for each warning that a result was measured on a busy host: its times are longer and vary more."""
    for index, campaign in enumerate(campaigns):
        name = letter_of(index, len(campaigns)) or campaign.head.campaign_id
        yield from (f"{name}: measured on a busy host: {each.message}" for each in busy_warnings(campaign))


def _varying_problem_values(pairs: Sequence[Pair]) -> list[str]:
    """The names of the problem's properties in which the pairs differ, beside rows per chunk and workers."""
    problems = [properties.problem(pair.candidate.run) for pair in pairs]
    names = dict.fromkeys(name for problem in problems for name in problem)
    return [
        name for name in names if len({problem.get(name) for problem in problems}) > 1 and name not in properties.SIZE
    ]


def _caveats(row: Row, verdict: Verdict, busy: Mapping[Path, str]) -> list[str]:
    """Sentences about what else than the configs may explain a verdict; `busy`: names of results from busy hosts."""
    pair = row.pair
    folders = dict.fromkeys(source.campaign.folder for source in (pair.baseline, pair.candidate))
    names = [busy[folder] for folder in folders if folder in busy]
    caveats = []
    if not pair.one_campaign and verdict in (Verdict.FASTER, Verdict.SLOWER) and not row.baseline.nights:
        caveats.append(ONE_NIGHT)
    if names and verdict in _DOUBTS:
        were = f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'}"
        caveats.append(f"{were} measured while other processes kept the host's cores busy, so {_DOUBTS[verdict]}")
    return caveats


def _comparison(
    number: int, row: Row, varying: Sequence[str], threshold: float, busy: Mapping[Path, str]
) -> documents.Comparison:
    pair, judgement, effect, (verdict, reason) = row.pair, row.judgement, row.effect, row.outcome
    name = "block" if effect and effect.paired else "launch"
    return documents.Comparison(
        pair=number,
        baseline=pair.baseline.label,
        candidate=pair.candidate.label,
        baseline_result=str(pair.baseline.campaign.folder),
        candidate_result=str(pair.candidate.campaign.folder),
        plan={name: getattr(pair.candidate.run.plan, name) for name in properties.SIZE}
        | {name: properties.problem(pair.candidate.run).get(name) for name in varying},
        metric=row.metric.name,
        unit=row.metric.unit,
        verdict=verdict.value,
        reason=reason,
        ratio=math.exp(effect.estimate) if effect else None,
        interval=_interval(judgement),
        confidence=1.0 - judgement.alpha if judgement else None,
        launches=effect.least if effect else 0,
        more_launches=judgement.more_launches if judgement and not row.baseline.nights else None,
        p=effect.p if effect else None,
        p_holm=judgement.p_holm if judgement else None,
        threshold=threshold,
        noise_floor=row.floor,
        level_of=row.baseline.level_of,
        aa=row.calibration,
        paired=effect.paired if effect else None,
        verified=pair.baseline.verified and pair.candidate.verified,
        baseline_value=_side_value(pair.baseline, row.baseline),
        candidate_value=None if pair.candidate.wrong else _side_value(pair.candidate, row.candidate),
        points=[  # the ratio of each block; if unpaired, of each launch of the candidate to the baseline's median
            documents.Point(**{name: label}, ratio=math.exp(point))
            for label, point in zip(row.labels, effect.points if effect else (), strict=True)
        ],
        caveats=_caveats(row, verdict, busy),
    )


def _interval(judgement: Judgement | None) -> documents.Interval | None:
    if judgement is None or judgement.interval is None:
        return None
    low, high = judgement.interval
    return documents.Interval(low=math.exp(low), high=math.exp(high), level=1.0 - judgement.alpha)


def _side_value(source: Source, side: Side) -> documents.Value:
    """The median and its interval for one side, over all complete launches, as every report of the run gives them."""
    interval = median_interval(side.values)
    return documents.Value(
        median=median(side.values) if side.values else None,
        ci95=(interval.low, interval.high) if interval else None,
        launches=len(side.values),
        failed_launches=source.failed,
    )


def _pair_notes(pair: Pair, rows: Sequence[Row]) -> Iterator[str]:
    """Sentences about what limits the meaning of one pair's ratios."""
    both = (pair.baseline, pair.candidate)
    for side in both:
        if side.measured and not side.verified:
            yield f"{side.label} is not verified; its merge result may be wrong"
    if pair.baseline.failed:
        launches = len(pair.baseline.run.launches)
        yield f"{pair.baseline.label}: {pair.baseline.failed} of {launches} launches failed"
    for row in rows:
        yield from _sample_notes(row)
    for differs in properties.differences(pair.baseline.properties, pair.candidate.properties):
        name = differs.name
        used_values = {source.properties.get(properties.UCX_SETTING, {}).get(name) for source in both}
        if differs.kind == properties.CONFIG and len(used_values) == 1 and None not in used_values:
            yield f"the configs set different values of {name}, but both runs used {name}={used_values.pop()}"


def _sample_notes(row: Row) -> Iterator[str]:
    """Sentences about launches without a value, not interleaved, or left out of the ratio."""
    effect = row.effect
    if effect is None:
        return
    old, new = row.pair.baseline.label, row.pair.candidate.label
    for name, side in ((old, row.baseline), (new, row.candidate)):
        if side.missing:
            launches = side.missing + len(side.samples)
            yield f"{name}: {row.metric.name} is missing in {side.missing} of {launches} launches"
    if not effect.paired:
        yield (
            f"{new} against {old}: the launches were not interleaved; the ratio includes all other changes between them"
        )
    elif alone := {s.block for s in row.baseline.samples} ^ {s.block for s in row.candidate.samples}:
        blocks = ", ".join(map(str, sorted(alone)))
        yield f"{new} against {old}: the ratio ignores blocks with a launch of only one of them: {blocks}"

"""The steps of a search: screening, forward combination, backward ablation, and the confirmation.

The confirmation makes fresh launches of the baseline and of the config that was found, at every size of the problem.
One config must serve all sizes: it is accepted only if a loss beyond the threshold is excluded at each of them, because
a gain at one size does not make up for a loss at another.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from merge_bench.analysis.statistics import EffectEstimate
from merge_bench.analysis.statistics.verdict import Judgement, Verdict, judge_effects, least_launches_for_significance
from merge_bench.tune.evaluator import (
    ABLATE,
    COMBINE,
    CONFIRM,
    MAY_LOSE,
    NO_GAIN,
    NO_LOSS,
    NOISE,
    SCREEN,
    UNDECIDED,
    BudgetSpent,
    Candidate,
    ComparisonState,
    Evaluator,
    LaunchSample,
    PairedComparison,
    RequiredGain,
    SearchOptions,
    comparison_from_blocks,
    decision_reason,
    make_blocks_until_decided,
    required_gain_from_twin,
    sort_comparisons_by_effect,
)
from merge_bench.tune.space import SettingValue, TuningSpace

DECISIONS = {ComparisonState.FAILED: "failed", ComparisonState.OPEN: UNDECIDED, ComparisonState.GAIN: "kept"}
"""The decision about a candidate that was compared with the baseline; all others are dropped."""
MOST = 3
"""Candidates that are confirmed together, at most: each one more makes the verdicts of all stricter."""


def screen_values(
    values: Sequence[SettingValue], evaluator: Evaluator, options: SearchOptions
) -> tuple[list[PairedComparison], RequiredGain]:
    """Compare each value alone with the baseline; returns the comparisons of those that gain, and the required gain.

    Every value alone runs against the baseline, block by block, beside the baseline's twin. A value leaves as soon as
    it is clear whether it gains (a race, after Birattari et al., "A racing algorithm for configuring metaheuristics",
    2002). Those that cannot be judged yet come first; where there is a budget, then those whose estimate is a gain, and
    if it has no time for a block of all of them, those with the best estimates. Time for a confirmation is left as
    long as there is something to confirm, and for one of several candidates once each can be judged.
    """
    twin = PairedComparison(Candidate(twin=True), Candidate())
    for again, own in evaluator.timed:
        twin.add_block(again, own)
    alive = [PairedComparison(Candidate.from_values(value), Candidate()) for value in values]
    blocks: Counter[Candidate] = Counter()
    winners: list[PairedComparison] = []
    seem_faster = 0  # of those that stay undecided after all their blocks
    while True:
        pending = sum(max(options.least - blocks[comparison.candidate], 0) for comparison in alive)
        alive += [
            PairedComparison(Candidate.from_values(value), Candidate())
            for value in evaluator.newly_affordable_values(pending)
        ]
        if not alive:
            break
        early = [comparison for comparison in alive if blocks[comparison.candidate] < options.least]
        promising = [comparison for comparison in alive if comparison.seems_to_gain(options.least)]
        most = 1 if early else max_candidates_to_confirm(options, evaluator.plan_count)
        keep = min(len(winners) + seem_faster + len(promising), most)
        keeps = (keep,) if keep else (1, 0) if early else (0,)
        try:
            chosen = _launch_race_block(
                evaluator, early or (promising if evaluator.has_budget_limit else ()) or alive, twin, keeps
            )
        except BudgetSpent:
            if any(comparison.ratios for comparison in alive):
                required_gain = required_gain_from_twin(twin, options.threshold)
                for comparison in alive:
                    reason = decision_reason(ComparisonState.OPEN, comparison, required_gain, ", when its time was up")
                    comparison.record_decision(evaluator, SCREEN, UNDECIDED, reason)
                _record_noise(evaluator, twin, options)
            raise
        required_gain = required_gain_from_twin(twin, options.threshold)
        for comparison in chosen:
            blocks[comparison.candidate] += 1
            state = comparison.judge_candidate(required_gain, min_blocks=options.least)
            if state is ComparisonState.OPEN and blocks[comparison.candidate] < options.most:
                continue
            alive.remove(comparison)
            if state is ComparisonState.GAIN:
                winners.append(comparison)
            seem_faster += state is ComparisonState.OPEN and comparison.seems_to_gain(options.least)
            comparison.record_decision(
                evaluator, SCREEN, DECISIONS.get(state, "dropped"), decision_reason(state, comparison, required_gain)
            )
    return sort_comparisons_by_effect(winners), _record_noise(evaluator, twin, options)


def _launch_race_block(
    evaluator: Evaluator,
    comparisons: Sequence[PairedComparison],
    twin_comparison: PairedComparison,
    reserved_confirmation_counts: Sequence[int],
) -> list[PairedComparison]:
    """Launch a block of as many of `comparisons` as the budget has time for, the best first; returns those.

    `twin_comparison`: that of the baseline's twin, which is in every block. `reserved_confirmation_counts`: for how
    many confirmations time is left; what does not fit with the first number is tried with the next. Raises BudgetSpent
    if there is no time for even one.
    """
    spent = BudgetSpent("nothing is left to be judged")
    for keep, count in itertools.product(reserved_confirmation_counts, range(len(comparisons), 0, -1)):
        best = sort_comparisons_by_effect(comparisons)[:count]
        chosen = [comparison for comparison in comparisons if comparison in best]
        candidates = [Candidate(), twin_comparison.candidate, *(comparison.candidate for comparison in chosen)]
        try:
            samples = evaluator.launch_block(candidates, reserved_confirmations=keep)
        except BudgetSpent as problem:
            spent = problem
            continue
        twin_comparison.add_block(samples[1], samples[0])
        for comparison, sample in zip(chosen, samples[2:], strict=True):
            comparison.add_block(sample, samples[0])
        return chosen
    raise spent


def _record_noise(evaluator: Evaluator, twin_comparison: PairedComparison, options: SearchOptions) -> RequiredGain:
    """Record how far the baseline differs from its twin; returns the gain that is required because of it."""
    required_gain = required_gain_from_twin(twin_comparison, options.threshold)
    limiting = "noise" if required_gain.floor > required_gain.threshold else "threshold"
    limit = f"the {limiting} of {required_gain.least_gain:.1%}"
    reason = f"the baseline differs from itself by {required_gain.floor:.1%}; a gain must exceed {limit}"
    twin_comparison.record_decision(evaluator, SCREEN, NOISE, reason)
    return required_gain


def combine_winners(
    space: TuningSpace,
    winners: Sequence[PairedComparison],
    evaluator: Evaluator,
    options: SearchOptions,
    required_gain: RequiredGain,
) -> list[PairedComparison]:
    """Add one value that gains after the other; each stays only if the combination with it gains over the one without.

    With a budget, time is left to confirm the winners alone.

    Returns the comparisons that added a value, in their order; that of the strongest is its own with the baseline.
    """
    added, keep = list(winners[:1]), min(len(winners), max_candidates_to_confirm(options, evaluator.plan_count))
    for winner in added:
        winner.record_decision(
            evaluator, COMBINE, "kept", "the largest gain alone; the combination starts with this setting"
        )
    for winner in winners[1:]:
        (value,) = winner.candidate.values
        current = added[-1].candidate
        comparison = PairedComparison(current.with_value(value), current)
        clash = space.conflicting_value_id(value, current.values)
        if clash:
            comparison.record_decision(
                evaluator, COMBINE, "dropped", f"cannot be combined with {clash}, which gains more"
            )
            continue
        state = make_blocks_until_decided(evaluator, comparison, options, required_gain, reserved_confirmations=keep)
        reason = decision_reason(state, comparison, required_gain)
        if state is ComparisonState.LOSS:
            reason += "; the setting gains alone but loses in the combination"
        if state is ComparisonState.GAIN:
            added.append(comparison)
        comparison.record_decision(evaluator, COMBINE, "kept" if state is ComparisonState.GAIN else "dropped", reason)
    return added


def remove_values_without_gain(
    added_comparisons: Sequence[PairedComparison],
    evaluator: Evaluator,
    options: SearchOptions,
    required_gain: RequiredGain,
) -> Candidate:
    """Measure the combination without each of its values, the last one added first; returns it with those that gain.

    `added_comparisons`: what `combine_winners` returned. `required_gain`: the gain that a value must exceed to stay.
    Earlier blocks of the same two configs count in addition to `options.least` new ones. After a value is removed all
    others are tested again, so that the last line of each is about the config that is left.
    """
    if not added_comparisons:
        return Candidate()
    current, comparisons = (
        added_comparisons[-1].candidate,
        {(comparison.candidate, comparison.against): comparison for comparison in added_comparisons},
    )
    pairs = [(comparison.candidate.values, comparison.against.values) for comparison in reversed(added_comparisons)]
    order = [value for values, before in pairs for value in values if value not in before]
    waiting = list(order)
    while waiting and len(current.values) > 1:
        pair = (current, current.without_value(waiting.pop(0)))
        comparison = comparisons.setdefault(pair, PairedComparison(*pair))
        state = make_blocks_until_decided(
            evaluator, comparison, replace(options, least=len(comparison.ratios) + options.least), required_gain
        )
        reason = decision_reason(state, comparison, required_gain)
        if state is ComparisonState.GAIN:
            comparison.record_decision(evaluator, ABLATE, "kept", f"{reason} with this setting")
        else:
            comparison.record_decision(evaluator, ABLATE, "dropped", f"{reason}; the setting is removed")
            current = comparison.against
            waiting = [each for each in order if each in current.values]
    return current


def record_gains(
    blocks: Sequence[Mapping[Candidate, LaunchSample]], evaluator: Evaluator, options: SearchOptions
) -> list[PairedComparison]:
    """Record what measured blocks show of every candidate against the first; returns those that gain, best first."""
    required_gain, gains = RequiredGain(options.threshold), []
    baseline, *candidates = blocks[0]
    for candidate in candidates:
        comparison = comparison_from_blocks(blocks, candidate, baseline)
        state = comparison.judge_candidate(required_gain, min_blocks=options.least)
        gained = state is ComparisonState.GAIN and not comparison.failures
        if gained:
            gains.append(comparison)
        decision = "kept" if gained else DECISIONS.get(state, "dropped")
        comparison.record_decision(evaluator, SCREEN, decision, decision_reason(state, comparison, required_gain))
    return sort_comparisons_by_effect(gains)


def remove_values_without_recorded_gain(
    best: Candidate, blocks: Sequence[Mapping[Candidate, LaunchSample]], evaluator: Evaluator, options: SearchOptions
) -> Candidate:
    """Remove the values of `best` that add no gain in the launches of measured blocks; the weakest goes first."""
    required_gain = RequiredGain(options.threshold)
    while len(best.values) > 1:
        comparisons = [comparison_from_blocks(blocks, best, best.without_value(value)) for value in best.values]
        idle = [
            each
            for each in comparisons
            if each.judge_candidate(required_gain, min_blocks=options.least) is not ComparisonState.GAIN
        ]
        if not idle:
            for comparison in comparisons:
                comparison.record_decision(
                    evaluator,
                    ABLATE,
                    "kept",
                    f"{decision_reason(ComparisonState.GAIN, comparison, required_gain)} with this setting",
                )
            break
        least = sort_comparisons_by_effect(idle)[-1]
        least.record_decision(evaluator, ABLATE, "dropped", "no gain from this setting")
        best = least.against
    return best


def confirm_or_repair_best(
    best: Candidate, evaluator: Evaluator, options: SearchOptions, other_candidates: Sequence[Candidate] = ()
) -> Candidate:
    """Confirm candidates on new launches; if none is faster, remove the values of `best` that lose, and confirm again.

    Returns the fastest confirmed candidate, or the empty one. Values are removed in turn at each size at which `best`
    is or may be slower, and the rest gets one more confirmation. Those launches are part of the search, so they are not
    made once the budget is spent.
    """
    if not best.values:
        return best
    winner, losing = confirm_candidates([best, *other_candidates], evaluator, options)
    if winner is not None:
        return winner
    try:
        repaired = _remove_slowing_values(best, losing, evaluator, options)
    except BudgetSpent:
        return Candidate()
    return Candidate() if repaired == best else confirm_candidates([repaired], evaluator, options)[0] or Candidate()


def blocks_needed_for_verdict(options: SearchOptions, size_count: int) -> int:
    """The number of blocks that a confirmation needs for a verdict at each of `size_count` problem sizes."""
    return least_launches_for_significance(alpha=options.alpha / size_count, paired=True)


def max_candidates_to_confirm(options: SearchOptions, size_count: int) -> int:
    """The number of candidates that can share a confirmation, so that its blocks suffice for a verdict on each."""
    fitting = (
        count
        for count in range(MOST, 1, -1)
        if blocks_needed_for_verdict(options, count * size_count) <= options.confirm
    )
    return next(fitting, 1)


def _remove_slowing_values(
    best: Candidate, losing_plans: Sequence[int], evaluator: Evaluator, options: SearchOptions
) -> Candidate:
    """Return `best` without the values that make it slower at the given plans; at least one value stays."""
    repaired, required_gain = best, RequiredGain(options.threshold)
    for plan in losing_plans:
        for value in best.values:
            if value not in repaired.values or len(repaired.values) < 2:
                continue
            comparison = PairedComparison(repaired.without_value(value), repaired, plan=plan)
            state = make_blocks_until_decided(evaluator, comparison, options, required_gain)
            reason = decision_reason(state, comparison, required_gain)
            if state is ComparisonState.GAIN:
                comparison.record_decision(evaluator, ABLATE, "dropped", f"{reason} without this setting")
                repaired = comparison.candidate
            else:
                comparison.record_decision(evaluator, ABLATE, "kept", reason)
    return repaired


def confirm_candidates(
    candidates: Sequence[Candidate], evaluator: Evaluator, options: SearchOptions
) -> tuple[Candidate | None, list[int]]:
    """Confirm candidates on new launches; returns the fastest that is faster at some size and loses at none, or None.

    Also returns the plans at which the first candidate is slower, or may be although it is faster at another. Each size
    gets `options.confirm` own blocks, in turn; fewer if the budget ends, but as many as a verdict needs. None of them
    was seen by the search, because the winner of a search looks better than it is. All candidates share the launches of
    the baseline, and with all sizes they are one family of verdicts.

    That a candidate loses at no size is judged by intervals of level 1 - α ÷ m, m the number of candidates that are
    faster at a size, whose lower ends have to be above the threshold's loss. It needs no share of α for each size,
    because all of them have to pass. Sizes at which that is open get as many blocks once more; by two looks at α ÷ 2m
    each, a config with a loss beyond the threshold is accepted in at most 5 of 100.

    One that is INCONCLUSIVE, but whose own interval ends below the threshold, is recorded as `NO_GAIN`: nobody would
    take a setting for less. Raises BudgetSpent if the budget ends before each size has as many blocks as a verdict
    needs.
    """
    comparisons = _launch_confirmation(candidates, evaluator, options)
    effects = {each: _effects_by_size(by_size) for each, by_size in comparisons.items()}
    pooled = [effect for by_size in effects.values() for effect in by_size]
    family = evaluator.plan_count * len(candidates)
    judged = iter(judge_effects(pooled, threshold=options.threshold, alpha=options.alpha, family_size=family))
    judgements = {each: [next(judged) for _ in effects[each]] for each in candidates}
    verdicts = {each: [judgement.verdict for judgement in judgements[each]] for each in candidates}
    faster = [each for each in candidates if Verdict.FASTER in verdicts[each] and Verdict.SLOWER not in verdicts[each]]
    loss = _LossTest(options.threshold, options.alpha / max(len(faster), 1))
    _launch_until_loss_excluded({each: comparisons[each] for each in faster}, loss, evaluator, options)
    failed = [each for each in faster if any(comparison.failures for comparison in comparisons[each])]
    accepted = [each for each in faster if each not in failed and not any(map(loss.is_possible, comparisons[each]))]
    accepted.sort(key=lambda each: math.fsum(effect.estimate for effect in effects[each]))
    for candidate in [*(each for each in candidates if each not in accepted), *accepted]:  # the winner is the last
        decision = "accepted" if candidate in accepted else "rejected"
        _record_confirmation(
            comparisons[candidate],
            [] if candidate in failed else judgements[candidate],
            decision,
            evaluator,
            options,
            loss if candidate in faster else None,
        )
    first = candidates[0]
    losing = [
        plan
        for plan, (verdict, comparison) in enumerate(zip(verdicts[first], comparisons[first], strict=False))
        if verdict is Verdict.SLOWER or (first in faster and first not in failed and loss.is_possible(comparison))
    ]
    return accepted[-1] if accepted else None, losing


def _launch_confirmation(
    candidates: Sequence[Candidate], evaluator: Evaluator, options: SearchOptions
) -> dict[Candidate, list[PairedComparison]]:
    """Launch the blocks of a confirmation; returns the comparisons of each candidate with the baseline, by size.

    Raises BudgetSpent, after recording what was measured, if the budget ends before there are enough for a verdict.
    """
    sizes = evaluator.plan_count
    comparisons = {
        each: [PairedComparison(each, Candidate(), plan=plan) for plan in range(sizes)] for each in candidates
    }
    for block, plan in itertools.product(range(options.confirm), range(sizes)):
        try:
            against, *samples = evaluator.launch_block([Candidate(), *candidates], plan=plan, for_search=False)
        except BudgetSpent:
            if block >= blocks_needed_for_verdict(options, sizes * len(candidates)):
                break
            for comparison in (
                comparison for by_size in comparisons.values() for comparison in by_size if comparison.ratios
            ):
                reason = decision_reason(
                    ComparisonState.OPEN, comparison, RequiredGain(options.threshold), ", too few for a verdict"
                )
                comparison.record_decision(evaluator, CONFIRM, UNDECIDED, reason)
            raise
        for candidate, sample in zip(candidates, samples, strict=True):
            comparisons[candidate][plan].add_block(sample, against)
    return comparisons


@dataclass(frozen=True)
class _LossTest:
    """Whether a candidate may lose more than `threshold` (0.02 for 2 %) at a size, at the error probability `alpha`."""

    threshold: float
    alpha: float

    def interval(self, comparison: PairedComparison) -> tuple[float, float] | None:
        """The interval of the log-ratio that decides; None if there are too few blocks."""
        return comparison.effect.interval(self.alpha) if comparison.effect is not None else None

    def is_possible(self, comparison: PairedComparison) -> bool:
        """Whether a loss beyond the threshold is not excluded."""
        interval = self.interval(comparison)
        return interval is None or interval[0] <= -math.log1p(self.threshold)

    def is_likely(self, comparison: PairedComparison) -> bool:
        """Whether even the estimate is a loss beyond the threshold, so that more blocks would hardly exclude it."""
        return comparison.effect is not None and comparison.effect.estimate <= -math.log1p(self.threshold)


def _launch_until_loss_excluded(
    comparisons: Mapping[Candidate, Sequence[PairedComparison]],
    loss: _LossTest,
    evaluator: Evaluator,
    options: SearchOptions,
) -> None:
    """Launch `options.confirm` more blocks of candidates that are faster, at each size at which they may lose.

    `comparisons`: those of each such candidate by size. Nothing is launched of one with a likely loss. All of these
    blocks are made before anyone looks at them; fewer if the budget ends.
    """
    open_comparisons = [
        comparison
        for by_size in comparisons.values()
        if not any(map(loss.is_likely, by_size))
        for comparison in by_size
        if loss.is_possible(comparison)
    ]
    plans = sorted({comparison.plan for comparison in open_comparisons})
    for _, plan in itertools.product(range(options.confirm), plans):
        at_size = [comparison for comparison in open_comparisons if comparison.plan == plan]
        tested = [Candidate(), *(comparison.candidate for comparison in at_size)]
        try:
            against, *samples = evaluator.launch_block(tested, plan=plan, for_search=False)
        except BudgetSpent:
            return
        for comparison, sample in zip(at_size, samples, strict=True):
            comparison.add_block(sample, against)


def _effects_by_size(comparisons: Sequence[PairedComparison]) -> list[EffectEstimate]:
    """The measured effect of a candidate at each problem size; an empty list if one of its launches failed."""
    effects = [
        comparison.effect for comparison in comparisons if comparison.effect is not None and not comparison.failures
    ]
    return effects if len(effects) == len(comparisons) else []


def _record_confirmation(
    comparisons: Sequence[PairedComparison],
    judgements: Sequence[Judgement],
    decision: str,
    evaluator: Evaluator,
    options: SearchOptions,
    loss: _LossTest | None,
) -> None:
    """Record the confirmation of a candidate, a line for each problem size.

    `judgements`: the verdict at each size; empty if a launch failed. `loss`: the test of its losses if it is faster at
    a size, else None.
    """
    if not judgements:
        for comparison in comparisons:
            comparison.record_decision(evaluator, CONFIRM, decision, Verdict.FAILED.value)
        return
    effects = [judgement.effect for judgement in judgements]
    alone = judge_effects(effects, threshold=options.threshold, alpha=options.alpha)
    for comparison, judgement, own in zip(comparisons, judgements, alone, strict=True):
        reason, interval = judgement.verdict.value, judgement.interval
        if judgement.verdict is Verdict.INCONCLUSIVE and loss is not None:
            reason = f"{MAY_LOSE if loss.is_possible(comparison) else NO_LOSS}{options.threshold:.1%}"
            interval = loss.interval(comparison)
        elif (
            judgement.verdict is Verdict.INCONCLUSIVE
            and own.interval is not None
            and own.interval[1] < math.log1p(options.threshold)
        ):
            reason, interval = f"{NO_GAIN}{options.threshold:.1%}", own.interval
        comparison.record_decision(evaluator, CONFIRM, decision, reason, interval)

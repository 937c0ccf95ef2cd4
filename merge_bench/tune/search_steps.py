"""The steps of a search: screening, forward combination, backward ablation, and the confirmation.

The confirmation makes fresh launches of the baseline and of the config that was found, at every size of the problem.
One config must serve all sizes: a gain at one size does not make up for a loss at another.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from merge_bench.analysis.statistics import EffectEstimate
from merge_bench.analysis.statistics.verdict import Judgement, Verdict, judge_effects, least_launches_for_significance
from merge_bench.tune.evaluator import (
    ABLATE,
    COMBINE,
    CONFIRM,
    NO_GAIN,
    NOISE,
    SCREEN,
    UNDECIDED,
    BudgetSpent,
    Candidate,
    Contest,
    ContestState,
    Evaluator,
    GainBar,
    LaunchSample,
    SearchOptions,
    contest_from_blocks,
    decision_reason,
    gain_bar_from_twin,
    make_blocks_until_decided,
    sort_by_effect,
)
from merge_bench.tune.space import SettingValue, TuningSpace

DECISIONS = {ContestState.FAILED: "failed", ContestState.OPEN: UNDECIDED, ContestState.GAIN: "kept"}
"""The decision about a candidate that was compared with the baseline; all others are dropped."""
MOST = 3
"""Candidates that are confirmed together, at most: each one more makes the verdicts of all stricter."""


def screen_values(
    values: Sequence[SettingValue], evaluator: Evaluator, options: SearchOptions
) -> tuple[list[Contest], GainBar]:
    """Find the values that gain alone; returns their contests, the strongest first, and the bar that the noise sets.

    Every value alone runs against the baseline, block by block, beside the baseline's twin. A value leaves as soon as
    it is clear whether it gains (a race, after Birattari et al., "A racing algorithm for configuring metaheuristics",
    2002). Those that cannot be judged yet come first; where there is a budget, then those whose estimate is a gain, and
    if it has no time for a block of all of them, those with the best estimates. Time for a confirmation is left as
    long as there is something to confirm, and for one of several candidates once each can be judged.
    """
    twin = Contest(Candidate(twin=True), Candidate())
    for again, own in evaluator.timed:
        twin.add_block(again, own)
    alive = [Contest(Candidate.from_values(value), Candidate()) for value in values]
    blocks: Counter[Candidate] = Counter()
    winners: list[Contest] = []
    seem_faster = 0  # of those that stay undecided after all their blocks
    while True:
        pending = sum(max(options.least - blocks[contest.candidate], 0) for contest in alive)
        alive += [Contest(Candidate.from_values(value), Candidate()) for value in evaluator.joining_values(pending)]
        if not alive:
            break
        early = [contest for contest in alive if blocks[contest.candidate] < options.least]
        promising = [contest for contest in alive if contest.may_gain(options.least)]
        most = 1 if early else max_candidates_to_confirm(options, evaluator.plan_count)
        keep = min(len(winners) + seem_faster + len(promising), most)
        keeps = (keep,) if keep else (1, 0) if early else (0,)
        try:
            chosen = _make_race_block(
                evaluator, early or (promising if evaluator.has_budget_limit else ()) or alive, twin, keeps
            )
        except BudgetSpent:
            if any(contest.ratios for contest in alive):
                bar = gain_bar_from_twin(twin, options.threshold)
                for contest in alive:
                    reason = decision_reason(ContestState.OPEN, contest, bar, ", when its time was up")
                    contest.record_decision(evaluator, SCREEN, UNDECIDED, reason)
                _record_noise(evaluator, twin, options)
            raise
        bar = gain_bar_from_twin(twin, options.threshold)
        for contest in chosen:
            blocks[contest.candidate] += 1
            state = contest.judge_state(bar, least=options.least)
            if state is ContestState.OPEN and blocks[contest.candidate] < options.most:
                continue
            alive.remove(contest)
            if state is ContestState.GAIN:
                winners.append(contest)
            seem_faster += state is ContestState.OPEN and contest.may_gain(options.least)
            contest.record_decision(
                evaluator, SCREEN, DECISIONS.get(state, "dropped"), decision_reason(state, contest, bar)
            )
    return sort_by_effect(winners), _record_noise(evaluator, twin, options)


def _make_race_block(
    evaluator: Evaluator, contests: Sequence[Contest], twin: Contest, keeps: Sequence[int]
) -> list[Contest]:
    """Make a block of as many of `contests` as the budget has time for, the best first; returns those.

    `keeps`: for how many confirmations time is left; what does not fit with the first of them is tried with the next.
    Raises BudgetSpent if there is no time for even one.
    """
    spent = BudgetSpent("nothing is left to be judged")
    for keep, count in itertools.product(keeps, range(len(contests), 0, -1)):
        best = sort_by_effect(contests)[:count]
        chosen = [contest for contest in contests if contest in best]
        candidates = [Candidate(), twin.candidate, *(contest.candidate for contest in chosen)]
        try:
            samples = evaluator.make_block(candidates, reserved_confirmations=keep)
        except BudgetSpent as problem:
            spent = problem
            continue
        twin.add_block(samples[1], samples[0])
        for contest, sample in zip(chosen, samples[2:], strict=True):
            contest.add_block(sample, samples[0])
        return chosen
    raise spent


def _record_noise(evaluator: Evaluator, twin: Contest, options: SearchOptions) -> GainBar:
    """Record how far the baseline differs from its twin; returns the bar that follows."""
    bar = gain_bar_from_twin(twin, options.threshold)
    limit = f"the {'noise' if bar.floor > bar.threshold else 'threshold'} of {bar.least_gain:.1%}"
    reason = f"the baseline differs from itself by {bar.floor:.1%}; a gain must exceed {limit}"
    twin.record_decision(evaluator, SCREEN, NOISE, reason)
    return bar


def combine_winners(
    space: TuningSpace, winners: Sequence[Contest], evaluator: Evaluator, options: SearchOptions, bar: GainBar
) -> list[Contest]:
    """Add one winner after the other; each stays only if the combination with it gains over the one without.

    With a budget, time is left to confirm the winners alone.

    Returns the contests that added a value, in their order; that of the strongest is its own against the baseline.
    """
    added, keep = list(winners[:1]), min(len(winners), max_candidates_to_confirm(options, evaluator.plan_count))
    for winner in added:
        winner.record_decision(
            evaluator, COMBINE, "kept", "the largest gain alone; the combination starts with this setting"
        )
    for winner in winners[1:]:
        (value,) = winner.candidate.values
        current = added[-1].candidate
        contest = Contest(current.with_value(value), current)
        clash = space.conflicting_id(value, current.values)
        if clash:
            contest.record_decision(evaluator, COMBINE, "dropped", f"cannot be combined with {clash}, which gains more")
            continue
        state = make_blocks_until_decided(evaluator, contest, options, bar, reserved_confirmations=keep)
        reason = decision_reason(state, contest, bar)
        if state is ContestState.LOSS:
            reason += "; the setting gains alone but loses in the combination"
        if state is ContestState.GAIN:
            added.append(contest)
        contest.record_decision(evaluator, COMBINE, "kept" if state is ContestState.GAIN else "dropped", reason)
    return added


def remove_values_without_gain(
    added_contests: Sequence[Contest], evaluator: Evaluator, options: SearchOptions, gain_bar: GainBar
) -> Candidate:
    """Measure the combination without each of its values, the last one added first; returns it with those that gain.

    `added_contests`: what `combine_winners` returned. `gain_bar`: the gain that a value must exceed to stay. Earlier
    blocks of the same two configs count in addition to `options.least` new ones. After a value is removed all others
    are tested again, so that the last line of each is about the config that is left.
    """
    if not added_contests:
        return Candidate()
    current, contests = (
        added_contests[-1].candidate,
        {(contest.candidate, contest.against): contest for contest in added_contests},
    )
    pairs = [(contest.candidate.values, contest.against.values) for contest in reversed(added_contests)]
    order = [value for values, before in pairs for value in values if value not in before]
    waiting = list(order)
    while waiting and len(current.values) > 1:
        pair = (current, current.without_value(waiting.pop(0)))
        contest = contests.setdefault(pair, Contest(*pair))
        state = make_blocks_until_decided(
            evaluator, contest, replace(options, least=len(contest.ratios) + options.least), gain_bar
        )
        reason = decision_reason(state, contest, gain_bar)
        if state is ContestState.GAIN:
            contest.record_decision(evaluator, ABLATE, "kept", f"{reason} with this setting")
        else:
            contest.record_decision(evaluator, ABLATE, "dropped", f"{reason}; the setting is removed")
            current = contest.against
            waiting = [each for each in order if each in current.values]
    return current


def record_gains(
    blocks: Sequence[Mapping[Candidate, LaunchSample]], evaluator: Evaluator, options: SearchOptions
) -> list[Contest]:
    """Record what `blocks` show of every candidate against their first one; returns the gains, the largest first."""
    bar, gains = GainBar(options.threshold), []
    baseline, *candidates = blocks[0]
    for candidate in candidates:
        contest = contest_from_blocks(blocks, candidate, baseline)
        state = contest.judge_state(bar, least=options.least)
        gained = state is ContestState.GAIN and not contest.failures
        if gained:
            gains.append(contest)
        decision = "kept" if gained else DECISIONS.get(state, "dropped")
        contest.record_decision(evaluator, SCREEN, decision, decision_reason(state, contest, bar))
    return sort_by_effect(gains)


def remove_values_without_recorded_gain(
    best: Candidate, blocks: Sequence[Mapping[Candidate, LaunchSample]], evaluator: Evaluator, options: SearchOptions
) -> Candidate:
    """Remove the values of `best` that add no gain in the launches of `blocks`; the weakest goes first."""
    bar = GainBar(options.threshold)
    while len(best.values) > 1:
        contests = [contest_from_blocks(blocks, best, best.without_value(value)) for value in best.values]
        idle = [each for each in contests if each.judge_state(bar, least=options.least) is not ContestState.GAIN]
        if not idle:
            for contest in contests:
                contest.record_decision(
                    evaluator, ABLATE, "kept", f"{decision_reason(ContestState.GAIN, contest, bar)} with this setting"
                )
            break
        least = sort_by_effect(idle)[-1]
        least.record_decision(evaluator, ABLATE, "dropped", "no gain from this setting")
        best = least.against
    return best


def confirm_or_repair(
    best: Candidate, evaluator: Evaluator, options: SearchOptions, others: Sequence[Candidate] = ()
) -> Candidate:
    """Confirm `best` and `others`; returns the fastest that is confirmed, or the empty candidate.

    If none is, and `best` is slower at a size, each of its values is removed there in turn, and the rest gets one more
    confirmation. Those launches are part of the search, so they are not made once the budget is spent.
    """
    if not best.values:
        return best
    winner, slower = confirm_candidates([best, *others], evaluator, options)
    if winner is not None:
        return winner
    try:
        repaired = _without_losing_values(best, slower, evaluator, options)
    except BudgetSpent:
        return Candidate()
    return Candidate() if repaired == best else confirm_candidates([repaired], evaluator, options)[0] or Candidate()


def blocks_needed_for_verdict(options: SearchOptions, sizes: int) -> int:
    """The number of blocks that a confirmation needs for a verdict at each of so many problem sizes."""
    return least_launches_for_significance(alpha=options.alpha / sizes, paired=True)


def max_candidates_to_confirm(options: SearchOptions, sizes: int) -> int:
    """The number of candidates that can share a confirmation, so that its blocks suffice for a verdict about each."""
    fitting = (
        count for count in range(MOST, 1, -1) if blocks_needed_for_verdict(options, count * sizes) <= options.confirm
    )
    return next(fitting, 1)


def _without_losing_values(
    best: Candidate, slower: Sequence[int], evaluator: Evaluator, options: SearchOptions
) -> Candidate:
    """`best` without the values that make it slower at the plans `slower`; at least one value stays."""
    repaired, bar = best, GainBar(options.threshold)
    for plan in slower:
        for value in best.values:
            if value not in repaired.values or len(repaired.values) < 2:
                continue
            contest = Contest(repaired.without_value(value), repaired, plan=plan)
            state = make_blocks_until_decided(evaluator, contest, options, bar)
            reason = decision_reason(state, contest, bar)
            if state is ContestState.GAIN:
                contest.record_decision(evaluator, ABLATE, "dropped", f"{reason} without this setting")
                repaired = contest.candidate
            else:
                contest.record_decision(evaluator, ABLATE, "kept", reason)
    return repaired


def confirm_candidates(
    candidates: Sequence[Candidate], evaluator: Evaluator, options: SearchOptions
) -> tuple[Candidate | None, list[int]]:
    """Confirm candidates on new launches; returns the fastest that is faster at some size and slower at none, or None.

    Also returns the plans at which the first candidate is slower. Each size gets `options.confirm` own blocks, in turn;
    fewer if the budget ends, but as many as a verdict needs. None of them was seen by the search, because the
    winner of a search looks better than it is. All candidates share the launches of the baseline, and with all sizes
    they are one family of verdicts. One that is INCONCLUSIVE, but whose own interval ends below the threshold, is
    recorded as `NO_GAIN`: nobody would take a setting for less. Raises BudgetSpent if the budget ends before each size
    has as many blocks as a verdict needs.
    """
    sizes, family = evaluator.plan_count, evaluator.plan_count * len(candidates)
    contests = {each: [Contest(each, Candidate(), plan=plan) for plan in range(sizes)] for each in candidates}
    for block, plan in itertools.product(range(options.confirm), range(sizes)):
        try:
            against, *samples = evaluator.make_block([Candidate(), *candidates], plan=plan, search=False)
        except BudgetSpent:
            if block >= blocks_needed_for_verdict(options, family):
                break
            for contest in (contest for by_size in contests.values() for contest in by_size if contest.ratios):
                reason = decision_reason(
                    ContestState.OPEN, contest, GainBar(options.threshold), ", too few for a verdict"
                )
                contest.record_decision(evaluator, CONFIRM, UNDECIDED, reason)
            raise
        for candidate, sample in zip(candidates, samples, strict=True):
            contests[candidate][plan].add_block(sample, against)
    effects = {each: _effects_by_size(by_size) for each, by_size in contests.items()}
    pooled = [effect for by_size in effects.values() for effect in by_size]
    judged = iter(judge_effects(pooled, threshold=options.threshold, alpha=options.alpha, family_size=family))
    judgements = {each: [next(judged) for _ in effects[each]] for each in candidates}
    verdicts = {each: {judgement.verdict for judgement in judgements[each]} for each in candidates}
    accepted = [each for each, seen in verdicts.items() if Verdict.FASTER in seen and Verdict.SLOWER not in seen]
    accepted.sort(key=lambda each: math.fsum(effect.estimate for effect in effects[each]))
    for candidate in [*(each for each in candidates if each not in accepted), *accepted]:  # the winner is the last
        decision = "accepted" if candidate in accepted else "rejected"
        _record_confirmation(contests[candidate], judgements[candidate], decision, evaluator, options)
    slower = [plan for plan, each in enumerate(judgements[candidates[0]]) if each.verdict is Verdict.SLOWER]
    return accepted[-1] if accepted else None, slower


def _effects_by_size(contests: Sequence[Contest]) -> list[EffectEstimate]:
    """The effect of a candidate at each size; an empty list if one of its launches failed."""
    effects = [contest.effect for contest in contests if contest.effect is not None and not contest.failures]
    return effects if len(effects) == len(contests) else []


def _record_confirmation(
    contests: Sequence[Contest],
    judgements: Sequence[Judgement],
    decision: str,
    evaluator: Evaluator,
    options: SearchOptions,
) -> None:
    """Record the confirmation of a candidate, a line for each size; `judgements`: empty if a launch failed."""
    if not judgements:
        for contest in contests:
            contest.record_decision(evaluator, CONFIRM, decision, Verdict.FAILED.value)
        return
    effects = [judgement.effect for judgement in judgements]
    alone = judge_effects(effects, threshold=options.threshold, alpha=options.alpha)
    for contest, judgement, own in zip(contests, judgements, alone, strict=True):
        below = own.interval is not None and own.interval[1] < math.log1p(options.threshold)
        none = judgement.verdict is Verdict.INCONCLUSIVE and below
        reason = f"{NO_GAIN}{options.threshold:.1%}" if none else judgement.verdict.value
        contest.record_decision(evaluator, CONFIRM, decision, reason, (own if none else judgement).interval)

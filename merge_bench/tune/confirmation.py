"""The confirmation: fresh launches of the baseline and of the config that was found, at every size of the problem.

One config must serve all sizes: a gain at one size does not make up for a loss at another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from merge_bench.analysis.statistics.effect import Effect
from merge_bench.analysis.statistics.power import least_launches
from merge_bench.analysis.statistics.verdict import Judgement, Verdict, judge
from merge_bench.tune.evaluator import ABLATE, CONFIRM, NO_GAIN, UNDECIDED, BudgetSpent, Candidate, Evaluator, Options
from merge_bench.tune.head_to_head import Bar, Contest, State, decide, reason_of

MOST = 3
"""Candidates that are confirmed together, at most: each one more makes the verdicts of all stricter."""


def settle(best: Candidate, evaluator: Evaluator, options: Options, others: Sequence[Candidate] = ()) -> Candidate:
    """The confirmed candidate, of `best` and `others`; the empty candidate if nothing is confirmed.

    If `best` is slower at a size, and no other is confirmed, each of its values is removed there in turn, and the rest
    gets one more confirmation. Those launches are part of the search, so they are not made once the budget is spent.
    """
    if not best.values:
        return best
    winner, slower = confirm([best, *others], evaluator, options)
    if winner is not None:
        return winner
    try:
        repaired = _repair(best, slower, evaluator, options)
    except BudgetSpent:
        return Candidate()
    if repaired == best:
        return Candidate()
    return confirm([repaired], evaluator, options)[0] or Candidate()


def _note_broken_off(contests: Sequence[Contest], evaluator: Evaluator, options: Options) -> None:
    for contest in contests:
        if contest.ratios:
            reason = reason_of(State.OPEN, contest, Bar(options.threshold), ", too few for a verdict")
            contest.note(evaluator, CONFIRM, UNDECIDED, reason)


def least_blocks(options: Options, sizes: int) -> int:
    """How many blocks a verdict needs at each of so many sizes."""
    return least_launches(alpha=options.alpha / sizes, paired=True)


def most_together(options: Options, sizes: int) -> int:
    """How many candidates can share a confirmation, so that its blocks suffice for a verdict about each."""
    fitting = (count for count in range(MOST, 1, -1) if least_blocks(options, count * sizes) <= options.confirm)
    return next(fitting, 1)


def _gains_nothing(judgement: Judgement, options: Options) -> bool:
    """Whether a comparison shows at least that there is no gain that counts."""
    return judgement.interval is not None and judgement.interval[1] < math.log1p(options.threshold)


def _repair(best: Candidate, slower: Sequence[int], evaluator: Evaluator, options: Options) -> Candidate:
    """`best` without the values that lose at the sizes `slower`; at least one value stays."""
    repaired, bar = best, Bar(options.threshold)
    for plan in slower:
        for value in best.values:
            if value not in repaired.values or len(repaired.values) < 2:
                continue
            contest = Contest(repaired.without(value), repaired, plan=plan)
            state = decide(evaluator, contest, options, bar)
            reason = reason_of(state, contest, bar)
            if state is State.GAIN:
                contest.note(evaluator, ABLATE, "dropped", f"{reason} without this setting")
                repaired = contest.candidate
            else:
                contest.note(evaluator, ABLATE, "kept", reason)
    return repaired


def confirm(
    candidates: Sequence[Candidate], evaluator: Evaluator, options: Options
) -> tuple[Candidate | None, list[int]]:
    """The fastest of those that are faster at one size at least and slower at none, None if none is.

    Also gives the sizes at which the first candidate is slower. Every size gets `options.confirm` blocks of its own, in
    turn; fewer if the budget ends, but as many as a verdict needs. None of them was seen by the search, because the
    winner of a search looks better than it is. All candidates share the launches of the baseline, and with all sizes
    they are one family of verdicts. One that is INCONCLUSIVE, but whose own interval ends below the threshold, is
    recorded as `NO_GAIN`: nobody would take a setting for less. Raises BudgetSpent if the budget ends before each size
    has as many blocks as a verdict needs.
    """
    sizes, family = evaluator.plans, evaluator.plans * len(candidates)
    contests = {each: [Contest(each, Candidate(), plan=plan) for plan in range(sizes)] for each in candidates}
    for block, plan in itertools.product(range(options.confirm), range(sizes)):
        try:
            against, *samples = evaluator.block([Candidate(), *candidates], plan=plan, search=False)
        except BudgetSpent:
            if block < least_blocks(options, family):
                _note_broken_off([each for found in contests.values() for each in found], evaluator, options)
                raise
            break
        for candidate, sample in zip(candidates, samples, strict=True):
            contests[candidate][plan].add(sample, against)
    effects = {each: _effects(found) for each, found in contests.items()}
    judged = iter(
        judge(
            [one for each in effects.values() for one in each],
            threshold=options.threshold,
            alpha=options.alpha,
            family=family,
        )
    )
    judgements = {each: [next(judged) for _ in effects[each]] for each in candidates}
    accepted = [each for each in candidates if _accepted(judgements[each])]
    accepted.sort(key=lambda each: math.fsum(effect.estimate for effect in effects[each]))
    for candidate in [*(each for each in candidates if each not in accepted), *accepted]:  # the winner is the last
        decision = "accepted" if candidate in accepted else "rejected"
        _note(contests[candidate], judgements[candidate], decision, evaluator, options)
    slower = [plan for plan, each in enumerate(judgements[candidates[0]]) if each.verdict is Verdict.SLOWER]
    return accepted[-1] if accepted else None, slower


def _effects(contests: Sequence[Contest]) -> list[Effect]:
    """The effect at each size; none if a launch of the candidate failed."""
    effects = [contest.effect for contest in contests if not contest.failures]
    whole = [effect for effect in effects if effect is not None]
    return whole if len(whole) == len(contests) else []


def _accepted(judgements: Sequence[Judgement]) -> bool:
    verdicts = {judgement.verdict for judgement in judgements}
    return Verdict.FASTER in verdicts and Verdict.SLOWER not in verdicts


def _note(
    contests: Sequence[Contest], judgements: Sequence[Judgement], decision: str, evaluator: Evaluator, options: Options
) -> None:
    """Record a candidate's confirmation, a line for each size; `judgements`: none if it failed."""
    if not judgements:
        for contest in contests:
            contest.note(evaluator, CONFIRM, decision, Verdict.FAILED.value)
        return
    effects = [judgement.effect for judgement in judgements]
    alone = judge(effects, threshold=options.threshold, alpha=options.alpha)
    for contest, judgement, own in zip(contests, judgements, alone, strict=True):
        none = judgement.verdict is Verdict.INCONCLUSIVE and _gains_nothing(own, options)
        reason = f"{NO_GAIN}{options.threshold:.1%}" if none else judgement.verdict.value
        contest.note(evaluator, CONFIRM, decision, reason, (own if none else judgement).interval)

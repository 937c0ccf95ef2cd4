"""The confirmation: fresh launches of the baseline and of the config that was found, at every size of the problem.

One config must serve all sizes: a gain at one size does not make up for a loss at another.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from merge_bench.analysis.statistics.power import least_launches
from merge_bench.analysis.statistics.verdict import Judgement, Verdict, judge
from merge_bench.tune.evaluator import ABLATE, CONFIRM, NO_GAIN, UNDECIDED, BudgetSpent, Candidate, Evaluator, Options
from merge_bench.tune.head_to_head import Bar, Contest, State, decide, reason_of


def settle(found: Candidate, evaluator: Evaluator, options: Options) -> Candidate:
    """The confirmed part of `found`; the empty candidate if nothing is confirmed.

    If `found` is slower at a size, each value is removed there in turn, and the rest gets one more confirmation. Those
    launches are part of the search, so they are not made once the budget is spent.
    """
    if not found.values:
        return found
    slower = confirm(found, evaluator, options)
    if slower is None:
        return found
    try:
        repaired = _repair(found, slower, evaluator, options)
    except BudgetSpent:
        return Candidate()
    if repaired == found or confirm(repaired, evaluator, options) is not None:
        return Candidate()
    return repaired


def _note_broken_off(contests: Sequence[Contest], evaluator: Evaluator) -> None:
    """Record what a confirmation shows that has too few blocks for a verdict."""
    for contest in contests:
        if contest.ratios:
            contest.note(
                evaluator, CONFIRM, UNDECIDED, reason_of(State.OPEN, contest, Bar(0.0), ", too few for a verdict")
            )


def least_blocks(options: Options, sizes: int) -> int:
    """How many blocks a verdict needs at each of so many sizes."""
    return least_launches(alpha=options.alpha / sizes, paired=True)


def _gains_nothing(judgement: Judgement | None, options: Options) -> bool:
    """Whether a comparison without a verdict shows at least that there is no gain that counts."""
    if judgement is None or judgement.verdict is not Verdict.INCONCLUSIVE or judgement.interval is None:
        return False
    return judgement.interval[1] < math.log1p(options.threshold)


def _repair(found: Candidate, slower: Sequence[int], evaluator: Evaluator, options: Options) -> Candidate:
    """`found` without the values that lose at the sizes `slower`; at least one value stays."""
    repaired, bar = found, Bar(options.threshold)
    for plan in slower:
        for value in found.values:
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


def confirm(found: Candidate, evaluator: Evaluator, options: Options) -> list[int] | None:
    """None if `found` is faster at one size at least and slower at none; else the sizes at which it is slower.

    Every size gets `options.confirm` blocks of its own, in turn; fewer if the budget ends, but as many as a verdict
    needs. None of them was seen by the search, because the winner of a search looks better than it is. The sizes are
    one family of verdicts. One that is INCONCLUSIVE, but whose interval ends below the threshold, is recorded as
    `NO_GAIN`: nobody would take a setting for less.

    Raises
    ------
    BudgetSpent
        If the budget ends before each size has as many blocks as a verdict needs.
    """
    contests = [Contest(found, Candidate(), plan=plan) for plan in range(evaluator.plans)]
    for made, contest in itertools.product(range(options.confirm), contests):
        try:
            against, candidate = evaluator.block([Candidate(), found], plan=contest.plan, search=False)
        except BudgetSpent:
            if made < least_blocks(options, len(contests)):
                _note_broken_off(contests, evaluator)
                raise
            break
        contest.add(candidate, against)
    whole = [contest.effect for contest in contests if contest.effect is not None and not contest.failures]
    judgements: list[Judgement | None] = [None] * len(contests)
    if len(whole) == len(contests):
        judgements = list(judge(whole, threshold=options.threshold, alpha=options.alpha))
    verdicts = [judgement.verdict if judgement else Verdict.FAILED for judgement in judgements]
    accepted = Verdict.FASTER in verdicts and not {Verdict.SLOWER, Verdict.FAILED} & set(verdicts)
    decision = "accepted" if accepted else "rejected"
    for contest, judgement, verdict in zip(contests, judgements, verdicts, strict=True):
        reason = f"{NO_GAIN}{options.threshold:.1%}" if _gains_nothing(judgement, options) else verdict.value
        contest.note(evaluator, CONFIRM, decision, reason, judgement.interval if judgement else None)
    return None if accepted else [plan for plan, verdict in enumerate(verdicts) if verdict is Verdict.SLOWER]

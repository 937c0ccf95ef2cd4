"""The confirmation: fresh launches of the baseline and of what was found, at every size of the problem.

One config must serve all sizes, as in 2022: so a gain at one does not pay for a loss at another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from merge_bench.analysis.statistics.verdict import Judgement, Verdict, judge
from merge_bench.tune.bench import Bench, BudgetSpent, Candidate, Options
from merge_bench.tune.duel import Bar, Duel, State, fight, shown

CONFIRM = "confirm"


def settle(found: Candidate, bench: Bench, options: Options) -> Candidate:
    """What is confirmed of `found`; the empty candidate where nothing is.

    Where it is slower at a size that the search did not look at, each value is taken out there, and what is left after
    that gets one more confirmation. That is searching, too: with the budget spent it is not done.
    """
    if not found.values:
        return found
    slower = confirm(found, bench, options)
    if slower is None:
        return found
    try:
        repaired = _repair(found, slower, bench, options)
    except BudgetSpent:
        return Candidate()
    if repaired == found or confirm(repaired, bench, options) is not None:
        return Candidate()
    return repaired


def _repair(found: Candidate, slower: Sequence[int], bench: Bench, options: Options) -> Candidate:
    """`found` without the values that cost something at the sizes `slower`; one at least stays."""
    repaired, bar = found, Bar(options.threshold)
    for plan in slower:
        for value in found.values:
            if value not in repaired.values or len(repaired.values) < 2:
                continue
            duel = Duel(repaired.without(value), repaired)
            state = fight(bench, duel, options, bar, plan=plan)
            better = state is State.GAIN
            reason = shown(state, duel, bar) + " without it" * better
            decision = "dropped" if better else "kept"
            bench.note(duel.line(bench, "ablate", decision, reason, plan=plan, setting=value.id))
            if better:
                repaired = duel.candidate
    return repaired


def confirm(found: Candidate, bench: Bench, options: Options) -> list[int] | None:
    """None if `found` is faster at one size at least and slower at none; else the sizes at which it is slower.

    Every size gets `options.confirm` blocks of its own, none of them seen while searching (the winner's curse), and all
    sizes are one family of verdicts.
    """
    duels = []
    for plan in range(bench.plans):
        duel = Duel(found, Candidate())
        for _ in range(options.confirm):
            against, candidate = bench.block([Candidate(), found], plan=plan, search=False)
            duel.add(candidate, against)
        duels.append(duel)
    whole = [duel.effect for duel in duels if duel.effect is not None and not duel.failures]
    if len(whole) < len(duels):
        verdicts: list[Judgement | None] = [None] * len(duels)
    else:
        verdicts = list(judge(whole, threshold=options.threshold, alpha=options.alpha))
    words = [judgement.verdict if judgement else Verdict.FAILED for judgement in verdicts]
    accepted = Verdict.FASTER in words and not {Verdict.SLOWER, Verdict.FAILED} & set(words)
    for plan, (duel, judgement, word) in enumerate(zip(duels, verdicts, words, strict=True)):
        line = duel.line(
            bench, CONFIRM, "accepted" if accepted else "rejected", word.value, plan=plan, setting=None
        )  # fmt: skip
        if judgement is not None and judgement.interval is not None:
            low, high = judgement.interval
            line = msgspec.structs.replace(line, low=math.exp(low), high=math.exp(high))
        bench.note(line)
    return None if accepted else [plan for plan, word in enumerate(words) if word is Verdict.SLOWER]

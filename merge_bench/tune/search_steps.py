"""The steps that strategies are made of: screening, forward combination, backward ablation."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from merge_bench.tune.confirmation import most_together
from merge_bench.tune.evaluator import (
    ABLATE,
    COMBINE,
    NOISE,
    SCREEN,
    UNDECIDED,
    BudgetSpent,
    Candidate,
    Evaluator,
    Options,
    Sample,
)
from merge_bench.tune.head_to_head import Bar, Contest, State, bar_of, decide, from_blocks, ranked, reason_of
from merge_bench.tune.space import Space, Value

DECISIONS = {State.FAILED: "failed", State.OPEN: UNDECIDED, State.GAIN: "kept"}
"""The decision about a candidate that was compared with the baseline; all others are dropped."""


def screen(values: Sequence[Value], evaluator: Evaluator, options: Options) -> tuple[list[Contest], Bar]:
    """The values that gain alone, the strongest first, and the bar that the noise sets.

    Every value alone runs against the baseline, block by block, beside the baseline's twin. A value leaves as soon as
    it is clear whether it gains (a race, after Birattari et al., "A racing algorithm for configuring metaheuristics",
    2002). Those that cannot be judged yet come first; where there is a budget, then those whose estimate is a gain, and
    if it has no time for a block of all of them, those with the best estimates. Time for a confirmation is left as
    long as there is something to confirm, and for one of several candidates once each can be judged.
    """
    twin = Contest(Candidate(twin=True), Candidate())
    for again, own in evaluator.timed:
        twin.add(again, own)
    alive = [Contest(Candidate.of(value), Candidate()) for value in values]
    blocks: Counter[Candidate] = Counter()
    winners: list[Contest] = []
    seem_faster = 0  # of those that stay undecided after all their blocks
    while True:
        pending = sum(max(options.least - blocks[contest.candidate], 0) for contest in alive)
        alive += [Contest(Candidate.of(value), Candidate()) for value in evaluator.joining(pending)]
        if not alive:
            break
        early = [contest for contest in alive if blocks[contest.candidate] < options.least]
        promising = [contest for contest in alive if contest.promises(options.least)]
        most = 1 if early else most_together(options, evaluator.plans)
        keep = min(len(winners) + seem_faster + len(promising), most)
        keeps = (keep,) if keep else (1, 0) if early else (0,)
        try:
            chosen = _race_block(evaluator, early or (promising if evaluator.limited else ()) or alive, twin, keeps)
        except BudgetSpent:
            _note_undecided(evaluator, alive, twin, options)
            raise
        bar = bar_of(twin, options.threshold)
        for contest in chosen:
            blocks[contest.candidate] += 1
            state = contest.state(bar, least=options.least)
            if state is State.OPEN and blocks[contest.candidate] < options.most:
                continue
            alive.remove(contest)
            if state is State.GAIN:
                winners.append(contest)
            seem_faster += state is State.OPEN and contest.promises(options.least)
            contest.note(evaluator, SCREEN, DECISIONS.get(state, "dropped"), reason_of(state, contest, bar))
    return ranked(winners), _note_noise(evaluator, twin, options)


def _race_block(evaluator: Evaluator, alive: Sequence[Contest], twin: Contest, keeps: Sequence[int]) -> list[Contest]:
    """A block of as many of `alive` as the budget has time for, the best first; gives them.

    `keeps`: for how many confirmations time is left; what does not fit with the first of them is tried with the next.
    Raises BudgetSpent if there is no time for even one.
    """
    spent = BudgetSpent("nothing is left to be judged")
    for keep, count in itertools.product(keeps, range(len(alive), 0, -1)):
        best = ranked(alive)[:count]
        chosen = [contest for contest in alive if contest in best]
        try:
            samples = evaluator.block(
                [Candidate(), twin.candidate, *(contest.candidate for contest in chosen)], keep=keep
            )
        except BudgetSpent as problem:
            spent = problem
            continue
        twin.add(samples[1], samples[0])
        for contest, sample in zip(chosen, samples[2:], strict=True):
            contest.add(sample, samples[0])
        return chosen
    raise spent


def _note_noise(evaluator: Evaluator, twin: Contest, options: Options) -> Bar:
    bar = bar_of(twin, options.threshold)
    difference = f"the baseline differs from itself by {bar.floor:.1%}"
    limit = "the noise" if bar.floor > bar.threshold else "the threshold"
    reason = f"{difference}; a gain must exceed {limit} of {bar.height:.1%}"
    twin.note(evaluator, SCREEN, NOISE, reason)
    return bar


def _note_undecided(evaluator: Evaluator, alive: Sequence[Contest], twin: Contest, options: Options) -> None:
    """Record what the blocks show of values that are not decided when the budget ends, as far as they show anything."""
    if not any(contest.ratios for contest in alive):
        return
    bar = bar_of(twin, options.threshold)
    for contest in alive:
        contest.note(evaluator, SCREEN, UNDECIDED, reason_of(State.OPEN, contest, bar, ", when its time was up"))
    _note_noise(evaluator, twin, options)


def combine(
    space: Space, winners: Sequence[Contest], evaluator: Evaluator, options: Options, bar: Bar
) -> list[Contest]:
    """Add one winner after the other; each stays only if the combination with it gains over the one without.

    With a budget, time is left to confirm the winners alone.

    Returns the contests that added a value, in their order; that of the strongest is its own against the baseline.
    """
    added, keep = list(winners[:1]), min(len(winners), most_together(options, evaluator.plans))
    for winner in added:
        winner.note(evaluator, COMBINE, "kept", "the largest gain alone; the combination starts with this setting")
    for winner in winners[1:]:
        (value,) = winner.candidate.values
        current = added[-1].candidate
        contest = Contest(current.with_value(value), current)
        clash = space.conflict(value, current.values)
        if clash:
            contest.note(evaluator, COMBINE, "dropped", f"cannot be combined with {clash}, which gains more")
            continue
        state = decide(evaluator, contest, options, bar, keep=keep)
        reason = reason_of(state, contest, bar)
        if state is State.LOSS:
            reason += "; the setting gains alone but loses in the combination"
        if state is State.GAIN:
            added.append(contest)
        contest.note(evaluator, COMBINE, "kept" if state is State.GAIN else "dropped", reason)
    return added


def ablate(added: Sequence[Contest], evaluator: Evaluator, options: Options, bar: Bar) -> Candidate:
    """Remove each value again, the one that was `added` last first; a value that adds nothing stays out.

    Earlier blocks of the same two configs count beside `options.least` new ones. After a value is removed all others
    are tested again, so that the last line of each is about the config that is left.
    """
    if not added:
        return Candidate()
    current, contests = added[-1].candidate, {(contest.candidate, contest.against): contest for contest in added}
    order = [
        value
        for contest in reversed(added)
        for value in contest.candidate.values
        if value not in contest.against.values
    ]
    waiting = list(order)
    while waiting and len(current.values) > 1:
        pair = (current, current.without(waiting.pop(0)))
        contest = contests.setdefault(pair, Contest(*pair))
        state = decide(evaluator, contest, replace(options, least=len(contest.ratios) + options.least), bar)
        reason = reason_of(state, contest, bar)
        if state is State.GAIN:
            contest.note(evaluator, ABLATE, "kept", f"{reason} with this setting")
        else:
            contest.note(evaluator, ABLATE, "dropped", f"{reason}; the setting is removed")
            current = contest.against
            waiting = [each for each in order if each in current.values]
    return current


def without_useless(
    best: Candidate, blocks: Sequence[Mapping[Candidate, Sample]], evaluator: Evaluator, options: Options
) -> Candidate:
    """`best` without the values that add nothing, those with the smallest effect first, from the given launches."""
    bar = Bar(options.threshold)
    while len(best.values) > 1:
        contests = [from_blocks(blocks, best, best.without(value)) for value in best.values]
        idle = [each for each in contests if each.state(bar, least=options.least) is not State.GAIN]
        if not idle:
            for contest in contests:
                contest.note(evaluator, ABLATE, "kept", f"{reason_of(State.GAIN, contest, bar)} with this setting")
            break
        least = ranked(idle)[-1]
        least.note(evaluator, ABLATE, "dropped", "no gain from this setting")
        best = least.against
    return best

"""The steps that strategies are made of: screening, forward combination, backward ablation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from merge_bench.tune.evaluator import (
    ABLATE,
    COMBINE,
    NOISE,
    SCREEN,
    BudgetSpent,
    Candidate,
    Evaluator,
    Options,
    Sample,
)
from merge_bench.tune.head_to_head import Bar, Contest, State, bar_of, decide, from_blocks, ranked, reason_of
from merge_bench.tune.space import Space, Value


def screen(values: Sequence[Value], evaluator: Evaluator, options: Options) -> tuple[list[Contest], Bar]:
    """The values that gain alone, the strongest first, and the bar that the noise sets.

    Every value alone runs against the baseline, block by block, beside the baseline's twin. A value leaves as soon as
    it is clear whether it gains (a race, after Birattari et al., "A racing algorithm for configuring metaheuristics",
    2002).
    """
    baseline, twin = Candidate(), Contest(Candidate(twin=True), Candidate())
    alive = [Contest(Candidate.of(value), baseline) for value in values]
    winners: list[Contest] = []
    for block in range(options.most):
        if not alive:
            break
        try:
            samples = evaluator.block([baseline, twin.candidate, *(contest.candidate for contest in alive)])
        except BudgetSpent:
            _note_undecided(evaluator, alive, twin, options)
            raise
        twin.add(samples[1], samples[0])
        for contest, sample in zip(alive, samples[2:], strict=True):
            contest.add(sample, samples[0])
        bar = bar_of(twin, options.threshold)
        for contest in list(alive):
            state = contest.state(bar, least=options.least)
            if state is State.OPEN and block < options.most - 1:
                continue
            alive.remove(contest)
            if state is State.GAIN:
                winners.append(contest)
            decision = {State.GAIN: "kept", State.FAILED: "failed"}.get(state, "dropped")
            contest.note(evaluator, SCREEN, decision, reason_of(state, contest, bar))
    return ranked(winners), _note_noise(evaluator, twin, options)


def _note_noise(evaluator: Evaluator, twin: Contest, options: Options) -> Bar:
    """Record the baseline compared with itself, and give the bar that it sets."""
    bar = bar_of(twin, options.threshold)
    reason = f"the baseline compared with itself; a gain must exceed {max(bar.floor, bar.threshold):.1%}"
    twin.note(evaluator, SCREEN, NOISE, reason)
    return bar


def _note_undecided(evaluator: Evaluator, alive: Sequence[Contest], twin: Contest, options: Options) -> None:
    """Record what the blocks show of values that are not decided when the budget ends, as far as they show anything."""
    if not any(contest.ratios for contest in alive):
        return
    bar = bar_of(twin, options.threshold)
    for contest in alive:
        contest.note(evaluator, SCREEN, "dropped", reason_of(State.OPEN, contest, bar))
    _note_noise(evaluator, twin, options)


def combine(
    space: Space, winners: Sequence[Contest], evaluator: Evaluator, options: Options, bar: Bar
) -> list[Contest]:
    """Add one winner after the other; each stays only if the combination with it gains over the one without.

    Returns the contests that added a value, in their order; that of the strongest is its own against the baseline.
    """
    added = list(winners[:1])
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
        state = decide(evaluator, contest, options, bar)
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
    current, known = added[-1].candidate, {(contest.candidate, contest.against): contest for contest in added}
    order = [
        value
        for contest in reversed(added)
        for value in contest.candidate.values
        if value not in contest.against.values
    ]
    waiting = list(order)
    while waiting and len(current.values) > 1:
        pair = (current, current.without(waiting.pop(0)))
        contest = known.setdefault(pair, Contest(*pair))
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

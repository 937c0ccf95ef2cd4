"""The steps that strategies are made of: screening, forward combination, backward ablation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from merge_bench.tune.bench import Bench, Candidate, Options, Sample
from merge_bench.tune.duel import Bar, Duel, State, bar_of, fight, held, ranked, shown
from merge_bench.tune.space import Space, Value

SCREEN, COMBINE, ABLATE = "screen", "combine", "ablate"


def screen(values: Sequence[Value], bench: Bench, options: Options) -> tuple[list[Duel], Bar]:
    """The values that gain alone, the strongest first, and the bar that the noise sets.

    Every value alone runs against the baseline, block by block, beside the baseline's twin. A value that cannot gain
    any more is out at once, one that certainly does goes on (a race, after Birattari et al., "A racing algorithm for
    configuring metaheuristics", 2002).
    """
    baseline, twin = Candidate(), Duel(Candidate(twin=True), Candidate())
    alive = [Duel(Candidate.of(value), baseline) for value in values]
    winners: list[Duel] = []
    for block in range(options.most):
        if not alive:
            break
        samples = bench.block([baseline, twin.candidate, *(duel.candidate for duel in alive)])
        twin.add(samples[1], samples[0])
        for duel, sample in zip(alive, samples[2:], strict=True):
            duel.add(sample, samples[0])
        bar = bar_of(twin, options.threshold)
        last = block == options.most - 1
        for duel in list(alive):
            state = duel.state(bar, least=options.least)
            if state is State.OPEN and not last:
                continue
            alive.remove(duel)
            won = state is State.GAIN
            if won:
                winners.append(duel)
            decision = "kept" if won else "failed" if state is State.FAILED else "dropped"
            setting = duel.candidate.values[0].id
            bench.note(duel.line(bench, SCREEN, decision, shown(state, duel, bar), plan=0, setting=setting))
    bar = bar_of(twin, options.threshold)
    said = f"the baseline against itself: a gain has to be above {max(bar.floor, bar.threshold):.1%}"
    bench.note(twin.line(bench, SCREEN, "kept", said, plan=0, setting=None))
    return ranked(winners), bar


def combine(space: Space, winners: Sequence[Duel], bench: Bench, options: Options, bar: Bar) -> list[Duel]:
    """Winners one after the other, each kept only if the combination with it gains over the one without.

    The comparisons that added a value, in their order; that of the strongest was made when it ran alone.
    """
    added = list(winners[:1])
    for winner in added:
        reason = "the strongest alone, with which the combination begins"
        setting = winner.candidate.values[0].id
        bench.note(winner.line(bench, COMBINE, "kept", reason, plan=0, setting=setting))
    for winner in winners[1:]:
        (value,) = winner.candidate.values
        current = added[-1].candidate
        duel = Duel(current.with_value(value), current)
        clash = space.conflict(value, current.values)
        if clash:
            reason = f"cannot be combined with {clash}, which gains more"
            bench.note(duel.line(bench, COMBINE, "dropped", reason, plan=0, setting=value.id))
            continue
        state = fight(bench, duel, options, bar)
        reason = shown(state, duel, bar)
        if state is State.LOSS:
            reason += ": it helps alone and hurts together"
        kept = state is State.GAIN
        bench.note(duel.line(bench, COMBINE, "kept" if kept else "dropped", reason, plan=0, setting=value.id))
        if kept:
            added.append(duel)
    return added


def ablate(added: Sequence[Duel], bench: Bench, options: Options, bar: Bar) -> Candidate:
    """Each value taken out again, the one that was `added` last first; whatever is not missed stays out.

    Blocks of the same two configs that were made before count, beside `options.least` new ones. After a value is out
    the others are asked again, so that the last line of each is about the config that is left.
    """
    if not added:
        return Candidate()
    current, known = added[-1].candidate, {(duel.candidate, duel.against): duel for duel in added}
    order = [value for duel in reversed(added) for value in duel.candidate.values if value not in duel.against.values]
    waiting = list(order)
    while waiting and len(current.values) > 1:
        value = waiting.pop(0)
        pair = (current, current.without(value))
        duel = known.setdefault(pair, Duel(*pair))
        state = fight(bench, duel, replace(options, least=len(duel.ratios) + options.least), bar)
        kept = state is State.GAIN
        reason = shown(state, duel, bar) + (" with it" if kept else ": it is not missed")
        bench.note(duel.line(bench, ABLATE, "kept" if kept else "dropped", reason, plan=0, setting=value.id))
        if not kept:
            current = duel.against
            waiting = [each for each in order if each in current.values]
    return current


def without_idle(
    best: Candidate, blocks: Sequence[Mapping[Candidate, Sample]], bench: Bench, options: Options
) -> Candidate:
    """`best` without the values that it does not miss, the most idle first, by the launches that are there."""
    bar = Bar(options.threshold)
    while len(best.values) > 1:
        duels = {value: held(blocks, best, best.without(value)) for value in best.values}
        states = {value: duel.state(bar, least=options.least) for value, duel in duels.items()}
        idle = [value for value, state in states.items() if state is not State.GAIN]
        if not idle:
            for value, duel in duels.items():
                reason = shown(states[value], duel, bar) + " with it"
                bench.note(duel.line(bench, ABLATE, "kept", reason, plan=0, setting=value.id))
            break
        least = ranked([duels[value] for value in idle])[-1]
        (value,) = set(best.values) - set(least.against.values)
        bench.note(least.line(bench, ABLATE, "dropped", "it is not missed", plan=0, setting=value.id))
        best = least.against
    return best

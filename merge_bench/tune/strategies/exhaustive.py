"""Every combination of all values, in every block: for small spaces, and to record what other strategies replay."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from merge_bench.errors import UsageError
from merge_bench.tune.bench import Bench, Candidate, Options, Sample, Strategy
from merge_bench.tune.duel import Bar, Duel, State, ranked, shown
from merge_bench.tune.space import Space, Value
from merge_bench.tune.strategies.race import ABLATE, SCREEN

MOST = 256


@dataclass(frozen=True)
class Exhaustive:
    """See the module."""

    name: str = "exhaustive"

    def first_block(self, space: Space, values: Sequence[Value]) -> int:
        """Every combination."""
        return len(combinations(space, values))

    def tune(self, space: Space, values: Sequence[Value], bench: Bench, options: Options) -> Candidate:
        """The combination with the largest effect, without what it does not miss; the baseline where none gains."""
        candidates = combinations(space, values)
        blocks = [dict(zip(candidates, bench.block(candidates), strict=True)) for _ in range(options.most)]
        bar = Bar(options.threshold)
        gains = []
        for candidate in candidates[1:]:
            duel = _duel(blocks, candidate, candidates[0])
            state = duel.state(bar, least=options.least)
            gained = state is State.GAIN and not duel.failures
            if gained:
                gains.append(duel)
            decision = "failed" if state is State.FAILED else "kept" if gained else "dropped"
            setting = candidate.values[0].id if len(candidate.values) == 1 else None
            bench.note(duel.line(bench, SCREEN, decision, shown(state, duel, bar), plan=0, setting=setting))
        return _without_idle(ranked(gains)[0].candidate, blocks, bench, options) if gains else Candidate()


def _duel(blocks: Sequence[Mapping[Candidate, Sample]], candidate: Candidate, against: Candidate) -> Duel:
    duel = Duel(candidate, against)
    for samples in blocks:
        duel.add(samples[candidate], samples[against])
    return duel


def _without_idle(
    best: Candidate, blocks: Sequence[Mapping[Candidate, Sample]], bench: Bench, options: Options
) -> Candidate:
    """`best` without the values that it does not miss, the most idle first, by the launches that are there."""
    bar = Bar(options.threshold)
    while len(best.values) > 1:
        duels = {value: _duel(blocks, best, best.without(value)) for value in best.values}
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


def combinations(space: Space, values: Sequence[Value]) -> list[Candidate]:
    """The baseline first, then every set of values that can be combined.

    Raises
    ------
    UsageError
        If there are more than 256.
    """
    by_setting: dict[str, list[Value | None]] = {}
    for value in values:
        by_setting.setdefault(value.setting, [None]).append(value)
    found = []
    for chosen in itertools.product(*by_setting.values()):
        picked = [value for value in chosen if value is not None]
        if all(space.conflict(value, [other for other in picked if other is not value]) is None for value in picked):
            found.append(Candidate.of(*picked))
        if len(found) > MOST:
            raise UsageError(f"more than {MOST} combinations: name fewer settings with --only")
    return found


def make() -> Strategy:
    """The strategy."""
    return Exhaustive()

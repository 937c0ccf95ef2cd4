"""Every combination of all values, in every block: for small spaces, and to record what other strategies replay."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.errors import UsageError
from merge_bench.tune.bench import Bench, Candidate, Options, Strategy
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

        def duel_of(candidate: Candidate, against: Candidate) -> Duel:
            duel = Duel(candidate, against)
            for samples in blocks:
                duel.add(samples[candidate], samples[against])
            return duel

        duels = [duel_of(candidate, candidates[0]) for candidate in candidates[1:]]
        gains = []
        for duel in duels:
            state = duel.state(bar, least=options.least)
            if state is State.GAIN and not duel.failures:
                gains.append(duel)
            decision = "failed" if state is State.FAILED else "kept" if duel in gains else "dropped"
            setting = duel.candidate.values[0].id if len(duel.candidate.values) == 1 else None
            bench.note(duel.line(bench, SCREEN, decision, shown(state, duel, bar), plan=0, setting=setting))
        if not gains:
            return Candidate()
        current = ranked(gains)[0].candidate
        while len(current.values) > 1:
            parts = [(value, duel_of(current, current.without(value))) for value in current.values]
            states = [duel.state(bar, least=options.least) for _, duel in parts]
            idle = [part for part, state in zip(parts, states, strict=True) if state is not State.GAIN]
            if not idle:
                for value, duel in parts:
                    bench.note(
                        duel.line(bench, ABLATE, "kept", shown(State.GAIN, duel, bar), plan=0, setting=value.id)
                    )  # fmt: skip
                break
            value, duel = min(idle, key=lambda part: part[1].effect.estimate if part[1].effect else -math.inf)
            bench.note(duel.line(bench, ABLATE, "dropped", "it is not missed", plan=0, setting=value.id))
            current = duel.against
        return current


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

"""Every combination of all values, in every block: for small spaces, and to record what other strategies replay."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.errors import UsageError
from merge_bench.tune.bench import Bench, Candidate, Options, Strategy
from merge_bench.tune.duel import Duel, ranked
from merge_bench.tune.space import Space, Value

MOST = 256


@dataclass(frozen=True)
class Exhaustive:
    """See the module."""

    name: str = "exhaustive"

    def tune(self, space: Space, values: Sequence[Value], bench: Bench, options: Options) -> Candidate:
        """The combination with the largest effect; the baseline where none gains."""
        candidates = combinations(space, values)
        duels = [Duel(candidate, candidates[0]) for candidate in candidates]
        for _ in range(options.most):
            samples = bench.block(candidates)
            for duel, sample in zip(duels, samples, strict=True):
                duel.add(sample, samples[0])
        for duel in duels[1:]:
            bench.note(duel.line(bench, "screen", "kept", "one of all combinations", plan=0, setting=None))
        whole = [duel for duel in duels if not duel.failures and duel.effect]
        return ranked(whole)[0].candidate if whole else Candidate()


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

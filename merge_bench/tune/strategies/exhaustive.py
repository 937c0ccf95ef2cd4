"""Every combination of all values, in every block: for small spaces, and to record what other strategies replay."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from merge_bench.errors import UsageError

if TYPE_CHECKING:
    from merge_bench.tune.bench import Bench, Candidate, Options
    from merge_bench.tune.space import Space, Value

MOST = 256


class Exhaustive:
    """See the module."""

    name = "exhaustive"
    help = "Measure all combinations, 256 at most, in every block."
    place = 3

    def first_block(self, space: Space, values: Sequence[Value]) -> int:
        """Every combination."""
        return len(combinations(space, values))

    def tune(self, space: Space, values: Sequence[Value], bench: Bench, options: Options) -> Candidate:
        """The combination with the largest effect, without what it does not miss; the baseline where none gains."""
        from merge_bench.tune.bench import Candidate
        from merge_bench.tune.duel import Bar, State, held, ranked, shown
        from merge_bench.tune.steps import SCREEN, without_idle

        candidates = combinations(space, values)
        blocks = [dict(zip(candidates, bench.block(candidates), strict=True)) for _ in range(options.most)]
        bar = Bar(options.threshold)
        gains = []
        for candidate in candidates[1:]:
            duel = held(blocks, candidate, candidates[0])
            state = duel.state(bar, least=options.least)
            gained = state is State.GAIN and not duel.failures
            if gained:
                gains.append(duel)
            decision = "failed" if state is State.FAILED else "kept" if gained else "dropped"
            setting = candidate.values[0].id if len(candidate.values) == 1 else None
            bench.note(duel.line(bench, SCREEN, decision, shown(state, duel, bar), plan=0, setting=setting))
        return without_idle(ranked(gains)[0].candidate, blocks, bench, options) if gains else Candidate()


def combinations(space: Space, values: Sequence[Value]) -> list[Candidate]:
    """The baseline first, then every set of values that can be combined.

    Raises
    ------
    UsageError
        If there are more than 256.
    """
    from merge_bench.tune.bench import Candidate

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


STRATEGY = Exhaustive()

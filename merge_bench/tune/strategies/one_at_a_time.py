"""What the team of 2022 did by hand, with statistics: every value alone, then all winners together, untested apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from merge_bench.tune.bench import Bench, Candidate, Options, Strategy
from merge_bench.tune.space import Space, Value
from merge_bench.tune.strategies.race import screen


@dataclass(frozen=True)
class OneAtATime:
    """See the module."""

    name: str = "one-at-a-time"

    def first_block(self, space: Space, values: Sequence[Value]) -> int:
        """Baseline, twin, and every value."""
        return len(values) + 2

    def tune(self, space: Space, values: Sequence[Value], bench: Bench, options: Options) -> Candidate:
        """All values that gain alone, as far as they can be combined."""
        winners, _ = screen(values, bench, options)
        found = Candidate()
        for winner in winners:
            (value,) = winner.candidate.values
            if space.conflict(value, found.values) is None:
                found = found.with_value(value)
        return found


def make() -> Strategy:
    """The strategy."""
    return OneAtATime()

"""What the team of 2022 did by hand, with statistics: every value alone, then all winners together, untested apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merge_bench.tune.bench import Bench, Candidate, Options
    from merge_bench.tune.space import Space, Value


class OneAtATime:
    """See the module."""

    name = "one-at-a-time"
    help = "Race all values alone, and combine all winners without a further test."
    place = 2

    def first_block(self, space: Space, values: Sequence[Value]) -> int:
        """Baseline, twin, and every value."""
        return len(values) + 2

    def tune(self, space: Space, values: Sequence[Value], bench: Bench, options: Options) -> Candidate:
        """All values that gain alone, as far as they can be combined."""
        from merge_bench.tune.bench import Candidate
        from merge_bench.tune.steps import screen

        winners, _ = screen(values, bench, options)
        found = Candidate()
        for winner in winners:
            (value,) = winner.candidate.values
            if space.conflict(value, found.values) is None:
                found = found.with_value(value)
        return found


STRATEGY = OneAtATime()

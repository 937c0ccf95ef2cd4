"""Screening and race, forward combination, backward ablation.

Every value alone runs against the baseline, and leaves as soon as it is decided. Then the winners are combined, the
strongest first, and each stays only if the combination gains by it; at last each is taken out again, so that the config
holds nothing that it can do without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from merge_bench.tune.bench import Bench, Candidate, Options
    from merge_bench.tune.space import Space, Value


class Race:
    """See the module."""

    name = "race"
    help = "Race all values alone, combine the winners, and take out what is not missed."
    place = 1

    def first_block(self, space: Space, values: Sequence[Value]) -> int:
        """Baseline, twin, and every value."""
        return len(values) + 2

    def tune(self, space: Space, values: Sequence[Value], bench: Bench, options: Options) -> Candidate:
        """The smallest combination that is worth it."""
        from merge_bench.tune.steps import ablate, combine, screen

        winners, bar = screen(values, bench, options)
        return ablate(combine(space, winners, bench, options, bar), bench, options, bar)


STRATEGY = Race()

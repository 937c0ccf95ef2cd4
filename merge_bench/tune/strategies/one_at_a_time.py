"""What the team of 2022 did by hand, with statistics: every value alone, then all winners together, untested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from merge_bench.tune.strategies import SearchStrategy

if TYPE_CHECKING:
    from merge_bench.tune.evaluator import Candidate, Evaluator, SearchOptions
    from merge_bench.tune.space import SettingValue, TuningSpace


def tune(space: TuningSpace, values: Sequence[SettingValue], evaluator: Evaluator, options: SearchOptions) -> Candidate:
    """Measure each value alone; returns the combination of all values that gain, untested.

    A value is left out that cannot be combined with a stronger one.
    """
    from merge_bench.tune.evaluator import Candidate
    from merge_bench.tune.search_steps import screen_values

    winners, _ = screen_values(values, evaluator, options)
    combination = Candidate()
    for winner in winners:
        (value,) = winner.candidate.values
        if space.conflicting_value_id(value, combination.values) is None:
            combination = combination.with_value(value)
    return combination


STRATEGY = SearchStrategy(
    "one-at-a-time",
    help="Test each value alone against the baseline, then combine all winners without testing the combination.",
    place=2,
    tune=tune,
)

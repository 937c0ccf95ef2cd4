"""Screening and race, forward combination, backward ablation.

Every value alone runs against the baseline until it is decided. Then the winners are combined, the strongest first;
each stays only if the combination gains by it. Finally each is removed again, so that the config holds nothing that it
does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from merge_bench.tune.strategies import SearchStrategy

if TYPE_CHECKING:
    from merge_bench.tune.evaluator import Candidate, Evaluator, SearchOptions
    from merge_bench.tune.space import SettingValue, TuningSpace


def tune(space: TuningSpace, values: Sequence[SettingValue], evaluator: Evaluator, options: SearchOptions) -> Candidate:
    """Search by a race of single values, combination and ablation; returns the smallest config with the whole gain."""
    from merge_bench.tune.search_steps import combine_winners, remove_values_without_gain, screen_values

    winners, required_gain = screen_values(values, evaluator, options)
    return remove_values_without_gain(
        combine_winners(space, winners, evaluator, options, required_gain), evaluator, options, required_gain
    )


STRATEGY = SearchStrategy(
    "race",
    help="Test each value alone against the baseline, combine the winners, and remove those that add nothing.",
    place=1,
    tune=tune,
)

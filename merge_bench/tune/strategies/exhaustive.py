"""Every combination of all values, in every block: for small spaces, and to record what other strategies replay."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from merge_bench.errors import UsageError
from merge_bench.tune.strategies import SearchStrategy

if TYPE_CHECKING:
    from merge_bench.tune.evaluator import Candidate, Evaluator, SearchOptions
    from merge_bench.tune.space import SettingValue, TuningSpace

MOST = 256


def tune(space: TuningSpace, values: Sequence[SettingValue], evaluator: Evaluator, options: SearchOptions) -> Candidate:
    """Measure every combination of values; returns the fastest one without values that add nothing.

    Returns the empty candidate, which is the baseline, if none gains.
    """
    from merge_bench.tune.evaluator import Candidate
    from merge_bench.tune.search_steps import record_gains, remove_values_without_recorded_gain

    candidates = all_combinations(space, values)
    blocks = [
        dict(
            zip(
                candidates,
                evaluator.launch_block(candidates, reserved_confirmations=block >= options.least),
                strict=True,
            )
        )
        for block in range(options.most)
    ]
    gains = record_gains(blocks, evaluator, options)
    return remove_values_without_recorded_gain(gains[0].candidate, blocks, evaluator, options) if gains else Candidate()


def all_combinations(space: TuningSpace, values: Sequence[SettingValue]) -> list[Candidate]:
    """Return every combination of values: the baseline first, then every set of values that can be combined.

    Raises UsageError if there are more than 256.
    """
    from merge_bench.tune.evaluator import Candidate

    by_setting: dict[str, list[SettingValue | None]] = {}
    for value in values:
        by_setting.setdefault(value.setting, [None]).append(value)
    candidates = []
    for chosen in itertools.product(*by_setting.values()):
        picked = [value for value in chosen if value is not None]
        if all(
            space.conflicting_value_id(value, [other for other in picked if other is not value]) is None
            for value in picked
        ):
            candidates.append(Candidate.from_values(*picked))
        if len(candidates) > MOST:
            raise UsageError(f"the tuning space has more than {MOST} combinations; select fewer settings with --only")
    return candidates


STRATEGY = SearchStrategy(
    "exhaustive",
    help="Measure every combination in every block; at most 256 combinations.",
    place=3,
    tune=tune,
    first_block=lambda space, values: len(all_combinations(space, values)),
)
